import { beforeEach, describe, expect, test } from 'vitest';
import type { RoomEncryption } from '../../../appservice/crypto/crypto-service.ts';
import { createFindSent } from '../../../appservice/find-sent.ts';
import type { MatrixApi } from '../../../appservice/matrix-api.ts';
import { MatrixError } from '../../../appservice/matrix-api.ts';
import { planRequest } from '../../../appservice/plan-request.ts';
import { createSender, decideFailure, planParkedNotice, type Sender } from '../../../appservice/sender.ts';
import type { DeviceId, OutboxTxnId, RoomId, UserId } from '../../../src/ids.ts';
import type { JsonObject } from '../../../src/json.ts';
import { LIMITS } from '../../../src/limits.ts';
import { createLogger } from '../../../src/observe/logger.ts';
import { createOutbox, LOST_DEVICE, type Outbox, type OutboxRow } from '../../../src/outbox/outbox.ts';
import { openStore, type Store } from '../../../src/store/store.ts';
import { type FakeClock, fakeClock } from '../../fakes/fake-clock.ts';
import { createFakeHomeserver, type FakeHomeserver, registerOracle } from '../../fakes/fake-homeserver.ts';

const ORACLE = '@oracle:oracle.local' as UserId;
const ENCRYPTED: RoomEncryption = {
  roomId: '!room' as RoomId,
  readers: [ORACLE],
  historyVisibility: 'shared',
  rotationPeriodMs: null,
  rotationPeriodMessages: null,
};
const DEVICE = 'ORACLE' as DeviceId;
const logger = createLogger({ level: 'silent', format: 'json' });
const txn = (id: string) => id as OutboxTxnId;

let clock: FakeClock;
let homeserver: FakeHomeserver;
let store: Store;
let outbox: Outbox;
let sender: Sender;
let room: RoomId;
let signals: string[];
let api: MatrixApi;

beforeEach(async () => {
  clock = fakeClock();
  homeserver = createFakeHomeserver({ clock });
  const connection = homeserver.connection();
  await registerOracle(connection);
  api = connection.as({ userId: ORACLE, deviceId: DEVICE });
  room = homeserver.createRoom({ creator: '@alice:oracle.local', invite: [ORACLE] }) as RoomId;
  homeserver.join(room, ORACLE);
  store = openStore({ path: ':memory:', now: clock.now() });
  outbox = createOutbox({ store, identity: { sender: ORACLE, deviceId: DEVICE } });
  signals = [];
  sender = createSender({
    outbox,
    connection,
    clock,
    logger,
    onSent: (row, eventId) => signals.push(`sent ${row.txn_id} ${eventId}`),
    onParked: (row, reason) => signals.push(`parked ${row.txn_id} ${reason}`),
    onOutage: () => signals.push('outage'),
    onRecovered: () => signals.push('recovered'),
  });
  sender.start();
});

async function put(
  id: string,
  {
    content = { msgtype: 'm.text', body: id } as JsonObject,
    lane = 'one',
    edits,
    stateKey,
  }: { content?: JsonObject; lane?: string; edits?: string; stateKey?: string } = {},
) {
  await store.write((tx) =>
    outbox.insert(
      tx,
      {
        txnId: txn(id),
        lane,
        roomId: room,
        kind: 'answer',
        eventType: stateKey === undefined ? 'm.room.message' : 'm.room.topic',
        content,
        ...(edits === undefined ? {} : { editsTxn: txn(edits) }),
        ...(stateKey === undefined ? {} : { stateKey }),
      },
      clock.now(),
    ),
  );
  outbox.wake();
}
/** Promises and the store's commits settle; time stands still but for the sender's own spacing of 2 ms. */
async function settle() {
  for (let turn = 0; turn < 8; turn += 1) await clock.advanceAsync(1);
}
async function pass(seconds: number) {
  for (let second = 0; second < seconds; second += 1) {
    await settle();
    await clock.advanceAsync(1_000);
  }
  await settle();
}
const messages = () => homeserver.timeline(room).filter(({ type }) => type === 'm.room.message');
const bodies = () => messages().map(({ content }) => content['body']);
const stateOf = (id: string) =>
  store.read.get(store.sql.selectFrom('outbox').select(['state', 'error', 'attempts', 'not_before']).where('txn_id', '=', txn(id)));
