import { beforeEach, describe, expect, test } from 'vitest';
import { CryptoUnavailable, type RoomEncryption } from '../../../appservice/crypto/crypto-service.ts';
import { createFindSent } from '../../../appservice/find-sent.ts';
import { MatrixError } from '../../../appservice/matrix-api.ts';
import { createRooms, forgetChanged, type Rooms } from '../../../appservice/rooms.ts';
import { decideSealProblem } from '../../../appservice/seal-row.ts';
import { createSender, type Sender } from '../../../appservice/sender.ts';
import type { DeviceId, EventId, OutboxTxnId, RoomId, RunId, UserId } from '../../../src/ids.ts';
import type { IncomingEvent } from '../../../src/inbox/inbox.ts';
import { type JsonObject, jsonBytes } from '../../../src/json.ts';
import { createLogger } from '../../../src/observe/logger.ts';
import { createOutbox, type Outbox } from '../../../src/outbox/outbox.ts';
import { parkReasonOf } from '../../../src/outbox/park-reason.ts';
import { openStore, type Store } from '../../../src/store/store.ts';
import { type FakeClock, fakeClock } from '../../fakes/fake-clock.ts';
import { createFakeHomeserver, type FakeHomeserver, registerOracle } from '../../fakes/fake-homeserver.ts';
import { type FakeSealer, fakeSealer } from '../../fakes/fake-sealer.ts';

const ORACLE = '@oracle:oracle.local' as UserId;
const ALICE = '@alice:oracle.local' as UserId;
const DEVICE = 'ORACLE' as DeviceId;
const MEGOLM = { algorithm: 'm.megolm.v1.aes-sha2' };
const logger = createLogger({ level: 'silent', format: 'json' });
const txn = (id: string) => id as OutboxTxnId;

let clock: FakeClock;
let homeserver: FakeHomeserver;
let store: Store;
let outbox: Outbox;
let rooms: Rooms;
let sealer: FakeSealer;
let sender: Sender;
let room: RoomId;

beforeEach(async () => {
  clock = fakeClock();
  homeserver = createFakeHomeserver({ clock });
  await registerOracle(homeserver.connection());
  store = openStore({ path: ':memory:', now: clock.now() });
  sealer = fakeSealer();
  room = homeserver.createRoom({ creator: ALICE, invite: [ORACLE], encrypted: true }) as RoomId;
  homeserver.join(room, ORACLE);
  startProcess();
});
function startProcess(more: Partial<Parameters<typeof createSender>[0]> = {}) {
  const connection = homeserver.connection();
  const api = connection.as({ userId: ORACLE, deviceId: DEVICE });
  outbox = createOutbox({ store, identity: { sender: ORACLE, deviceId: DEVICE } });
  rooms = createRooms({ api, store, oracle: ORACLE, clock, logger });
  sender = createSender({ outbox, connection, clock, logger, encryption: rooms.encryption, seal: sealer.seal, ...more });
  sender.start();
}
async function restart(more: Partial<Parameters<typeof createSender>[0]> = {}) {
  await sender.stop();
  startProcess(more);
}
async function put(
  id: string,
  { content = { msgtype: 'm.text', body: `secret ${id}` }, type = 'm.room.message', edits, stateKey, lane = 'one', run }: Put = {},
) {
  await store.write((tx) =>
    outbox.insert(
      tx,
      {
        txnId: txn(id),
        lane,
        roomId: room,
        kind: 'answer',
        eventType: type,
        content,
        ...(edits === undefined ? {} : { editsTxn: txn(edits) }),
        ...(stateKey === undefined ? {} : { stateKey }),
        ...(run === undefined ? {} : { runId: run as RunId }),
      },
      clock.now(),
    ),
  );
  outbox.wake();
}
interface Put {
  content?: JsonObject;
  type?: string;
  edits?: string;
  stateKey?: string;
  lane?: string;
  run?: string;
}
const edit = (id: string, edits: string) =>
  put(id, { edits, content: { msgtype: 'm.text', body: `* secret ${id}`, 'm.new_content': { msgtype: 'm.text', body: `secret ${id}` } } });
