import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { decideNeededLevel, decidePowerLevel, isFederated, readRoomSnapshot } from '../../../appservice/read-room-state.ts';
import type { UserId } from '../../../src/ids.ts';

const ORACLE = '@oracle:oracle.local' as UserId;
const ALICE = '@alice:oracle.local' as UserId;
const BOB = '@bob:elsewhere.org' as UserId;
const state = (
  type: string,
  content: unknown,
  { key = '', sender = ALICE, ...more }: { key?: string; sender?: string; unsigned?: object } = {},
) => ({ type, state_key: key, sender, content, ...more });
const member = (user: string, membership: string, more: object = {}) => state('m.room.member', { membership }, { key: user, ...more });
const read = (...events: unknown[]) => readRoomSnapshot(events, ORACLE);
const create = (version: string, content: object = {}) => state('m.room.create', { room_version: version, ...content });

describe('power (room version 12: creators stand above every number)', () => {
  test.each(['12', '13'])('in version %s the creator and the additional creators are infinite', (version) => {
    const { power } = read(
      create(version, { additional_creators: [BOB, 17, 'broken'] }),
      state('m.room.power_levels', { users: { [ALICE]: 0 } }),
    );

    expect([ALICE, BOB, ORACLE].map((user) => decidePowerLevel(power, user))).toEqual([
      Number.POSITIVE_INFINITY,
      Number.POSITIVE_INFINITY,
      0,
    ]);
  });
  test.each(['11', '1', 'org.example.custom', '12a'])('in version %s the levels decide', (version) => {
    const { power } = read(
      create(version, { additional_creators: [BOB] }),
      state('m.room.power_levels', { users: { [ALICE]: 70 }, users_default: 5 }),
    );

    expect([ALICE, BOB].map((user) => decidePowerLevel(power, user))).toEqual([70, 5]);
  });
  test('without power levels the founder of an old room has 100, and others 0', () => {
    const { power } = read(create('10'));

    expect([ALICE, BOB].map((user) => decidePowerLevel(power, user))).toEqual([100, 0]);
  });
  test('levels written as text count, broken ones do not', () => {
    const { power } = read(
      create('9'),
      state('m.room.power_levels', { users: { [ALICE]: '50', [BOB]: { deep: 1 } }, users_default: ' 3 ' }),
    );

    expect([ALICE, BOB].map((user) => decidePowerLevel(power, user))).toEqual([50, 3]);
  });
  test('names of the prototype are no users', () => {
    const { power } = read(create('11'), state('m.room.power_levels', { users: {} }));

    expect(decidePowerLevel(power, 'constructor' as UserId)).toBe(0);
  });
  test('what an event needs: its own entry, else the default of its kind', () => {
    const { power } = read(create('11'), state('m.room.power_levels', { events: { 'm.room.topic': 80 }, events_default: 10 }));

    expect(decideNeededLevel(power, { type: 'm.room.topic', isState: true })).toBe(80);
    expect(decideNeededLevel(power, { type: 'm.room.name', isState: true })).toBe(50);
    expect(decideNeededLevel(power, { type: 'm.room.message', isState: false })).toBe(10);
  });
});

test('any m.room.encryption means encrypted, also one that cannot be read (G11)', () => {
  expect(read(state('m.room.encryption', null)).encrypted).toBe(true);
  expect(read(state('m.room.encryption', {}, { key: 'not-empty' })).encrypted).toBe(false);
});

test('members are the joined and the invited', () => {
  const { members } = read(member(ALICE, 'join'), member(BOB, 'invite'), member('@c:x.org', 'leave'), member('@d:x.org', 'ban'));

  expect([...members.keys()]).toEqual([ALICE, BOB]);
});

