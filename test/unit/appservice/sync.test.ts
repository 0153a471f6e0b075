import { beforeEach, describe, expect, test } from 'vitest';
import { CryptoUnavailable } from '../../../appservice/crypto/crypto-service.ts';
import { createOrphans } from '../../../appservice/interrupt-orphans.ts';
import { createOpenOwn } from '../../../appservice/open-event.ts';
import { createReconciler, type Reconciler } from '../../../appservice/sync.ts';
import type { DeviceId, EventId, OutboxTxnId, RoomId, UserId } from '../../../src/ids.ts';
import { createInbox, type Inbox } from '../../../src/inbox/inbox.ts';
import { createReconcileStore } from '../../../src/inbox/reconcile-store.ts';
import type { JsonObject } from '../../../src/json.ts';
import { LIMITS } from '../../../src/limits.ts';
import { createLogger } from '../../../src/observe/logger.ts';
import { createOutbox } from '../../../src/outbox/outbox.ts';
import { openStore, type Store } from '../../../src/store/store.ts';
import { type FakeClock, fakeClock } from '../../fakes/fake-clock.ts';
import { createFakeHomeserver, type FakeHomeserver, registerOracle } from '../../fakes/fake-homeserver.ts';
import { type FakeSealer, fakeSealer } from '../../fakes/fake-sealer.ts';

const ORACLE = '@oracle:oracle.local' as UserId;
const ALICE = '@alice:oracle.local';
const RUN = '01KC0000000000000000000000';
const logger = createLogger({ level: 'silent', format: 'json' });

let clock: FakeClock;
let homeserver: FakeHomeserver;
let store: Store;
let inbox: Inbox;
let reconciler: Reconciler;
let closed: string[];
let readEvents: string[];
let sealer: FakeSealer;
let processes = 0;

beforeEach(async () => {
  clock = fakeClock();
  homeserver = createFakeHomeserver({ clock });
  await registerOracle(homeserver.connection());
  sealer = fakeSealer();
  openDatabase();
});

/** A process with an empty database. */
function openDatabase() {
  store = openStore({ path: ':memory:', now: clock.now() });
  startProcess();
}
/** A process on the database that is there. */
function startProcess() {
  inbox = createInbox({ store, clock, oracle: ORACLE, fence: 1 });
  const outbox = createOutbox({ store, identity: { sender: ORACLE, deviceId: 'ORACLE' as DeviceId } });
  const connection = homeserver.connection();
  const api = connection.as({ userId: ORACLE, deviceId: 'ORACLE' as DeviceId });
  closed = [];
  readEvents = [];
  reconciler = createReconciler({
    api: connection.as({ userId: ORACLE, deviceId: 'ORACLER' as DeviceId }),
    store: createReconcileStore({ store, inbox, clock, oracle: ORACLE }),
    orphans: createOrphans({ api, store, outbox, oracle: ORACLE, clock, read: sealer.read }),
    openOwn: createOpenOwn({ read: sealer.read, outbox, oracle: ORACLE }),
    oracle: ORACLE,
    clock,
    logger,
    intervalMs: 60_000,
    newId: () => `process-${++processes}`,
    onRead: (events) => readEvents.push(...events.map(({ type }) => `${type} beside ${rows().length} rows`)),
    onGapClosed: (room) => closed.push(room),
  });
}
function joinedRoom(): RoomId {
  const room = homeserver.createRoom({ creator: ALICE, invite: [ORACLE], direct: true }) as RoomId;
  homeserver.join(room, ORACLE);
  return room;
}
const rows = () => store.read.all(store.sql.selectFrom('inbox').selectAll().orderBy('room_id').orderBy('ord').orderBy('id'));
const texts = () =>
  rows()
    .filter(({ type }) => type === 'm.room.message')
    .map(({ event }) => (JSON.parse(event) as { content: { body: string } }).content.body);
const push = (event: ReturnType<FakeHomeserver['say']>) =>
  inbox.receive([
    {
      eventId: event.event_id as EventId,
      roomId: event.room_id as RoomId,
      sender: event.sender,
      type: event.type,
      event: homeserver.pushed(event),
      ageMs: 0,
      source: 'push',
    },
  ]);
