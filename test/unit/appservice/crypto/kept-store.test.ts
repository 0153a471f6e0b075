import { cpSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { publicKeyOf, readIdentity } from '../../../../appservice/crypto/identity-file.ts';
import { readCiphertext } from '../../../../appservice/crypto/read-ciphertext.ts';
import { exportIdentity } from '../../../../appservice/crypto/set-up-identity.ts';
import { systemClock } from '../../../../src/system-clock.ts';
import { fakeKeyServer } from '../../../fakes/fake-key-server.ts';
import { encryptedRoom, type KeyMachine, openKeyMachine } from '../../../fakes/key-machine.ts';

const FIXTURES = join(import.meta.dirname, '../../../fixtures');
const STORES = readdirSync(FIXTURES).filter((name) => name.startsWith('crypto-store-'));

/** Stores of released engines, never written again: whatever this engine makes of its tables, nothing in them may be lost (G15). */
describe.each(STORES)('a store as it was written, %s', (name) => {
  const kept = JSON.parse(readFileSync(join(FIXTURES, name, 'kept.json'), 'utf8'));
  let folder: string;
  let machine: KeyMachine;
  beforeEach(async () => {
    folder = mkdtempSync(join(tmpdir(), 'kept-'));
    cpSync(join(FIXTURES, name), folder, { recursive: true });
    const server = fakeKeyServer({ clock: systemClock });
    machine = await openKeyMachine({ server, user: kept.user, device: kept.device, path: join(folder, 'crypto.db'), uploads: false });
  });
  afterEach(async () => {
    await machine.close();
    rmSync(folder, { recursive: true });
  });

  test('opens as the same device with the same identity', async () => {
    const identity = await exportIdentity(machine.engine);

    const file = readIdentity(readFileSync(join(folder, 'crypto-identity.json'), 'utf8'), machine.user);
    expect(machine.engine.identityKeys.ed25519).toBe(kept.fingerprint);
    expect(machine.db.meta.get('device_id')).toBe(kept.device);
    expect(identity === null ? null : publicKeyOf(identity.masterKey)).toBe(file.ok && publicKeyOf(file.value.masterKey));
  });

  test('reads what was read before, and what arrives later under a key that it had', async () => {
    const read = await Promise.all([kept.received, kept.later, kept.sent].map((event) => machine.engine.decrypt(event, event.room_id)));

    expect(read.map((result) => result.ok && (result.value.event['content'] as { body: string }).body)).toEqual([
      'kept since the first release',
      'and one that came later',
      'said before the upgrade',
    ]);
  });

  test('what had arrived and was not in the engine yet is still to be done', () => {
    const pending = machine.db.toDevice.pending();

    expect(pending.map(({ events }) => events.map(({ type }) => type))).toEqual([['m.dummy']]);
    expect(machine.db.toDevice.since()).toBe('s7');
  });

  test('its own session goes on at the next index and does not begin again', async () => {
    const room = encryptedRoom(kept.readers);
    const before = readCiphertext(kept.sent.content);
    // The readers' devices are not at this key server: nobody new is to be given a key.
    await machine.engine.shareRoomKey(room);

    const after = readCiphertext(await machine.engine.encrypt(room.roomId, { type: 'm.room.message', content: { body: 'after' } }));

    if (!before.ok || !after.ok) throw new Error('no ciphertext');
    expect(after.value).toEqual({ session: before.value.session, index: before.value.index + 1 });
  });
});
