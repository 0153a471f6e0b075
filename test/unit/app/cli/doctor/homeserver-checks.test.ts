import { expect, test } from 'vitest';
import { type MatrixApi, type MatrixConnection, MatrixError, type MatrixIdentity } from '../../../../../appservice/matrix-api.ts';
import { buildLine, type Check } from '../../../../../src/app/cli/doctor/check.ts';
import { checkHomeserver } from '../../../../../src/app/cli/doctor/homeserver-checks.ts';
import type { DeviceId, UserId } from '../../../../../src/ids.ts';

const ORACLE = '@oracle:example.org' as UserId;
const CONFIG = {
  matrixBaseUrl: 'http://127.0.0.1:8008',
  matrixServerName: 'example.org',
  matrixDeviceId: 'ORACLE' as DeviceId,
  matrixRegistrationId: 'matrix-oracle',
  matrixOracleLocalpart: 'oracle',
  oracleUserId: ORACLE,
  appserviceHost: '127.0.0.1',
  appservicePort: 9993,
};
const refusal = (status: number, errcode: string) => new MatrixError({ errcode, status, retryAfterMs: null, certain: true });

/** What the homeserver answers, as (who, path) → body or error. Bare is `''`, else user, and with a device `user|device`. */
type Answers = Readonly<Record<string, object | MatrixError>>;
const HEALTHY: Answers = {
  ' GET /_matrix/client/versions': { versions: ['r0.6.1', 'v1.1', 'v1.15'] },
  ' GET /_synapse/admin/v1/server_version': { server_version: '1.163.2' },
  ' GET /_matrix/client/v3/account/whoami': { user_id: '@_oracle_as:example.org' },
  '@oracle:example.org GET /_matrix/client/v3/account/whoami': { user_id: ORACLE },
  '@oracle:example.org|ORACLE GET /_matrix/client/v3/account/whoami': { user_id: ORACLE, device_id: 'ORACLE' },
  '@oracle:example.org|ORACLER GET /_matrix/client/v3/account/whoami': { user_id: ORACLE, device_id: 'ORACLER' },
  '@oracle:example.org|ORACLER GET /_matrix/client/v3/sync': { next_batch: 's1' },
  ' POST /_matrix/client/v1/appservice/matrix-oracle/ping': { duration_ms: 7 },
};

function createConnection(answers: Answers, asked: string[] = []): MatrixConnection {
  const api = (who: string): MatrixApi => ({
    async request<T extends object>(method: string, path: string) {
      const key = `${who} ${method} ${path}`;
      asked.push(key);
      const answer = answers[key] ?? refusal(404, 'M_UNRECOGNIZED');
      if (answer instanceof MatrixError) throw answer;
      return answer as T;
    },
  });
  const name = ({ userId, deviceId }: MatrixIdentity) => (deviceId === undefined ? userId : `${userId}|${deviceId}`);
  return { bare: api(''), as: (identity) => api(name(identity)), close: async () => {} };
}

async function run(changes: Answers, { listening = true, asked }: { listening?: boolean; asked?: string[] } = {}): Promise<Check[]> {
  const connection = createConnection({ ...HEALTHY, ...changes }, asked);
  return Array.fromAsync(checkHomeserver({ connection, config: CONFIG, listening, newId: () => 'id' }));
}
const shortOf = (checks: readonly Check[]): string[] => checks.map((check) => `${check.name} ${check.status}`);

test('a homeserver that is set up passes every check', async () => {
  const checks = await run({});

  expect(shortOf(checks)).toEqual(['homeserver ok', 'as_token ok', 'account ok', 'device ok', '/sync ok', 'ping ok']);
  expect(checks.map(buildLine)[0]).toBe('✓ homeserver: Synapse 1.163.2 at http://127.0.0.1:8008, Matrix up to v1.15.');
});

test('doctor changes nothing: it only reads, but for the ping', async () => {
  const asked: string[] = [];

  await run({}, { asked });

  expect(asked.filter((request) => !request.includes(' GET '))).toEqual([' POST /_matrix/client/v1/appservice/matrix-oracle/ping']);
});

test.each<[string, Answers, string[]]>([
  [
    'down',
    { ' GET /_matrix/client/versions': new MatrixError({ errcode: 'UNREACHABLE', status: 0, retryAfterMs: null, certain: true }) },
    ['homeserver failed'],
  ],
  ['no homeserver at all', { ' GET /_matrix/client/versions': { hello: 'world' } }, ['homeserver failed']],
  [
    'without our registration',
    {
      ' GET /_matrix/client/versions': refusal(401, 'M_UNKNOWN_TOKEN'),
      ' GET /_matrix/client/v3/account/whoami': refusal(401, 'M_UNKNOWN_TOKEN'),
    },
    ['homeserver ok', 'as_token failed'],
  ],
  [
    'another one than we think',
    { ' GET /_matrix/client/v3/account/whoami': { user_id: '@_oracle_as:example.com' } },
    ['homeserver ok', 'as_token failed'],
  ],
  [
    'without the account',
    { '@oracle:example.org GET /_matrix/client/v3/account/whoami': refusal(403, 'M_FORBIDDEN') },
    ['homeserver ok', 'as_token ok', 'account failed', 'ping ok'],
  ],
  [
    'without the second device',
    { '@oracle:example.org|ORACLER GET /_matrix/client/v3/account/whoami': refusal(400, 'M_UNKNOWN_DEVICE') },
    ['homeserver ok', 'as_token ok', 'account ok', 'device failed', '/sync skipped', 'ping ok'],
  ],
  [
    'one that ignores the device',
    { '@oracle:example.org|ORACLE GET /_matrix/client/v3/account/whoami': { user_id: ORACLE } },
    ['homeserver ok', 'as_token ok', 'account ok', 'device failed', '/sync skipped', 'ping ok'],
  ],
  [
    'one that refuses /sync',
    { '@oracle:example.org|ORACLER GET /_matrix/client/v3/sync': refusal(500, 'M_UNKNOWN') },
    ['homeserver ok', 'as_token ok', 'account ok', 'device ok', '/sync failed', 'ping ok'],
  ],
  [
    'one that cannot reach us',
    { ' POST /_matrix/client/v1/appservice/matrix-oracle/ping': refusal(504, 'M_CONNECTION_TIMEOUT') },
    ['homeserver ok', 'as_token ok', 'account ok', 'device ok', '/sync ok', 'ping failed'],
  ],
])('a homeserver that is %s fails at the cause, with a remedy', async (_, changes, expected) => {
  const checks = await run(changes);

  expect(shortOf(checks)).toEqual(expected);
  for (const check of checks) if (check.status === 'failed') expect(check.remedy).toMatch(/^[A-Z].{15,}\.$/u);
});

test('without a running oracle the ping is skipped, not failed', async () => {
  const checks = await run({}, { listening: false });

  expect(shortOf(checks).at(-1)).toBe('ping skipped');
});