const gaps = () => store.read.all(store.sql.selectFrom('gaps').selectAll());
const outboxRows = () => store.read.all(store.sql.selectFrom('outbox').selectAll());
/** The text still grows. */
const LIVE: JsonObject = { 'org.matrix.msc4357.live': {} };
const run = (status: string, prompts: readonly string[], more: JsonObject = {}): JsonObject => ({
  'ixo.oracle.run': { run_id: RUN, session_id: prompts[0] ?? '$s', prompts: [...prompts], part: 1, seq: 3, status },
  ...more,
});

describe('the first sync ever', () => {
  test('records the position and takes pending invites, nothing else', async () => {
    const room = joinedRoom();
    homeserver.say(room, ALICE, 'long ago');
    const invited = homeserver.createRoom({ creator: ALICE, invite: [ORACLE], direct: true });

    expect(await reconciler.run()).toMatchObject({ ok: true });

    expect(rows().map(({ room_id, type }) => [room_id, type])).toEqual([[invited, 'm.room.member']]);
    expect(gaps()).toEqual([]);
  });

  test('remembers rooms that it is in without a cursor: their history is no prompt', async () => {
    const room = joinedRoom();

    await reconciler.run();

    expect(store.read.all(store.sql.selectFrom('rooms').selectAll())).toMatchObject([
      { room_id: room, membership: 'joined', invited_at: null },
    ]);
  });

  test('a deleted database does not answer again what an own answer names (G2)', async () => {
    const room = joinedRoom();
    const prompt = homeserver.say(room, ALICE, 'question');
    homeserver.say(room, ORACLE, 'answer', run('completed', [prompt.event_id]));

    await reconciler.run();
    await push(prompt);

    expect(rows()).toEqual([]);
    expect(outboxRows()).toEqual([]);
  });
});

describe('what a push lost', () => {
  test('is found, and what was pushed is not taken twice (G1, G2)', async () => {
    const room = joinedRoom();
    await reconciler.run();
    await push(homeserver.say(room, ALICE, 'pushed'));
    homeserver.say(room, ALICE, 'lost');

    await reconciler.run();
    await reconciler.run();

    expect(texts()).toEqual(['pushed', 'lost']);
    expect(rows().at(-1)).toMatchObject({ source: 'sync', room_id: room });
    expect(JSON.parse(rows().at(-1)?.event ?? '{}')).toMatchObject({ room_id: room });
  });

  test('is found after a crash between two rounds, from the stored position (G1)', async () => {
    const room = joinedRoom();
    await reconciler.run();
    homeserver.say(room, ALICE, 'lost');
    startProcess();

    await reconciler.run();

    expect(texts()).toEqual(['lost']);
  });

  test('is not skipped when the database could not be written (G1)', async () => {
    const room = joinedRoom();
    await reconciler.run();
    homeserver.say(room, ALICE, 'lost');
    const receive = inbox.receiveInTx;
    inbox.receiveInTx = () => {
      throw new Error('broken');
    };
    expect(await reconciler.run()).toMatchObject({ ok: false });
    inbox.receiveInTx = receive;

    await reconciler.run();

    expect(texts()).toEqual(['lost']);
  });

  test('a leave is found, and the words spoken before it are not answered any more', async () => {
    const room = joinedRoom();
    await reconciler.run();
    homeserver.say(room, ALICE, 'bye');
    homeserver.leave(room, ORACLE);

    await reconciler.run();

    expect(rows().map(({ type }) => type)).toEqual(['m.room.member']);
  });

  test('a broken event is skipped and the others go on (G17)', async () => {
    const room = joinedRoom();
    await reconciler.run();
    homeserver.say(room, ALICE, 'broken', { body: 17 });
    homeserver.say(room, ALICE, 'fine');

    await reconciler.run();

    expect(texts()).toEqual(['fine']);
  });
});

