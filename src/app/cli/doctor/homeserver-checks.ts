/**
 * What the homeserver must know and allow, asked in the order in which things can be wrong, so that the first ✗ is the cause and not a
 * consequence. Changes nothing: accounts and devices are made by `start`, and no `/sync` here acknowledges anything (G1).
 */
import { syncDeviceOf } from '../../../../appservice/account.ts';
import { isMatrixError, type MatrixApi, type MatrixConnection, type MatrixError } from '../../../../appservice/matrix-api.ts';
import { createPing } from '../../../../appservice/ping.ts';
import type { Config } from '../../../config.ts';
import { type Check, failed, passed, skipped } from './check.ts';

export interface HomeserverChecksOptions {
  readonly connection: MatrixConnection;
  readonly config: Pick<
    Config,
    | 'matrixBaseUrl'
    | 'matrixServerName'
    | 'matrixDeviceId'
    | 'matrixRegistrationId'
    | 'matrixOracleLocalpart'
    | 'oracleUserId'
    | 'appserviceHost'
    | 'appservicePort'
  >;
  /** Whether something takes connections at the appservice listener. */
  readonly listening: boolean;
  readonly newId: () => string;
}

const WHOAMI = '/_matrix/client/v3/account/whoami';
const TIMEOUT_MS = 10_000;

export async function* checkHomeserver(options: HomeserverChecksOptions): AsyncGenerator<Check> {
  const reachable = await checkReachable(options);
  yield reachable;
  if (reachable.status !== 'ok') return;
  const token = await checkToken(options);
  yield token;
  if (token.status !== 'ok') return;
  const account = await checkAccount(options);
  yield account;
  if (account.status === 'ok') {
    const device = await checkDevices(options);
    yield device;
    yield device.status === 'ok' ? await checkSync(options) : skipped('/sync', 'not tried without the device');
  }
  yield await checkPing(options);
}

async function checkReachable({ connection, config }: HomeserverChecksOptions): Promise<Check> {
  const name = 'homeserver';
  try {
    const { versions } = await ask<{ versions?: unknown }>(connection.bare, '/_matrix/client/versions');
    const newest = Array.isArray(versions) ? versions.filter((version) => /^v1\.\d+$/u.test(String(version))).at(-1) : undefined;
    if (newest === undefined) {
      return failed(name, `${config.matrixBaseUrl} does not answer as a homeserver`, 'Set MATRIX_BASE_URL to its client-server API.');
    }
    return passed(name, `${await readSoftware(connection.bare)} at ${config.matrixBaseUrl}, Matrix up to ${String(newest)}`);
  } catch (error) {
    // Synapse looks at the token even here; whether it is the right one is the next question.
    if (isMatrixError(error) && error.errcode === 'M_UNKNOWN_TOKEN') return passed(name, `reachable at ${config.matrixBaseUrl}`);
    const remedy = 'Start the homeserver, or set MATRIX_BASE_URL to its client-server API.';
    return failed(name, `${config.matrixBaseUrl} does not answer (${errcodeOf(error)})`, remedy);
  }
}

/** Its version where it is told; not every listener tells it. */
async function readSoftware(api: MatrixApi): Promise<string> {
  const answer = await ask<{ server_version?: unknown }>(api, '/_synapse/admin/v1/server_version').catch(ignoreMatrixError);
  if (typeof answer?.server_version === 'string') return `Synapse ${answer.server_version.slice(0, 40)}`;
  const federation = await ask<{ server?: { name?: unknown; version?: unknown } }>(api, '/_matrix/federation/v1/version').catch(
    ignoreMatrixError,
  );
  const { name, version } = federation?.server ?? {};
  return typeof name === 'string' ? `${name.slice(0, 40)} ${String(version).slice(0, 40)}` : 'reachable';
}

async function checkToken({ connection, config }: HomeserverChecksOptions): Promise<Check> {
  const name = 'as_token';
  try {
    const { user_id: user } = await ask<{ user_id?: unknown }>(connection.bare, WHOAMI);
    const server = String(user)
      .slice(String(user).indexOf(':') + 1)
      .toLowerCase();
    if (server === config.matrixServerName) return passed(name, `accepted, as ${String(user)}`);
    return failed(name, `the homeserver is ${server}`, 'Set MATRIX_SERVER_NAME to that, or MATRIX_BASE_URL to the right homeserver.');
  } catch (error) {
    const remedy =
      'Name the registration file in app_service_config_files of homeserver.yaml and restart the homeserver; its as_token must be ours.';
    return failed(name, `refused by the homeserver (${errcodeOf(error)})`, remedy);
  }
}

