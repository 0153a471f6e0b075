import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import {
  decideAdmission,
  isBotLoop,
  latenessOf,
  type MessageFacts,
  type Screening,
  screenItem,
} from '../../../src/admission/decide-admission.ts';
import type { InboxItem, MessageItem } from '../../../src/admission/inbox-item.ts';
import type { RoomFacts } from '../../../src/admission/room-facts.ts';
import type { TokenId } from '../../../src/ids.ts';
import { LIMITS } from '../../../src/limits.ts';
import { ALICE, BOB, eventId, message, ORACLE, ROOM } from '../../fakes/events.ts';
import { FAKE_START_MS } from '../../fakes/fake-clock.ts';

const NOW = FAKE_START_MS;
const screening = (change: Partial<Screening> = {}): Screening => ({
  oracle: ORACLE,
  floodAllows: true,
  mayInvite: true,
  seenSince: NOW - 1_000,
  ...change,
});
const base = { eventId: eventId('e'), roomId: ROOM, sender: ALICE, sentAt: NOW, trust: 'clear' } as const;
const items = {
  own: { ...base, kind: 'own', run: null },
  membership: { ...base, kind: 'own_membership', membership: 'leave' },
  changed: { ...base, kind: 'room_changed' },
  encrypted: { ...base, kind: 'encrypted', thread: null },
  verification: { ...base, kind: 'verification', event: {} },
  invite: { ...base, kind: 'invite', isDirect: true },
  edit: { ...base, kind: 'edit', target: eventId('t'), text: 'x', content: {} },
  redaction: { ...base, kind: 'redaction', target: eventId('t') },
  other: { ...base, kind: 'other', type: 'm.reaction' },
  grant: { ...base, kind: 'grant', dlg: 'CAR' },
  revoke: { ...base, kind: 'revoke', tokenId: 'A'.repeat(43) as TokenId },
  stateGrant: { ...base, kind: 'state_grant', data: 'x' },
} as const satisfies Record<string, InboxItem>;

