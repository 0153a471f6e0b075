import { afterEach, beforeEach, expect, test } from 'vitest';
import { type CryptoDb, openCryptoDb, type ToDeviceBatch, type ToDeviceStore } from '../../../../appservice/crypto/crypto-db.ts';
import { CryptoUnavailable } from '../../../../appservice/crypto/crypto-service.ts';
import type { ReceivedToDevice } from '../../../../appservice/crypto/engine.ts';
import { createKeyIntake, type KeyIntake } from '../../../../appservice/crypto/key-intake.ts';
import type { ReadBatch } from '../../../../appservice/crypto/to-device-batch.ts';
import type { JsonObject } from '../../../../src/json.ts';
import { LIMITS } from '../../../../src/limits.ts';
import { systemClock } from '../../../../src/system-clock.ts';
import { fakeKeyServer } from '../../../fakes/fake-key-server.ts';
import { fakeLogger } from '../../../fakes/fake-logger.ts';
import { openKeyMachine } from '../../../fakes/key-machine.ts';

let db: CryptoDb;
let log: string[];
let batches: ToDeviceBatch[];
let receive: (batch: ToDeviceBatch) => Promise<readonly ReceivedToDevice[]>;
let received: ReceivedToDevice[];
let logger = fakeLogger();

beforeEach(() => {
  const opened = openCryptoDb(':memory:');
  if (!opened.ok) throw new Error(opened.error.code);
  db = opened.value;
  log = [];
  batches = [];
  received = [];
  logger = fakeLogger();
  receive = async (batch) => batch.events.map((event) => ({ kind: 'plain', event }));
});
afterEach(() => db.close());

/** A process on the file that is there. */
function start(store: ToDeviceStore = db.toDevice): KeyIntake {
  return createKeyIntake({
    store: {
      ...store,
      put(batch, since) {
        store.put(batch, since);
        log.push('stored');
      },
      done(id) {
        log.push('marked');
        store.done(id);
      },
    },
    engine: {
      async receive(batch) {
        const result = await receive(batch);
        batches.push(batch);
        log.push(`engine ${batch.events.length}`);
        return result;
      },
      call: async (name) => {
        log.push(name);
        return undefined as never;
      },
    },
    logger,
    onReceived: (events) => void received.push(...events),
  });
}
const event = (nr: number): JsonObject => ({ type: 'm.room.encrypted', sender: '@alice:s', content: { nr } });
const batch = (events: readonly JsonObject[], more: Partial<ToDeviceBatch & Omit<ReadBatch, 'batch'>> = {}): ReadBatch => {
  const { skipped = 0, cut = false, ...rest } = more;
  return { batch: { events, changed: [], left: [], oneTimeKeys: null, unusedFallback: null, ...rest }, skipped, cut };
};
const waiting = () => db.toDevice.pending().flatMap(({ events }) => events);

test('what arrived is on disk with its position before the engine has it, and marked after', async () => {
  await start().take(batch([event(1)]), 's1');

  expect(log).toEqual(['stored', 'engine 1', 'marked']);
  expect(db.toDevice.since()).toBe('s1');
  expect(waiting()).toEqual([]);
});

test('what a process stored and did not get done is the first thing that the next one does', async () => {
  receive = () => Promise.reject(new CryptoUnavailable('killed'));
  await expect(start().take(batch([event(1)]), 's1')).rejects.toBeInstanceOf(CryptoUnavailable);
  receive = async () => [];

  await start().resume();

  expect(batches.flatMap(({ events }) => events)).toEqual([event(1)]);
  expect(waiting()).toEqual([]);
});

test('a process that dies between the engine and the mark hands it over a second time, which does no harm', async () => {
  const dies = { ...db.toDevice, done: () => {} };
  await start(dies).take(batch([event(1)]), 's1');

  await start().take(batch([event(2)]), 's2');

  expect(batches.flatMap(({ events }) => events.map(({ content }) => (content as { nr: number }).nr))).toEqual([1, 1, 2]);
});

test('what is not on disk is not acknowledged (G1)', async () => {
  const broken = {
    ...db.toDevice,
    put: () => {
      throw new Error('disk full');
    },
  };

  await expect(start(broken).take(batch([event(1)]), 's1')).rejects.toThrow('disk full');

  expect(batches).toEqual([]);
  expect(db.toDevice.since()).toBeNull();
});

test('an answer that comes twice reaches the engine once', async () => {
  const intake = start();

  await intake.take(batch([event(1), event(2)]), 's1');
  await intake.take(batch([event(2), event(3)]), 's2');

  expect(batches.flatMap(({ events }) => events)).toEqual([event(1), event(2), event(3)]);
});

test('more than the engine takes within its limit goes in slices: lists with the first, counts with the last', async () => {
  const events = Array.from({ length: LIMITS.toDeviceEventsAtOnce + 1 }, (_, nr) => event(nr));

  await start().take(batch(events, { changed: ['@bob:s'], oneTimeKeys: { signed_curve25519: 5 } }), 's1');

  expect(batches.map(({ events: slice, changed, oneTimeKeys }) => [slice.length, changed.length, oneTimeKeys])).toEqual([
    [LIMITS.toDeviceEventsAtOnce, 1, null],
    [1, 0, { signed_curve25519: 5 }],
  ]);
});

