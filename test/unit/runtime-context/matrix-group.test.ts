import { describe, expect, test } from 'vitest';
import type { EventId } from '../../../src/ids.ts';
import { buildMatrixGroup, buildPost, readRoomEvent, toolTxnId } from '../../../src/runtime-context/matrix-group.ts';
import { createRedactor } from '../../../src/secrets/redactor.ts';
import { fakeRun, noMatrix } from '../agent/turn-fixture.ts';

test('message content and envelopes of allowed types may be sent', () => {
  expect(readRoomEvent({ msgtype: 'm.text', body: 'hi' })).toEqual({
    type: 'm.room.message',
    isState: false,
    content: { msgtype: 'm.text', body: 'hi', 'm.mentions': {} },
  });
  expect(readRoomEvent({ type: 'm.room.topic', state_key: '', content: { topic: 't' } })).toEqual({
    type: 'm.room.topic',
    isState: true,
    content: { topic: 't' },
  });
  expect(readRoomEvent({ type: 'm.room.message', content: { msgtype: 'm.notice', body: 'hi' } }).type).toBe('m.room.message');
});

test('"@room" in a text notifies nobody: the oracle may have that power where the user has not (no confused deputy)', () => {
  expect(readRoomEvent({ msgtype: 'm.text', body: '@room' }).content).toEqual({ msgtype: 'm.text', body: '@room', 'm.mentions': {} });
  const named = { msgtype: 'm.text', body: '@room', 'm.mentions': { user_ids: ['@a:b'] } };
  expect(readRoomEvent(named).content).toEqual(named);
});

describe('anything else is refused with a reason', () => {
  test.each([
    ['text', 'x'],
    ['null', null],
    ['no body', { msgtype: 'm.text' }],
    ['another type', { type: 'm.room.power_levels', state_key: '', content: {} }],
    ['a type of the prototype', { type: 'constructor', content: {} }],
    ['state without a key', { type: 'm.room.topic', content: { topic: 't' } }],
    ["another user's key", { type: 'm.room.topic', state_key: '@x:y', content: { topic: 't' } }],
    ['a message as state', { type: 'm.room.message', state_key: '', content: { msgtype: 'm.text', body: 'x' } }],
    ['further fields', { type: 'm.room.topic', state_key: '', content: { topic: 't' }, sender: '@x:y' }],
    ['a float', { msgtype: 'm.text', body: 'x', n: 1.5 }],
    ["a key of the oracle's own", { msgtype: 'm.text', body: 'x', 'ixo.oracle.run': {} }],
    ['a mention of the whole room', { msgtype: 'm.text', body: 'x', 'm.mentions': { room: true } }],
    ['mentions that are none', { msgtype: 'm.text', body: 'x', 'm.mentions': 'all' }],
    ['a relation', { msgtype: 'm.text', body: 'x', 'm.relates_to': {} }],
    ['64 kB', { msgtype: 'm.text', body: 'x'.repeat(64_000) }],
  ])('%s', (_name, content) => {
    expect(() => readRoomEvent(content)).toThrow(expect.objectContaining({ refusal: expect.objectContaining({ code: 'BAD_REQUEST' }) }));
  });
});

test('txn ids count the posts of a call, and a strange call id cannot break out of them (G4)', () => {
  const run = fakeRun();

  expect(toolTxnId(run.id, 'call_1', 2)).toBe(`tool.${run.id}.call_1.2`);
  expect(toolTxnId(run.id, 'a.1/../', 1)).toMatch(new RegExp(`^tool\\.${run.id}\\.[\\w-]{43}\\.1$`, 'u'));
});

test('the second post of a call has another txn id, and there is a last one (G14)', async () => {
  const sent: string[] = [];
  const access = {
    ...noMatrix,
    send: async ({ txnId }: { txnId: string }) => {
      sent.push(txnId);
      return '$e' as EventId;
    },
  };
  const run = fakeRun();
  const rule = { run, access, signal: new AbortController().signal, call: { id: 'c', mayWriteExternally: true } };
  const rules = { isTainted: () => false, readsForeign: () => undefined, redactor: createRedactor() };
  const matrix = buildMatrixGroup({ run, access, post: buildPost(rule), ...rules });
  const post = () => matrix.postToRoom('!room:test', { msgtype: 'm.text', body: 'x' });
  for (let at = 0; at < 20; at += 1) await post();

  await expect(post()).rejects.toMatchObject({ refusal: { code: 'NOT_ALLOWED' } });
  expect(new Set(sent).size).toBe(20);
});