describe('screenItem', () => {
  test.each<[string, InboxItem, Partial<Screening>, string]>([
    ['an own event', items.own, {}, 'own_event'],
    ['a message of the oracle itself', message({ sender: ORACLE }), {}, 'own_event'],
    ['an unknown type', items.other, {}, 'not_a_prompt'],
    ['a message past the bucket', message(), { floodAllows: false }, 'flood'],
    ['an edit past the bucket', items.edit, { floodAllows: false }, 'flood'],
    ['a redaction past the bucket', items.redaction, { floodAllows: false }, 'flood'],
    ['a grant past the bucket', items.grant, { floodAllows: false }, 'flood'],
    ['a revocation past the bucket', items.revoke, { floodAllows: false }, 'flood'],
    ['a grant in the room state past the bucket', items.stateGrant, { floodAllows: false }, 'flood'],
    ['a grant older than what is remembered', { ...items.grant, sentAt: NOW - 1_001 }, {}, 'too_old'],
    ['an own grant event', { ...items.grant, sender: ORACLE }, {}, 'own_event'],
    ['a message older than what is remembered (G2)', message({ sentAt: NOW - 1_001 }), {}, 'too_old'],
    ['an edit older than what is remembered', { ...items.edit, sentAt: NOW - 1_001 }, {}, 'too_old'],
    ['a notice', message({ msgtype: 'm.notice' }), {}, 'notice'],
    ['an answer of another oracle', message({ content: { 'ixo.oracle.run': null } }), {}, 'other_oracle'],
    ['a mirrored portal prompt', message({ content: { 'ixo.oracle.mirror': {} } }), {}, 'other_oracle'],
    ['a place', message({ msgtype: 'm.location' }), {}, 'foreign_msgtype'],
    ['a ciphertext past the bucket: it is not decrypted (G14)', items.encrypted, { floodAllows: false }, 'flood'],
    ['a ciphertext older than what is remembered', { ...items.encrypted, sentAt: NOW - 1_001 }, {}, 'too_old'],
    ['an own ciphertext', { ...items.encrypted, sender: ORACLE }, {}, 'own_event'],
    ['a verification past the bucket', items.verification, { floodAllows: false }, 'flood'],
    ['an own step of a verification', { ...items.verification, sender: ORACLE }, {}, 'own_event'],
    ['an empty body', message({ text: ' \n\t ' }), {}, 'empty_body'],
    ['an absurdly long body', message({ text: 'x'.repeat(LIMITS.promptChars * 2) }), {}, 'too_long'],
    ['a body one past the limit', message({ text: 'x'.repeat(LIMITS.promptChars + 1) }), {}, 'too_long'],
  ])('%s is ignored', (_name, item, change, reason) => {
    expect(screenItem(item, screening(change))).toEqual({ kind: 'ignore', reason });
  });

  test.each<[string, InboxItem]>([
    ['m.text', message()],
    ['m.emote', message({ msgtype: 'm.emote' })],
    ['a picture', message({ msgtype: 'm.image' })],
    ['a body at the limit', message({ text: 'x'.repeat(LIMITS.promptChars) })],
    ['the oldest that is still remembered', message({ sentAt: NOW - 1_000 })],
    ['a time in the future', message({ sentAt: NOW + 1e9 })],
  ])('%s is a message', (_name, item) => {
    expect(screenItem(item, screening())).toEqual({ kind: 'message', message: item });
  });

  test.each<[string, string, object]>([
    ['🛑', '\u{1F6D1}', { kind: 'stop', target: '$t' }],
    ['🛑 as an emoji', '\u{1F6D1}\uFE0F', { kind: 'stop', target: '$t' }],
    ['another sign', '👍', { kind: 'ignore', reason: 'not_a_prompt' }],
    ['a text with the sign', '\u{1F6D1} please', { kind: 'ignore', reason: 'not_a_prompt' }],
  ])('a reaction with %s', (_name, key, screened) => {
    const reaction = { ...base, kind: 'reaction', target: eventId('t'), key } as const;
    expect(screenItem(reaction, screening())).toEqual(screened);
    expect(screenItem({ ...reaction, sender: ORACLE }, screening())).toEqual({ kind: 'ignore', reason: 'own_event' });
    expect(screenItem(reaction, screening({ floodAllows: false }))).toEqual({ kind: 'ignore', reason: 'flood' });
  });

  test.each<[string, InboxItem]>([
    ['a grant', items.grant],
    ['a revocation', items.revoke],
    ['a grant in the room state', items.stateGrant],
    ['one that an older self set long ago', { ...items.stateGrant, sender: ORACLE, sentAt: 0 }],
  ])('%s is about authority', (_name, item) => {
    expect(screenItem(item, screening())).toEqual({ kind: 'authority' });
  });

  test('invites: accepted, or declined with its reason', () => {
    expect(screenItem(items.invite, screening())).toEqual({ kind: 'invite', accept: true });
    const because = (item: InboxItem, change: Partial<Screening> = {}) => screenItem(item, screening(change));
    expect(because(items.invite, { mayInvite: false })).toMatchObject({ accept: false, because: 'not_allowed' });
    expect(because(items.invite, { floodAllows: false })).toMatchObject({ accept: false, because: 'flood' });
  });

  test('memberships and state pass a flood, because the oracle must know where it is', () => {
    const flooded = screening({ floodAllows: false });
    expect(screenItem(items.membership, flooded)).toEqual({ kind: 'own_membership', membership: 'leave' });
    expect(screenItem(items.changed, flooded)).toEqual({ kind: 'room_changed' });
    expect(screenItem(items.edit, screening())).toEqual({ kind: 'edit', target: '$t' });
    expect(screenItem({ ...items.redaction, sentAt: 0 }, screening())).toEqual({ kind: 'redaction', target: '$t' });
  });

  test('a ciphertext is to be decrypted, a step of a verification is to be taken', () => {
    expect(screenItem(items.encrypted, screening())).toEqual({ kind: 'encrypted' });
    expect(screenItem(items.verification, screening())).toEqual({ kind: 'verification' });
  });
});

