import { describe, expect, test } from 'vitest';
import type { Conversation } from '../../../src/admission/decide-admission.ts';
import { createCredits } from '../../../src/credits/credits.ts';
import { type EventId, type RoomId, type UserId, unsignedPrincipalId } from '../../../src/ids.ts';
import type { JsonObject } from '../../../src/json.ts';
import type { CreditPolicy } from '../../../src/plugin-api/define-oracle-plugin.ts';
import type { MatrixIncoming } from '../../../src/turn/prompt.ts';
import { beginTurn } from '../../../src/turn/turn.ts';
import { type MessageToSign, newNonce, signContent } from '../../../src/ucan/mint.ts';
import { pruneSpent } from '../../../src/ucan/replay.ts';
import { ALICE_KEY, buildCore, type Core, type CoreOptions, MALLORY_KEY, ORACLE_KEY } from '../../fakes/core.ts';
import { ALICE, BOB, eventId, OTHER_ROOM, ROOM } from '../../fakes/events.ts';

const KEY = 'ixo.oracle.ucan';
const TEXT: JsonObject = { msgtype: 'm.text', body: 'Hello' };

function setUp(options: CoreOptions = {}) {
  const core = buildCore(options);
  core.execute = null;
  return core;
}
const sign = (core: Core, change: Partial<MessageToSign> = {}, content: JsonObject = TEXT): JsonObject =>
  signContent(
    {
      key: ALICE_KEY,
      audience: ORACLE_KEY.did,
      room: ROOM,
      sender: ALICE,
      type: 'm.room.message',
      ts: core.clock.now(),
      nonce: newNonce(),
      ...change,
    },
    content,
  );
const prompt = (core: Core, name: string, change: Partial<MatrixIncoming> = {}): MatrixIncoming => ({
  via: 'matrix',
  trust: 'clear',
  text: 'Hello',
  roomId: ROOM,
  direct: true,
  sender: ALICE,
  hints: {},
  requestId: 'r',
  eventId: eventId(name),
  eventType: 'm.room.message',
  content: TEXT,
  sentAt: core.clock.now(),
  threadRoot: null,
  conversation: { kind: 'rolling' },
  editsTarget: null,
  alongside: () => undefined,
  ...change,
});
async function codeOf(core: Core, incoming: MatrixIncoming): Promise<string> {
  const turn = await beginTurn(incoming, core.checks);
  return turn.ok ? 'ok' : turn.error.refusal.code;
}
async function open(core: Core, name: string, change: Partial<MatrixIncoming> = {}) {
  const turn = await beginTurn(prompt(core, name, change), core.checks);
  if (!turn.ok) throw new Error(turn.error.refusal.code);
  return turn.value;
}
const TABLES = ['runs', 'sessions', 'audit', 'transcript', 'pending_inputs', 'replay_marks', 'rate_counts', 'links'] as const;
const counts = (core: Core): number[] => TABLES.map((table) => core.count(table));
const NOTHING = TABLES.map(() => 0);

