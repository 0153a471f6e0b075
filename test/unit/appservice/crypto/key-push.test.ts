import { setImmediate as nextTask } from 'node:timers/promises';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { createKeyIntake } from '../../../../appservice/crypto/key-intake.ts';
import { createKeyPush, type KeyPush } from '../../../../appservice/crypto/key-push.ts';
import { MatrixError } from '../../../../appservice/matrix-api.ts';
import { readTransaction, type Transaction } from '../../../../appservice/wire/read-transaction.ts';
import type { UserId } from '../../../../src/ids.ts';
import type { JsonObject } from '../../../../src/json.ts';
import { type FakeClock, fakeClock } from '../../../fakes/fake-clock.ts';
import { type FakeKeyServer, fakeKeyServer } from '../../../fakes/fake-key-server.ts';
import { fakeLogger } from '../../../fakes/fake-logger.ts';
import { encryptedRoom, type KeyMachine, openKeyMachine } from '../../../fakes/key-machine.ts';

let clock: FakeClock;
let server: FakeKeyServer;
let oracle: KeyMachine;
let alice: KeyMachine;
let push: KeyPush;
let logger = fakeLogger();

beforeEach(async () => {
  clock = fakeClock();
  server = fakeKeyServer({ clock });
  oracle = await openKeyMachine({ server, user: '@oracle:oracle.local', device: 'ORACLE_ABC123' });
  alice = await openKeyMachine({ server, user: '@alice:oracle.local', device: 'ALICE' });
  logger = fakeLogger();
  const intake = createKeyIntake({ store: oracle.db.toDevice, engine: oracle.engine, logger });
  const { outgoing } = oracle;
  push = createKeyPush({ device: { user: oracle.user, device: oracle.device }, intake, outgoing, clock, logger });
});
afterEach(async () => {
  await push.stop();
  await oracle.close();
  await alice.close();
});
/** What the server holds for the device, as a transaction carries it. */
function transaction(more: JsonObject = {}): Transaction {
  const toDevice = server
    .inbox(oracle.user, oracle.device)
    .map((event) => ({ ...event, to_user_id: oracle.user, to_device_id: oracle.device }));
  const read = readTransaction({ events: [], 'de.sorunome.msc2409.to_device': toDevice, ...more });
  if (!read.ok) throw new Error(read.error);
  return read.value;
}
const asked = (from = 0) =>
  server.calls
    .slice(from)
    .filter(({ path, user }) => path.endsWith('/keys/query') && user === oracle.user)
    .flatMap(({ body }) => Object.keys(body['device_keys'] as object));
async function settle(): Promise<void> {
  for (let turn = 0; turn < 20; turn += 1) await nextTask();
}

test('a key that came in a transaction is there when its events are handled', async () => {
  const room = encryptedRoom([oracle.user, alice.user]);
  const event = await alice.say(room, { msgtype: 'm.text', body: 'hello' });

  await push.receive(transaction());

  expect(await oracle.engine.decrypt(event, room.roomId)).toMatchObject({ ok: true });
  expect(push.lastSyncAt()).toBe(clock.monotonic());
});

test('a transaction that comes again with the same keys does no harm', async () => {
  await alice.say(encryptedRoom([oracle.user, alice.user]), { msgtype: 'm.text', body: 'hello' });

  await push.receive(transaction());
  await push.receive(transaction());

  expect(oracle.logger.said('warn')).toEqual([]);
});

test('what cannot be stored is not taken for taken (G1)', async () => {
  await alice.say(encryptedRoom([oracle.user, alice.user]), { msgtype: 'm.text', body: 'hello' });
  oracle.db.toDevice.put = () => {
    throw new Error('disk full');
  };

  await expect(push.receive(transaction())).rejects.toThrow('disk full');
});

test('a transaction without keys costs nothing', async () => {
  const before = server.calls.length;

  await push.receive(transaction());
  await settle();

  expect(server.calls.length).toBe(before);
  expect(push.lastSyncAt()).toBeNull();
});

test('one-time keys that were used up are made again', async () => {
  const claim = { one_time_keys: { [oracle.user]: { [oracle.device]: 'signed_curve25519' } } };
  const full = server.oneTimeKeys(oracle.user, oracle.device).left;
  for (let count = 0; count < 30; count += 1) await alice.api.request('POST', '/_matrix/client/v3/keys/claim', { body: claim });
  const counts = { [oracle.user]: { [oracle.device]: { signed_curve25519: full - 30 }, other: {} } };

  await push.receive(transaction({ 'org.matrix.msc3202.device_one_time_keys_count': counts }));
  await settle();

  expect(server.oneTimeKeys(oracle.user, oracle.device).left).toBe(full);
});

test('changes of devices that a lost transaction named are found: everybody is asked for at start and every hour', async () => {
  await oracle.engine.trackUsers([alice.user as UserId]);
  await oracle.outgoing.flush();
  const before = server.calls.length;

  await push.start();
  const atStart = asked(before);
  const later = server.calls.length;
  await clock.advanceAsync(59 * 60_000);
  await settle();
  const within = asked(later);
  await clock.advanceAsync(2 * 60_000);
  await settle();

  expect(atStart).toContain(alice.user);
  expect(within).toEqual([]);
  expect(asked(later)).toContain(alice.user);
});

test('requests that failed are tried again', async () => {
  await oracle.engine.trackUsers([alice.user as UserId]);
  server.trouble = () => {
    throw new MatrixError({ errcode: 'UNREACHABLE', status: 0, retryAfterMs: null, certain: true });
  };
  await push.start();
  server.trouble = () => undefined;
  const before = server.calls.length;

  await clock.advanceAsync(30_000);
  await settle();

  expect(asked(before)).toContain(alice.user);
  expect(logger.said('warn')).toEqual(['requests about keys could not be sent']);
});

test('a homeserver that never says a word about keys is named: its flags are missing', async () => {
  const event = await alice.say(encryptedRoom([oracle.user, alice.user]), { msgtype: 'm.text', body: 'hello' });
  const keyless = transaction({ events: [event], 'de.sorunome.msc2409.to_device': [] });
  for (let count = 0; count < 2; count += 1) await push.receive(keyless);
  const early = push.trouble();

  await push.receive(keyless);
  const late = push.trouble();
  await push.receive(transaction());

  expect(early).toBeNull();
  expect(late).toContain('org.matrix.msc3202');
  expect(push.trouble()).toBeNull();
});

test('a device that was deleted on the homeserver is trouble that a person must repair', async () => {
  server.deleteDevice(oracle.user, oracle.device);
  await oracle.engine.trackUsers([alice.user as UserId]);

  await push.start();

  expect(push.trouble()).toContain('crypto new-device');
});

test('after stop nothing is set to go off', async () => {
  await push.start();

  await push.stop();

  expect(clock.pending()).toBe(0);
});
