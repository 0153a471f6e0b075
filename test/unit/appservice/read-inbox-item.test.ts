import { describe, expect, test } from 'vitest';
import { readInboxItem } from '../../../appservice/read-inbox-item.ts';
import type { UserId } from '../../../src/ids.ts';
import type { JsonObject } from '../../../src/json.ts';
import fixtures from '../../fixtures/synapse-1.163.2.json' with { type: 'json' };

const ORACLE = '@oracle:oracle.local' as UserId;
type Captured = { path: string; body: { events?: JsonObject[] } }[];
const captured = (name: string): JsonObject => {
  const transactions = (fixtures as unknown as Record<string, Captured>)[name] ?? [];
  return transactions.flatMap(({ body }) => body.events ?? [])[0] ?? expect.fail(`no events in ${name}`);
};
const itemOf = (event: JsonObject) => {
  const read = readInboxItem(event, ORACLE);
  return read.ok ? read.value : expect.fail(read.error.reason);
};
const message = (content: JsonObject, more: JsonObject = {}): JsonObject => ({
  event_id: '$1',
  room_id: '!r',
  sender: '@alice:oracle.local',
  type: 'm.room.message',
  origin_server_ts: 5,
  content: { msgtype: 'm.text', body: 'x', ...content },
  ...more,
});
const member = (content: JsonObject, more: JsonObject = {}) => message(content, { type: 'm.room.member', state_key: ORACLE, ...more });

describe('captured events', () => {
  test.each([
    ['invite_direct', { kind: 'invite', isDirect: true, encrypted: false, sender: '@alice:oracle.local' }],
    ['join_own', { kind: 'own_membership', membership: 'join' }],
    ['text', { kind: 'message', msgtype: 'm.text', thread: null, inReplyTo: null }],
    ['text_in_thread', { kind: 'message', thread: expect.stringMatching(/^\$/) }],
    ['text_reply', { kind: 'message', thread: null, inReplyTo: expect.stringMatching(/^\$/) }],
    ['text_mention', { kind: 'message', mentions: [ORACLE] }],
    ['edit', { kind: 'edit', target: expect.stringMatching(/^\$/) }],
    ['reaction', { kind: 'reaction' }],
    ['redaction_of_message_with_reason', { kind: 'redaction' }],
    ['notice', { kind: 'message', msgtype: 'm.notice' }],
    ['own_message_echo', { kind: 'own' }],
  ])('%s', (name, expected) => {
    expect(itemOf(captured(name))).toMatchObject(expected);
  });
});

test('an own answer names the prompts it is for', () => {
  const run = { run_id: '01KC0000000000000000000000', session_id: '$s', prompts: ['$p'], part: 1, seq: 3, status: 'completed' };

  expect(itemOf(message({ 'ixo.oracle.run': run }, { sender: ORACLE }))).toMatchObject({
    kind: 'own',
    run: { prompts: ['$p'], status: 'completed', part: 1 },
  });
  expect(itemOf(message({ 'ixo.oracle.run': 'broken' }, { sender: ORACLE }))).toMatchObject({ kind: 'own', run: null });
});

test('another account’s run field makes nobody the oracle', () => {
  expect(itemOf(message({ 'ixo.oracle.run': {} })).kind).toBe('message');
});

test.each([
  [
    'a new name of the oracle',
    member({ membership: 'join' }, { sender: ORACLE, unsigned: { prev_content: { membership: 'join' } } }),
    { kind: 'room_changed' },
  ],
  ['a ban', member({ membership: 'ban' }), { kind: 'own_membership', membership: 'ban' }],
  [
    'somebody else’s invite',
    member({ membership: 'invite' }, { state_key: '@bob:oracle.local' }),
    { kind: 'room_changed', encrypted: false },
  ],
  ['encryption switched on', message({}, { type: 'm.room.encryption', state_key: '' }), { kind: 'room_changed', encrypted: true }],
  ['new power levels', message({}, { type: 'm.room.power_levels', state_key: '' }), { kind: 'room_changed', encrypted: false }],
  ['a topic', message({}, { type: 'm.room.topic', state_key: '' }), { kind: 'other' }],
  ['an encrypted event', message({}, { type: 'm.room.encrypted' }), { kind: 'other', type: 'm.room.encrypted' }],
  ['a type of somebody’s own', message({}, { type: 'org.example.thing' }), { kind: 'other', type: 'org.example.thing' }],
])('%s', (_name, event, expected) => {
  expect(itemOf(event)).toMatchObject(expected);
});

test('an invite into an encrypted room says so (G11)', () => {
  const invite_room_state = [{ type: 'm.room.encryption', state_key: '', sender: '@alice:oracle.local', content: { algorithm: 'x' } }];

  expect(itemOf(member({ membership: 'invite' }, { unsigned: { invite_room_state } }))).toMatchObject({ kind: 'invite', encrypted: true });
});

test('the absent and the empty mention are not the same', () => {
  expect(itemOf(message({}))).toMatchObject({ mentions: null });
  expect(itemOf(message({ 'm.mentions': {} }))).toMatchObject({ mentions: [] });
});

test('what cannot be read is a value with its reason (G17)', () => {
  expect(readInboxItem(message({ body: null }), ORACLE)).toMatchObject({ ok: false, error: { reason: 'bad_body' } });
});