async function settle() {
  for (let turn = 0; turn < 12; turn += 1) await clock.advanceAsync(1);
}
async function pass(seconds: number) {
  for (let second = 0; second < seconds; second += 1) {
    await settle();
    await clock.advanceAsync(1_000);
  }
  await settle();
}
const rowOf = (id: string) => store.read.get(store.sql.selectFrom('outbox').selectAll().where('txn_id', '=', txn(id)));
const sent = () => homeserver.timeline(room).filter(({ sender: by, state_key }) => by === ORACLE && state_key === undefined);
const puts = () => homeserver.requests.filter(({ method, path }) => method === 'PUT' && path.includes('/send/'));
const readAll = () => Promise.all(sent().map(async (event) => (await sealer.read(event as unknown as JsonObject, room))?.['content']));

test('a message into an encrypted room goes out encrypted, for everybody who reads it (G11)', async () => {
  await put('answer.1');
  await settle();

  expect(sent().map(({ type }) => type)).toEqual(['m.room.encrypted']);
  expect(JSON.stringify(homeserver.requests)).not.toContain('secret');
  expect(await readAll()).toEqual([{ msgtype: 'm.text', body: 'secret answer.1' }]);
  expect(sealer.sealed[0]?.room.readers.toSorted()).toEqual([ALICE, ORACLE]);
  expect(outbox.eventIdOf(txn('answer.1'))).toBe(sent()[0]?.event_id);
});

test('a message into a room without encryption goes out as it is: the control', async () => {
  room = homeserver.createRoom({ creator: ALICE, invite: [ORACLE] }) as RoomId;
  homeserver.join(room, ORACLE);
  await put('answer.1');
  await settle();

  expect(sent().map(({ type, content }) => [type, content['body']])).toEqual([['m.room.message', 'secret answer.1']]);
  expect(sealer.sealed).toEqual([]);
});

test('an answer to what was encrypted is encrypted too, in a room whose state does not ask for it (G11)', async () => {
  room = homeserver.createRoom({ creator: ALICE, invite: [ORACLE] }) as RoomId;
  homeserver.join(room, ORACLE);
  await restart({ askedEncrypted: ({ run_id: run }) => run === 'asked' });
  await put('answer.1', { run: 'asked' });
  await put('notice.1', { lane: 'two' });
  await settle();

  expect(sent().map(({ type }) => type)).toEqual(['m.room.encrypted', 'm.room.message']);
  expect(sealer.sealed[0]?.room.readers.toSorted()).toEqual([ALICE, ORACLE]);
});

test('an edit is encrypted with what it becomes, and says in the clear which event it edits', async () => {
  await put('answer.1');
  await edit('answer.2', 'answer.1');
  await settle();

  const relation = { rel_type: 'm.replace', event_id: sent()[0]?.event_id };
  expect(sent()[1]?.content['m.relates_to']).toEqual(relation);
  expect(sent()[1]?.content).not.toHaveProperty('m.new_content');
  expect(sealer.sealed[1]?.content).toMatchObject({ 'm.relates_to': relation, 'm.new_content': { body: 'secret answer.2' } });
});

test('an encrypted edit keeps the time of its writing, so that of several the last one counts (G4)', async () => {
  await put('answer.1');
  await settle();
  const now = clock.now();
  await edit('answer.2', 'answer.1');
  await edit('answer.3', 'answer.1');
  await settle();

  expect(
    sent()
      .slice(1)
      .map(({ origin_server_ts }) => origin_server_ts),
  ).toEqual([now, now + 1]);
});

test('a thread can be read in the clear, its words cannot', async () => {
  const relation = { rel_type: 'm.thread', event_id: homeserver.timeline(room)[0]?.event_id ?? '' };
  await put('answer.1', { content: { msgtype: 'm.text', body: 'secret', 'm.relates_to': relation } });
  await settle();

  expect(sent()[0]?.content['m.relates_to']).toEqual(relation);
});