describe('a gap', () => {
  const talk = (room: RoomId, count: number) => {
    for (let index = 0; index < count; index += 1) homeserver.say(room, ALICE, `m${index}`);
    return Array.from({ length: count }, (_, index) => `m${index}`);
  };

  test('is read back to where the last sync ended, in the order it was written (G1, G3)', async () => {
    const room = joinedRoom();
    homeserver.say(room, ALICE, 'before');
    await reconciler.run();
    const expected = talk(room, 350);

    await reconciler.run();

    expect(texts()).toEqual(expected);
    expect(gaps()).toEqual([]);
    expect(closed).toEqual([room]);
    expect(reconciler.heldUntil(room)).toBe(null);
  });

  test('is put behind what is older and before what is newer, whatever waited and whatever came meanwhile (G3)', async () => {
    const room = joinedRoom();
    await reconciler.run();
    await push(homeserver.say(room, ALICE, 'older'));
    const spoken = Array.from({ length: 150 }, (_, index) => homeserver.say(room, ALICE, `m${index}`));
    // Some of the gap, of the first page as of the second, and some of what /sync shows, were pushed and wait.
    for (const index of [10, 60, 100, 149]) {
      clock.advance(10);
      await push(spoken[index] ?? expect.fail());
    }
    clock.advance(10);
    homeserver.trouble(/messages/, { kind: 'pass' }, { kind: 'answer', status: 500, body: {} });
    await reconciler.run();
    clock.advance(10);
    await push(homeserver.say(room, ALICE, 'newest'));

    await reconciler.run();

    expect(texts()).toEqual(['older', ...spoken.map(({ content }) => content['body']), 'newest']);
  });

  test('goes on at its page after a crash (G1)', async () => {
    const room = joinedRoom();
    await reconciler.run();
    const expected = talk(room, 350);
    homeserver.trouble(/messages/, { kind: 'pass' }, { kind: 'answer', status: 500, body: {} });
    await reconciler.run();
    const halfway = texts();
    startProcess();
    const heldUntil = reconciler.heldUntil(room);

    await reconciler.run();

    expect(halfway).toEqual(expected.slice(-120));
    expect(heldUntil).toBe(clock.now() + LIMITS.gapWaitMs);
    expect(texts()).toEqual(expected);
    expect(gaps()).toEqual([]);
  });

  test('holds newer rows of its room for a minute, and of no other room', async () => {
    const room = joinedRoom();
    const other = joinedRoom();
    await reconciler.run();
    talk(room, 30);
    homeserver.trouble(/messages/, { kind: 'answer', status: 500, body: {} });

    await reconciler.run();

    expect(reconciler.heldUntil(room)).toBe(clock.now() + LIMITS.gapWaitMs);
    expect(reconciler.heldUntil(other)).toBe(null);
  });

  test('ends at the own join: what was said before it is history', async () => {
    await reconciler.run();
    const room = homeserver.createRoom({ creator: ALICE }) as RoomId;
    talk(room, 40);
    homeserver.say(room, ALICE, 'an old mention', { 'm.mentions': { user_ids: [ORACLE] } });
    homeserver.invite(room, ALICE, ORACLE);
    homeserver.join(room, ORACLE);
    const after = talk(room, 150);

    await reconciler.run();

    expect(texts()).toEqual(after);
    expect(rows().filter(({ type }) => type === 'm.room.member')).toHaveLength(1);
  });

  test('in a room that we are out of is closed', async () => {
    const room = joinedRoom();
    await reconciler.run();
    talk(room, 30);
    homeserver.trouble(/messages/, { kind: 'answer', status: 403, body: { errcode: 'M_FORBIDDEN' } });

    await reconciler.run();

    expect(gaps()).toEqual([]);
  });

  test('answers that stand in the newer part mark the prompts of the older part (G2)', async () => {
    const room = joinedRoom();
    await reconciler.run();
    const prompt = homeserver.say(room, ALICE, 'question');
    talk(room, 30);
    homeserver.say(room, ORACLE, 'answer', run('completed', [prompt.event_id]));

    await reconciler.run();

    expect(texts()).not.toContain('question');
    expect(texts()).toHaveLength(30);
  });
});