const attempts = () => homeserver.requests.filter(({ method, path }) => method === 'PUT' && path.includes('/send/')).length;

test('a row is sent as its own user and device and marked with the event id (G4)', async () => {
  await put('answer.1');
  await settle();

  expect(bodies()).toEqual(['answer.1']);
  expect(homeserver.requests.at(-1)?.query).toMatchObject({ user_id: ORACLE, device_id: DEVICE });
  expect(outbox.eventIdOf(txn('answer.1'))).toBe(messages()[0]?.event_id);
});

test('an edit gets the id of the event it replaces, whatever the outbox knew when it was written (G4)', async () => {
  await put('answer.1');
  await put('answer.2', {
    edits: 'answer.1',
    content: { msgtype: 'm.text', body: '* b', 'm.new_content': { msgtype: 'm.text', body: 'b' } },
  });
  await settle();

  expect(messages()[1]?.content['m.relates_to']).toEqual({ rel_type: 'm.replace', event_id: messages()[0]?.event_id });
});

test('a state row is put as state', async () => {
  await put('tool.1', { stateKey: '', content: { topic: 'x' } });
  await settle();

  expect(homeserver.timeline(room).at(-1)).toMatchObject({ type: 'm.room.topic', state_key: '', content: { topic: 'x' } });
});

const inThread = (root: string): JsonObject => ({ 'm.relates_to': { rel_type: 'm.thread', event_id: root } });

test('rows of a lane go one after the other, lanes of other threads beside it (G4)', async () => {
  homeserver.trouble(/answer\.1$/, { kind: 'answer', status: 500, body: { errcode: 'M_UNKNOWN' } });

  await put('answer.1', { lane: 'slow' });
  await put('answer.2', { lane: 'slow' });
  const root = homeserver.timeline(room)[0]?.event_id ?? '';
  await put('answer.3', { lane: 'other', content: { msgtype: 'm.text', body: 'answer.3', ...inThread(root) } });
  await settle();

  expect(bodies()).toEqual(['answer.3']);
  await clock.advanceAsync(1_000);
  await settle();
  expect(bodies()).toEqual(['answer.3', 'answer.1', 'answer.2']);
});

test('a send whose answer was lost becomes one event (G4)', async () => {
  homeserver.trouble(/answer\.1$/, { kind: 'lose_answer' }, { kind: 'lose_answer' });

  await put('answer.1');
  await settle();
  homeserver.stop();
  homeserver.start();
  await clock.advanceAsync(1_000);
  await settle();

  expect(messages()).toHaveLength(1);
  expect(stateOf('answer.1')).toMatchObject({ state: 'sent' });
});

test('a rate limit is obeyed to the millisecond', async () => {
  homeserver.trouble(/answer\.1$/, { kind: 'answer', status: 429, body: { errcode: 'M_LIMIT_EXCEEDED', retry_after_ms: 700 } });
  const startedAt = clock.monotonic();

  await put('answer.1');
  await settle();
  await clock.advanceAsync(startedAt + 699 - clock.monotonic());
  const before = attempts();
  await clock.advanceAsync(10);
  await settle();

  expect(before).toBe(0);
  expect(bodies()).toEqual(['answer.1']);
});

test('a poisoned row is parked with its reason and the next one goes out (G4)', async () => {
  await put('answer.1', { content: { msgtype: 'm.text', body: 'x'.repeat(70_000) } });
  await put('answer.2', { edits: 'answer.1' });
  await put('answer.3');
  await settle();

  expect(stateOf('answer.1')).toMatchObject({ state: 'parked', error: 'M_TOO_LARGE 413' });
  expect(stateOf('answer.2')?.state).toBe('dropped');
  expect(bodies()).toEqual(['answer.3']);
  expect(signals[0]).toBe('parked answer.1 M_TOO_LARGE 413');
});

test('a row past its deadline is parked, not sent (G4)', async () => {
  homeserver.stop();
  await put('answer.1');
  await settle();

  clock.jump(LIMITS.outboxDeadlineMs);
  homeserver.start();
  await clock.advanceAsync(10_000);
  await settle();

  expect(stateOf('answer.1')).toMatchObject({ state: 'parked', error: 'deadline' });
  expect(messages()).toEqual([]);
});