test('state and reactions stay clear: servers act on them', async () => {
  const target = homeserver.say(room, ALICE, 'hi').event_id;
  await put('tool.1', { type: 'm.room.topic', stateKey: '', content: { topic: 'x' } });
  await put('lock.1', { type: 'm.reaction', content: { 'm.relates_to': { rel_type: 'm.annotation', event_id: target, key: '🔒' } } });
  await settle();

  expect(homeserver.timeline(room).at(-2)).toMatchObject({ type: 'm.room.topic', content: { topic: 'x' } });
  expect(sent().map(({ type }) => type)).toEqual(['m.reaction']);
  expect(sealer.sealed).toEqual([]);
});

test('events of every other kind are encrypted as what they are', async () => {
  await put('receipt.1', { type: 'ixo.oracle.grant_receipt', content: { token_id: 'secret' } });
  await settle();

  expect(sent().map(({ type }) => type)).toEqual(['m.room.encrypted']);
  expect(sealer.sealed[0]).toMatchObject({ type: 'ixo.oracle.grant_receipt', content: { token_id: 'secret' } });
});

describe('a retry is the same event (G4)', () => {
  test('with the bytes of the first attempt, also after a restart', async () => {
    homeserver.trouble(/answer\.1$/u, { kind: 'answer', status: 500, body: { errcode: 'M_UNKNOWN' } });
    homeserver.trouble(/answer\.1$/u, { kind: 'answer', status: 500, body: { errcode: 'M_UNKNOWN' } });
    await put('answer.1');
    await settle();
    const kept = rowOf('answer.1')?.sealed;
    await restart();
    await pass(5);

    expect(sealer.sealed).toHaveLength(1);
    expect(JSON.stringify(sent()[0]?.content)).toBe(kept);
    expect(sent()).toHaveLength(1);
  });

  test('when the answer was lost and the homeserver forgot its cache', async () => {
    homeserver.trouble(/answer\.1$/u, { kind: 'lose_answer' }, { kind: 'lose_answer' });
    await put('answer.1');
    await settle();
    homeserver.stop();
    homeserver.start();
    await pass(2);

    expect(sent()).toHaveLength(1);
    expect(sealer.sealed).toHaveLength(1);
    expect(rowOf('answer.1')).toMatchObject({ state: 'sent', event_id: sent()[0]?.event_id });
  });

  test('the ciphertext is on disk before it leaves', async () => {
    let atPut: string | null | undefined;
    await restart({
      connection: {
        as: (identity) => ({
          request(method, path, request) {
            if (method === 'PUT') atPut = rowOf('answer.1')?.sealed;
            return homeserver.connection().as(identity).request(method, path, request);
          },
        }),
      },
    });
    await put('answer.1');
    await settle();

    expect(atPut).toBe(JSON.stringify(sent()[0]?.content));
  });

  test('a confirmed one needs its ciphertext no longer', async () => {
    await put('answer.1');
    await settle();

    expect(rowOf('answer.1')).toMatchObject({ state: 'sent', sealed: null });
  });

  test('a room that somebody calls clear again gets it encrypted all the same (G11)', async () => {
    homeserver.trouble(/answer\.1$/u, { kind: 'answer', status: 500, body: { errcode: 'M_UNKNOWN' } });
    await put('answer.1');
    await settle();
    await restart({ encryption: async () => null });
    await pass(3);

    expect(sent().map(({ type }) => type)).toEqual(['m.room.encrypted']);
  });

  test('one that was tried in the clear before its room was encrypted goes out once, encrypted (G4, G11)', async () => {
    room = homeserver.createRoom({ creator: ALICE, invite: [ORACLE] }) as RoomId;
    homeserver.join(room, ORACLE);
    homeserver.trouble(/answer\.1$/u, { kind: 'answer', status: 500, body: { errcode: 'M_UNKNOWN' } });
    await put('answer.1');
    await settle();
    homeserver.setState(room, ALICE, 'm.room.encryption', MEGOLM);
    forgetChanged([{ type: 'm.room.encryption', roomId: room, event: { state_key: '' } } as unknown as IncomingEvent], rooms);
    await pass(3);

    expect(sent().map(({ type }) => type)).toEqual(['m.room.encrypted']);
  });

  test('one whose clear event was taken, its answer lost, is that event: the homeserver knows its id', async () => {
    room = homeserver.createRoom({ creator: ALICE, invite: [ORACLE] }) as RoomId;
    homeserver.join(room, ORACLE);
    homeserver.trouble(/answer\.1$/u, { kind: 'lose_answer' }, { kind: 'lose_answer' });
    await put('answer.1');
    await settle();
    homeserver.setState(room, ALICE, 'm.room.encryption', MEGOLM);
    rooms.sawEncryption(room);
    await pass(3);

    expect(sent().map(({ type }) => type)).toEqual(['m.room.message']);
    expect(rowOf('answer.1')).toMatchObject({ state: 'sent', event_id: sent()[0]?.event_id });
  });
});