describe('an invite that a push lost', () => {
  test('is taken once, however often it is seen', async () => {
    await reconciler.run();
    const room = homeserver.createRoom({ creator: ALICE, invite: [ORACLE], direct: true });

    await reconciler.run();
    await reconciler.run();

    expect(rows()).toMatchObject([{ room_id: room, type: 'm.room.member', sender: ALICE }]);
    expect(JSON.parse(rows()[0]?.event ?? '{}')).toMatchObject({ state_key: ORACLE, content: { membership: 'invite', is_direct: true } });
  });

  test('is not taken beside the one that was pushed', async () => {
    await reconciler.run();
    const room = homeserver.createRoom({ creator: ALICE }) as RoomId;
    await push(homeserver.invite(room, ALICE, ORACLE));

    await reconciler.run();

    expect(rows()).toHaveLength(1);
  });

  const remembered = (room: RoomId) =>
    store.write((tx) =>
      tx.run(
        store.sql
          .insertInto('rooms')
          .values({ room_id: room, membership: 'invited', inviter: ALICE as UserId, is_direct: 1, invited_at: 1, joined_at: null }),
      ),
    );
  test('is not taken while an earlier one of the room waits or is being handled', async () => {
    await reconciler.run();
    const room = homeserver.createRoom({ creator: ALICE, invite: [ORACLE] }) as RoomId;
    const invite = homeserver.timeline(room).findLast(({ type }) => type === 'm.room.member');
    if (invite !== undefined) await push(invite);
    await remembered(room);

    await reconciler.run();

    expect(rows().map(({ source }) => source)).toEqual(['push']);
  });

  test('is taken although an earlier one was given up, or another member of the room waits in the inbox (G1)', async () => {
    await reconciler.run();
    const room = homeserver.createRoom({ creator: ALICE, invite: [ORACLE] }) as RoomId;
    const invite = homeserver.timeline(room).findLast(({ type }) => type === 'm.room.member');
    if (invite !== undefined) await push(invite);
    await remembered(room);
    await store.write((tx) => tx.run(store.sql.updateTable('inbox').set({ state: 'dead' })));
    await push(homeserver.join(room, '@bob:oracle.local'));

    await reconciler.run();

    expect(rows().map(({ source, state, sender }) => [source, state, sender])).toEqual([
      ['push', 'dead', ALICE],
      ['sync', 'ready', ALICE],
      ['push', 'ready', '@bob:oracle.local'],
    ]);
  });

  test('into a room that threw us out while we were away is a new one', async () => {
    const room = joinedRoom();
    await reconciler.run();
    clock.advance(1_000);
    homeserver.leave(room, ORACLE);
    homeserver.invite(room, ALICE, ORACLE);

    await reconciler.run();

    expect(rows().map(({ room_id, sender }) => [room_id, sender])).toEqual([[room, ALICE]]);
  });

  test('into an encrypted room says so (G11)', async () => {
    await reconciler.run();
    homeserver.createRoom({ creator: ALICE, invite: [ORACLE], encrypted: true });

    await reconciler.run();

    expect(rows()[0]?.event).toContain('m.room.encryption');
  });
});