const room = (change: Partial<RoomFacts> = {}): RoomFacts => ({
  roomId: ROOM,
  kind: 'direct',
  encryption: 'none',
  federated: false,
  joined: true,
  people: { has: () => true },
  displayName: null,
  admissionCursor: NOW - 10_000,
  ...change,
});
const facts = (change: Partial<MessageFacts> = {}): MessageFacts => ({
  oracle: ORACLE,
  source: 'push',
  inviter: ALICE,
  inOwnThread: false,
  mayUse: true,
  mayCommand: true,
  latenessMs: 0,
  maxLatenessMs: 900_000,
  commandPrefix: '!oracle',
  oracleName: 'Oracle',
  repliesToOracle: false,
  answeredInThreadAt: null,
  now: NOW,
  botLoop: false,
  cryptoTrust: 'any',
  ...change,
});
const group = room({ kind: 'group' });
const THREAD = eventId('root');

describe('decideAdmission', () => {
  test.each<[string, Partial<MessageItem>, RoomFacts, Partial<MessageFacts>, object]>([
    ['not joined', {}, room({ joined: false }), {}, { kind: 'ignore', reason: 'not_joined' }],
    [
      'in an encrypted room',
      { trust: 'unverified' },
      room({ encryption: 'encrypted' }),
      {},
      { kind: 'admit', because: 'direct', text: 'Hello', conversation: { kind: 'rolling' } },
    ],
    ['somebody else before the join', { sender: BOB }, room(), { source: 'backfill' }, { kind: 'ignore', reason: 'history' }],
    ['before the invite, by sync', { sentAt: NOW - 10_001 }, room(), { source: 'sync' }, { kind: 'ignore', reason: 'history' }],
    ['before the invite, by look back', { sentAt: NOW - 10_001 }, room(), { source: 'backfill' }, { kind: 'ignore', reason: 'history' }],
    ['not addressed in a group', {}, group, {}, { kind: 'overhear', reason: 'not_addressed' }],
    ['not addressed and late', {}, group, { latenessMs: 1e9 }, { kind: 'overhear', reason: 'not_addressed' }],
    ['not addressed and not allowed', {}, group, { mayUse: false }, { kind: 'overhear', reason: 'not_addressed' }],
    ['late', {}, room(), { latenessMs: 900_001 }, { kind: 'late' }],
    ['not allowed', {}, room(), { mayUse: false }, { kind: 'not_allowed' }],
    ['a bot loop', {}, room(), { botLoop: true }, { kind: 'ignore', reason: 'bot_loop' }],
  ])('%s', (_name, change, where, more, expected) => {
    expect(decideAdmission(message(change), where, facts(more))).toEqual(expected);
  });

  test.each<[string, Partial<MessageItem>, RoomFacts, Partial<MessageFacts>, object]>([
    ['one in a direct room', {}, room(), {}, { kind: 'command', command: { kind: 'revoke_all' } }],
    ['a late one', {}, room(), { latenessMs: 1e9 }, { kind: 'command' }],
    ['one of somebody who answers like a bot', {}, room(), { botLoop: true }, { kind: 'command' }],
    ['one typed before the join by who invited', {}, room(), { source: 'backfill' }, { kind: 'command' }],
    ['one in a thread', { thread: THREAD }, room(), {}, { kind: 'command' }],
    ['one that is not allowed', {}, room(), { mayCommand: false }, { kind: 'not_allowed' }],
    ['one that only a signature would let in', {}, room(), { mayUse: true, mayCommand: false }, { kind: 'not_allowed' }],
    ['one before the invite', { sentAt: NOW - 10_001 }, room(), { source: 'sync' }, { kind: 'ignore', reason: 'history' }],
    ['one in an encrypted room', {}, room({ encryption: 'encrypted' }), {}, { kind: 'command' }],
    ['one that is an emote', { msgtype: 'm.emote' }, room(), {}, { kind: 'admit', because: 'direct' }],
    ['one nobody addressed in a group', {}, group, {}, { kind: 'overhear' }],
    ['one with a mention in a group', { mentions: [ORACLE] }, group, {}, { kind: 'command_in_group' }],
    ['one after the name in a group', { text: 'Oracle: !revoke all' }, group, {}, { kind: 'command_in_group' }],
    ['one after the prefix in a group', { text: '!oracle !revoke all' }, group, {}, { kind: 'command_in_group' }],
    ['!stop in a direct room', { text: '!stop' }, room(), {}, { kind: 'control', command: { kind: 'stop' } }],
    ['!stop of who may not command (it takes nothing)', { text: '!stop' }, room(), { mayCommand: false }, { kind: 'control' }],
    ['!mode of who may not command', { text: '!mode steer' }, room(), { mayCommand: false }, { kind: 'not_allowed' }],
    ['!mode in a direct room', { text: '!mode steer' }, room(), {}, { kind: 'control', command: { kind: 'mode', mode: 'steer' } }],
    ['!stop said to the oracle in a group', { text: 'Oracle: !stop' }, group, { latenessMs: 1e9 }, { kind: 'control' }],
    ['!stop in a thread of the oracle', { text: '!stop', thread: THREAD }, group, { inOwnThread: true }, { kind: 'control' }],
    ['!stop in a thread of others', { text: '!stop', thread: THREAD }, group, {}, { kind: 'overhear' }],
    ['!stop in a group, to nobody', { text: '!stop' }, group, { inOwnThread: false }, { kind: 'overhear' }],
    [
      '!mode in a thread of the oracle, to nobody',
      { text: '!mode steer', thread: THREAD },
      group,
      { inOwnThread: true },
      { kind: 'overhear' },
    ],
    ['!mode said to the oracle in a group', { text: '!mode steer', mentions: [ORACLE] }, group, {}, { kind: 'control' }],
    ['!mode of who may not use the oracle', { text: 'Oracle: !mode steer' }, group, { mayUse: false }, { kind: 'not_allowed' }],
    ['a !mode that is none', { text: 'Oracle: !mode faster' }, group, {}, { kind: 'command', command: { kind: 'usage' } }],
    ['!help said to the oracle in a group', { text: 'Oracle: !help' }, group, {}, { kind: 'command', command: { kind: 'help' } }],
    ['!help said to nobody in a group', { text: '!help' }, group, {}, { kind: 'overhear' }],
    ['!help of who may not use the oracle', { text: '!help' }, room(), { mayUse: false, mayCommand: false }, { kind: 'not_allowed' }],
    ['one late in a group', { mentions: [ORACLE] }, group, { latenessMs: 1e9 }, { kind: 'late' }],
    ['one in a group by who may not', { mentions: [ORACLE] }, group, { mayUse: false }, { kind: 'not_allowed' }],
    ['an unknown one', { text: '!new' }, room(), {}, { kind: 'admit', text: '!new' }],
    ['one in the middle of a text', { text: 'try !revoke all' }, room(), {}, { kind: 'admit' }],
  ])('a command: %s', (_name, change, where, more, expected) => {
    expect(decideAdmission(message({ text: '!revoke all', ...change }), where, facts(more))).toMatchObject(expected);
  });

  test.each<[string, Partial<MessageItem>, RoomFacts, Partial<MessageFacts>]>([
    ['at the limit of lateness', {}, room(), { latenessMs: 900_000 }],
    ['an own-server clock before the invite, pushed', { sentAt: NOW - 99_999 }, room(), {}],
    ['the inviter before the join', {}, room(), { source: 'backfill' }],
    ['a room without a cursor, by sync', {}, room({ admissionCursor: null }), { source: 'sync' }],
  ])('admits %s', (_name, change, where, more) => {
    expect(decideAdmission(message(change), where, facts(more))).toMatchObject({ kind: 'admit', because: 'direct' });
  });

  test.each<[string, Partial<MessageItem>, Partial<MessageFacts>, string | null]>([
    ['m.mentions names it', { mentions: [BOB, ORACLE] }, {}, 'mention'],
    ['m.mentions is there and does not name it, the text does', { mentions: [], text: `${ORACLE} hi` }, {}, null],
    ['its id in the text of an old client', { text: `hi ${ORACLE}, how` }, {}, 'mention'],
    ['an id that only begins like it', { text: 'hi @oracle:example.organic' }, {}, null],
    ['an id with a longer server', { text: 'hi @oracle:example.org.net' }, {}, null],
    ['its id at the end of a sentence', { text: `ask ${ORACLE}.` }, {}, 'mention'],
    ['an address that ends like it', { text: `mail me${ORACLE}` }, {}, null],
    ['its name in front', { text: 'oracle: hi' }, {}, 'mention'],
    ['its name alone', { text: 'Oracle' }, {}, 'mention'],
    ['a word that begins with its name', { text: 'Oracles are old' }, {}, null],
    ['its name in the middle', { text: 'the oracle said' }, {}, null],
    ['an empty name', { text: 'anything' }, { oracleName: '' }, null],
    ['a pill', { content: { formatted_body: `<a href="https://matrix.to/#/${ORACLE}">O</a>` } }, {}, 'mention'],
    [
      'an encoded pill',
      { content: { formatted_body: `<a href="https://matrix.to/#/${encodeURIComponent(ORACLE)}">O</a>` } },
      {},
      'mention',
    ],
    [
      'a pill of somebody whose id begins like it',
      { content: { formatted_body: `<a href="https://matrix.to/#/${ORACLE}x">O</a>` } },
      {},
      null,
    ],
    ['a formatted body that is no string', { content: { formatted_body: 7 } }, {}, null],
    ['a reply to it', {}, { repliesToOracle: true }, 'reply'],
    ['its active thread', { thread: THREAD }, { answeredInThreadAt: NOW - LIMITS.activeThreadMs }, 'active_thread'],
    ['a thread it left long ago', { thread: THREAD }, { answeredInThreadAt: NOW - LIMITS.activeThreadMs - 1 }, null],
    ['a thread it never answered in', { thread: THREAD }, {}, null],
    ['the command prefix', { text: '!oracle  do it ' }, {}, 'command'],
    ['the prefix alone', { text: '!oracle ' }, {}, null],
    ['a longer command', { text: '!oracles do it' }, {}, null],
    ['no prefix configured', { text: '!oracle do it' }, { commandPrefix: '' }, null],
  ])('in a group: %s', (_name, change, more, because) => {
    const admission = decideAdmission(message(change), group, facts(more));

    expect(admission.kind === 'admit' ? admission.because : null).toBe(because);
  });

  test('the prefix is not part of the prompt; everything else is', () => {
    expect(decideAdmission(message({ text: '!oracle  do it ' }), group, facts())).toMatchObject({ text: 'do it' });
    expect(decideAdmission(message({ text: '!oracle do it' }), room(), facts())).toMatchObject({ text: '!oracle do it' });
  });

  test('the conversation: rolling in a direct room, a new thread for a bare mention, the thread it stands in (DESIGN §7)', () => {
    const conversation = (change: Partial<MessageItem>, where: RoomFacts) => {
      const admission = decideAdmission(message({ mentions: [ORACLE], ...change }), where, facts());
      return admission.kind === 'admit' ? admission.conversation : null;
    };
    expect(conversation({}, room())).toEqual({ kind: 'rolling' });
    expect(conversation({ thread: THREAD }, room())).toEqual({ kind: 'thread', root: THREAD });
    expect(conversation({}, group)).toEqual({ kind: 'thread', root: '$m' });
    expect(conversation({ thread: THREAD }, group)).toEqual({ kind: 'thread', root: THREAD });
  });
});

