import { expect, test } from 'vitest';
import { ensureAccount, ensureAccountWhenUp } from '../../../appservice/account.ts';
import type { MatrixConnection } from '../../../appservice/matrix-api.ts';
import { MatrixError } from '../../../appservice/matrix-api.ts';
import type { DeviceId } from '../../../src/ids.ts';
import { fakeClock } from '../../fakes/fake-clock.ts';
import { createFakeHomeserver } from '../../fakes/fake-homeserver.ts';

const OPTIONS = { localpart: 'oracle', deviceId: 'ORACLE' as DeviceId, name: 'Oracle', serverName: null };
const open = () => {
  const clock = fakeClock();
  const homeserver = createFakeHomeserver({ clock });
  return { clock, homeserver, connection: homeserver.connection() };
};
const failing = (errcode: string, status: number): MatrixConnection => {
  const api = { request: () => Promise.reject(new MatrixError({ errcode, status, retryAfterMs: null, certain: status !== 500 })) };
  return { bare: api, as: () => api, close: async () => {} };
};

test('accounts and both devices exist afterwards, and the server name is the homeserver’s own', async () => {
  const { connection } = open();

  const account = await ensureAccount(connection, OPTIONS);

  expect(account).toEqual({
    ok: true,
    value: {
      userId: '@oracle:oracle.local',
      deviceId: 'ORACLE',
      syncDeviceId: 'ORACLER',
      serverName: 'oracle.local',
      senderUserId: '@_oracle_as:oracle.local',
    },
  });
});

test('the account is registered before its display name is set: the other order fails for ever on Synapse', async () => {
  const { connection, homeserver } = open();

  await ensureAccount(connection, OPTIONS);

  const order = homeserver.requests.filter(({ method }) => method !== 'GET').map(({ path }) => path.split('/').at(4));
  expect(order.indexOf('register')).toBeLessThan(order.indexOf('profile'));
  expect(
    homeserver.requests
      .filter(({ path }) => path.endsWith('register'))
      .every(({ body }) => (body as { inhibit_login?: boolean }).inhibit_login),
  ).toBe(true);
});

test('a second start changes nothing and writes no member event', async () => {
  const { connection, homeserver } = open();
  await ensureAccount(connection, OPTIONS);
  homeserver.requests.length = 0;

  const second = await ensureAccount(connection, OPTIONS);

  expect(second.ok).toBe(true);
  expect(homeserver.requests.some(({ method, path }) => method === 'PUT' && path.includes('displayname'))).toBe(false);
});

test('an account outside the namespace names the setting to correct', async () => {
  const result = await ensureAccount(open().connection, { ...OPTIONS, localpart: 'somebody' });

  expect(result).toMatchObject({ ok: false, error: { code: 'OUTSIDE_NAMESPACE', retryable: false } });
});

test('a server name that is not the homeserver’s stops the start', async () => {
  const result = await ensureAccount(open().connection, { ...OPTIONS, serverName: 'other.org' });

  expect(result).toMatchObject({ ok: false, error: { code: 'WRONG_SERVER_NAME', retryable: false } });
});

test.each([
  ['M_UNKNOWN_TOKEN', 401, 'BAD_AS_TOKEN', false],
  ['UNREACHABLE', 0, 'HOMESERVER_DOWN', true],
  ['TIMEOUT', 0, 'HOMESERVER_DOWN', true],
  ['M_UNKNOWN', 500, 'HOMESERVER_DOWN', true],
  ['NOT_JSON', 502, 'HOMESERVER_DOWN', true],
  ['M_LIMIT_EXCEEDED', 429, 'HOMESERVER_DOWN', true],
  ['M_UNRECOGNIZED', 404, 'HOMESERVER_REFUSED', false],
])('%s %d means %s', async (errcode, status, code, retryable) => {
  const result = await ensureAccount(failing(errcode, status), OPTIONS);

  expect(result).toMatchObject({ ok: false, error: { code, retryable } });
});

test('a homeserver that is down is waited for', async () => {
  const { clock, homeserver, connection } = open();
  homeserver.stop();
  const waited: number[] = [];

  const work = ensureAccountWhenUp(connection, {
    ...OPTIONS,
    clock,
    signal: new AbortController().signal,
    onWaiting: (_problem, attempt) => waited.push(attempt),
  });
  await clock.advanceAsync(20_000);
  homeserver.start();
  await clock.advanceAsync(6_000);

  expect((await work).ok).toBe(true);
  expect(waited.length).toBeGreaterThan(3);
});

test('a wrong token is not waited for', async () => {
  const clock = fakeClock();

  const result = await ensureAccountWhenUp(failing('M_UNKNOWN_TOKEN', 401), {
    ...OPTIONS,
    clock,
    signal: new AbortController().signal,
    onWaiting: () => expect.fail('waited'),
  });

  expect(result.ok).toBe(false);
});

test('a device that the homeserver does not know is told before it is made, and only then (G4)', async () => {
  const { connection, homeserver } = open();
  const told: boolean[] = [];
  const hasDevice = () => homeserver.requests.some(({ method, path }) => method === 'PUT' && path.endsWith('/devices/ORACLE'));
  const options = {
    ...OPTIONS,
    onNewDevice: async () => {
      told.push(hasDevice());
    },
  };

  await ensureAccount(connection, options);
  await ensureAccount(connection, options);
  expect(told).toEqual([false]);

  homeserver.requests.length = 0;
  await connection.as({ userId: '@oracle:oracle.local' as never }).request('DELETE', '/_matrix/client/v3/devices/ORACLE');
  await ensureAccount(connection, options);
  expect(told).toEqual([false, false]);
});

test('a homeserver that shows no devices to an application service says nothing about this one', async () => {
  const { connection, homeserver } = open();
  homeserver.trouble(/devices\/ORACLE$/u, { kind: 'answer', status: 403, body: { errcode: 'M_FORBIDDEN' } });
  let told = 0;

  const account = await ensureAccount(connection, {
    ...OPTIONS,
    onNewDevice: async () => {
      told += 1;
    },
  });

  expect(account.ok).toBe(true);
  expect(told).toBe(0);
});
