/**
 * G11 on the real sender and the real look-ups over a homeserver that fails, lies and forgets: whatever comes in whatever order, no words go out in the
 * clear into a room that the oracle can know to be encrypted. It knows from the moment it is told, by a push or by an answer to a question.
 */
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { CryptoUnavailable } from '../../../appservice/crypto/crypto-service.ts';
import { createFindSent } from '../../../appservice/find-sent.ts';
import { type MatrixConnection, MatrixError } from '../../../appservice/matrix-api.ts';
import { createRooms, forgetChanged } from '../../../appservice/rooms.ts';
import { createSender } from '../../../appservice/sender.ts';
import type { DeviceId, OutboxTxnId, RoomId, UserId } from '../../../src/ids.ts';
import type { IncomingEvent } from '../../../src/inbox/inbox.ts';
import { createLogger } from '../../../src/observe/logger.ts';
import { createOutbox } from '../../../src/outbox/outbox.ts';
import { openStore } from '../../../src/store/store.ts';
import { sleep } from '../../../src/time.ts';
import { fakeClock } from '../../fakes/fake-clock.ts';
import { createFakeHomeserver, registerOracle } from '../../fakes/fake-homeserver.ts';
import { fakeSealer } from '../../fakes/fake-sealer.ts';

const ORACLE = '@oracle:oracle.local' as UserId;
const ALICE = '@alice:oracle.local' as UserId;
const DEVICE = 'ORACLE' as DeviceId;
const logger = createLogger({ level: 'silent', format: 'json' });
const WORDS = 'these words are private';

type Step =
  | { readonly kind: 'say'; readonly room: number }
  | { readonly kind: 'edit'; readonly room: number }
  /** Switched on at the homeserver; nobody is told yet. */
  | { readonly kind: 'encrypt'; readonly room: number }
  /** The push of it arrives, perhaps again. */
  | { readonly kind: 'push'; readonly room: number }
  /** Somebody comes or goes. */
  | { readonly kind: 'member'; readonly room: number }
  /** The homeserver's state has lost the encryption. */
  | { readonly kind: 'lie'; readonly room: number }
  | { readonly kind: 'fail'; readonly what: 'state' | 'send' | 'lost' | 'seal' | 'keys'; readonly times: number }
  /** The next answers about a room's state, or of the engine, come late: what they say may be over by then. */
  | { readonly kind: 'slow'; readonly what: 'state' | 'seal'; readonly ms: number }
  | { readonly kind: 'down' }
  | { readonly kind: 'up' }
  | { readonly kind: 'loseDevice' }
  | { readonly kind: 'restart' }
  | { readonly kind: 'wait'; readonly ms: number };

/** Mostly the same, so that things meet. */
const roomNumber = fc.constantFrom(0, 0, 0, 0, 1);
const step: fc.Arbitrary<Step> = fc.oneof(
  { weight: 6, arbitrary: fc.record({ kind: fc.constant('say' as const), room: roomNumber }) },
  { weight: 3, arbitrary: fc.record({ kind: fc.constant('edit' as const), room: roomNumber }) },
  { weight: 3, arbitrary: fc.record({ kind: fc.constant('encrypt' as const), room: roomNumber }) },
  { weight: 3, arbitrary: fc.record({ kind: fc.constant('push' as const), room: roomNumber }) },
  { weight: 2, arbitrary: fc.record({ kind: fc.constant('member' as const), room: roomNumber }) },
  { weight: 3, arbitrary: fc.record({ kind: fc.constant('lie' as const), room: roomNumber }) },
  {
    weight: 4,
    arbitrary: fc.record({
      kind: fc.constant('fail' as const),
      what: fc.constantFrom('state' as const, 'send' as const, 'lost' as const, 'seal' as const, 'keys' as const),
      times: fc.integer({ min: 1, max: 3 }),
    }),
  },
  {
    weight: 3,
    arbitrary: fc.record({
      kind: fc.constant('slow' as const),
      what: fc.constantFrom('state' as const, 'seal' as const),
      ms: fc.integer({ min: 1, max: 500 }),
    }),
  },
  { weight: 1, arbitrary: fc.constant<Step>({ kind: 'down' }) },
  { weight: 1, arbitrary: fc.constant<Step>({ kind: 'up' }) },
  { weight: 1, arbitrary: fc.constant<Step>({ kind: 'loseDevice' }) },
  { weight: 3, arbitrary: fc.constant<Step>({ kind: 'restart' }) },
  { weight: 5, arbitrary: fc.record({ kind: fc.constant('wait' as const), ms: fc.integer({ min: 0, max: 3_000 }) }) },
);