test('both decisions are total: any message, any facts, never a throw, always a known kind (G17)', () => {
  const text = fc.oneof(fc.string(), fc.string({ unit: 'binary' }), fc.constant('Oracle'), fc.constant('!oracle x'));
  const anyMessage = fc.record({
    text,
    msgtype: fc.oneof(fc.constant('m.text'), fc.string()),
    sentAt: fc.oneof(fc.integer(), fc.double()),
    thread: fc.option(fc.constant(THREAD)),
    mentions: fc.option(fc.constantFrom([], [ORACLE], [BOB])),
    content: fc.dictionary(fc.constantFrom('formatted_body', 'body', 'ixo.oracle.run'), fc.jsonValue()),
  });
  const anyRoom = fc.record({
    kind: fc.constantFrom('direct', 'group'),
    encryption: fc.constantFrom('none', 'encrypted', 'unknown'),
    joined: fc.boolean(),
    admissionCursor: fc.option(fc.integer()),
  });
  const anyFacts = fc.record({
    source: fc.constantFrom('push', 'sync', 'backfill'),
    mayUse: fc.boolean(),
    mayCommand: fc.boolean(),
    latenessMs: fc.double(),
    oracleName: text,
    commandPrefix: text,
    repliesToOracle: fc.boolean(),
    answeredInThreadAt: fc.option(fc.integer()),
    botLoop: fc.boolean(),
  });
  fc.assert(
    fc.property(anyMessage, anyRoom, anyFacts, (item, where, more) => {
      const whole = message(item as never);
      const screened = screenItem(whole, screening());
      const admission = decideAdmission(whole, room(where as never), facts(more as never));
      if (admission.kind === 'admit') expect(where.joined).toBe(true);
      return (
        ['ignore', 'message'].includes(screened.kind) && ['ignore', 'overhear', 'late', 'not_allowed', 'admit'].includes(admission.kind)
      );
    }),
    { numRuns: 1_000 },
  );
});

