import { copyFileSync, mkdtempSync, readFileSync, renameSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { CryptoUnavailable } from '../../../../appservice/crypto/crypto-service.ts';
import { type CryptoProblem, type OpenCrypto, type OpenCryptoOptions, openCrypto } from '../../../../appservice/crypto/open-crypto.ts';
import { readCiphertext } from '../../../../appservice/crypto/read-ciphertext.ts';
import { MatrixError } from '../../../../appservice/matrix-api.ts';
import type { DeviceId, EventId, UserId } from '../../../../src/ids.ts';
import type { Result } from '../../../../src/result.ts';
import { systemClock } from '../../../../src/system-clock.ts';
import { type FakeKeyServer, fakeKeyServer } from '../../../fakes/fake-key-server.ts';
import { type FakeLogger, fakeLogger } from '../../../fakes/fake-logger.ts';
import { encryptedRoom, openKeyMachine } from '../../../fakes/key-machine.ts';

const ORACLE = '@oracle:oracle.local' as UserId;
const ALICE = { user: '@alice:oracle.local' as UserId, device: 'ALICE' };

describe('opening encryption', () => {
  let folder: string;
  let server: FakeKeyServer;
  let logger: FakeLogger;
  let open: { close(): Promise<void> }[];
  const files = () => ({
    database: join(folder, 'crypto.db'),
    key: join(folder, 'crypto.key'),
    identity: join(folder, 'crypto-identity.json'),
  });
  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), 'crypto-'));
    server = fakeKeyServer({ clock: systemClock });
    logger = fakeLogger();
    open = [];
  });
  afterEach(async () => {
    for (const { close } of open) await close();
    rmSync(folder, { recursive: true });
  });

  async function start(more: Partial<OpenCryptoOptions> = {}): Promise<Result<OpenCrypto, CryptoProblem>> {
    const result = await openCrypto({
      connection: server.connection(),
      userId: ORACLE,
      sendingDevice: 'ORACLE' as DeviceId,
      name: 'Oracle',
      files: files(),
      transport: 'sync',
      mayVerify: async () => true,
      postVerification: async () => undefined,
      clock: systemClock,
      logger,
      newId: () => 'id',
      onFatal: (reason) => {
        throw new Error(reason);
      },
      onWaiting: () => undefined,
      signal: new AbortController().signal,
      ...more,
    });
    if (result.ok) open.push({ close: result.value.stop });
    return result;
  }
  async function started(more: Partial<OpenCryptoOptions> = {}): Promise<OpenCrypto> {
    const result = await start(more);
    if (!result.ok) throw new Error(result.error.code, { cause: result.error.cause });
    return result.value;
  }
  async function stop(service: OpenCrypto): Promise<void> {
    open = open.filter(({ close }) => close !== service.stop);
    await service.stop();
  }
  async function alice() {
    const machine = await openKeyMachine({ server, ...ALICE });
    open.push(machine);
    await machine.sync();
    return machine;
  }

  test('the first start makes a device of its own, signs it, and keeps both secret files at mode 0600', async () => {
    const service = await started();

    const status = await service.status();
    expect(status.deviceId).toMatch(/^ORACLE_[A-Z0-9]{6}$/u);
    expect(status).toMatchObject({ deviceIsSigned: true, masterKey: server.masterKey(ORACLE), oneTimeKeys: 50 });
    expect(service.trouble()).toBeNull();
    expect(server.isSigned(ORACLE, status.deviceId)).toBe(true);
    expect([files().key, files().identity].map((path) => statSync(path).mode & 0o777)).toEqual([0o600, 0o600]);
  });

  test('the next start is the same device with the same keys', async () => {
    const first = await started();
    const before = await first.status();
    await stop(first);

    const again = await started();

    const { deviceId, fingerprint, masterKey } = await again.status();
    expect({ deviceId, fingerprint, masterKey }).toEqual({
      deviceId: before.deviceId,
      fingerprint: before.fingerprint,
      masterKey: before.masterKey,
    });
  });

  test('a message goes to a person and one comes back', async () => {
    const service = await started();
    const person = await alice();
    const room = encryptedRoom([ORACLE, person.user]);
    const content = await service.seal({ type: 'm.room.message', content: { msgtype: 'm.text', body: 'hello' } }, room);
    await person.sync();
    await person.engine.trackUsers([ORACLE]);
    await person.outgoing.flush();
    const event = { type: 'm.room.encrypted', event_id: '$1', room_id: room.roomId, sender: ORACLE, origin_server_ts: 1, content };
    const read = await person.engine.decrypt(event, room.roomId);
    const arrived = new Promise((resolve) => service.onKeys(resolve));
    const answer = await person.say(room, { msgtype: 'm.text', body: 'hello yourself' });
    await arrived;

    const revealed = await service.reveal({ event: answer, eventId: answer['event_id'] as EventId, roomId: room.roomId });

    expect(read).toMatchObject({ ok: true, value: { event: { content: { body: 'hello' } }, shield: 'identity_not_verified' } });
    expect(revealed).toMatchObject({
      kind: 'clear',
      event: { content: { body: 'hello yourself' }, sender: person.user },
      trust: 'unverified',
    });
  });

  test('a stop in the middle of sealing frees whoever waits, is no failure, and loses no ratchet', async () => {
    const service = await started();
    const person = await alice();
    const room = encryptedRoom([ORACLE, person.user]);
    const seal = (from: OpenCrypto) => from.seal({ type: 'm.room.message', content: { msgtype: 'm.text', body: 'x' } }, room);
    const first = await seal(service);
    const pending = Promise.allSettled([seal(service), seal(service), seal(service)]);
    await new Promise((resolve) => setImmediate(resolve));

    await stop(service);

    const outcomes = await pending;
    const again = await started();
    const sealed = [first, ...outcomes.flatMap((outcome) => (outcome.status === 'fulfilled' ? [outcome.value] : [])), await seal(again)];
    const names = sealed
      .map((content) => readCiphertext(content))
      .map((name) => (name.ok ? `${name.value.session} ${name.value.index}` : name.error));
    expect(outcomes.some(({ status }) => status === 'rejected')).toBe(true);
    for (const outcome of outcomes) if (outcome.status === 'rejected') expect(outcome.reason).toBeInstanceOf(CryptoUnavailable);
    expect(new Set(names).size).toBe(names.length);
  });

  test('a lost store becomes another device with the same identity, and the old one is deleted', async () => {
    const first = await started();
    const before = await first.status();
    await stop(first);
    rmSync(files().database);

    const second = await started();

    const after = await second.status();
    expect(after.deviceId).not.toBe(before.deviceId);
    expect(after.masterKey).toBe(before.masterKey);
    expect(after.deviceIsSigned).toBe(true);
    expect(server.devicesOf(ORACLE)).toEqual([after.deviceId]);
  });

  test('only devices of earlier stores are deleted', async () => {
    for (const device of ['ORACLE', 'ORACLER', 'ORACLE_ABC123', 'ORACLE_abc123', 'ORACLE_ABC1234', 'OTHER_ABC123'])
      server.addDevice(ORACLE, device);

    const service = await started();

    const { deviceId } = await service.status();
    expect(server.devicesOf(ORACLE)).toEqual(['ORACLE', 'ORACLER', 'ORACLE_abc123', 'ORACLE_ABC1234', 'OTHER_ABC123', deviceId]);
  });

  test('a second process on the same store is refused', async () => {
    await started();

    const second = await start();

    expect(second).toMatchObject({ ok: false, error: { code: 'CRYPTO_DB_LOCKED' } });
  });

  test('a store without its key is named and left alone, and no new key is made', async () => {
    const first = await started();
    await stop(first);
    renameSync(files().key, `${files().key}.away`);

    const missing = await start();
    writeFileSync(files().key, `${Buffer.alloc(32, 1).toString('base64')}\n`);
    const wrong = await start();
    writeFileSync(files().key, 'no key');
    const broken = await start();

    expect([missing, wrong, broken].map((result) => (result.ok ? 'opened' : result.error.code))).toEqual([
      'STORE_KEY_MISSING',
      'STORE_KEY_WRONG',
      'STORE_KEY_BROKEN',
    ]);
    renameSync(`${files().key}.away`, files().key);
    expect((await start()).ok).toBe(true);
  });

  test('a file that is no key store is named and left alone', async () => {
    const first = await started();
    await stop(first);
    writeFileSync(files().database, 'something else entirely, but long enough to be read as a page of a database');

    const result = await start();

    expect(result).toMatchObject({ ok: false, error: { code: 'CRYPTO_DB_DAMAGED' } });
    expect(readFileSync(files().database, 'utf8')).toContain('something else');
  });

  test('a store that was put back from an older copy is found out by its keys', async () => {
    const first = await started();
    await stop(first);
    copyFileSync(files().database, `${files().database}.copy`);
    const second = await started();
    const device = (await second.status()).deviceId;
    // Keys given out, and new ones uploaded.
    const person = await alice();
    await person.share(encryptedRoom([ORACLE, person.user]));
    await expect.poll(() => server.oneTimeKeys(ORACLE, device).left).toBe(50);
    await stop(second);
    renameSync(`${files().database}.copy`, files().database);
    server.trouble = ({ path, body }) => {
      // As Synapse does once the same key id comes with another value.
      if (path.endsWith('keys/upload') && 'one_time_keys' in body)
        throw new MatrixError({ errcode: 'M_UNKNOWN', status: 400, retryAfterMs: null, certain: true });
      return undefined;
    };

    const result = await start();

    expect(result.ok || result.error.code).toBe('DEVICE_KEYS_REFUSED');
  });

  test('a device that somebody deleted is named with its remedy, and not made again with used keys', async () => {
    const first = await started();
    const { deviceId } = await first.status();
    await stop(first);
    server.deleteDevice(ORACLE, deviceId);

    const result = await start();

    expect(result).toMatchObject({ ok: false, error: { code: 'KEY_DEVICE_GONE' } });
    expect(server.devicesOf(ORACLE)).toEqual([]);
  });

  test('a store of another account is refused', async () => {
    const first = await started();
    await stop(first);

    const result = await start({ userId: '@other:oracle.local' as UserId });

    expect(result).toMatchObject({ ok: false, error: { code: 'STORE_OF_ANOTHER' } });
  });

  test('a homeserver that is away is waited for, at every request of a start', async () => {
    const failed = new Set<string>();
    server.trouble = ({ method, path }) => {
      if (path.endsWith('/sync') || failed.has(method + path)) return undefined;
      failed.add(method + path);
      throw new MatrixError({ errcode: 'UNREACHABLE', status: 0, retryAfterMs: null, certain: true });
    };
    const waits: number[] = [];
    const clock = { ...systemClock, after: (ms: number, run: () => void) => systemClock.after(ms > 5_000 ? ms : 0, run) };

    const service = await started({ onWaiting: (_error, attempt) => waits.push(attempt), clock });

    // The list of devices is asked for once only: it is no condition.
    expect(waits.length).toBe(failed.size - 1);
    expect((await service.status()).deviceIsSigned).toBe(true);
  });
});
