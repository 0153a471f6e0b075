/** The commands as an operator runs them, against a key server over HTTP; what the oracle itself would do between them is done by openCrypto in this process. */
import { copyFileSync, existsSync, mkdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { type OpenCrypto, openCrypto } from '../../../../appservice/crypto/open-crypto.ts';
import { MatrixError } from '../../../../appservice/matrix-api.ts';
import type { DeviceId, UserId } from '../../../../src/ids.ts';
import { systemClock } from '../../../../src/system-clock.ts';
import { type CliFolder, createCliFolder } from '../../../cli-folder.ts';
import { type FakeKeyServer, fakeKeyServer } from '../../../fakes/fake-key-server.ts';
import { fakeLogger } from '../../../fakes/fake-logger.ts';
import { type ServedKeyServer, serveKeyServer } from '../../../fakes/serve-key-server.ts';

const ORACLE = '@oracle:oracle.local' as UserId;
const inGroups = (key: string | null) => (key ?? '').replace(/.{4}(?=.)/gu, '$& ');
const settingsOf = (url: string) => `MATRIX_BASE_URL=${url}
MATRIX_SERVER_NAME=oracle.local
MATRIX_AS_TOKEN=${'a'.repeat(64)}
MATRIX_HS_TOKEN=${'b'.repeat(64)}
ORACLE_DID=did:key:z6MkhaXgBZDvotDkL5257faiztiGiC2QtKLGpbnnEGta2doK
MODEL_MAIN=test
OPENAI_BASE_URL=http://127.0.0.1:1/v1
PORT=1
`;

describe('matrix-oracle crypto', () => {
  let cli: CliFolder;
  let server: FakeKeyServer;
  let http: ServedKeyServer;
  let running: OpenCrypto | null;
  const path = (name: string) => join(cli.dir, 'data', name);
  const textOf = (file: string) => readFileSync(file, 'utf8');

  beforeEach(async () => {
    cli = createCliFolder();
    mkdirSync(join(cli.dir, 'data'), { mode: 0o700 });
    server = fakeKeyServer({ clock: systemClock });
    server.addDevice(ORACLE, 'ORACLE');
    http = await serveKeyServer(server);
    writeFileSync(join(cli.dir, '.env'), settingsOf(http.url));
    running = null;
  });
  afterEach(async () => {
    await running?.stop();
    await http.close();
    cli.remove();
  });

  async function start(): Promise<OpenCrypto> {
    const opened = await openCrypto({
      connection: server.connection(),
      userId: ORACLE,
      sendingDevice: 'ORACLE' as DeviceId,
      name: 'Oracle',
      files: { database: path('crypto.db'), key: path('crypto.key'), identity: path('crypto-identity.json') },
      transport: 'sync',
      mayVerify: async () => false,
      postVerification: async () => undefined,
      clock: systemClock,
      logger: fakeLogger(),
      newId: () => 'id',
      onFatal: (reason) => {
        throw new Error(reason);
      },
      onWaiting: () => undefined,
      signal: new AbortController().signal,
    });
    if (!opened.ok) throw new Error(opened.error.code);
    running = opened.value;
    return opened.value;
  }
  async function startAndStop() {
    const service = await start();
    const status = await service.status();
    await service.stop();
    running = null;
    return status;
  }

  test('status says that a start is refused with the key of the store as it is, and what to do', async () => {
    await startAndStop();
    writeFileSync(path('crypto.key'), 'garbage');
    const garbage = await cli.run(['crypto', 'status']);
    rmSync(path('crypto.key'));
    const lost = await cli.run(['crypto', 'status']);

    expect(garbage.stdout).toMatch(/^Key store {6}✗ .*crypto\.key must be .*crypto new-device/mu);
    expect(lost.stdout).toMatch(/^Key store {6}✗ .*crypto\.key is not there.*crypto new-device/mu);
  });

  test('status shows identity, device, fingerprint and store, as the homeserver has them; never a secret', async () => {
    const { deviceId, fingerprint, masterKey } = await startAndStop();

    const result = await cli.run(['crypto', 'status']);

    expect(result).toMatchObject({ status: 0, stderr: '' });
    for (const said of [
      `Identity       ${inGroups(masterKey)} (data/crypto-identity.json), and the homeserver has the same`,
      `Device         ${deviceId}, signed by the identity`,
      `Fingerprint    ${inGroups(fingerprint)}`,
      'One-time keys  50 left',
      'Key store      0 room keys',
      'does not run here',
    ])
      expect(result.stdout).toContain(said);
    for (const seed of Object.values(JSON.parse(textOf(path('crypto-identity.json'))))) {
      if (seed !== ORACLE && seed !== 1) expect(result.stdout).not.toContain(seed);
    }
    expect(result.stdout).not.toContain('✗');
  });

  test('status beside a running oracle takes nothing from it, and says what only it knows', async () => {
    const { deviceId } = await (await start()).status();

    const result = await cli.run(['crypto', 'status']);

    expect(result).toMatchObject({ status: 0, stderr: '' });
    expect(result.stdout).toContain(`${deviceId}, signed`);
    expect(result.stdout).toContain('metric matrix_oracle_crypto_room_keys');
    expect(result.stdout).toContain('runs, and does not answer at its HTTP address');
  });

  test('status before the first start, and without a homeserver, says so', async () => {
    const first = await cli.run(['crypto', 'status']);
    await startAndStop();
    const away = await cli.run(['crypto', 'status'], { MATRIX_BASE_URL: 'http://127.0.0.1:1' });

    expect(first).toMatchObject({ status: 0, stderr: '' });
    expect(first.stdout).toContain('the oracle makes one at its first start');
    expect(existsSync(path('crypto.db'))).toBe(true);
    expect(away.stdout).toContain('the homeserver does not say its keys (UNREACHABLE');
  });

  test('the identity goes out into a file for its owner only, which is not written over another, and comes back', async () => {
    const before = await startAndStop();
    const out = join(cli.dir, 'saved.json');

    const exported = await cli.run(['crypto', 'export', 'saved.json']);
    const again = await cli.run(['crypto', 'export', 'saved.json']);
    for (const name of ['crypto.db', 'crypto.key', 'crypto-identity.json']) rmSync(path(name));
    const imported = await cli.run(['crypto', 'import', 'saved.json']);

    expect(exported).toMatchObject({ status: 0, stderr: '' });
    expect(statSync(out).mode & 0o777).toBe(0o600);
    expect(again).toMatchObject({ status: 1, stdout: '' });
    expect(again.stderr).toContain('is there already');
    expect(imported).toMatchObject({ status: 0, stderr: '' });
    expect(statSync(path('crypto-identity.json')).mode & 0o777).toBe(0o600);
    const after = await startAndStop();
    expect(after).toMatchObject({ masterKey: before.masterKey, deviceIsSigned: true });
    expect(after.deviceId).not.toBe(before.deviceId);
  });

  test('an identity that is not the account’s is not taken, and what is there stays', async () => {
    await startAndStop();
    const own = textOf(path('crypto-identity.json'));
    copyFileSync(path('crypto-identity.json'), join(cli.dir, 'old.json'));
    expect(await cli.run(['crypto', 'new-identity', '--yes'])).toMatchObject({ status: 0, stderr: '' });
    const current = textOf(path('crypto-identity.json'));
    writeFileSync(join(cli.dir, 'other.json'), own.replace('@oracle:', '@other:'));
    writeFileSync(join(cli.dir, 'broken.json'), own.slice(0, 40));

    const results = [];
    for (const file of ['old.json', 'other.json', 'broken.json', 'absent.json']) results.push(await cli.run(['crypto', 'import', file]));

    expect(results.map(({ status, stdout }) => [status, stdout])).toEqual([1, 1, 1, 1].map((status) => [status, '']));
    expect(results.map(({ stderr }) => stderr)).toEqual([
      expect.stringContaining('the account has another identity on the homeserver'),
      expect.stringContaining('of another account'),
      expect.stringContaining('not whole'),
      expect.stringContaining('no file'),
    ]);
    expect(textOf(path('crypto-identity.json'))).toBe(current);
  });

  test('new-device: the next start is another device under the same identity, and the old store stays beside', async () => {
    const before = await startAndStop();

    const result = await cli.run(['crypto', 'new-device']);

    expect(result).toMatchObject({ status: 0, stderr: '' });
    expect(result.stdout).toContain('Never put data/crypto.db.old back');
    expect([existsSync(path('crypto.db')), existsSync(path('crypto.db-wal')), existsSync(path('crypto.db.old'))]).toEqual([
      false,
      false,
      true,
    ]);
    const after = await startAndStop();
    expect(after.deviceId).not.toBe(before.deviceId);
    expect(after).toMatchObject({ masterKey: before.masterKey, deviceIsSigned: true });
    expect(server.devicesOf(ORACLE)).toEqual(['ORACLE', after.deviceId]);
  });

  test('new-device moves a damaged store as well', async () => {
    const before = await startAndStop();
    writeFileSync(path('crypto.db'), 'no database at all'.repeat(100));

    expect(await cli.run(['crypto', 'new-device'])).toMatchObject({ status: 0, stderr: '' });

    expect(await startAndStop()).toMatchObject({ masterKey: before.masterKey, deviceIsSigned: true });
  });

  test('nothing begins anew beside a running oracle, and no device without the identity', async () => {
    await start();
    const device = await cli.run(['crypto', 'new-device']);
    const renewed = await cli.run(['crypto', 'new-identity', '--yes']);
    rmSync(path('crypto-identity.json'));
    const without = await cli.run(['crypto', 'new-device']);

    for (const { status, stderr } of [device, renewed]) {
      expect(status).toBe(1);
      expect(stderr).toContain('Another process uses');
    }
    expect(without.stderr).toContain('Without it a new device would be a new identity');
    expect([existsSync(path('crypto.db')), existsSync(path('crypto-identity.json.old'))]).toEqual([true, false]);
  });

  test('new-identity replaces it on the homeserver, keeps the old one beside, and the next start goes on with it', async () => {
    const before = await startAndStop();
    const old = textOf(path('crypto-identity.json'));

    const asked = await cli.run(['crypto', 'new-identity']);
    expect(asked.stderr).toContain('--yes');
    expect(server.masterKey(ORACLE)).toBe(before.masterKey);
    const result = await cli.run(['crypto', 'new-identity', '--yes']);

    expect(result).toMatchObject({ status: 0, stderr: '' });
    expect(result.stdout).toContain('its identity changed');
    expect(server.masterKey(ORACLE)).not.toBe(before.masterKey);
    expect(textOf(path('crypto-identity.json.old'))).toBe(old);
    expect(await startAndStop()).toMatchObject({
      deviceId: before.deviceId,
      masterKey: server.masterKey(ORACLE),
      deviceIsSigned: true,
    });
  });

  test('a new identity that the homeserver refuses leaves a way back', async () => {
    const before = await startAndStop();
    server.trouble = ({ path: asked }) => {
      if (asked.endsWith('/device_signing/upload'))
        throw new MatrixError({ errcode: 'M_FORBIDDEN', status: 403, retryAfterMs: null, certain: true });
      return undefined;
    };
    const refused = await cli.run(['crypto', 'new-identity', '--yes']);
    server.trouble = () => undefined;

    expect(refused.status).toBe(1);
    expect(refused.stderr).toContain('io.element.msc4190');
    expect(refused.stderr).toContain('data/crypto-identity.json.old');
    expect(await cli.run(['crypto', 'import', 'data/crypto-identity.json.old'])).toMatchObject({ status: 0, stderr: '' });
    expect(await startAndStop()).toMatchObject({ masterKey: before.masterKey, deviceIsSigned: true });
  });
});