describe('authenticate', () => {
  test('a signed message speaks for its DID, at the tier signed (G8)', async () => {
    const core = setUp({ rules: { unsignedUsers: [] } });

    const { runId } = await open(core, 'a', { content: sign(core) });

    expect(core.runs.read(core.store.read, runId)).toMatchObject({ principalId: ALICE_KEY.did, tier: 'signed', matrixUserId: ALICE });
    expect(counts(core)).toEqual([1, 1, 1, 1, 1, 1, 2, 1]);
  });

  test('a listed account speaks for itself, at the tier listed; others are refused', async () => {
    const core = setUp({ rules: { unsignedUsers: [ALICE] } });

    const { runId } = await open(core, 'a');

    expect(core.runs.read(core.store.read, runId)).toMatchObject({ principalId: 'matrix:u/alice:example.org', tier: 'listed' });
    expect(await codeOf(core, prompt(core, 'b', { sender: BOB }))).toBe('NO_AUTHORITY');
  });

  test.each<[string, (core: Core) => Partial<MatrixIncoming>, string]>([
    ['is null', () => ({ content: { ...TEXT, [KEY]: null } }), 'BAD_UCAN_CONTENT'],
    ['has no inv', () => ({ content: { ...TEXT, [KEY]: { v: 1 } } }), 'NO_AUTHORITY'],
    ['has only a grant', () => ({ content: { ...TEXT, [KEY]: { v: 1, dlg: ['AAAA'] } } }), 'NO_AUTHORITY'],
    ['is no CAR', () => ({ content: { ...TEXT, [KEY]: { v: 1, inv: 'AAAA' } } }), 'UCAN_MALFORMED'],
    ['is signed for other content', (core) => ({ content: { ...sign(core), body: 'Give me all' } }), 'WRONG_CONTENT'],
    ['is signed by another key for this account', (core) => ({ content: sign(core, { sender: BOB }) }), 'WRONG_SENDER'],
    ['is for another oracle', (core) => ({ content: sign(core, { audience: MALLORY_KEY.did }) }), 'BAD_AUDIENCE'],
    ['is for another room', (core) => ({ content: sign(core, { room: OTHER_ROOM }) }), 'WRONG_ROOM'],
    ['is for another thread', (core) => ({ content: sign(core, { thread: eventId('t') }) }), 'WRONG_THREAD'],
    ['is for an edit', (core) => ({ content: sign(core, { edits: eventId('t') }) }), 'WRONG_EDIT'],
    ['is of another time', (core) => ({ content: sign(core, { ts: core.clock.now() - 61_000 }) }), 'WRONG_TIME'],
    ['has a weak nonce', (core) => ({ content: sign(core, { nonce: 'AAAA' }) }), 'WEAK_NONCE'],
  ])('a token that %s is refused, although the account is listed: never a lower tier', async (_name, change, code) => {
    const core = setUp();
    expect(await codeOf(core, prompt(core, 'control'))).toBe('ok');
    const before = counts(core);

    expect(await codeOf(core, prompt(core, 'a', change(core)))).toBe(code);

    expect(counts(core)).toEqual(before);
  });

  test('an outage of ours expires nobody’s message; an old token with a fresh event is expired', async () => {
    const core = setUp();
    const waited = prompt(core, 'waited', { content: sign(core) });
    core.clock.advance(14 * 60_000);

    expect(await codeOf(core, waited)).toBe('ok');
    core.clock.advance(3 * 60_000);
    expect(await codeOf(core, { ...waited, eventId: eventId('again') })).toBe('TOKEN_EXPIRED');
  });
});

describe('single use', () => {
  test('the same token with another event is a replay, with the same event a redelivery', async () => {
    const core = setUp();
    const content = sign(core);
    expect(await codeOf(core, prompt(core, 'a', { content }))).toBe('ok');

    expect(await codeOf(core, prompt(core, 'b', { content }))).toBe('REPLAY');

    expect(await core.checks.authenticate(prompt(core, 'a', { content }))).toMatchObject({ ok: true });
  });

  test('of twenty uses at once exactly one starts a turn, whoever passes the check first (G8)', async () => {
    const core = setUp();
    const content = sign(core);

    const codes = await Promise.all(Array.from({ length: 20 }, (_, n) => codeOf(core, prompt(core, `e${n}`, { content }))));

    expect(codes.filter((code) => code === 'ok')).toHaveLength(1);
    expect(codes.filter((code) => code === 'REPLAY')).toHaveLength(19);
    expect(counts(core)).toEqual([1, 1, 1, 1, 1, 1, 2, 1]);
  });

  test('the same event twice at once makes one run and one input (G2)', async () => {
    const core = setUp();

    await Promise.allSettled([open(core, 'a'), open(core, 'a')]);

    expect([core.count('runs'), core.count('pending_inputs'), core.count('transcript')]).toEqual([1, 1, 1]);
  });

  test('a mark is kept as long as its token could still pass, and then forgotten', async () => {
    const core = setUp();
    const content = sign(core);
    const sentAt = core.clock.now();
    await open(core, 'a', { content });
    const step = 30_000;
    let passed = 0;
    for (let waited = 0; waited < 40 * 60_000; waited += step) {
      await pruneSpent(core.store, core.clock.now());
      // A hostile server may give the copy any time near the signed one.
      for (const at of [sentAt - 60_000, sentAt, sentAt + 60_000])
        if ((await codeOf(core, prompt(core, `c${waited}.${at}`, { content, sentAt: at }))) === 'ok') passed += 1;
      core.clock.advance(step);
    }

    expect(passed).toBe(0);
    expect(core.count('replay_marks')).toBe(0);
  });
});