describe('of several edits the last one counts (G4)', () => {
  const edit = (id: string) =>
    put(id, { edits: 'answer.1', content: { msgtype: 'm.text', body: `* ${id}`, 'm.new_content': { msgtype: 'm.text', body: id } } });
  const times = () =>
    messages()
      .slice(1)
      .map(({ origin_server_ts }) => origin_server_ts);

  test('written in one millisecond, they are a millisecond apart in the room', async () => {
    await put('answer.1');
    await settle();
    const now = clock.now();
    await edit('answer.2');
    await edit('answer.3');
    await settle();

    expect(times()).toEqual([now, now + 1]);
  });

  test('written after the wall clock was put back an hour, too', async () => {
    await put('answer.1');
    await edit('answer.2');
    await settle();
    clock.jump(-3_600_000);
    await edit('answer.3');
    await settle();

    expect(times()[1]).toBe((times()[0] ?? 0) + 1);
  });

  test('sent long after it was written, it has the time of its writing', async () => {
    await put('answer.1');
    await settle();
    homeserver.stop();
    const written = clock.now();
    await edit('answer.2');
    await clock.advanceAsync(60_000);
    homeserver.start();
    await clock.advanceAsync(6_000);
    await settle();

    expect(times()).toEqual([written]);
  });

  test('an original has the time of the homeserver, which readers see', async () => {
    await put('answer.1');
    await settle();

    expect(homeserver.requests.at(-1)?.query['ts']).toBeUndefined();
  });
});

describe('a device that the homeserver forgot', () => {
  const removeDevice = (device: string) => connectionOf().as({ userId: ORACLE }).request('DELETE', `/_matrix/client/v3/devices/${device}`);
  const connectionOf = () => homeserver.connection();
  let restored: number;
  beforeEach(async () => {
    await sender.stop();
    restored = 0;
    sender = createSender({
      outbox,
      connection: homeserver.connection(),
      clock,
      logger,
      findSent: createFindSent({ api: homeserver.connection().as({ userId: ORACLE }), outbox, oracle: ORACLE }),
      async restoreDevice() {
        restored += 1;
        await homeserver.connection().as({ userId: ORACLE }).request('PUT', `/_matrix/client/v3/devices/${DEVICE}`, {});
      },
    });
    sender.start();
  });
  /** Taken, its answer lost; then the homeserver restarted and the device removed, so nobody knows the transaction. */
  async function losingDevice(...ids: string[]) {
    for (const id of ids) homeserver.trouble(new RegExp(`${id}$`, 'u'), { kind: 'lose_answer' }, { kind: 'lose_answer' });
    for (const id of ids) await put(id, { lane: id });
    await settle();
    homeserver.stop();
    homeserver.start();
    await removeDevice(DEVICE);
    await pass(5);
  }

  test('what was sent from it is found in the room and not sent again (G4)', async () => {
    await losingDevice('answer.1');

    expect(bodies()).toEqual(['answer.1']);
    expect(outbox.eventIdOf(txn('answer.1'))).toBe(messages()[0]?.event_id);
    expect(restored).toBe(1);
  });

  test('what was not sent from it goes out, from the device made again (G4)', async () => {
    await removeDevice(DEVICE);
    await put('answer.1');
    await put('answer.2', { edits: 'answer.1', content: { msgtype: 'm.text', body: 'b' } });
    await pass(5);

    expect(bodies()).toEqual(['answer.1', 'b']);
    expect(homeserver.requests.at(-1)?.query).toMatchObject({ device_id: DEVICE });
  });

  test('a row of an earlier device that is gone is looked for, then sent from the present one (G4)', async () => {
    await sender.stop();
    await put('answer.1');
    await store.write((tx) => tx.run(store.sql.updateTable('outbox').set({ device_id: 'OLDER' as DeviceId })));
    sender = createSender({
      outbox,
      connection: homeserver.connection(),
      clock,
      logger,
      findSent: createFindSent({ api, outbox, oracle: ORACLE }),
    });
    sender.start();
    await pass(5);

    expect(bodies()).toEqual(['answer.1']);
    expect(homeserver.requests.findLast(({ method }) => method === 'PUT')?.query).toMatchObject({ device_id: DEVICE });
  });

  test('two rows with the same words are two events, each found once (G4)', async () => {
    const same = { content: { msgtype: 'm.notice', body: 'same' } };
    homeserver.trouble(/one$/u, { kind: 'lose_answer' }, { kind: 'lose_answer' });
    await put('one', { lane: 'one', ...same });
    await settle();
    homeserver.stop();
    await put('two', { lane: 'two', ...same });
    homeserver.start();
    await outbox.loseDevice(DEVICE);
    await removeDevice(DEVICE);
    await pass(30);

    expect(bodies()).toEqual(['same', 'same']);
    expect(new Set([outbox.eventIdOf(txn('one')), outbox.eventIdOf(txn('two'))]).size).toBe(2);
  });

  test('somebody else who says the same words is not taken for the oracle', async () => {
    homeserver.say(room, '@alice:oracle.local', 'answer.1');
    await removeDevice(DEVICE);
    await put('answer.1');
    await pass(5);

    expect(messages().map(({ sender: who }) => who)).toEqual(['@alice:oracle.local', ORACLE]);
  });

  test('while the room cannot be read nothing is sent', async () => {
    homeserver.trouble(/messages$/u, ...Array.from({ length: 50 }, () => ({ kind: 'answer', status: 500, body: {} }) as const));
    await losingDevice('answer.1');

    expect(stateOf('answer.1')).toMatchObject({ state: 'ready' });
    expect(messages()).toHaveLength(1);
    expect(store.read.get(store.sql.selectFrom('outbox').select('device_id'))?.device_id).toBe(LOST_DEVICE);
  });
});