describe('isBotLoop', () => {
  /** Newest first: turns that took 1 s each, the next beginning `gapMs` after the end of the one before. */
  const chain = (count: number, gapMs: number) =>
    Array.from({ length: count }, (_, n) => {
      const endedAt = NOW - gapMs - n * (1_000 + gapMs);
      return { createdAt: endedAt - 1_000, endedAt };
    });

  test.each<[string, Parameters<typeof isBotLoop>, boolean]>([
    ['twelve answers at once are a bot', [chain(12, 2_000), NOW, 12], true],
    ['eleven are not', [chain(11, 0), NOW, 12], false],
    ['a pause each time is a person', [chain(12, 2_001), NOW, 12], false],
    ['a budget of 0 switches it off', [chain(50, 0), NOW, 0], false],
    ['messages sent while it still answers count', [chain(12, -500), NOW, 12], true],
    ['a turn that has not ended breaks the chain', [[{ createdAt: NOW, endedAt: null }, ...chain(11, 0)], NOW, 12], false],
    ['a pause before the newest breaks it', [chain(12, 0), NOW + 2_001, 12], false],
    [
      'a pause further back breaks it',
      [[...chain(6, 0), ...chain(6, 0).map((turn) => ({ createdAt: turn.createdAt - 60_000, endedAt: turn.endedAt - 60_000 }))], NOW, 12],
      false,
    ],
    ['older turns do not matter', [[...chain(12, 0), { createdAt: 0, endedAt: 0 }], NOW, 12], true],
  ])('%s', (_name, args, expected) => {
    expect(isBotLoop(...args)).toBe(expected);
  });
});

test('lateness is the age on arrival and the time here, never another server’s clock', () => {
  expect(latenessOf({ ageMs: 5_000, receivedAt: NOW - 1_000, now: NOW })).toBe(6_000);
  expect(latenessOf({ ageMs: null, receivedAt: NOW - 1_000, now: NOW })).toBe(1_000);
  expect(latenessOf({ ageMs: null, receivedAt: NOW + 9_000, now: NOW })).toBe(0);
});