test('an event that the engine will not take is dropped alone: its neighbours and the lists arrive (G17)', async () => {
  receive = async ({ events }) => {
    if (events.some(({ content }) => (content as { nr: number }).nr === 2)) throw new Error('cannot parse');
    return events.map((one) => ({ kind: 'plain', event: one }));
  };

  await start().take(batch([event(1), event(2), event(3)], { changed: ['@bob:s'] }), 's1');

  expect(received.map(({ event: one }) => one)).toEqual([event(1), event(3)]);
  expect(batches.flatMap(({ changed }) => changed)).toEqual(['@bob:s']);
  expect(waiting()).toEqual([]);
  expect(logger.said('warn')).toEqual(['a to-device event cannot be read and was skipped']);
});

test('an engine that is closed keeps the batch for the next process', async () => {
  receive = () => Promise.reject(new CryptoUnavailable('closed'));

  await expect(start().take(batch([event(1)]), 's1')).rejects.toBeInstanceOf(CryptoUnavailable);

  expect(waiting()).toEqual([event(1)]);
  expect(logger.lines).toEqual([]);
});

test('changes of devices that were cut are asked for again', async () => {
  await start().take(batch([event(1)], { cut: true }), 's1');

  expect(log.at(-1)).toBe('markAllTrackedUsersAsDirty');
});

test('two answers at once are taken one after the other, in their order', async () => {
  const intake = start();
  receive = async () => {
    await new Promise(setImmediate);
    return [];
  };

  await Promise.all([intake.take(batch([event(1)]), 's1'), intake.take(batch([event(2)]), 's2')]);

  expect(log).toEqual(['stored', 'engine 1', 'marked', 'stored', 'engine 1', 'marked']);
});

test('the count of keys is the last that was heard', async () => {
  const intake = start();
  const before = intake.oneTimeKeys();
  await intake.take(batch([], { oneTimeKeys: { signed_curve25519: 12 } }), 's1');
  await intake.take(batch([event(1)]), 's2');

  expect([before, intake.oneTimeKeys()]).toEqual([null, 12]);
});

test('no event that passed the door makes the real engine lose those beside it', async () => {
  const server = fakeKeyServer({ clock: systemClock });
  const oracle = await openKeyMachine({ server, user: '@oracle:oracle.local', device: 'ORACLE_ABC123' });
  const intake = createKeyIntake({
    store: oracle.db.toDevice,
    engine: oracle.engine,
    logger,
    onReceived: (events) => void received.push(...events),
  });
  const hostile: JsonObject[] = [
    {
      type: 'm.room.encrypted',
      sender: '@alice:s',
      content: { algorithm: 'm.olm.v1.curve25519-aes-sha2', sender_key: 'x', ciphertext: 5 },
    },
    { type: 'm.room.encrypted', sender: '@alice:s', content: { algorithm: 5 } },
    {
      type: 'm.room_key',
      sender: '@alice:s',
      content: { algorithm: 'm.megolm.v1.aes-sha2', room_id: '!r:s', session_id: 'x', session_key: 'y' },
    },
    { type: 'm.key.verification.request', sender: '@alice:s', content: { methods: 5 } },
    { type: 'm.room_key_request', sender: '@alice:s', content: { action: 'request' } },
    { type: 'm.secret.request', sender: '@alice:s', content: {} },
    { type: '\u0000', sender: '@alice:\u{1F600}', content: { float: 1.5, big: 1e300, 'n\ud800': '\ud800' } },
    { type: 'm.dummy', sender: `@${'a'.repeat(240)}:s`, content: {}, event_id: 5, origin_server_ts: 'now' },
  ];
  const plain = { type: 'm.test', sender: '@alice:s', content: { hello: 1 } };

  await intake.take(batch([...hostile, plain]), 's1');
  await oracle.close();

  expect(received.map(({ event: one }) => one)).toContainEqual(plain);
  expect(oracle.fatal).toEqual([]);
});

test('an event that ends the process each time ends it no more than a few times, and what came with it is not lost (G1, G17)', async () => {
  const died = new Error('the process died here');
  const seen: JsonObject[] = [];
  receive = async ({ events }) => {
    if (events.some(({ content }) => (content as JsonObject)['nr'] === 2)) throw new CryptoUnavailable(died.message);
    seen.push(...events);
    return [];
  };
  await expect(start().take(batch([event(1), event(2), event(3)]), 's1')).rejects.toThrow(CryptoUnavailable);

  let starts = 0;
  for (let done = false; !done && starts < 10; starts += 1) {
    done = await start()
      .resume()
      .then(
        () => true,
        () => false,
      );
  }

  expect(starts).toBeLessThan(10);
  expect(seen.map(({ content }) => (content as JsonObject)['nr'])).toEqual([1, 3]);
  expect(waiting()).toEqual([]);
});