describe('a device that the homeserver forgot', () => {
  async function loseDevice() {
    const api = homeserver.connection().as({ userId: ORACLE });
    homeserver.stop();
    homeserver.start();
    await api.request('DELETE', `/_matrix/client/v3/devices/${DEVICE}`);
    await restart({
      findSent: createFindSent({ api, outbox, oracle: ORACLE }),
      async restoreDevice() {
        await api.request('PUT', `/_matrix/client/v3/devices/${DEVICE}`, {});
      },
    });
    await pass(5);
  }

  test('what it sent encrypted is found by its ciphertext and not sent again (G4)', async () => {
    homeserver.trouble(/answer\.1$/u, { kind: 'lose_answer' }, { kind: 'lose_answer' });
    await put('answer.1');
    await settle();
    await loseDevice();

    expect(sent()).toHaveLength(1);
    expect(rowOf('answer.1')).toMatchObject({ state: 'sent', event_id: sent()[0]?.event_id });
    expect(sealer.sealed).toHaveLength(1);
  });

  test('what it did not send goes out, as it was encrypted before (G4)', async () => {
    homeserver.trouble(/answer\.1$/u, { kind: 'answer', status: 500, body: { errcode: 'M_UNKNOWN' } });
    await put('answer.1');
    await settle();
    const kept = rowOf('answer.1')?.sealed;
    await loseDevice();

    expect(sent().map(({ content }) => JSON.stringify(content))).toEqual([kept]);
  });

  test('what it sent in the clear, before the room was encrypted, is found as well (G4)', async () => {
    room = homeserver.createRoom({ creator: ALICE, invite: [ORACLE] }) as RoomId;
    homeserver.join(room, ORACLE);
    homeserver.trouble(/answer\.1$/u, { kind: 'lose_answer' }, { kind: 'lose_answer' });
    await put('answer.1');
    await settle();
    // Encrypted for a retry that never reached the homeserver.
    homeserver.setState(room, ALICE, 'm.room.encryption', MEGOLM);
    rooms.sawEncryption(room);
    homeserver.trouble(/answer\.1$/u, { kind: 'answer', status: 500, body: { errcode: 'M_UNKNOWN' } });
    await pass(1);
    await loseDevice();

    expect(sent().map(({ type }) => type)).toEqual(['m.room.message']);
    expect(rowOf('answer.1')).toMatchObject({ state: 'sent', event_id: sent()[0]?.event_id });
  });
});