describe('an answer that was refused for good', () => {
  const RUN = '01ARZ3NDEKTSV4RRFFQ69G5FAV';
  const row = (change: Partial<OutboxRow> = {}, content: JsonObject = { msgtype: 'm.text', body: 'x' }): OutboxRow =>
    ({
      kind: 'answer',
      run_id: RUN,
      lane: `run.${RUN}`,
      room_id: room,
      edits_txn: null,
      thread_root: null,
      ...change,
      content: JSON.stringify(content),
    }) as OutboxRow;
  const live = { msgtype: 'm.text', body: 'x', 'org.matrix.msc4357.live': {} };

  test.each([
    ['its original was too large', row(), 413],
    ['its original was malformed', row(), 400],
    ['its growing original was too large', row({}, live), 413],
    ['its last version was too large', row({ edits_txn: txn('answer.1') }), 413],
  ])('is told in the room when %s (G4)', (_why, refused, status) => {
    expect(planParkedNotice(refused, { status })?.content).toMatchObject({
      msgtype: 'm.notice',
      'ixo.oracle.error': { code: 'ANSWER_REFUSED', run_id: RUN },
    });
  });
  test.each([
    ['the oracle may not write there', row(), 403],
    ['it is a version on the way: the last one follows', row({ edits_txn: txn('answer.1') }, live), 413],
    ['it is a notice itself', row({ kind: 'notice' }), 413],
    ['no run wrote it', row({ run_id: null }), 413],
  ])('is not told when %s', (_why, refused, status) => {
    expect(planParkedNotice(refused, { status })).toBeNull();
  });
  test('is told in its thread', () => {
    expect(planParkedNotice(row({ thread_root: '$root' as never }), { status: 413 })?.content['m.relates_to']).toMatchObject({
      rel_type: 'm.thread',
      event_id: '$root',
    });
  });
  test('is told once, after the row was parked, in its lane', async () => {
    await store.write((tx) => {
      for (const [id, body] of [
        ['answer.1', 'x'.repeat(70_000)],
        ['answer.9', 'y'.repeat(70_000)],
      ] as const)
        outbox.insert(
          tx,
          {
            txnId: txn(id),
            lane: `run.${RUN}`,
            roomId: room,
            kind: 'answer',
            runId: RUN as never,
            eventType: 'm.room.message',
            content: { msgtype: 'm.text', body },
          },
          clock.now(),
        );
    });
    outbox.wake();
    await clock.advanceAsync(5_000);
    await settle();

    expect(messages()).toHaveLength(1);
    expect(messages()[0]?.content).toMatchObject({ 'ixo.oracle.error': { code: 'ANSWER_REFUSED' } });
    expect(outbox.parked()).toBe(2);
  });
});