async function play(steps: readonly Step[]) {
  const clock = fakeClock();
  const homeserver = createFakeHomeserver({ clock });
  await registerOracle(homeserver.connection());
  const store = openStore({ path: ':memory:', now: clock.now() });
  const sealer = fakeSealer();
  const rooms = [0, 1].map(() => {
    const room = homeserver.createRoom({ creator: ALICE, invite: [ORACLE] }) as RoomId;
    homeserver.join(room, ORACLE);
    return room;
  });
  /** Rooms that the oracle was told of, by a push or in an answer. */
  const told = new Set<string>();
  const leaked: string[] = [];
  const isEncrypted = new Set<string>();
  let clearPuts = 0;
  const late: Record<'state' | 'seal', number[]> = { state: [], seal: [] };
  const delay = async (what: 'state' | 'seal') => {
    const ms = late[what].shift();
    if (ms !== undefined) await sleep(clock, ms);
  };
  const connection: MatrixConnection = {
    ...homeserver.connection(),
    as: (identity) => ({
      async request(method, path, request) {
        const room = decodeURIComponent(path.split('/')[5] ?? '');
        const body = Buffer.isBuffer(request?.body) ? request.body.toString() : JSON.stringify(request?.body ?? null);
        if (method === 'PUT' && body.includes(WORDS)) {
          clearPuts += 1;
          if (told.has(room)) leaked.push(path);
        }
        const answer = await homeserver.connection().as(identity).request(method, path, request);
        if (path.endsWith('/state')) await delay('state');
        if (Array.isArray(answer) && JSON.stringify(answer).includes('"m.room.encryption"')) told.add(room);
        return answer as never;
      },
    }),
  };
  const api = connection.as({ userId: ORACLE, deviceId: DEVICE });
  const bare = homeserver.connection().as({ userId: ORACLE });
  const start = () => {
    const outbox = createOutbox({ store, identity: { sender: ORACLE, deviceId: DEVICE } });
    const directory = createRooms({ api, store, oracle: ORACLE, clock, logger });
    const sender = createSender({
      outbox,
      connection,
      clock,
      logger,
      encryption: directory.encryption,
      async seal(event, room) {
        await delay('seal');
        return sealer.seal(event, room);
      },
      findSent: createFindSent({ api: connection.as({ userId: ORACLE }), outbox, oracle: ORACLE }),
      async restoreDevice() {
        await bare.request('PUT', `/_matrix/client/v3/devices/${DEVICE}`, {});
      },
    });
    sender.start();
    return { outbox, directory, sender };
  };
  let process = start();
  const tell = (room: RoomId, type: string, stateKey: string) => {
    if (type === 'm.room.encryption') told.add(room);
    forgetChanged([{ type, roomId: room, event: { state_key: stateKey } } as unknown as IncomingEvent], process.directory);
  };
  async function put(room: RoomId, count: number, edits?: string) {
    const txnId = `answer.${count}` as OutboxTxnId;
    const content = { msgtype: 'm.text', body: `${WORDS} ${count}` };
    await store.write((tx) =>
      process.outbox.insert(
        tx,
        {
          txnId,
          lane: `lane.${room}`,
          roomId: room,
          kind: 'answer',
          eventType: 'm.room.message',
          content: edits === undefined ? content : { ...content, 'm.new_content': content },
          ...(edits === undefined ? {} : { editsTxn: edits as OutboxTxnId }),
        },
        clock.now(),
      ),
    );
    process.outbox.wake();
    return txnId;
  }
  const last = new Map<RoomId, string>();
  let count = 0;
  async function take(one: Step) {
    const room = ('room' in one ? rooms[one.room] : rooms[0]) as RoomId;
    switch (one.kind) {
      case 'say':
        last.set(room, await put(room, ++count));
        break;
      case 'edit':
        if (last.has(room)) await put(room, ++count, last.get(room));
        break;
      case 'encrypt':
        homeserver.setState(room, ALICE, 'm.room.encryption', { algorithm: 'm.megolm.v1.aes-sha2' });
        isEncrypted.add(room);
        break;
      case 'push':
        if (isEncrypted.has(room)) tell(room, 'm.room.encryption', '');
        break;
      case 'member':
        homeserver.join(room, `@p${++count}:oracle.local`);
        tell(room, 'm.room.member', `@p${count}:oracle.local`);
        break;
      case 'lie':
        homeserver.hideState(room, 'm.room.encryption');
        break;
      case 'fail':
        for (let time = 0; time < one.times; time += 1) fail(one.what);
        break;
      case 'slow':
        late[one.what].push(one.ms);
        break;
      case 'down':
        homeserver.stop();
        break;
      case 'up':
        homeserver.start();
        break;
      case 'loseDevice':
        await bare.request('DELETE', `/_matrix/client/v3/devices/${DEVICE}`).catch(() => undefined);
        break;
      case 'restart': {
        const stopped = process.sender.stop();
        await clock.advanceAsync(6_000);
        await stopped;
        process = start();
        break;
      }
      case 'wait':
        await clock.advanceAsync(one.ms);
    }
    await clock.advanceAsync(1);
  }
  function fail(what: Extract<Step, { kind: 'fail' }>['what']) {
    const error = { kind: 'answer', status: 500, body: { errcode: 'M_UNKNOWN' } } as const;
    if (what === 'state') homeserver.trouble(/\/state$/u, error);
    if (what === 'send') homeserver.trouble(/\/send\//u, error);
    if (what === 'lost') homeserver.trouble(/\/send\//u, { kind: 'lose_answer' }, { kind: 'lose_answer' });
    if (what === 'seal') sealer.failures.push(new CryptoUnavailable('closed'));
    if (what === 'keys') sealer.failures.push(new MatrixError({ errcode: 'M_FORBIDDEN', status: 403, retryAfterMs: null, certain: true }));
  }

  for (const one of steps) await take(one);
  // What is left goes out at last.
  homeserver.start();
  for (let look = 0; look < 400 && process.outbox.depth() > 0; look += 1) await clock.advanceAsync(5_000);
  const states = store.read.all(store.sql.selectFrom('outbox').select(['state', 'error']));
  const stopped = process.sender.stop();
  await clock.advanceAsync(6_000);
  await stopped;
  return { leaked, clearPuts, states, homeserver, rooms, sealed: sealer.sealed.length };
}

test('no words go in the clear into a room that the oracle can know to be encrypted, in whatever order things happen (G11)', async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(step, { minLength: 1, maxLength: 40 }), async (steps) => {
      const { leaked, states, homeserver, rooms } = await play(steps);

      expect(leaked).toEqual([]);
      // Nothing is given up for it either, and nothing is said twice (G4).
      expect(states.filter(({ state }) => state !== 'sent')).toEqual([]);
      const own = rooms
        .flatMap((room) => homeserver.timeline(room))
        .filter(({ sender, state_key }) => sender === ORACLE && state_key === undefined);
      expect(own).toHaveLength(states.length);
    }),
    { numRuns: 400 },
  );
}, 120_000);

test('the control: with the same steps words do go out in the clear before anybody could know', async () => {
  const { clearPuts, sealed, leaked } = await play([
    { kind: 'say', room: 0 },
    { kind: 'encrypt', room: 0 },
    { kind: 'push', room: 0 },
    { kind: 'say', room: 0 },
  ]);

  expect({ clearPuts, sealed, leaked }).toEqual({ clearPuts: 1, sealed: 1, leaked: [] });
});