describe('while it cannot be encrypted', () => {
  test('it waits, is not given up and nothing is sent; then it goes out within seconds (G4, G11)', async () => {
    const closed = new CryptoUnavailable('the key store is not open');
    sealer.failures.push(...Array.from({ length: 8 }, () => closed));
    await put('answer.1');
    await pass(10);
    const waiting = rowOf('answer.1');
    const before = puts().length;
    await pass(30);

    expect(waiting).toMatchObject({ state: 'ready', error: 'the key store is not open', sealed: null });
    expect(before).toBe(0);
    expect(sent()).toHaveLength(1);
  });

  test('messages of rooms without encryption are not held up', async () => {
    sealer.failures.push(...Array.from({ length: 5 }, () => new CryptoUnavailable('closed')));
    const encrypted = room;
    await put('answer.1', { lane: 'encrypted' });
    room = homeserver.createRoom({ creator: ALICE, invite: [ORACLE] }) as RoomId;
    homeserver.join(room, ORACLE);
    await put('answer.2', { lane: 'clear' });
    await settle();

    expect(sent().map(({ content }) => content['body'])).toEqual(['secret answer.2']);
    room = encrypted;
    expect(sent()).toEqual([]);
  });

  test('it keeps its place: a newer message of the same room goes after it (G3)', async () => {
    sealer.failures.push(new CryptoUnavailable('closed'));
    await put('answer.1', { lane: 'first' });
    await settle();
    await put('answer.2', { lane: 'second' });
    await pass(3);

    expect(sealer.sealed.map(({ content }) => content['body'])).toEqual(['secret answer.1', 'secret answer.2']);
  });

  test.each([
    ['refuses a request about keys', 'M_FORBIDDEN', 403],
    ['does not know the device of the keys', 'M_UNKNOWN_DEVICE', 400],
    ['has no such page', 'M_UNRECOGNIZED', 404],
    ['fails', 'M_UNKNOWN', 500],
  ])('because the homeserver %s: that is not said of the event (G4)', async (_name, errcode, status) => {
    sealer.failures.push(new MatrixError({ errcode, status, retryAfterMs: null, certain: status < 500 }));
    let restored = 0;
    await restart({
      async restoreDevice() {
        restored += 1;
      },
    });
    await put('answer.1');
    await pass(3);

    expect(sent()).toHaveLength(1);
    expect(restored).toBe(0);
    expect(rowOf('answer.1')).toMatchObject({ state: 'sent', device_id: DEVICE });
  });

  test('because the homeserver serves nobody: all lanes wait together', async () => {
    const signals: string[] = [];
    sealer.failures.push(new MatrixError({ errcode: 'UNREACHABLE', status: 0, retryAfterMs: null, certain: true }));
    await restart({ onOutage: () => signals.push('outage'), onRecovered: () => signals.push('recovered') });
    await put('answer.1');
    await pass(3);

    expect(signals).toEqual(['outage', 'recovered']);
    expect(sent()).toHaveLength(1);
  });

  test('because of a bug: it is tried again, and no other room waits for it (G4)', async () => {
    sealer.failures.push(new Error('a bug'));
    await put('answer.1', { lane: 'encrypted' });
    await settle();
    const waiting = rowOf('answer.1');
    room = homeserver.createRoom({ creator: ALICE, invite: [ORACLE] }) as RoomId;
    homeserver.join(room, ORACLE);
    await put('answer.2', { lane: 'clear' });
    await settle();

    expect(waiting).toMatchObject({ state: 'ready', error: 'encryption failed' });
    expect(sent().map(({ content }) => content['body'])).toEqual(['secret answer.2']);
    await pass(2);
    expect(rowOf('answer.1')?.state).toBe('sent');
  });

  test('because keys of many rooms are slow to come: rooms without encryption do not wait (G4)', async () => {
    await restart({ seal: () => new Promise(() => undefined) });
    for (let n = 0; n < 30; n += 1) await put(`answer.${n}`, { lane: `lane ${n}` });
    await settle();
    room = homeserver.createRoom({ creator: ALICE, invite: [ORACLE] }) as RoomId;
    homeserver.join(room, ORACLE);
    await put('clear.1', { lane: 'clear' });
    await settle();

    expect(sent().map(({ content }) => content['body'])).toEqual(['secret clear.1']);
  });

  test('a stop waits for it at most 5 s, and sends nothing afterwards', async () => {
    const late = Promise.withResolvers<JsonObject>();
    await restart({ seal: () => late.promise });
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
    late.resolve({ algorithm: 'm.megolm.v1.aes-sha2', ciphertext: 'late' });
    await settle();

    expect(early).toBe(false);
    expect(sent()).toEqual([]);
    expect(rowOf('answer.1')).toMatchObject({ state: 'ready', attempts: 0, sealed: null });
  });
});