describe('an answer whose run is not known here', () => {
  test('and that still grows is ended with a marker, once (G5)', async () => {
    const room = joinedRoom();
    const prompt = homeserver.say(room, ALICE, 'question');
    const answer = homeserver.say(room, ORACLE, 'Half an ans', run('running', [prompt.event_id], LIVE));

    await reconciler.run();
    await store.write((tx) => tx.run(store.sql.deleteFrom('meta')));
    await reconciler.run();

    const content = JSON.parse(outboxRows()[0]?.content ?? '{}') as { 'm.new_content': { body: string }; 'm.relates_to': object };
    expect(outboxRows()).toHaveLength(1);
    expect(content['m.relates_to']).toEqual({ rel_type: 'm.replace', event_id: answer.event_id });
    expect(content['m.new_content'].body).toMatch(/^Half an ans.*interrupted/su);
    expect(content['m.new_content']).toMatchObject({ 'ixo.oracle.run': { status: 'interrupted', run_id: RUN } });
    expect(content['m.new_content']).not.toHaveProperty('org.matrix.msc4357.live');
  });

  test('and whose last edit is final is left alone, also when an old version is met first', async () => {
    const room = joinedRoom();
    const prompt = homeserver.say(room, ALICE, 'question');
    const answer = homeserver.say(room, ORACLE, 'Half', run('running', [prompt.event_id], LIVE));
    clock.advance(5);
    const whole = { msgtype: 'm.text', body: 'Whole', ...run('completed', [prompt.event_id]) };
    homeserver.say(room, ORACLE, '* Whole', {
      ...run('completed', [prompt.event_id]),
      'm.new_content': whole,
      'm.relates_to': { rel_type: 'm.replace', event_id: answer.event_id },
    });

    await reconciler.run();

    expect(outboxRows()).toEqual([]);
  });

  test('of which earlier messages are finished and the last one is done gets no marker in the earlier ones', async () => {
    const room = joinedRoom();
    const prompt = homeserver.say(room, ALICE, 'question');
    // As the reply writes them: only the last message carries the end.
    homeserver.say(room, ORACLE, 'The first part', run('running', [prompt.event_id]));
    const last = run('completed', [prompt.event_id])['ixo.oracle.run'] as JsonObject;
    homeserver.say(room, ORACLE, 'The last part', { 'ixo.oracle.run': { ...last, part: 2 } });

    await reconciler.run();

    expect(outboxRows()).toEqual([]);
  });

  test('is told from one that is running here', async () => {
    const room = joinedRoom();
    const prompt = homeserver.say(room, ALICE, 'question');
    await reconciler.run();
    await store.write((tx) => {
      tx.run(
        store.sql.insertInto('sessions').values({
          session_id: prompt.event_id as never,
          room_id: room,
          owner: room,
          kind: 'rolling',
          thread_root: null,
          title: null,
          created_at: 1,
          last_at: 1,
          retired_at: null,
        }),
      );
      tx.run(
        store.sql.insertInto('runs').values({
          run_id: RUN as never,
          session_id: prompt.event_id as never,
          room_id: room,
          thread_root: null,
          owner: room,
          principal_id: 'did:key:z' as never,
          matrix_user_id: ALICE as UserId,
          tier: 'signed',
          client: 'matrix',
          request_id: 'r',
          parent: null,
          grants: null,
          hints: '{}',
          direct: 1,
          status: 'running',
          created_at: 1,
          started_at: 1,
          ended_at: null,
          deadline_at: null,
          model_asked: null,
          model_answered: null,
          usage: null,
          error: null,
        }),
      );
    });
    homeserver.say(room, ORACLE, 'Half', run('running', [prompt.event_id], LIVE));

    await reconciler.run();

    expect(outboxRows()).toEqual([]);
  });

  test('of somebody who only claims to be an oracle is nobody’s business', async () => {
    const room = joinedRoom();
    homeserver.say(room, ALICE, 'Half', run('running', ['$p'], LIVE));

    await reconciler.run();

    expect(outboxRows()).toEqual([]);
  });
});