describe('balance and throttle', () => {
  const POLICY: CreditPolicy = { hold: 10, initial: 0, priceOf: () => 1 };
  const rich = async (core: Core, amount: number): Promise<Core> => {
    const credits = createCredits({ store: core.store, policy: () => POLICY });
    await core.store.write((tx) => credits.accounts.grant(tx, unsignedPrincipalId(ALICE), amount, { reason: null, now: 0 }));
    return core;
  };

  test('without credits nothing is written (402)', async () => {
    const core = setUp({ policy: POLICY });

    const turn = await beginTurn(prompt(core, 'a'), core.checks);

    expect(turn).toMatchObject({ ok: false, error: { refusal: { code: 'OUT_OF_CREDITS', status: 402 }, principal: { tier: 'listed' } } });
    expect(counts(core)).toEqual(NOTHING);
  });

  test('what a run needs is set aside in the transaction that opens it (G8)', async () => {
    const core = await rich(setUp({ policy: POLICY }), 15);

    expect(await codeOf(core, prompt(core, 'a'))).toBe('ok');

    expect(core.store.read.all(core.store.sql.selectFrom('credit_holds').select(['amount']))).toEqual([{ amount: 10 }]);
  });

  test('of two messages side by side, the one that finds nothing left writes nothing (G8)', async () => {
    const core = await rich(setUp({ policy: POLICY }), 15);

    const aside: Partial<MatrixIncoming> = { threadRoot: eventId('t'), conversation: { kind: 'thread', root: eventId('t') } };

    const codes = await Promise.all([codeOf(core, prompt(core, 'a')), codeOf(core, prompt(core, 'b', aside))]);

    expect(codes.sort()).toEqual(['OUT_OF_CREDITS', 'ok']);
    expect(core.count('runs')).toBe(1);
    expect(core.count('pending_inputs')).toBe(1);
  });

  test('the limit is per window, and refused messages do not count', async () => {
    const core = setUp({ rate: { limit: 2, windowMs: 60_000 } });
    const codes = async () => [
      await codeOf(core, prompt(core, newNonce())),
      await codeOf(core, prompt(core, newNonce())),
      await codeOf(core, prompt(core, newNonce())),
    ];

    expect(await codes()).toEqual(['ok', 'ok', 'RATE_LIMITED']);
    core.clock.advance(59_999);
    expect(await codeOf(core, prompt(core, 'soon'))).toBe('RATE_LIMITED');
    core.clock.advance(1);
    expect(await codes()).toEqual(['ok', 'ok', 'RATE_LIMITED']);
  });

  test('neither a second key for the account nor a second account for the key gains anything', async () => {
    const core = setUp({ rate: { limit: 1, windowMs: 60_000 } });
    await open(core, 'a', { content: sign(core) });

    expect(await codeOf(core, prompt(core, 'b', { content: sign(core, { key: MALLORY_KEY }) }))).toBe('RATE_LIMITED');
    expect(await codeOf(core, prompt(core, 'c', { sender: BOB, content: sign(core, { sender: BOB }) }))).toBe('RATE_LIMITED');
    expect(await codeOf(core, prompt(core, 'd'))).toBe('RATE_LIMITED');
    expect(await codeOf(core, prompt(core, 'e', { sender: BOB }))).toBe('ok');
  });

  test('twenty at once are not more than the limit', async () => {
    const core = setUp({ rate: { limit: 3, windowMs: 60_000 } });

    const codes = await Promise.all(Array.from({ length: 20 }, (_, n) => codeOf(core, prompt(core, `e${n}`))));

    expect(codes.filter((code) => code === 'ok')).toHaveLength(3);
  });

  test('counts that fell out of the window are not kept', async () => {
    const core = setUp({ rate: { limit: 5, windowMs: 1_000 } });
    for (let n = 0; n < 50; n += 1) {
      await open(core, `e${n}`);
      core.clock.advance(500);
    }

    expect(core.count('rate_counts')).toBeLessThanOrEqual(6);
  });
});