describe('what cannot be sent', () => {
  const answer = (body: string): JsonObject => ({
    msgtype: 'm.text',
    body,
    'ixo.oracle.run': {
      run_id: '01KC0000000000000000000000',
      session_id: '$s',
      prompts: ['$prompt'],
      part: 1,
      seq: 1,
      status: 'completed',
    },
  });

  test('too large once encrypted: it is given up with its reason, said in the room, and the next one goes out (G4)', async () => {
    // Fits in the clear: 50 kB of 64.
    await put('answer.1', { content: answer('x'.repeat(50_000)), run: '01KC0000000000000000000000' });
    await put('answer.2');
    await settle();

    expect(rowOf('answer.1')).toMatchObject({ state: 'parked', error: 'too large once encrypted', sealed: null });
    expect(parkReasonOf('too large once encrypted')).toBe('too_large');
    expect(sealer.sealed.slice(1).map(({ content }) => content['ixo.oracle.error'] !== undefined)).toEqual([false, true]);
    expect(sent().map(({ type }) => type)).toEqual(['m.room.encrypted', 'm.room.encrypted']);
  });

  test('what the runtime holds an answer down to fits, however much of it must be escaped', async () => {
    await put('answer.1', { content: answer('x'.repeat(39_500)) });
    await settle();

    expect(rowOf('answer.1')?.state).toBe('sent');
  });

  test('into a room that the oracle was thrown out of: it is given up, and nobody gets a key', async () => {
    homeserver.leave(room, ORACLE);
    await put('answer.1');
    await settle();

    expect(rowOf('answer.1')).toMatchObject({ state: 'parked', error: 'M_FORBIDDEN 403' });
    expect(sealer.sealed).toEqual([]);
  });

  test('without an engine it is given up, as nothing may go in the clear (G11)', async () => {
    await restart({ seal: undefined });
    await put('answer.1');
    await settle();

    expect(rowOf('answer.1')).toMatchObject({ state: 'parked', error: 'encrypted room' });
    expect(puts()).toEqual([]);
  });

  const sealedAs = (more: JsonObject): JsonObject => ({ algorithm: 'm.megolm.v1.aes-sha2', ciphertext: 'abc', ...more });
  const ROOM_LEFT = 62 * 1024 - jsonBytes(sealedAs({ ciphertext: '' }));
  test.each<[string, JsonObject, JsonObject, string | null]>([
    ['a ciphertext', sealedAs({}), { body: 'x' }, null],
    ['one that is none', { algorithm: 'm.megolm.v1.aes-sha2' }, { body: 'x' }, 'encryption gave no ciphertext'],
    ['one with the words beside it', sealedAs({ body: 'x' }), { body: 'x' }, 'encryption gave no ciphertext'],
    ['one without its relation', sealedAs({}), { 'm.relates_to': { event_id: '$a' } }, 'encryption lost the relation'],
    [
      'one with another relation',
      sealedAs({ 'm.relates_to': { event_id: '$b' } }),
      { 'm.relates_to': { event_id: '$a' } },
      'encryption lost the relation',
    ],
    ['one with a relation that nobody wrote', sealedAs({ 'm.relates_to': { event_id: '$b' } }), {}, 'encryption lost the relation'],
    ['one of 62 KiB', sealedAs({ ciphertext: 'x'.repeat(ROOM_LEFT) }), {}, null],
    ['one byte more', sealedAs({ ciphertext: 'x'.repeat(ROOM_LEFT + 1) }), {}, 'too large once encrypted'],
    ['an absurd one', sealedAs({ ciphertext: 'x'.repeat(5_000_000) }), {}, 'too large once encrypted'],
  ])('%s is judged', (_name, sealed, content, problem) => {
    expect(decideSealProblem(sealed, content)).toBe(problem);
  });
});

test('the fake engine never gives the same bytes twice, so equal bytes above mean the kept ones', async () => {
  const to = (await rooms.encryption(room)) as RoomEncryption;
  const event = { type: 'm.room.message', content: { body: 'x' } };

  expect(await sealer.seal(event, to)).not.toEqual(await sealer.seal(event, to));
  expect(await sealer.read({ type: 'm.room.encrypted', content: { ciphertext: 'other' }, event_id: '$e' as EventId }, room)).toBeNull();
});
