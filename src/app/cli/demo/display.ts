/**
 * Shows the room as it changes: in a terminal each answer grows with its edits, elsewhere (a pipe, a file) a message is printed once it is whole.
 * What the person typed in this terminal is there already; what they typed in another client is shown as theirs.
 */
import type { WriteStream } from 'node:tty';
import { createLiveRegion, type InputLine, type LiveRegion } from './live-region.ts';
import type { Person } from './person.ts';
import { buildRows, COLOURED, cleanForTerminal, PLAIN } from './region-rows.ts';

export interface Display {
  /** The person entered a line: what stands above stays. */
  settle(): void;
  close(): void;
}

export const NO_INPUT: InputLine = { hide() {}, show() {} };

export function createDisplay(person: Person, input: InputLine): Display {
  return process.stdout.isTTY ? createGrowingDisplay(person, process.stdout, input) : createPlainDisplay(person);
}

const messagesOf = ({ watch, saidHere }: Person) =>
  watch.messages().filter(({ versions: [first] }) => first === undefined || !saidHere({ unsigned: first.event.unsigned ?? {} }));

function createGrowingDisplay(person: Person, output: WriteStream, input: InputLine): Display {
  const region: LiveRegion = createLiveRegion(output, input);
  const settled = new Map<string, string>();
  const settle = () => {
    for (const { eventId, text } of messagesOf(person)) settled.set(eventId, text);
  };
  settle();
  const style = output.hasColors() ? COLOURED : PLAIN;
  const draw = () => {
    const messages = messagesOf(person);
    const rows = buildRows(messages, { me: person.userId, settled, width: region.width, style });
    const typing = person.watch.typing.at(-1)?.userIds.some((user) => user !== person.userId) ?? false;
    const growing = messages.some(({ live }) => live);
    region.update(typing && !growing ? [...rows, style.dim('oracle is typing …')] : rows);
  };
  const unsubscribe = person.watch.onChange(draw);
  return {
    settle() {
      draw();
      settle();
      region.settle();
    },
    close: () => void unsubscribe(),
  };
}

function createPlainDisplay(person: Person): Display {
  const printed = new Set(messagesOf(person).map(({ eventId }) => eventId));
  const print = () => {
    for (const { eventId, sender, text, live, redacted } of messagesOf(person)) {
      if (live || redacted || printed.has(eventId)) continue;
      printed.add(eventId);
      process.stdout.write(`${sender === person.userId ? 'you (elsewhere)' : 'oracle'}> ${cleanForTerminal(text)}\n`);
    }
  };
  const unsubscribe = person.watch.onChange(print);
  return { settle() {}, close: () => void unsubscribe() };
}
