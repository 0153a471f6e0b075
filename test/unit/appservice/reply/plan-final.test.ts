import { expect, test } from 'vitest';
import { planFinal, WITHDRAWN_TEXT } from '../../../../appservice/reply/plan-final.ts';
import type { ShownMessage } from '../../../../appservice/reply/read-shown.ts';
import type { OutboxTxnId } from '../../../../src/ids.ts';

const part = (number: number, text: string) => ({ part: number, raw: text, text, closed: false });
const message = (number: number, more: Partial<ShownMessage>): ShownMessage => ({
  part: number,
  originTxn: `answer.run.${number}` as OutboxTxnId,
  text: 'text',
  live: false,
  ended: false,
  edits: 0,
  waitingTxn: null,
  createdAt: 0,
  sentAt: 0,
  parked: false,
  ...more,
});
const plan = (texts: readonly string[], messages: readonly ShownMessage[]) =>
  planFinal(
    texts.map((text, index) => part(index + 1, text)),
    { nextSeq: 9, messages: new Map(messages.map((shown) => [shown.part, shown])) },
  ).map(({ part: number, text, message: shown }) => [number, text, shown === null ? 'new' : 'edit']);

test.each([
  ['a message that does not exist', [], ['text'], [[1, 'text', 'new']]],
  ['one that is right and says that the run ended', [message(1, { ended: true })], ['text'], []],
  ['the last one without the status of the end', [message(1, {})], ['text'], [[1, 'text', 'edit']]],
  ['an earlier one without it', [message(1, {}), message(2, { ended: true })], ['text', 'text'], []],
  ['an earlier one that is still live', [message(1, { live: true }), message(2, { ended: true })], ['text', 'text'], [[1, 'text', 'edit']]],
  ['one with another text', [message(1, { ended: true })], ['other'], [[1, 'other', 'edit']]],
  ['one that the homeserver refused', [message(1, { parked: true })], ['other'], []],
  ['one that lost its text', [message(1, { ended: true }), message(2, {})], ['text', ''], [[2, WITHDRAWN_TEXT, 'edit']]],
  ['one that was withdrawn already', [message(1, { text: WITHDRAWN_TEXT, ended: true })], [''], []],
] as const)('%s', (_name, messages, texts, expected) => {
  expect(plan(texts, messages)).toEqual(expected);
});
