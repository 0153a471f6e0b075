import { setImmediate as nextTask } from 'node:timers/promises';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { CryptoUnavailable } from '../../../../appservice/crypto/crypto-service.ts';
import { createKeyIntake } from '../../../../appservice/crypto/key-intake.ts';
import { buildKeyFilter, createKeySync, decideSyncTrouble, type KeyRoad } from '../../../../appservice/crypto/key-sync.ts';
import { MatrixError } from '../../../../appservice/matrix-api.ts';
import { type FakeClock, fakeClock } from '../../../fakes/fake-clock.ts';
import { type FakeKeyServer, fakeKeyServer } from '../../../fakes/fake-key-server.ts';
import { fakeLogger } from '../../../fakes/fake-logger.ts';
import { type KeyMachine, openKeyMachine } from '../../../fakes/key-machine.ts';

const ORACLE = '@oracle:oracle.local';
const DEVICE = 'ORACLE_ABC123';

let clock: FakeClock;
let server: FakeKeyServer;
let oracle: KeyMachine;
let sync: KeyRoad;
let logger = fakeLogger();

beforeEach(async () => {
  clock = fakeClock();
  server = fakeKeyServer({ clock });
  oracle = await openKeyMachine({ server, user: ORACLE, device: DEVICE });
  sync = startProcess();
});
afterEach(async () => {
  server.trouble = () => undefined;
  await sync.stop();
  await oracle.close();
});
function startProcess(): KeyRoad {
  logger = fakeLogger();
  const intake = createKeyIntake({ store: oracle.db.toDevice, engine: oracle.engine, logger });
  const { api, outgoing } = oracle;
  return createKeySync({ api, store: oracle.db.toDevice, intake, outgoing, clock, logger, newId: () => 'process-1' });
}
const polls = () => server.calls.filter(({ path }) => path.endsWith('/sync'));
const fail = (errcode: string, status: number) => () => {
  throw new MatrixError({ errcode, status, retryAfterMs: null, certain: false });
};
/** Only the poll; what else is asked goes on. */
const failPoll = (errcode: string, status: number) => {
  server.trouble = ({ path }) => (path.endsWith('/sync') ? fail(errcode, status)() : undefined);
};
/** Until the poll waits at the homeserver. */
async function settle(): Promise<void> {
  for (let turn = 0; turn < 20; turn += 1) await nextTask();
}

test('start resolves after the first look; from then on one request is open', async () => {
  await sync.start();
  await settle();

  expect(sync.lastSyncAt()).toBe(0);
  expect(polls().length).toBe(2);
  expect(oracle.db.toDevice.since()).not.toBeNull();
});

test('what is sent to the device is in the engine without waiting for the poll to end', async () => {
  await sync.start();
  await settle();

  server.sendToDevice('@alice:oracle.local', 'm.test', { user: ORACLE, device: DEVICE }, { hello: 1 });
  await settle();

  expect(server.inbox(ORACLE, DEVICE)).toEqual([]);
  expect(polls().length).toBe(3);
});

test('what was shared before a moment has arrived once a look that began after it is done', async () => {
  await sync.start();
  const parkedAt = clock.monotonic();
  clock.advance(10);
  await settle();
  const during = sync.syncedSince(parkedAt);

  server.sendToDevice('@alice:oracle.local', 'm.test', { user: ORACLE, device: DEVICE }, {});
  await settle();
  await clock.advanceAsync(30_000);
  await settle();

  expect([during, sync.syncedSince(parkedAt)]).toEqual([false, true]);
});

test('one-time keys that were used up are made again', async () => {
  await sync.start();
  await settle();
  const alice = await openKeyMachine({ server, user: '@alice:oracle.local', device: 'ALICE', clock });
  const before = server.oneTimeKeys(ORACLE, DEVICE).left;
  for (let count = 0; count < 30; count += 1)
    await alice.api.request('POST', '/_matrix/client/v3/keys/claim', {
      body: { one_time_keys: { [ORACLE]: { [DEVICE]: 'signed_curve25519' } } },
    });
  const used = server.oneTimeKeys(ORACLE, DEVICE).left;

  await settle();
  await clock.advanceAsync(30_000);
  await settle();

  expect([before - used, server.oneTimeKeys(ORACLE, DEVICE).left]).toEqual([30, before]);
  await alice.close();
});

test('a new process goes on from the position of the last, with a filter of its own', async () => {
  await sync.start();
  await sync.stop();
  const since = oracle.db.toDevice.since();
  sync = startProcess();

  await sync.start();

  expect(since).not.toBeNull();
  expect(buildKeyFilter('process-1')).not.toBe(buildKeyFilter('process-2'));
  expect(JSON.parse(buildKeyFilter('process-1'))).toMatchObject({ room: { rooms: [] } });
});