describe('open', () => {
  test('is one transaction: what fails at its end leaves nothing (G1)', async () => {
    const core = setUp();
    const failing = prompt(core, 'a', {
      content: sign(core),
      alongside: () => {
        throw new TypeError('a bug');
      },
    });

    await expect(beginTurn(failing, core.checks)).rejects.toBeInstanceOf(TypeError);

    expect(counts(core)).toEqual(NOTHING);
    expect(await codeOf(core, { ...failing, alongside: () => undefined })).toBe('ok');
  });

  test('messages that wait for a free session are answered together, in order (DESIGN §7)', async () => {
    const core = setUp();
    const first = await open(core, 'a', { text: 'one' });
    const second = await open(core, 'b', { text: 'two' });

    expect(second).toMatchObject({ runId: first.runId, joined: true });
    expect(core.runs.read(core.store.read, first.runId)?.prompts.map(({ text }) => text)).toEqual(['one', 'two']);
  });

  const inGroup: Partial<MatrixIncoming> = { direct: false, conversation: { kind: 'thread', root: eventId('root') } as Conversation };
  test.each<[string, Partial<MatrixIncoming>, (core: Core) => Partial<MatrixIncoming>]>([
    ['another person', inGroup, () => ({ ...inGroup, sender: BOB })],
    ['another tier', inGroup, (core) => ({ ...inGroup, content: sign(core) })],
    ['other hints', inGroup, () => ({ ...inGroup, hints: { model: 'other' } })],
  ])('%s gets a run of its own', async (_name, one, two) => {
    const core = setUp();
    const first = await open(core, 'a', one);

    const second = await open(core, 'b', two(core));

    expect(second.joined).toBe(false);
    expect(second.runId > first.runId).toBe(true);
    expect(second.session.session_id).toBe(first.session.session_id);
  });

  test('nobody overtakes: after somebody else’s message a person’s next one goes behind it (G3)', async () => {
    const core = setUp();
    const first = await open(core, 'a', inGroup);
    const other = await open(core, 'b', { ...inGroup, sender: BOB });

    const third = await open(core, 'c', inGroup);

    expect(third.joined).toBe(false);
    expect([first.runId, other.runId, third.runId]).toEqual([first.runId, other.runId, third.runId].toSorted());
  });

  describe('a run that works', () => {
    type Case = readonly [string, Partial<MatrixIncoming>, (core: Core) => Partial<MatrixIncoming>, boolean];
    test.each<Case>([
      ['takes a further message of the same person', {}, () => ({}), true],
      ['takes one in a group as well', inGroup, () => inGroup, true],
      ['is not given what shall wait', {}, () => ({ hints: { multitask: 'enqueue' } }), false],
      ['is not given another person’s words (G13)', inGroup, () => ({ ...inGroup, sender: BOB }), false],
      ['is not given words of another tier (G13)', inGroup, (core) => ({ ...inGroup, content: sign(core) }), false],
      ['is not given a message with other wishes', {}, () => ({ hints: { model: 'other' } }), false],
    ])('%s', async (_name, one, two, joins) => {
      const core = setUp();
      const first = await open(core, 'a', one);
      await core.store.write((tx) => core.runs.start(tx, first.runId, { now: 0, leaseUntil: 0, deadlineAt: 1 }));

      const second = await open(core, 'b', two(core));

      expect([second.joined, second.runId === first.runId, second.interrupts]).toEqual([joins, joins, null]);
    });

    test('takes nothing past a message that somebody said in between (G3)', async () => {
      const core = setUp();
      const first = await open(core, 'a', inGroup);
      await core.store.write((tx) => core.runs.start(tx, first.runId, { now: 0, leaseUntil: 0, deadlineAt: 1 }));
      await open(core, 'b', { ...inGroup, sender: BOB });

      expect((await open(core, 'c', inGroup)).joined).toBe(false);
    });

    test.each([
      ['its own principal', ALICE, true],
      ['another person', BOB, false],
    ] as const)('is interrupted by %s: %s %s', async (_name, sender, interrupts) => {
      const core = setUp();
      const first = await open(core, 'a', inGroup);
      await core.store.write((tx) => core.runs.start(tx, first.runId, { now: 0, leaseUntil: 0, deadlineAt: 1 }));

      const second = await open(core, 'b', { ...inGroup, sender, hints: { multitask: 'interrupt' } });

      expect([second.joined, second.interrupts]).toEqual([false, interrupts ? first.runId : null]);
      const asked = core.store.read.get(core.store.sql.selectFrom('runs').select('stop_asked').where('run_id', '=', first.runId));
      expect(asked?.stop_asked).toBe(interrupts ? 'RUN_CANCELLED' : null);
    });
  });

  test('a signed message in a direct room links its account; one in a group does not forget the room', async () => {
    const core = setUp();
    await open(core, 'a', { content: sign(core) });
    await open(core, 'b', { ...inGroup, roomId: OTHER_ROOM, content: sign(core, { room: OTHER_ROOM }) });
    await open(core, 'c');

    expect(core.links.of(ALICE_KEY.did)).toEqual({ userId: ALICE, directRoom: ROOM });
    expect(core.links.of(ALICE_KEY.did, BOB)).toBeUndefined();
    expect(core.count('links')).toBe(1);
  });
});

