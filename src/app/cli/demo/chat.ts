/**
 * The chat in the terminal: lines go out signed and in order, answers grow above the line that is being typed. Ends with Ctrl-C or Ctrl-D;
 * when the lines come from a pipe, its end waits for the answers.
 */
import { createInterface, type Interface } from 'node:readline';
import { createDisplay } from './display.ts';
import type { InputLine } from './live-region.ts';
import { ANSWER_WITHIN_MS, type Person } from './person.ts';

export interface ChatOptions {
  readonly person: Person;
  readonly signal: AbortSignal;
  /** Of an error: one sentence for the person. */
  readonly describe: (error: unknown) => string;
}

const PROMPT = 'you> ';

export async function chat({ person, signal, describe }: ChatOptions): Promise<void> {
  const { stdin, stdout } = process;
  const terminal = stdin.isTTY === true && stdout.isTTY === true;
  const rl = createInterface({ input: stdin, terminal, prompt: PROMPT, ...(terminal ? { output: stdout } : {}) });
  const input = terminal ? createInputLine(rl) : undefined;
  const display = createDisplay(person, input ?? { hide() {}, show() {} });
  let sending: Promise<unknown> = Promise.resolve();

  const say = async (text: string) => {
    try {
      const { eventId } = await person.say(text);
      // Lines of a pipe are all there at once: each waits for the answer before it, as a person would.
      if (!terminal) await person.watch.waitForAnswerTo(eventId, ANSWER_WITHIN_MS);
    } catch (error) {
      input?.hide();
      process.stderr.write(`not answered: ${describe(error)}\n`);
      input?.show();
    }
  };
  rl.on('line', (line) => {
    const text = line.trim();
    if (text !== '') {
      display.settle();
      sending = sending.then(() => say(text));
    }
    input?.show();
  });
  input?.show();
  const closed = new Promise<'interrupted' | 'end'>((resolve) => {
    rl.once('SIGINT', () => resolve('interrupted'));
    rl.once('close', () => resolve('end'));
    signal.addEventListener('abort', () => resolve('interrupted'), { once: true });
    if (signal.aborted) resolve('interrupted');
  });
  try {
    const how = await closed;
    if (terminal) stdout.write('\n');
    if (how === 'interrupted' || terminal) return;
    await Promise.race([sending, new Promise<void>((resolve) => signal.addEventListener('abort', () => resolve(), { once: true }))]);
  } finally {
    display.close();
    rl.close();
    stdin.pause();
  }
}

function createInputLine(rl: Interface): InputLine {
  return {
    hide() {
      const { rows } = rl.getCursorPos();
      process.stdout.write(`\r${rows > 0 ? `\u001b[${rows}A` : ''}\u001b[J`);
      // Else readline would go up once more for the rows that are gone now.
      (rl as { prevRows?: number }).prevRows = 0;
    },
    show: () => rl.prompt(true),
  };
}
