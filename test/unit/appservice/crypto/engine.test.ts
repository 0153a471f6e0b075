import { afterEach, describe, expect, test } from 'vitest';
import { readCiphertext } from '../../../../appservice/crypto/read-ciphertext.ts';
import type { JsonObject } from '../../../../src/json.ts';
import { systemClock } from '../../../../src/system-clock.ts';
import { type FakeKeyServer, fakeKeyServer } from '../../../fakes/fake-key-server.ts';
import { encryptedRoom, type KeyMachine, openKeyMachine } from '../../../fakes/key-machine.ts';

const ALICE = { user: '@alice:oracle.local', device: 'ALICE' };
const BOB = { user: '@bob:oracle.local', device: 'BOB' };
const CAROL = { user: '@carol:oracle.local', device: 'CAROL' };
const HELLO = { msgtype: 'm.text', body: 'hello' };

describe('several devices at one key server', () => {
  const open: KeyMachine[] = [];
  afterEach(async () => {
    for (const machine of open.splice(0)) await machine.close();
  });
  async function person(server: FakeKeyServer, { user, device }: { user: string; device: string }): Promise<KeyMachine> {
    const machine = await openKeyMachine({ server, user, device });
    open.push(machine);
    await machine.sync();
    return machine;
  }
  async function world(): Promise<{ server: FakeKeyServer; alice: KeyMachine; bob: KeyMachine }> {
    const server = fakeKeyServer({ clock: systemClock });
    return { server, alice: await person(server, ALICE), bob: await person(server, BOB) };
  }
  const read = async (machine: KeyMachine, event: JsonObject): Promise<unknown> => {
    const result = await machine.engine.decrypt(event, encryptedRoom([]).roomId);
    return result.ok ? (result.value.event['content'] as { body?: unknown }).body : result.error.code;
  };
  const nameOf = (event: JsonObject) => {
    const name = readCiphertext(event['content']);
    if (!name.ok) throw new Error(name.error);
    return name.value;
  };

  test('a message is readable once its key has arrived, and its session is announced', async () => {
    const { alice, bob } = await world();
    const room = encryptedRoom([alice.user, bob.user]);
    const heard: string[] = [];
    bob.engine.onKeys((sessions) => heard.push(...sessions));
    const event = await alice.say(room, HELLO);
    const early = await read(bob, event);

    await bob.sync();

    expect(early).toBe('missing_key');
    expect(heard).toEqual([nameOf(event).session]);
    expect(await read(bob, event)).toBe('hello');
    expect(await bob.engine.roomKeys()).toBe(1);
  });

  test('a device that its owner did not sign is told apart from one that is', async () => {
    const { server, alice, bob } = await world();
    const room = encryptedRoom([alice.user, bob.user]);
    const look = async (event: JsonObject) => {
      const result = await bob.engine.decrypt(event, room.roomId);
      return result.ok && { shield: result.value.shield, sender: result.value.sender, device: result.value.senderDevice };
    };
    const unsigned = await alice.say(room, HELLO);
    await bob.sync();
    const before = await look(unsigned);
    const requests = await alice.engine.call('bootstrap', async (machine) => {
      const { uploadSigningKeysRequest, uploadSignaturesRequest } = await machine.bootstrapCrossSigning(true);
      return { keys: uploadSigningKeysRequest.body, signatures: uploadSignaturesRequest.body };
    });
    await alice.api.request('POST', '/_matrix/client/v3/keys/device_signing/upload', { body: Buffer.from(requests.keys) });
    await alice.api.request('POST', '/_matrix/client/v3/keys/signatures/upload', { body: Buffer.from(requests.signatures) });
    await bob.engine.trackUsers([alice.user]);
    await bob.sync();
    const signed = await alice.say(room, HELLO);
    await bob.sync();

    expect(server.isSigned(alice.user, 'ALICE')).toBe(true);
    expect(before).toEqual({ shield: 'unsigned_device', sender: alice.user, device: 'ALICE' });
    expect(await look(signed)).toEqual({ shield: 'identity_not_verified', sender: alice.user, device: 'ALICE' });
  });

  test('whoever leaves gets no further key, and whoever stays goes on reading', async () => {
    const { server, alice, bob } = await world();
    const carol = await person(server, CAROL);
    const before = await alice.say(encryptedRoom([alice.user, bob.user, carol.user]), HELLO);
    const after = await alice.say(encryptedRoom([alice.user, bob.user]), { ...HELLO, body: 'carol is gone' });
    for (const machine of [bob, carol]) await machine.sync();

    expect(await Promise.all([read(bob, before), read(bob, after)])).toEqual(['hello', 'carol is gone']);
    expect(await Promise.all([read(carol, before), read(carol, after)])).toEqual(['hello', 'missing_key']);
    expect(nameOf(after).session).not.toBe(nameOf(before).session);
  });

  test('a new device of a reader gets the running session, from the next message on', async () => {
    const { server, alice, bob } = await world();
    const room = encryptedRoom([alice.user, bob.user]);
    const before = await alice.say(room, HELLO);
    const phone = await person(server, { user: BOB.user, device: 'PHONE' });
    await alice.sync();
    const after = await alice.say(room, { ...HELLO, body: 'again' });
    await phone.sync();

    expect(nameOf(after).session).toBe(nameOf(before).session);
    expect(await Promise.all([read(phone, before), read(phone, after)])).toEqual(['index_too_old', 'again']);
  });

  test('a room’s rotation counts messages and milliseconds', async () => {
    const { alice, bob } = await world();
    const three = encryptedRoom([alice.user, bob.user], { rotationPeriodMessages: 3 });
    const sessions: string[] = [];
    for (let count = 0; count < 6; count += 1) sessions.push(nameOf(await alice.say(three, HELLO)).session);
    // The engine does not go below an hour: an hour in microseconds must not be one of milliseconds.
    const hour = encryptedRoom([alice.user, bob.user], { roomId: '!other:oracle.local' as never, rotationPeriodMs: 3_600_000 });
    const first = nameOf(await alice.say(hour, HELLO));
    const second = nameOf(await alice.say(hour, HELLO));

    expect(
      Map.groupBy(sessions, (session) => session)
        .values()
        .map((all) => all.length)
        .toArray(),
    ).toEqual([3, 3]);
    expect(second).toEqual({ session: first.session, index: 1 });
  });

  test('counts that were not said upload nothing, and counts that say none upload once', async () => {
    const { server, bob } = await world();
    const nothing = { events: [], changed: [], left: [], oneTimeKeys: null, unusedFallback: null };
    const uploads = () => server.calls.filter(({ path, user }) => path.endsWith('keys/upload') && user === bob.user).length;
    const before = uploads();
    for (let count = 0; count < 3; count += 1) {
      await bob.engine.receive(nothing);
      await bob.outgoing.flush();
    }
    const unsaid = uploads() - before;

    await bob.engine.receive({ ...nothing, oneTimeKeys: { signed_curve25519: 0 } });
    await bob.outgoing.flush();

    expect({ unsaid, said: uploads() - before }).toEqual({ unsaid: 0, said: 1 });
  });

  test('one-time keys that were given out are replaced', async () => {
    const { server, alice, bob } = await world();
    await alice.say(encryptedRoom([alice.user, bob.user]), HELLO);
    const left = server.oneTimeKeys(bob.user, 'BOB').left;

    await bob.sync();

    expect([left, server.oneTimeKeys(bob.user, 'BOB').left]).toEqual([49, 50]);
  });

  test('a to-device event that comes twice is unreadable the second time, and the key stays', async () => {
    const { server, alice, bob } = await world();
    const event = await alice.say(encryptedRoom([alice.user, bob.user]), HELLO);
    const events = server.inbox(bob.user, 'BOB');
    const batch = { events, changed: [], left: [], oneTimeKeys: null, unusedFallback: null };

    const kinds = [await bob.engine.receive(batch), await bob.engine.receive(batch)].map((all) => all.map(({ kind }) => kind));

    expect(kinds).toEqual([['decrypted'], ['unreadable']]);
    expect(await read(bob, event)).toBe('hello');
  });

  test('the same users, rooms and lists can be used again: the engine takes its arguments over, ours stay', async () => {
    const { alice, bob } = await world();
    const users = Object.freeze([alice.user, bob.user]);
    const room = Object.freeze(encryptedRoom(users));

    for (let count = 0; count < 3; count += 1) {
      await alice.engine.trackUsers(users);
      await alice.outgoing.flush();
      await alice.engine.missingSessions(users);
      await alice.engine.shareRoomKey(room);
    }

    expect(users).toEqual([ALICE.user, BOB.user]);
  });

  test('what is no user id is left out of every list', async () => {
    const { alice, bob } = await world();
    const nonsense = ['', '@', 'bob', '@bob', '@bob:', '@bob:x y', `@${'b'.repeat(300)}:x`, '@bob:oracle.local:99999999'] as never[];

    await alice.engine.trackUsers(nonsense);
    await alice.engine.receive({ events: [], changed: nonsense, left: nonsense, oneTimeKeys: null, unusedFallback: null });
    const event = await alice.say(encryptedRoom([alice.user, bob.user, ...nonsense]), HELLO);

    await bob.sync();
    expect(await read(bob, event)).toBe('hello');
    expect(alice.fatal).toEqual([]);
  });

  test('encrypting without a shared key is refused before the engine panics', async () => {
    const { alice, bob } = await world();
    const { roomId } = encryptedRoom([]);

    await expect(alice.engine.encrypt(roomId, { type: 'm.room.message', content: HELLO })).rejects.toThrow('shared');

    const event = await alice.say(encryptedRoom([alice.user, bob.user]), HELLO);
    expect(nameOf(event).index).toBe(0);
    expect(alice.fatal).toEqual([]);
  });

  test('a relation is copied outside, where servers look for it', async () => {
    const { alice, bob } = await world();
    const relation = { rel_type: 'm.thread', event_id: '$root' };

    const event = await alice.say(encryptedRoom([alice.user, bob.user]), { ...HELLO, 'm.relates_to': relation });

    expect((event['content'] as JsonObject)['m.relates_to']).toEqual(relation);
  });

  test.each<[string, (content: JsonObject) => JsonObject]>([
    ['cut off', (content) => ({ ...content, ciphertext: String(content['ciphertext']).slice(0, 60) })],
    ['changed in one letter', (content) => ({ ...content, ciphertext: `${String(content['ciphertext']).slice(0, -2)}AA` })],
    ['of an unknown algorithm', (content) => ({ ...content, algorithm: 'm.megolm.v9' })],
    ['without a session', ({ session_id: _gone, ...content }) => content],
    ['empty', () => ({})],
  ])('a ciphertext that is %s is a problem, not a panic', async (_name, spoil) => {
    const { alice, bob } = await world();
    const event = await alice.say(encryptedRoom([alice.user, bob.user]), HELLO);
    await bob.sync();
    const spoilt = { ...event, content: spoil(event['content'] as JsonObject) };

    const outcome = await read(bob, spoilt);

    expect(['unreadable', 'missing_key']).toContain(outcome);
    expect(bob.fatal).toEqual([]);
    expect(await read(bob, event)).toBe('hello');
  });

  test('another sender’s name on an event is found out by the shield, not by the sender, which only repeats the outside', async () => {
    const { server, alice, bob } = await world();
    await person(server, CAROL);
    const event = await alice.say(encryptedRoom([alice.user, bob.user]), HELLO);
    await bob.sync();
    const forged = { ...event, sender: CAROL.user };

    const result = await bob.engine.decrypt(forged, encryptedRoom([]).roomId);

    expect(result.ok && { sender: result.value.sender, shield: result.value.shield }).toEqual({
      sender: CAROL.user,
      shield: 'mismatched_sender',
    });
  });

  test('a commit that fails ends the engine, and a ciphertext whose ratchet is not on disk never leaves it', async () => {
    const { alice, bob } = await world();
    const room = encryptedRoom([alice.user, bob.user]);
    await alice.say(room, HELLO);
    alice.db.sqlite.exec("CREATE TRIGGER full BEFORE INSERT ON idb_rec BEGIN SELECT RAISE(ABORT, 'disk full'); END");

    await expect(alice.engine.encrypt(room.roomId, { type: 'm.room.message', content: HELLO })).rejects.toMatchObject({
      name: 'CryptoUnavailable',
    });

    alice.db.sqlite.exec('DROP TRIGGER full');
    await expect(alice.engine.encrypt(room.roomId, { type: 'm.room.message', content: HELLO })).rejects.toMatchObject({
      name: 'CryptoUnavailable',
    });
    expect(alice.fatal).toEqual(['the key store could not be written']);
  });
});