describe('an encrypted answer of another database', () => {
  async function sealedAnswer(room: RoomId, text: string, more: JsonObject) {
    const content = { msgtype: 'm.text', body: text, ...more };
    const to = {
      roomId: room,
      readers: [ORACLE],
      historyVisibility: 'shared',
      rotationPeriodMs: null,
      rotationPeriodMessages: null,
    } as const;
    return homeserver.send(room, ORACLE, 'm.room.encrypted', await sealer.seal({ type: 'm.room.message', content }, to));
  }
  const sealedEdit = (room: RoomId, target: string, text: string, more: JsonObject) =>
    sealedAnswer(room, `* ${text}`, {
      ...more,
      'm.new_content': { msgtype: 'm.text', body: text, ...more },
      'm.relates_to': { rel_type: 'm.replace', event_id: target },
    });

  test('names the prompts that must not be answered again (G2)', async () => {
    const room = joinedRoom();
    const prompt = homeserver.say(room, ALICE, 'question');
    await sealedAnswer(room, 'answer', run('completed', [prompt.event_id]));

    await reconciler.run();
    await push(prompt);

    expect(rows()).toEqual([]);
    expect(outboxRows()).toEqual([]);
  });

  test('names them in a gap that is read page by page as well (G2)', async () => {
    const room = joinedRoom();
    await reconciler.run();
    const prompt = homeserver.say(room, ALICE, 'question');
    await sealedAnswer(room, 'answer', run('completed', [prompt.event_id]));
    for (let n = 0; n < 30; n += 1) homeserver.say(room, ALICE, `more ${n}`);

    await reconciler.run();

    expect(texts()).toHaveLength(30);
    expect(texts()).not.toContain('question');
  });

  test('that still grows is ended with a marker, once, from what its last edit showed (G5)', async () => {
    const room = joinedRoom();
    const prompt = homeserver.say(room, ALICE, 'question');
    const answer = await sealedAnswer(room, 'Half', run('running', [prompt.event_id], LIVE));
    clock.advance(5);
    const edit = await sealedEdit(room, answer.event_id, 'Half an ans', run('running', [prompt.event_id], LIVE));

    await reconciler.run();
    await store.write((tx) => tx.run(store.sql.deleteFrom('meta')));
    await reconciler.run();

    const content = JSON.parse(outboxRows()[0]?.content ?? '{}') as { 'm.new_content': { body: string }; 'm.relates_to': object };
    expect(outboxRows()).toHaveLength(1);
    expect(outboxRows()[0]?.created_at).toBeGreaterThan(edit.origin_server_ts);
    expect(content['m.relates_to']).toEqual({ rel_type: 'm.replace', event_id: answer.event_id });
    expect(content['m.new_content'].body).toMatch(/^Half an ans.*interrupted/su);
  });

  test('whose last edit is final is left alone', async () => {
    const room = joinedRoom();
    const prompt = homeserver.say(room, ALICE, 'question');
    const answer = await sealedAnswer(room, 'Half', run('running', [prompt.event_id], LIVE));
    clock.advance(5);
    await sealedEdit(room, answer.event_id, 'Whole', run('completed', [prompt.event_id]));

    await reconciler.run();

    expect(outboxRows()).toEqual([]);
  });

  test('that cannot be read, its keys lost as well, is left alone and keeps nothing from being read (G17)', async () => {
    const room = joinedRoom();
    await reconciler.run();
    const prompt = homeserver.say(room, ALICE, 'question');
    await sealedAnswer(room, 'Half', run('running', [prompt.event_id], LIVE));
    sealer.forgetKeys();

    expect(await reconciler.run()).toMatchObject({ ok: true });

    expect(texts()).toEqual(['question']);
    expect(outboxRows()).toEqual([]);
  });

  test('is not asked for while keys cannot be read, so that nothing is answered twice: the round is made again (G2)', async () => {
    const room = joinedRoom();
    const prompt = homeserver.say(room, ALICE, 'question');
    await sealedAnswer(room, 'answer', run('completed', [prompt.event_id]));
    const { read } = sealer;
    sealer.read = () => Promise.reject(new CryptoUnavailable('closed'));
    startProcess();
    const closedRound = await reconciler.run();
    sealer.read = read;
    startProcess();
    await reconciler.run();
    await push(prompt);

    expect(closedRound).toEqual({ ok: false, reason: 'CRYPTO_UNAVAILABLE' });
    expect(rows()).toEqual([]);
  });

  test('is not decrypted when the outbox sent it: in ordinary operation reconciliation costs no cryptography (G16)', async () => {
    const room = joinedRoom();
    await reconciler.run();
    const answer = await sealedAnswer(room, 'answer', run('completed', ['$p']));
    const outbox = createOutbox({ store, identity: { sender: ORACLE, deviceId: 'ORACLE' as DeviceId } });
    await store.write((tx) => {
      const row = {
        txnId: 'answer.1' as OutboxTxnId,
        lane: 'l',
        roomId: room,
        kind: 'answer',
        eventType: 'm.room.message',
        content: {},
      } as const;
      outbox.insert(tx, row, clock.now());
    });
    const [row] = outbox.due(clock.now(), { limit: 1, busy: new Set() });
    if (row !== undefined) await outbox.markSent(row, answer.event_id as EventId, clock.now());
    let reads = 0;
    const { read } = sealer;
    sealer.read = (...event) => {
      reads += 1;
      return read(...event);
    };
    startProcess();
    await reconciler.run();

    expect(reads).toBe(0);
  });
});