describe('sessions', () => {
  const DM2 = '!dm2:example.org' as RoomId;
  const thread = (root: EventId, more: Partial<MatrixIncoming> = {}): Partial<MatrixIncoming> => ({
    conversation: { kind: 'thread', root },
    threadRoot: root,
    ...more,
  });
  const sessionOf = async (core: Core, name: string, change: Partial<MatrixIncoming> = {}) => (await open(core, name, change)).session;

  test('unthreaded messages of a direct room share a rolling session, one per room and principal (G13)', async () => {
    const core = setUp();
    const first = await sessionOf(core, 'a');

    expect(first).toMatchObject({ session_id: '$a', kind: 'rolling', thread_root: null, owner: 'matrix:u/alice:example.org' });
    expect((await sessionOf(core, 'b')).session_id).toBe('$a');
    expect((await sessionOf(core, 'c', { content: sign(core) })).session_id).toBe('$c');
    expect((await sessionOf(core, 'd', { roomId: DM2 })).session_id).toBe('$d');
  });

  test('a thread on the first message of the rolling session is the same session', async () => {
    const core = setUp();
    await sessionOf(core, 'a');

    expect((await sessionOf(core, 'b', thread(eventId('a')))).session_id).toBe('$a');
    expect((await sessionOf(core, 'c', thread(eventId('x')))).session_id).toBe('$x');
  });

  test('a thread of another principal in a direct room is not yours, and nothing is written', async () => {
    const core = setUp();
    await sessionOf(core, 'a', thread(eventId('x')));
    const before = counts(core);

    const code = await codeOf(core, prompt(core, 'b', thread(eventId('x'), { sender: '@eve:example.org' as UserId })));

    expect(code).toBe('NOT_YOUR_SESSION');
    expect(counts(core)).toEqual(before);
  });

  test('in a group the room owns the thread, and everybody shares it', async () => {
    const core = setUp();
    const one = await sessionOf(core, 'a', thread(eventId('x'), { direct: false }));

    expect(one).toMatchObject({ session_id: '$x', owner: ROOM, thread_root: '$x' });
    expect((await sessionOf(core, 'b', thread(eventId('x'), { direct: false, sender: BOB }))).session_id).toBe('$x');
  });

  test('when the room’s kind changes the next message opens a new session, both ways (DESIGN §7)', async () => {
    const core = setUp();
    const direct = await sessionOf(core, 'a', thread(eventId('x')));
    const asGroup = await sessionOf(core, 'b', thread(eventId('x'), { direct: false }));
    const backAgain = await sessionOf(core, 'c', thread(eventId('x')));

    expect([direct.session_id, asGroup.session_id, backAgain.session_id]).toEqual(['$x', '$b', '$x']);
    expect([direct.owner, asGroup.owner]).toEqual(['matrix:u/alice:example.org', ROOM]);
  });

  test('a thread root of another room opens nothing there and takes no name away from it (G13)', async () => {
    const core = setUp();
    const mine = await sessionOf(core, 'a', thread(eventId('x')));
    const foreign = await sessionOf(core, 'b', thread(eventId('x'), { roomId: OTHER_ROOM, sender: BOB }));

    expect(foreign.session_id).toBe('$b');
    expect((await sessionOf(core, 'c', thread(eventId('x')))).session_id).toBe(mine.session_id);
  });
});