test('a join remembers whether its invite was direct, or where to ask: a lost database need not know it', () => {
  const invited = (unsigned: object) => read(member(ORACLE, 'join', { unsigned })).invite;

  expect(invited({ prev_content: { membership: 'invite', is_direct: true } })).toEqual({ isDirect: true });
  expect(invited({ prev_content: { membership: 'leave', is_direct: true } })).toEqual({ isDirect: false });
  expect(invited({ replaces_state: '$invite' })).toEqual({ eventId: '$invite' });
  expect(invited({ replaces_state: 17 })).toBe(null);
});

test('one member of another server makes a room federated', () => {
  expect(isFederated(read(member(ORACLE, 'join'), member(ALICE, 'join')).members, ORACLE)).toBe(false);
  expect(isFederated(read(member(ORACLE, 'join'), member(BOB, 'join')).members, ORACLE)).toBe(true);
});

test('no state that a stranger can write makes the reader throw (G14)', () => {
  fc.assert(
    fc.property(fc.array(fc.anything()), fc.anything(), (events, content) => {
      const typed = ['m.room.member', 'm.room.create', 'm.room.power_levels', 'm.room.name'].map((type) => ({
        type,
        state_key: '',
        content,
      }));
      const { power } = readRoomSnapshot(
        [...events, ...typed, { type: 'm.room.member', state_key: ORACLE, content, unsigned: content }],
        ORACLE,
      );
      expect(decidePowerLevel(power, ALICE)).not.toBeNaN();
    }),
  );
});

test.each<[string, unknown[], boolean]>([
  ['a room without rules', [], false],
  [
    'a private chat',
    [state('m.room.join_rules', { join_rule: 'invite' }), state('m.room.history_visibility', { history_visibility: 'shared' })],
    false,
  ],
  ['a room where others knock', [state('m.room.join_rules', { join_rule: 'knock' })], false],
  ['a public room', [state('m.room.join_rules', { join_rule: 'public' })], true],
  ['a room for whoever is in another', [state('m.room.join_rules', { join_rule: 'restricted' })], true],
  ['a rule that nobody knows', [state('m.room.join_rules', { join_rule: 'org.example.any' })], true],
  ['a room that the world reads', [state('m.room.history_visibility', { history_visibility: 'world_readable' })], true],
])('%s: others may come in or read: %s', (_name, events, open) => {
  expect(read(create('11'), ...events).open).toBe(open);
});

describe('when a key is replaced', () => {
  const rotation = (content: object) => read(state('m.room.encryption', { algorithm: 'm.megolm.v1.aes-sha2', ...content })).rotation;
  const HOUR = 3_600_000;
  const MONTH = 30 * 24 * HOUR;

  test.each<[string, object, { periodMs: number | null; messages: number | null }]>([
    ['nothing', {}, { periodMs: null, messages: null }],
    ['a week and a hundred', { rotation_period_ms: 168 * HOUR, rotation_period_msgs: 100 }, { periodMs: 168 * HOUR, messages: 100 }],
    ['the least', { rotation_period_ms: HOUR, rotation_period_msgs: 1 }, { periodMs: HOUR, messages: 1 }],
    ['less than that', { rotation_period_ms: HOUR - 1, rotation_period_msgs: 0.5 }, { periodMs: HOUR, messages: 1 }],
    ['the most', { rotation_period_ms: MONTH, rotation_period_msgs: 10_000 }, { periodMs: MONTH, messages: 10_000 }],
    ['more than that', { rotation_period_ms: MONTH + 1, rotation_period_msgs: 10_001 }, { periodMs: MONTH, messages: 10_000 }],
    ['absurd numbers', { rotation_period_ms: Number.MAX_VALUE, rotation_period_msgs: 1e300 }, { periodMs: MONTH, messages: 10_000 }],
    ['none or less', { rotation_period_ms: 0, rotation_period_msgs: -5 }, { periodMs: null, messages: null }],
    ['no numbers', { rotation_period_ms: '1', rotation_period_msgs: [1] }, { periodMs: null, messages: null }],
  ])('a room asks for %s (G14)', (_name, content, expected) => {
    expect(rotation(content)).toEqual(expected);
  });
});
