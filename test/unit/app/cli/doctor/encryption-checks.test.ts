import { chmodSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { buildIdentityFile } from '../../../../../appservice/crypto/identity-file.ts';
import { exportIdentity } from '../../../../../appservice/crypto/set-up-identity.ts';
import { MatrixError } from '../../../../../appservice/matrix-api.ts';
import { buildRegistration } from '../../../../../appservice/registration.ts';
import { buildLine } from '../../../../../src/app/cli/doctor/check.ts';
import { checkEncryption, type EncryptionChecksOptions } from '../../../../../src/app/cli/doctor/encryption-checks.ts';
import type { DeviceId, UserId } from '../../../../../src/ids.ts';
import { systemClock } from '../../../../../src/system-clock.ts';
import { type FakeKeyServer, fakeKeyServer } from '../../../../fakes/fake-key-server.ts';
import { giveIdentity } from '../../../../fakes/key-identity.ts';
import { type KeyMachine, openKeyMachine } from '../../../../fakes/key-machine.ts';

const ORACLE = '@oracle:oracle.local' as UserId;
const DEVICE = 'ORACLE_AAAAAA' as DeviceId;
const CONFIG = { oracleUserId: ORACLE, matrixDeviceId: 'ORACLE' as DeviceId, cryptoTransport: 'sync' } as const;
const GOOD = { name: 'encryption', ok: true };
const registration = (keys: 'sync' | 'appservice') =>
  buildRegistration({ url: 'http://127.0.0.1:1', asToken: 'a'.repeat(32), hsToken: 'b'.repeat(32), serverName: 'oracle.local', keys });

let folder: string;
let server: FakeKeyServer;
let machine: KeyMachine;
const identityFile = () => join(folder, 'crypto-identity.json');
beforeEach(async () => {
  folder = mkdtempSync(join(tmpdir(), 'doctor-'));
  server = fakeKeyServer({ clock: systemClock });
  server.addDevice(ORACLE, 'ORACLE');
  machine = await openKeyMachine({ server, user: ORACLE, device: DEVICE });
});
afterEach(async () => {
  await machine.close();
  rmSync(folder, { recursive: true });
});

async function haveIdentity(): Promise<void> {
  await giveIdentity(machine);
  const identity = await exportIdentity(machine.engine);
  if (identity === null) throw new Error('no identity');
  writeFileSync(identityFile(), buildIdentityFile(identity, ORACLE), { mode: 0o600 });
}
const run = (more: Partial<EncryptionChecksOptions> = {}) =>
  Array.fromAsync(
    checkEncryption({
      connection: server.connection(),
      config: CONFIG,
      files: { database: join(folder, 'crypto.db'), key: join(folder, 'crypto.key'), identity: identityFile() },
      registration: null,
      health: GOOD,
      ...more,
    }),
  );
const shortOf = (checks: Awaited<ReturnType<typeof run>>) => checks.map(({ name, status }) => `${name} ${status}`);

test('an oracle whose device is signed, and whose keys arrive, passes; nothing is changed and its device is not synced (G1)', async () => {
  await haveIdentity();
  server.calls.length = 0;

  const checks = await run();

  expect(shortOf(checks)).toEqual(['identity ok', 'key device ok', 'keys ok']);
  expect(checks.map(buildLine)[1]).toBe('✓ key device: ORACLE_AAAAAA has its keys on the homeserver, signed by the identity.');
  expect(server.calls.map(({ method, path }) => `${method} ${path.split('/').slice(-2).join('/')}`)).toEqual([
    'POST keys/query',
    'GET account/whoami',
  ]);
});

test('before the first start there is nothing to check', async () => {
  expect(shortOf(await run({ health: null }))).toEqual(['identity skipped', 'keys skipped']);
});

test.each<[string, () => Promise<void> | void, Partial<EncryptionChecksOptions>, string[]]>([
  ['whose identity file is lost', () => rmSync(identityFile()), {}, ['identity failed', 'key device ok', 'keys ok']],
  ['whose identity file is broken', () => writeFileSync(identityFile(), '{'), {}, ['identity failed', 'key device ok', 'keys ok']],
  [
    'whose identity was replaced elsewhere',
    async () => {
      server.forgetIdentity(ORACLE);
      const other = await openKeyMachine({ server, user: ORACLE, device: 'ELSEWHERE' as DeviceId });
      await giveIdentity(other);
      await other.close();
    },
    {},
    ['identity failed', 'key device failed', 'keys ok'],
  ],
  ['whose homeserver lost its identity', () => server.forgetIdentity(ORACLE), {}, ['identity failed', 'key device failed', 'keys ok']],
  [
    'whose key of the key store is broken',
    () => writeFileSync(join(folder, 'crypto.key'), 'x', { mode: 0o600 }),
    {},
    ['encryption files failed', 'identity ok', 'key device ok', 'keys ok'],
  ],
  ['whose device is gone', () => server.deleteDevice(ORACLE, DEVICE), {}, ['identity ok', 'key device failed', 'keys ok']],
  [
    'whose files others can read',
    () => chmodSync(identityFile(), 0o644),
    {},
    ['encryption files failed', 'identity ok', 'key device ok', 'keys ok'],
  ],
  [
    'that gets no keys',
    () => undefined,
    { health: { name: 'encryption', ok: false, detail: 'The homeserver cannot be reached, so no keys arrive.' } },
    ['identity ok', 'key device ok', 'keys failed'],
  ],
  [
    'whose registration lacks the flags of the fallback',
    () => undefined,
    { config: { ...CONFIG, cryptoTransport: 'appservice' }, registration: registration('sync') },
    ['key transport failed', 'identity ok', 'key device ok', 'keys ok'],
  ],
  [
    'with the fallback and its flags, whose limits are said',
    () => undefined,
    { config: { ...CONFIG, cryptoTransport: 'appservice' }, registration: registration('appservice') },
    ['key transport warning', 'identity ok', 'key device ok', 'keys ok'],
  ],
])('an oracle %s: the cause, with a remedy', async (_, change, more, expected) => {
  await haveIdentity();
  await change();

  const checks = await run(more);

  expect(shortOf(checks)).toEqual(expected);
  for (const check of checks) if ('remedy' in check) expect(check.remedy).toMatch(/^[A-Z].{12,}\.$/su);
});

test('a lost identity file is written again by a restart while the key store is there; only without it a copy is asked for first', async () => {
  await haveIdentity();
  rmSync(identityFile());
  const remedy = async () => (await run()).flatMap((check) => (check.name === 'identity' && 'remedy' in check ? [check.remedy] : []));

  expect(await remedy()).toEqual([expect.stringMatching(/^Bring a saved copy back/u)]);

  writeFileSync(join(folder, 'crypto.db'), 'x');
  writeFileSync(join(folder, 'crypto.key'), Buffer.alloc(32).toString('base64'), { mode: 0o600 });
  expect(await remedy()).toEqual([expect.stringMatching(/^Restart the oracle, which writes it again/u)]);
});

test('a homeserver that does not show keys is one failure, not a crash', async () => {
  server.trouble = () => {
    throw new MatrixError({ errcode: 'M_FORBIDDEN', status: 403, retryAfterMs: null, certain: true });
  };

  expect(shortOf(await run())).toEqual(['identity failed', 'keys ok']);
});
