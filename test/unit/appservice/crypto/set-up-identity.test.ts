import { existsSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { publicKeyOf, readIdentity } from '../../../../appservice/crypto/identity-file.ts';
import { exportIdentity, setUpIdentity } from '../../../../appservice/crypto/set-up-identity.ts';
import { MatrixError } from '../../../../appservice/matrix-api.ts';
import { systemClock } from '../../../../src/system-clock.ts';
import { type FakeKeyServer, fakeKeyServer } from '../../../fakes/fake-key-server.ts';
import { fakeLogger } from '../../../fakes/fake-logger.ts';
import { encryptedRoom, type KeyMachine, openKeyMachine } from '../../../fakes/key-machine.ts';

const ORACLE = '@oracle:oracle.local';

describe('setting up the identity', () => {
  let folder: string;
  let file: string;
  let server: FakeKeyServer;
  let open: KeyMachine[];
  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), 'identity-'));
    file = join(folder, 'crypto-identity.json');
    server = fakeKeyServer({ clock: systemClock });
    open = [];
  });
  afterEach(async () => {
    for (const machine of open) await machine.close();
    rmSync(folder, { recursive: true });
  });

  async function start(device = 'KEYS1', path = join(folder, `${device}.db`)): Promise<KeyMachine> {
    const machine = await openKeyMachine({ server, user: ORACLE, device, path, uploads: false });
    open.push(machine);
    return machine;
  }
  async function stop(machine: KeyMachine): Promise<void> {
    open = open.filter((other) => other !== machine);
    await machine.close();
  }
  const setUp = (machine: KeyMachine, more: { wantsNew?: boolean } = {}) =>
    setUpIdentity({ engine: machine.engine, outgoing: machine.outgoing, api: machine.api, file, logger: machine.logger, ...more });
  const unreachable = () => new MatrixError({ errcode: 'UNREACHABLE', status: 0, retryAfterMs: null, certain: true });

  test('the first start makes an identity, signs the device with it and keeps the private keys in a file of mode 0600', async () => {
    const machine = await start();

    const result = await setUp(machine);

    const kept = readIdentity(readFileSync(file, 'utf8'), machine.user);
    expect(result).toEqual({ ok: true, value: { masterKey: server.masterKey(ORACLE) } });
    expect(server.isSigned(ORACLE, 'KEYS1')).toBe(true);
    expect(kept.ok && publicKeyOf(kept.value.masterKey)).toBe(server.masterKey(ORACLE));
    expect(statSync(file).mode & 0o777).toBe(0o600);
  });

  test('another start changes nothing', async () => {
    const first = await start();
    await setUp(first);
    const master = server.masterKey(ORACLE);
    await stop(first);
    const again = await start();

    const result = await setUp(again);

    expect(result.ok).toBe(true);
    expect(server.masterKey(ORACLE)).toBe(master);
  });

  test('people see the device as signed by its owner', async () => {
    const machine = await start();
    await setUp(machine);
    const alice = await openKeyMachine({ server, user: '@alice:oracle.local', device: 'ALICE' });
    open.push(alice);
    const event = await machine.say(encryptedRoom([ORACLE, alice.user]), { msgtype: 'm.text', body: 'hello' });
    await alice.sync();
    await alice.engine.trackUsers([machine.user]);
    await alice.outgoing.flush();

    const read = await alice.engine.decrypt(event, encryptedRoom([]).roomId);

    expect(read).toMatchObject({ ok: true, value: { shield: 'identity_not_verified' } });
  });

  // Each request of a first set-up fails once, before it was handled and after: the next start must come to the same end.
  const REQUESTS = ['/keys/upload', '/keys/query', '/keys/device_signing/upload', '/keys/signatures/upload'];
  test.each(REQUESTS.flatMap((path) => [[path, 'refused'] as const, [path, 'lost'] as const]))(
    'a set-up that ended at %s (%s) is completed by the next start under the same identity',
    async (path, kind) => {
      let armed = true;
      server.trouble = (call) => {
        if (!armed || !call.path.endsWith(path)) return;
        armed = false;
        if (kind === 'lost') return 'lose';
        throw unreachable();
      };
      const first = await start();
      await setUp(first).catch(() => undefined);
      const made = await exportIdentity(first.engine);
      await stop(first);
      const again = await start();

      const result = await setUp(again);

      expect(result.ok).toBe(true);
      expect(server.isSigned(ORACLE, 'KEYS1')).toBe(true);
      if (made !== null) expect(publicKeyOf(made.masterKey)).toBe(server.masterKey(ORACLE));
    },
  );

  test('no public key is on the homeserver before its private keys are in the file', async () => {
    const machine = await start();
    let wasThere: boolean | null = null;
    server.trouble = (call) => {
      if (call.path.endsWith('device_signing/upload')) wasThere = existsSync(file);
      return undefined;
    };

    await setUp(machine);

    expect(wasThere).toBe(true);
  });

  test('a new device of a lost store takes the identity from the file and is signed by it', async () => {
    const first = await start();
    await setUp(first);
    const master = server.masterKey(ORACLE);
    await stop(first);
    const second = await start('KEYS2');

    const result = await setUp(second);

    expect(result).toEqual({ ok: true, value: { masterKey: master } });
    expect(server.isSigned(ORACLE, 'KEYS2')).toBe(true);
  });

  test('a homeserver that lost the identity gets it back from the file, also with a new store', async () => {
    const first = await start();
    await setUp(first);
    const master = server.masterKey(ORACLE);
    await stop(first);
    server.forgetIdentity(ORACLE);
    const second = await start('KEYS2');

    const result = await setUp(second);

    expect(result).toEqual({ ok: true, value: { masterKey: master } });
    expect(server.isSigned(ORACLE, 'KEYS2')).toBe(true);
  });

  test('an identity on the homeserver that we have no keys of stops the start with both ways out', async () => {
    const first = await start();
    await setUp(first);
    await stop(first);
    rmSync(file);
    const second = await start('KEYS2');

    const result = await setUp(second);

    expect(result).toMatchObject({ ok: false, error: { code: 'IDENTITY_UNKNOWN' } });
    expect(result.ok ? '' : result.error.remedy).toMatch(/crypto import.*crypto new-identity/su);
    expect(existsSync(file)).toBe(false);
  });

  test('an identity that somebody replaced on the homeserver stops the start, and the file keeps ours', async () => {
    const first = await start();
    await setUp(first);
    const ours = readFileSync(file, 'utf8');
    const intruder = await openKeyMachine({ server, user: ORACLE, device: 'INTRUDER' });
    open.push(intruder);
    await setUpIdentity({
      engine: intruder.engine,
      outgoing: intruder.outgoing,
      api: intruder.api,
      file: join(folder, 'other.json'),
      logger: fakeLogger(),
      wantsNew: true,
    });

    const result = await setUp(first);

    expect(result).toMatchObject({ ok: false, error: { code: 'IDENTITY_CHANGED' } });
    expect(readFileSync(file, 'utf8')).toBe(ours);
  });

  test('an identity that the operator replaced elsewhere comes in with its file', async () => {
    const first = await start();
    await setUp(first);
    await stop(first);
    const elsewhere = await start('ELSEWHERE');
    await setUp(elsewhere, { wantsNew: true });
    await stop(elsewhere);
    const again = await start();

    const result = await setUp(again);

    expect(result).toEqual({ ok: true, value: { masterKey: server.masterKey(ORACLE) } });
    expect(server.isSigned(ORACLE, 'KEYS1')).toBe(true);
  });

  test('a new identity on request replaces the one on the homeserver and in the file', async () => {
    const first = await start();
    await setUp(first);
    const before = server.masterKey(ORACLE);

    const result = await setUp(first, { wantsNew: true });

    expect(result.ok && result.value.masterKey).not.toBe(before);
    expect(result).toEqual({ ok: true, value: { masterKey: server.masterKey(ORACLE) } });
    expect(server.isSigned(ORACLE, 'KEYS1')).toBe(true);
  });

  test.each([
    ['cut off', '{"v":1,'],
    [
      'of another account',
      JSON.stringify({
        v: 1,
        user_id: '@other:x',
        master_key: 'A'.repeat(43),
        self_signing_key: 'A'.repeat(43),
        user_signing_key: 'A'.repeat(43),
      }),
    ],
    ['huge', 'x'.repeat(10_000)],
  ])('a file that is %s stops the start and is not written over', async (_name, text) => {
    const machine = await start();
    writeFileSync(file, text);

    const result = await setUp(machine);

    expect(result).toMatchObject({ ok: false, error: { code: 'IDENTITY_FILE_BROKEN' } });
    expect(readFileSync(file, 'utf8')).toBe(text);
    expect(server.masterKey(ORACLE)).toBeNull();
  });

  test('a homeserver that wants somebody to approve the upload is named with its remedy', async () => {
    const machine = await start();
    server.trouble = (call) => {
      if (call.path.endsWith('device_signing/upload'))
        throw new MatrixError({ errcode: 'M_FORBIDDEN', status: 401, retryAfterMs: null, certain: true });
      return undefined;
    };

    const result = await setUp(machine);

    expect(result).toMatchObject({ ok: false, error: { code: 'IDENTITY_REFUSED' } });
    expect(result.ok ? '' : result.error.remedy).toContain('msc4190');
  });

  test('no private key is in any log line (G12)', async () => {
    const machine = await start();

    await setUp(machine);

    const kept = JSON.parse(readFileSync(file, 'utf8'));
    const lines = JSON.stringify(machine.logger.lines);
    for (const secret of [kept.master_key, kept.self_signing_key, kept.user_signing_key]) expect(lines).not.toContain(secret);
  });
});