async function checkAccount({ connection, config }: HomeserverChecksOptions): Promise<Check> {
  const name = 'account';
  try {
    await ask(connection.as({ userId: config.oracleUserId }), WHOAMI);
    return passed(name, `${config.oracleUserId} exists`);
  } catch (error) {
    const known = isMatrixError(error) && error.errcode === 'M_FORBIDDEN';
    const remedy = known
      ? `Run \`matrix-oracle start\` once, which makes it; if it refuses, @${config.matrixOracleLocalpart} is outside the namespace of the registration.`
      : 'See the log of the homeserver.';
    return failed(name, `${config.oracleUserId} cannot be used yet (${errcodeOf(error)})`, remedy);
  }
}

async function checkDevices({ connection, config }: HomeserverChecksOptions): Promise<Check> {
  const name = 'device';
  for (const deviceId of [config.matrixDeviceId, syncDeviceOf(config.matrixDeviceId)]) {
    try {
      const { device_id: echoed } = await ask<{ device_id?: unknown }>(connection.as({ userId: config.oracleUserId, deviceId }), WHOAMI);
      if (echoed === deviceId) continue;
      const remedy = 'Use Synapse 1.141 or newer, with `io.element.msc4190: true` in the registration.';
      return failed(name, `the homeserver does not let the oracle act as device ${deviceId}`, remedy);
    } catch (error) {
      return failed(name, `${deviceId} does not exist yet (${errcodeOf(error)})`, 'Run `matrix-oracle start` once, which makes it.');
    }
  }
  return passed(name, `whoami echoes ${config.matrixDeviceId} and ${syncDeviceOf(config.matrixDeviceId)}`);
}

/** Without `since` and on the device without keys: it takes nothing away from anybody. */
async function checkSync({ connection, config }: HomeserverChecksOptions): Promise<Check> {
  const name = '/sync';
  const nothing = { types: [] };
  const filter = JSON.stringify({ presence: nothing, account_data: nothing, room: { rooms: [] } });
  const api = connection.as({ userId: config.oracleUserId, deviceId: syncDeviceOf(config.matrixDeviceId) });
  try {
    await api.request('GET', '/_matrix/client/v3/sync', { query: { timeout: 0, set_presence: 'offline', filter }, timeoutMs: TIMEOUT_MS });
    return passed(name, `allowed for ${config.oracleUserId}, so what a push lost is found`);
  } catch (error) {
    const remedy = 'The oracle must not be the sender_localpart of the registration: make a new one with `matrix-oracle init`.';
    return failed(name, `refused for ${config.oracleUserId} (${errcodeOf(error)})`, remedy);
  }
}

async function checkPing({ connection, config, listening, newId }: HomeserverChecksOptions): Promise<Check> {
  const name = 'ping';
  const url = `http://${config.appserviceHost}:${config.appservicePort}`;
  if (!listening) return skipped(name, `not tried, because the oracle is not running at ${url}; start it and run doctor again`);
  const outcome = await createPing({
    api: connection.bare,
    registrationId: config.matrixRegistrationId,
    url: 'the url of the registration',
    newId,
  }).send();
  if (outcome.kind === 'reached')
    return passed(name, `the homeserver reaches the oracle${outcome.durationMs === null ? '' : ` in ${outcome.durationMs} ms`}`);
  return failed(name, `the homeserver did not reach the oracle (${outcome.cause.errcode})`, outcome.remedy);
}

const ask = <T extends object>(api: MatrixApi, path: string): Promise<T> => api.request<T>('GET', path, { timeoutMs: TIMEOUT_MS });
const errcodeOf = (error: unknown): string => (isMatrixError(error) ? `${error.errcode}, HTTP ${error.status}` : rethrow(error));
function ignoreMatrixError(error: MatrixError | unknown): undefined {
  if (!isMatrixError(error)) throw error;
  return undefined;
}
function rethrow(error: unknown): never {
  throw error;
}
