import { cpSync, existsSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { openCryptoDb } from '../../../../appservice/crypto/crypto-db.ts';
import { readStoppedStore, setStoreAside } from '../../../../appservice/crypto/stopped-store.ts';
import type { DeviceId, UserId } from '../../../../src/ids.ts';
import { systemClock } from '../../../../src/system-clock.ts';
import { fakeKeyServer } from '../../../fakes/fake-key-server.ts';
import { openKeyMachine } from '../../../fakes/key-machine.ts';

const KEPT = join(import.meta.dirname, '../../../fixtures/crypto-store-18.9.0');
let folder: string;
let path: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'stopped-'));
  cpSync(KEPT, folder, { recursive: true });
  path = join(folder, 'crypto.db');
});
afterEach(() => rmSync(folder, { recursive: true }));

test('the keys in a stopped store are as many as its engine counts', async () => {
  const store = readStoppedStore(path);
  const server = fakeKeyServer({ clock: systemClock });
  const { meta } = openCryptoDbOrThrow();
  const owner = { user: meta.get('user_id') as UserId, device: meta.get('device_id') as DeviceId };
  closeAll();
  const machine = await openKeyMachine({ server, ...owner, path, uploads: false });
  const counted = await machine.engine.roomKeys();
  await machine.close();

  expect(counted).toBeGreaterThan(0);
  expect(store).toMatchObject({ ok: true, value: { deviceId: owner.device, roomKeys: counted } });
});

test('a store that an oracle holds is neither read nor moved', () => {
  openCryptoDbOrThrow();

  expect(readStoppedStore(path)).toMatchObject({ ok: false, error: { code: 'CRYPTO_DB_LOCKED' } });
  expect(setStoreAside(path, `${path}.old`)).toMatchObject({ ok: false, error: { code: 'CRYPTO_DB_LOCKED' } });
  expect(existsSync(path)).toBe(true);
});

test('looking makes no store, and moving one leaves nothing under its name', () => {
  expect(readStoppedStore(join(folder, 'absent.db'))).toEqual({ ok: true, value: null });

  expect(setStoreAside(path, `${path}.old`).ok).toBe(true);

  expect(readdirSync(folder).filter((name) => name.startsWith('crypto.db') || name.startsWith('absent'))).toEqual(['crypto.db.old']);
});

const open: { close(): void }[] = [];
afterEach(closeAll);
function closeAll(): void {
  for (const db of open.splice(0)) db.close();
}
function openCryptoDbOrThrow() {
  const db = openCryptoDb(path);
  if (!db.ok) throw new Error(db.error.code);
  open.push(db.value);
  return db.value;
}