describe('when the homeserver fails', () => {
  test('the poll is tried again, ever later, and nothing is lost meanwhile', async () => {
    server.trouble = fail('UNREACHABLE', 0);
    await sync.start();
    await clock.advanceAsync(10_000);
    const tries = polls().length;
    server.sendToDevice('@alice:oracle.local', 'm.test', { user: ORACLE, device: DEVICE }, {});
    const trouble = sync.trouble();
    server.trouble = () => undefined;

    await clock.advanceAsync(60_000);
    await settle();

    expect(tries).toBe(4);
    expect(trouble).toContain('cannot be reached');
    expect(sync.trouble()).toBeNull();
    expect(server.inbox(ORACLE, DEVICE)).toEqual([]);
    expect(logger.said('info')).toContain('keys arrive again');
  });

  test('a pause that it asks for is kept', async () => {
    server.trouble = () => {
      throw new MatrixError({ errcode: 'M_LIMIT_EXCEEDED', status: 429, retryAfterMs: 20_000, certain: true });
    };
    await sync.start();

    await clock.advanceAsync(19_000);
    const early = polls().length;
    await clock.advanceAsync(1_000);

    expect([early, polls().length]).toEqual([1, 2]);
  });

  test('a position that it does not know begins again, and everybody is asked for anew', async () => {
    await oracle.engine.trackUsers(['@alice:oracle.local' as never]);
    oracle.db.toDevice.put({ events: [], changed: [], left: [], oneTimeKeys: null, unusedFallback: null }, 'of-another-database');
    await oracle.outgoing.flush();
    const before = server.calls.length;
    await sync.start();

    await clock.advanceAsync(1_000);
    await settle();

    expect(sync.trouble()).toBeNull();
    expect(oracle.db.toDevice.since()).not.toBe('of-another-database');
    const asked = server.calls.slice(before).filter(({ path }) => path.endsWith('/keys/query'));
    expect(asked.flatMap(({ body }) => Object.keys(body['device_keys'] as object))).toContain('@alice:oracle.local');
  });

  test('requests of the engine that fail do not keep keys from arriving', async () => {
    server.trouble = ({ path }) => (path.includes('/keys/') ? fail('TIMEOUT', 0)() : undefined);
    await oracle.engine.trackUsers(['@alice:oracle.local' as never]);
    await sync.start();
    await settle();

    expect(sync.trouble()).toBeNull();
    expect(sync.lastSyncAt()).not.toBeNull();
    expect(logger.said('warn')).toEqual(['requests about keys could not be sent']);
  });

  test('an answer that is none of /sync is not acknowledged', async () => {
    const api = { request: async () => ({ rooms: {} }) as never };
    const { outgoing } = oracle;
    const intake = createKeyIntake({ store: oracle.db.toDevice, engine: oracle.engine, logger });
    const odd = createKeySync({ api, store: oracle.db.toDevice, intake, outgoing, clock, logger, newId: () => 'x' });

    await odd.start();

    expect(oracle.db.toDevice.since()).toBeNull();
    expect(odd.lastSyncAt()).toBeNull();
    await odd.stop();
  });

  test('a homeserver that does not wait is asked once a second at most', async () => {
    let asked = 0;
    const api = {
      request: async () => {
        asked += 1;
        return { next_batch: 's1' } as never;
      },
    };
    const { outgoing } = oracle;
    const intake = createKeyIntake({ store: oracle.db.toDevice, engine: oracle.engine, logger });
    const busy = createKeySync({ api, store: oracle.db.toDevice, intake, outgoing, clock, logger, newId: () => 'x' });
    await busy.start();

    await clock.advanceAsync(10_000);
    await busy.stop();

    expect(asked).toBeGreaterThan(5);
    expect(asked).toBeLessThan(15);
  });

  test('what needs a person is said once, at the level that calls one', async () => {
    failPoll('M_UNKNOWN_DEVICE', 400);
    await sync.start();
    await clock.advanceAsync(10_000);

    expect(logger.said('error')).toEqual(['keys of encrypted rooms do not arrive']);
    expect(sync.trouble()).toContain('crypto new-device');
  });

  test('a homeserver that is away is nobody’s alarm: a warning, and a reason for whoever looks', async () => {
    failPoll('UNREACHABLE', 0);
    await sync.start();
    await clock.advanceAsync(30_000);

    expect(logger.said('error')).toEqual([]);
    expect(logger.said('warn')).toContain('keys of encrypted rooms do not arrive');
    expect(sync.trouble()).toContain('cannot be reached');
  });

  test('stop ends a poll that waits', async () => {
    await sync.start();
    await settle();

    await sync.stop();
    const count = polls().length;
    await clock.advanceAsync(60_000);

    expect(polls().length).toBe(count);
    expect(clock.pending()).toBe(0);
  });
});

describe('what an operator is told', () => {
  const matrix = (errcode: string, status: number) => new MatrixError({ errcode, status, retryAfterMs: null, certain: false });
  const first = { failures: 1, hasWorked: false };
  const third = { failures: 3, hasWorked: false };

  test.each([
    ['a token that is refused', matrix('M_UNKNOWN_TOKEN', 401), first, 'as_token'],
    ['a device that is gone', matrix('M_UNKNOWN_DEVICE', 400), first, 'new-device'],
    ['no /sync for application services (403)', matrix('M_FORBIDDEN', 403), first, 'CRYPTO_TRANSPORT=appservice'],
    ['no /sync for application services (404)', matrix('M_UNRECOGNIZED', 404), first, 'CRYPTO_TRANSPORT=appservice'],
    ['no /sync for application services (500, again and again)', matrix('M_UNKNOWN', 500), third, 'CRYPTO_TRANSPORT=appservice'],
    ['a 500 once', matrix('M_UNKNOWN', 500), first, null],
    ['a 500 after it had worked', matrix('M_UNKNOWN', 500), { failures: 3, hasWorked: true }, 'fails to hand out keys'],
    ['a moment without a homeserver', matrix('UNREACHABLE', 0), first, null],
    ['no homeserver for longer', matrix('UNREACHABLE', 0), third, 'cannot be reached'],
    ['a proxy without its server', matrix('NOT_JSON', 502), third, 'cannot be reached'],
    ['a full disk', new Error('SQLITE_FULL'), third, 'DATA_DIR'],
    ['an engine that is gone', new CryptoUnavailable('panicked'), first, 'restarted'],
  ] as const)('%s', (_name, error, history, said) => {
    const trouble = decideSyncTrouble(error, history);

    if (said === null) expect(trouble).toBeNull();
    else expect(trouble).toContain(said);
  });
});