describe('while the homeserver is down', () => {
  test('twenty lanes cost a few probes, not twenty each time, and all go out once when it is back', async () => {
    homeserver.stop();
    for (let lane = 0; lane < 20; lane += 1) await put(`answer.${lane}`, { lane: `lane ${lane}` });
    await settle();
    let probes = 0;
    const before = store.read.all(store.sql.selectFrom('outbox').select('attempts')).reduce((sum, row) => sum + row.attempts, 0);
    await clock.advanceAsync(60_000);
    probes = store.read.all(store.sql.selectFrom('outbox').select('attempts')).reduce((sum, row) => sum + row.attempts, 0) - before;

    homeserver.start();
    await clock.advanceAsync(6_000);
    await settle();

    expect(probes).toBeLessThan(60);
    expect(messages()).toHaveLength(20);
    expect(signals.filter((signal) => !signal.startsWith('sent'))).toEqual(['outage', 'recovered']);
  });

  test('a sign of life is used at once', async () => {
    homeserver.stop();
    await put('answer.1');
    await clock.advanceAsync(20_000);
    homeserver.start();

    sender.nudge();
    await settle();

    expect(bodies()).toEqual(['answer.1']);
  });

  test('a lane that always times out keeps newer messages of the same thread waiting for 20 s, and no others (G3, G4)', async () => {
    homeserver.trouble(/bad$/, ...Array.from({ length: 50 }, () => ({ kind: 'answer', status: 504, body: {} }) as const));
    await put('bad', { lane: 'bad' });
    await settle();
    const root = homeserver.timeline(room)[0]?.event_id ?? '';
    await put('newer', { lane: 'newer' });
    await put('good', { lane: 'good', content: { msgtype: 'm.text', body: 'good', ...inThread(root) } });
    await clock.advanceAsync(10_000);
    await settle();
    expect(bodies()).toEqual(['good']);

    await clock.advanceAsync(10_000);
    await settle();
    await clock.advanceAsync(10_000);
    await settle();
    expect(bodies()).toEqual(['good', 'newer']);
  });
});

test('a row that waits from an earlier process is found without a wake', async () => {
  await sender.stop();
  await put('answer.1');
  await store.write((tx) => tx.run(store.sql.updateTable('outbox').set({ not_before: clock.now() + 5_000 })));
  await settle();
  const next = createSender({ outbox, connection: homeserver.connection(), clock, logger });

  next.start();
  await clock.advanceAsync(7_000);
  await settle();

  expect(bodies()).toEqual(['answer.1']);
  await next.stop();
});

test('nothing goes in the clear into an encrypted room, state does (G11)', async () => {
  await sender.stop();
  const guarded = createSender({ outbox, connection: homeserver.connection(), clock, logger, encryption: async () => ENCRYPTED });
  guarded.start();

  await put('answer.1');
  await put('tool.1', { stateKey: '', content: { topic: 'x' } });
  await settle();

  expect(messages()).toEqual([]);
  expect(stateOf('answer.1')).toMatchObject({ state: 'parked', error: 'encrypted room' });
  expect(stateOf('tool.1')?.state).toBe('sent');
  await guarded.stop();
});

test('while nobody can say whether a room is encrypted, nothing is sent (G11)', async () => {
  await sender.stop();
  const unknown = new MatrixError({ errcode: 'M_UNKNOWN', status: 500, retryAfterMs: null, certain: false });
  const guarded = createSender({ outbox, connection: homeserver.connection(), clock, logger, encryption: () => Promise.reject(unknown) });
  guarded.start();

  await put('answer.1');
  await clock.advanceAsync(30_000);

  expect(messages()).toEqual([]);
  expect(stateOf('answer.1')?.state).toBe('ready');
  await guarded.stop();
});

test('an idle sender has no timer, and a stopped one leaves none', async () => {
  await put('answer.1');
  await settle();
  const idle = clock.pending();
  homeserver.stop();
  await put('answer.2');
  await settle();

  await sender.stop();

  expect(idle).toBe(0);
  expect(clock.pending()).toBe(0);
});

