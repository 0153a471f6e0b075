/**
 * The lower end of the terminal, rewritten as answers grow. Only rows that changed are written again, and never rows that have scrolled out of
 * the screen: a terminal cannot change those. What the person is typing stands below and stays as it is.
 */
import type { WriteStream } from 'node:tty';

export interface InputLine {
  /** Takes the half-typed line off the screen, the cursor at its beginning. */
  hide(): void;
  show(): void;
}
export interface LiveRegion {
  readonly width: number;
  update(rows: readonly string[]): void;
  /** What is drawn stays for good; the next update begins below it. */
  settle(): void;
}

export function createLiveRegion(output: WriteStream, input: InputLine): LiveRegion {
  let drawn: readonly string[] = [];
  return {
    get width() {
      // The last column stays free: terminals differ in what they do when it is filled.
      return output.columns - 1;
    },
    update(rows) {
      let same = 0;
      while (same < rows.length && same < drawn.length && rows[same] === drawn[same]) same += 1;
      if (same === rows.length && same === drawn.length) return;
      // One row for the input line, one for safety.
      const reachable = Math.max(0, drawn.length - (output.rows - 2));
      const from = Math.max(same, reachable);
      input.hide();
      const up = drawn.length - from;
      const body = rows.slice(from).map((row) => `${row}\n`);
      output.write(`${up > 0 ? `\u001b[${up}A` : ''}\r\u001b[J${body.join('')}`);
      input.show();
      // What was out of reach is shown as it was.
      drawn = [...drawn.slice(0, from), ...rows.slice(from)];
      if (rows.length < from) drawn = drawn.slice(0, from);
    },
    settle() {
      drawn = [];
    },
  };
}
