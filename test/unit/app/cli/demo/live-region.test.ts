import type { WriteStream } from 'node:tty';
import { expect, test } from 'vitest';
import { createLiveRegion } from '../../../../../src/app/cli/demo/live-region.ts';

/** As much of a terminal as the region uses: rows, going up, clearing below. */
function fakeTerminal(height: number) {
  const screen: string[] = [''];
  let row = 0;
  const output = {
    columns: 80,
    rows: height,
    write(text: string) {
      for (const [part, up] of text.matchAll(/\u001b\[(\d+)A|\u001b\[J|\r|\n|[^\u001b\r\n]+/gu)) {
        if (up !== undefined) row -= Number(up);
        else if (part === '\u001b[J') screen.splice(row, screen.length, '');
        else if (part === '\n') {
          row += 1;
          screen[row] ??= '';
        } else if (part !== '\r') screen[row] += part;
      }
      return true;
    },
  };
  return { output: output as unknown as WriteStream, lines: () => screen.slice(0, -1) };
}
const noInput = { hide() {}, show() {} };

test('an answer that grows is shown once, in its newest form', () => {
  const terminal = fakeTerminal(24);
  const region = createLiveRegion(terminal.output, noInput);

  region.update(['oracle> Hel']);
  region.update(['oracle> Hello', 'world']);
  region.update(['oracle> Hello', 'there']);

  expect(terminal.lines()).toEqual(['oracle> Hello', 'there']);
});

test('rows that were settled stay', () => {
  const terminal = fakeTerminal(24);
  const region = createLiveRegion(terminal.output, noInput);
  region.update(['first']);
  region.settle();

  region.update(['second']);

  expect(terminal.lines()).toEqual(['first', 'second']);
});

test('rows that scrolled out of the screen are not written again', () => {
  const terminal = fakeTerminal(6);
  const region = createLiveRegion(terminal.output, noInput);
  const rows = Array.from({ length: 10 }, (_, index) => `row ${index}`);
  region.update(rows);

  region.update(rows.map((row) => `${row}!`));

  expect(terminal.lines()).toEqual([...rows.slice(0, 6), ...rows.slice(6).map((row) => `${row}!`)]);
});