test('a stop waits for what is under way, and at most 5 s', async () => {
  homeserver.trouble(/answer\.1$/, { kind: 'hang' });
  await put('answer.1');
  await settle();
  let stopped = false;

  const stop = sender.stop().then(() => {
    stopped = true;
  });
  await clock.advanceAsync(4_000);
  const early = stopped;
  await clock.advanceAsync(2_000);
  await stop;

  expect(early).toBe(false);
  expect(stateOf('answer.1')).toMatchObject({ state: 'ready', attempts: 0 });
});

test('the retry of a row sends the same bytes (G4)', async () => {
  await put('answer.1', { content: { z: 1, a: 'é', msgtype: 'm.text', body: 'x' } });
  const row = store.read.get(store.sql.selectFrom('outbox').selectAll()) as OutboxRow;

  const [first, second] = [planRequest(row, null), planRequest(row, null)];

  expect(first).toEqual(second);
  expect(first).toMatchObject({ kind: 'send', body: Buffer.from('{"z":1,"a":"é","msgtype":"m.text","body":"x"}') });
});

describe('what a failure means', () => {
  const fail = (errcode: string, status: number, retryAfterMs: number | null = null) =>
    new MatrixError({ errcode, status, retryAfterMs, certain: false });
  const fresh = { attempts: 0, outageAttempts: 0 };
  test.each([
    ['M_FORBIDDEN', 403],
    ['M_NOT_FOUND', 404],
    ['M_TOO_LARGE', 413],
    ['M_BAD_JSON', 400],
    ['M_UNKNOWN', 400],
  ])('%s %d is given up', (errcode, status) => {
    expect(decideFailure(fail(errcode, status), fresh)).toEqual({ kind: 'park' });
  });
  test.each([
    ['TIMEOUT', 0, false],
    ['CONNECTION_LOST', 0, false],
    ['M_UNKNOWN', 500, false],
    ['NOT_JSON', 404, false],
    ['NOT_JSON', 301, false],
    ['M_UNKNOWN_DEVICE', 400, false],
    ['UNREACHABLE', 0, true],
    ['NOT_JSON', 502, true],
    ['M_UNKNOWN_TOKEN', 401, true],
  ])('%s %d is tried again (outage: %s)', (errcode, status, outage) => {
    expect(decideFailure(fail(errcode, status), fresh)).toMatchObject({ kind: 'retry', outage });
  });
  test('the wait grows from one second to a minute', () => {
    const delays = [0, 1, 5, 6, 40].map((attempts) => decideFailure(fail('M_UNKNOWN', 500), { attempts, outageAttempts: 0 }));

    expect(delays).toMatchObject([{ delayMs: 1_000 }, { delayMs: 2_000 }, { delayMs: 32_000 }, { delayMs: 60_000 }, { delayMs: 60_000 }]);
  });
});

test('the fake can be reached, so silence above means silence', async () => {
  expect(await api.request('GET', '/_matrix/client/v3/account/whoami')).toMatchObject({ user_id: ORACLE });
});

describe('what is looked at or encrypted before it leaves', () => {
  function slow(): { guarded: Sender; release: () => void } {
    const first = Promise.withResolvers<null>();
    let asked = 0;
    const encryption = (): Promise<null> => {
      asked += 1;
      return asked === 1 ? first.promise : Promise.resolve(null);
    };
    const guarded = createSender({ outbox, connection: homeserver.connection(), clock, logger, encryption });
    return { guarded, release: () => first.resolve(null) };
  }

  test('is not overtaken by a newer message of its place (G3)', async () => {
    await sender.stop();
    const { guarded, release } = slow();
    await put('one', { lane: 'run.1' });
    await put('two', { lane: 'run.2' });

    guarded.start();
    await settle();
    expect(bodies()).toEqual([]);
    release();
    await settle();

    expect(bodies()).toEqual(['one', 'two']);
    await guarded.stop();
  });

  test('holds back no message of another thread (G4)', async () => {
    await sender.stop();
    const { guarded, release } = slow();
    const thread = { rel_type: 'm.thread', event_id: homeserver.timeline(room)[0]?.event_id ?? '', is_falling_back: true };
    await put('one', { lane: 'run.1' });
    await put('aside', { lane: 'run.2', content: { msgtype: 'm.text', body: 'aside', 'm.relates_to': thread } });

    guarded.start();
    await settle();

    expect(bodies()).toEqual(['aside']);
    release();
    await settle();
    await guarded.stop();
  });
});
