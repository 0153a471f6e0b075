import { expect, test } from 'vitest';
import type { JsonObject } from '../../../src/json.ts';
import { createRoomLog } from '../../../synapse-dev/homeserver/room-watch.ts';
import type { MatrixEvent } from '../../../synapse-dev/homeserver/user-client.ts';

const ME = '@alice:oracle.local';
const ORACLE = '@oracle:oracle.local';
const room = () => createRoomLog({ roomId: '!room', me: ME, signal: new AbortController().signal });
const message = (id: string, body: string, more: { sender?: string; ts?: number; content?: JsonObject } = {}): MatrixEvent => ({
  event_id: id,
  type: 'm.room.message',
  sender: more.sender ?? ORACLE,
  origin_server_ts: more.ts ?? 1,
  content: { msgtype: 'm.text', body, ...more.content },
});
const edit = (id: string, target: string, body: string, more: { sender?: string; ts?: number; content?: JsonObject } = {}): MatrixEvent => {
  const relation = {
    'm.new_content': { msgtype: 'm.text', body, ...more.content },
    'm.relates_to': { rel_type: 'm.replace', event_id: target },
  };
  return message(id, `* ${body}`, { ...more, content: relation });
};
const run = (part: number, status: string): JsonObject => ({ 'ixo.oracle.run': { prompts: ['$prompt'], part, status } });

test('edits are versions of one message, in order of arrival', () => {
  const { watch, append } = room();

  append([message('$a', 'one')], 10);
  append([edit('$b', '$a', 'one two', { ts: 2 })], 20);

  const [answer, ...others] = watch.answers();
  expect(others).toEqual([]);
  expect(answer?.versions.map(({ text, at, eventId }) => [text, at, eventId])).toEqual([
    ['one', 10, '$a'],
    ['one two', 20, '$b'],
  ]);
});

test('the final version is the newest by the homeserver’s clock, on a tie the greater event id', () => {
  const { watch, append } = room();

  append(
    [message('$a', 'one'), edit('$z', '$a', 'late', { ts: 5 }), edit('$b', '$a', 'early', { ts: 4 }), edit('$c', '$a', 'tie', { ts: 5 })],
    1,
  );

  expect(watch.answers()[0]?.text).toBe('late');
});

test('the first edit counts even when its time is before that of the original', () => {
  const { watch, append } = room();

  append([message('$a', 'one', { ts: 9 }), edit('$b', '$a', 'two', { ts: 3 })], 1);

  expect(watch.answers()[0]?.text).toBe('two');
});

test('an edit that was read before its original counts as soon as that is there', () => {
  const { watch, append } = room();

  append([edit('$b', '$a', 'one two', { ts: 2 })], 1);
  const before = watch.messages();
  append([message('$a', 'one')], 2);

  expect(before).toEqual([]);
  expect(watch.answers().map(({ text }) => text)).toEqual(['one two']);
});

test('an edit by somebody else, of an edit, or redacted, changes nothing', () => {
  const { watch, append } = room();
  const redaction: MatrixEvent = { ...message('$r', ''), type: 'm.room.redaction', content: { redacts: '$d' } };

  append(
    [message('$a', 'one'), edit('$b', '$a', 'forged', { sender: ME }), edit('$c', '$b', 'chain'), edit('$d', '$a', 'gone'), redaction],
    1,
  );

  expect(watch.messages().map(({ text }) => text)).toEqual(['one']);
});

test('an event that comes twice is seen once', () => {
  const { watch, append } = room();

  append([message('$a', 'one')], 1);
  append([message('$a', 'one')], 2);

  expect(watch.events).toHaveLength(1);
});

test('an answer in parts is waited for to its last part, and given in order', async () => {
  const { watch, append } = room();
  const waiting = watch.waitForAnswerTo('$prompt', 5_000);

  append([message('$one', 'part one', { content: run(1, 'running') })], 1);
  append([message('$two', 'part', { content: { ...run(2, 'running'), 'org.matrix.msc4357.live': {} } })], 2);
  append([edit('$edit', '$two', 'part two', { ts: 2, content: run(2, 'completed') })], 3);

  expect((await waiting).map(({ text }) => text)).toEqual(['part one', 'part two']);
});

test('a bare reply of a bot without runs is an answer too', async () => {
  const { watch, append } = room();

  append([message('$a', 'pong', { content: { 'm.relates_to': { 'm.in_reply_to': { event_id: '$prompt' } } } })], 1);

  expect((await watch.waitForAnswerTo('$prompt', 1_000))[0]?.text).toBe('pong');
});

test('waiting in vain tells what was there instead', async () => {
  const { watch, append } = room();
  append([message('$a', 'something else')], 1);

  await expect(watch.waitFor(({ event }) => event.event_id === '$never', 10)).rejects.toThrow(/something else/u);
});

test('a predicate that throws fails the wait at once', async () => {
  const { watch, append } = room();
  const waiting = watch.waitFor(() => {
    throw new Error('broken predicate');
  });
  append([message('$a', 'one')], 1);

  await expect(waiting).rejects.toThrow('broken predicate');
});