test('what changes a room is told before it is stored, so that an encryption whose push was lost counts at once (G11)', async () => {
  const room = joinedRoom();
  await reconciler.run();
  homeserver.setState(room, ALICE, 'm.room.encryption', { algorithm: 'm.megolm.v1.aes-sha2' });
  readEvents.length = 0;

  await reconciler.run();

  expect(readEvents).toEqual(['m.room.encryption beside 0 rows']);
  expect(rows().map(({ type }) => type)).toEqual(['m.room.encryption']);
});

describe('rounds', () => {
  test('come every minute, sooner while the homeserver is down, and end with a stop', async () => {
    const syncs = () => homeserver.requests.filter(({ path }) => path.endsWith('/sync')).length;
    void reconciler.start();
    await clock.advanceAsync(0);
    await clock.advanceAsync(0);
    expect(syncs()).toBe(1);
    await clock.advanceAsync(60_000);
    expect(syncs()).toBe(2);
    homeserver.stop();
    await clock.advanceAsync(60_000);
    homeserver.start();
    await clock.advanceAsync(4_000);
    expect(syncs()).toBe(3);

    await reconciler.stop();

    expect(clock.pending()).toBe(0);
  });

  test('a sign of life ends the waiting for the homeserver, and starts nothing while all is well', async () => {
    const syncs = () => homeserver.requests.filter(({ path }) => path.endsWith('/sync')).length;
    homeserver.stop();
    expect(await reconciler.start()).toMatchObject({ ok: false, reason: 'UNREACHABLE' });
    await clock.advanceAsync(20_000);
    homeserver.start();

    for (let transaction = 0; transaction < 10; transaction += 1) {
      reconciler.nudge();
      await clock.advanceAsync(10);
    }

    expect(syncs()).toBe(1);
    await reconciler.stop();
  });

  test('come soon after the homeserver closed connections, and find what a restart between two rounds lost (G1)', async () => {
    const room = joinedRoom();
    await reconciler.start();
    homeserver.say(room, ALICE, 'lost');
    homeserver.stop();
    for (let socket = 0; socket < 32; socket += 1) reconciler.suspect();
    await clock.advanceAsync(1_000);
    homeserver.start();
    for (let second = 0; second < 5; second += 1) await clock.advanceAsync(1_000);

    expect(texts()).toEqual(['lost']);
    await reconciler.stop();
    expect(clock.pending()).toBe(0);
  });

  test('are not made all the time because a proxy closes connections by itself', async () => {
    await reconciler.start();
    const before = homeserver.requests.length;
    for (let second = 0; second < 55; second += 1) {
      reconciler.suspect();
      await clock.advanceAsync(1_000);
    }

    expect(homeserver.requests.length - before).toBeLessThan(8);
    await reconciler.stop();
    reconciler.suspect();
    expect(clock.pending()).toBe(0);
  });

  test('asked for while one is running come once after it', async () => {
    const outcomes = await Promise.all([reconciler.run(), reconciler.run(), reconciler.run()]);

    expect(outcomes).toMatchObject([{ ok: true }, { ok: true }, { ok: true }]);
    expect(homeserver.requests.filter(({ path }) => path.endsWith('/sync'))).toHaveLength(2);
  });

  test('begin again when the homeserver does not know the position', async () => {
    await reconciler.run();
    await store.write((tx) => tx.run(store.sql.updateTable('meta').set({ value: 'of another database' })));

    expect(await reconciler.run()).toMatchObject({ ok: true });
    const room = joinedRoom();
    homeserver.say(room, ALICE, 'lost');
    await reconciler.run();

    expect(texts()).toEqual(['lost']);
  });

  test('are made as the device that holds no keys, and without presence', async () => {
    await reconciler.run();

    expect(homeserver.requests.at(-1)?.query).toMatchObject({ device_id: 'ORACLER', set_presence: 'offline', timeout: '0' });
  });
});
