/**
 * Makes the oracle's accounts and devices exist, in the one order that works: registering after setting a display name answers 500 for
 * ever (research/synapse.md §3). The homeserver must echo the device, or retries would not be idempotent (G4). Every failure names its
 * remedy, because this is the first thing that goes wrong for an operator.
 * Costs eight short requests; all of them change nothing when everything exists.
 */
import { type DeviceId, parseUserId, serverOf, type UserId } from '../src/ids.ts';
import { err, ok, type Result } from '../src/result.ts';
import { backOffMs, type Clock, sleep } from '../src/time.ts';
import { isMatrixError, isOutage, type MatrixConnection, type MatrixError, matrixPath } from './matrix-api.ts';

export interface AccountOptions {
  /** `oracle` of `@oracle:server`. */
  readonly localpart: string;
  readonly deviceId: DeviceId;
  /** Display name. */
  readonly name: string;
  /** Refused when the homeserver calls itself otherwise; null takes its word. */
  readonly serverName: string | null;
  /** Before the device is made: the homeserver does not know it, so it does not know either what was sent from it (G4). */
  readonly onNewDevice?: () => Promise<void>;
}
export interface Account {
  readonly userId: UserId;
  readonly deviceId: DeviceId;
  /** Only `/sync` of reconciliation uses it, and it never holds keys (DESIGN §2). */
  readonly syncDeviceId: DeviceId;
  readonly serverName: string;
  /** The registration's own account, which nobody uses. */
  readonly senderUserId: UserId;
}
export interface AccountProblem {
  readonly code:
    | 'HOMESERVER_DOWN'
    | 'BAD_AS_TOKEN'
    | 'WRONG_SERVER_NAME'
    | 'OUTSIDE_NAMESPACE'
    | 'DEVICE_NOT_ECHOED'
    | 'HOMESERVER_REFUSED';
  /** One sentence for the operator. */
  readonly remedy: string;
  /** Waiting may help. */
  readonly retryable: boolean;
  readonly cause?: MatrixError;
}

export const syncDeviceOf = (deviceId: DeviceId): DeviceId => `${deviceId}R` as DeviceId;

export async function ensureAccount(connection: MatrixConnection, options: AccountOptions): Promise<Result<Account, AccountProblem>> {
  try {
    return await ensure(connection, options);
  } catch (error) {
    if (isMatrixError(error)) return err(explain(error, options));
    throw error;
  }
}

/** The same, waiting for a homeserver that is down; the endpoint listens meanwhile. Rejects only with the signal's reason. */
export async function ensureAccountWhenUp(
  connection: MatrixConnection,
  options: AccountOptions & { clock: Clock; signal: AbortSignal; onWaiting: (problem: AccountProblem, attempt: number) => void },
): Promise<Result<Account, AccountProblem>> {
  for (let attempt = 1; ; attempt += 1) {
    options.signal.throwIfAborted();
    const result = await ensureAccount(connection, options);
    if (result.ok || !result.error.retryable) return result;
    options.onWaiting(result.error, attempt);
    await sleep(options.clock, backOffMs(attempt, { baseMs: 500, capMs: 5_000 }), options.signal);
  }
}

async function ensure(connection: MatrixConnection, options: AccountOptions): Promise<Result<Account, AccountProblem>> {
  const { localpart, deviceId, name } = options;
  const who = await connection.bare.request<{ user_id?: unknown }>('GET', WHOAMI);
  const sender = parseUserId(who.user_id);
  if (!sender.ok)
    return err(refused('The homeserver answers whoami without a user: MATRIX_BASE_URL must be the client-server API of a homeserver.'));
  const serverName = sender.value.slice(sender.value.indexOf(':') + 1);
  if (options.serverName !== null && options.serverName.toLowerCase() !== serverOf(sender.value)) {
    const remedy = `The homeserver is ${serverName}, but MATRIX_SERVER_NAME says ${options.serverName}: correct one of them.`;
    return err({ code: 'WRONG_SERVER_NAME', remedy, retryable: false });
  }
  const userId = `@${localpart}:${serverName}` as UserId;
  await register(connection, localpart);
  await register(connection, sender.value.slice(1, sender.value.indexOf(':')));

  await ensureName(connection, { userId, name });
  const syncDeviceId = syncDeviceOf(deviceId);
  if (options.onNewDevice !== undefined && !(await hasDevice(connection, { userId, deviceId }))) await options.onNewDevice();
  await putDevice(connection, { userId, deviceId, name });
  await putDevice(connection, { userId, deviceId: syncDeviceId, name: `${name} (catching up)` });
  const echo = await connection.as({ userId, deviceId }).request<{ user_id?: unknown; device_id?: unknown }>('GET', WHOAMI);
  if (echo.user_id !== userId || echo.device_id !== deviceId) {
    const remedy =
      'The homeserver does not let the oracle act as its device: it must support device masquerading (Synapse 1.141 or newer), and the registration needs `io.element.msc4190: true`.';
    return err({ code: 'DEVICE_NOT_ECHOED', remedy, retryable: false });
  }
  return ok({ userId, deviceId, syncDeviceId, serverName, senderUserId: sender.value });
}

/** Makes the device, or changes nothing but its name. @throws MatrixError */
export async function putDevice(
  connection: Pick<MatrixConnection, 'as'>,
  { userId, deviceId, name }: { userId: UserId; deviceId: DeviceId; name: string },
): Promise<void> {
  const path = matrixPath`/_matrix/client/v3/devices/${deviceId}`;
  await connection.as({ userId }).request('PUT', path, { body: { display_name: name } });
}

async function hasDevice(connection: MatrixConnection, { userId, deviceId }: { userId: UserId; deviceId: DeviceId }): Promise<boolean> {
  try {
    await connection.as({ userId }).request('GET', matrixPath`/_matrix/client/v3/devices/${deviceId}`);
    return true;
  } catch (error) {
    // A homeserver that does not show devices to an application service says nothing about this one.
    if (!isMatrixError(error) || !error.certain) throw error;
    return error.errcode !== 'M_NOT_FOUND';
  }
}

const WHOAMI = '/_matrix/client/v3/account/whoami';

async function register(connection: MatrixConnection, localpart: string): Promise<void> {
  const body = { type: 'm.login.application_service', username: localpart, inhibit_login: true };
  try {
    await connection.bare.request('POST', '/_matrix/client/v3/register', { body });
  } catch (error) {
    if (!isMatrixError(error) || error.errcode !== 'M_USER_IN_USE') throw error;
  }
}

/** Only when it differs: setting it writes a member event into every room. */
async function ensureName(connection: MatrixConnection, { userId, name }: { userId: UserId; name: string }): Promise<void> {
  const path = matrixPath`/_matrix/client/v3/profile/${userId}/displayname`;
  const oracle = connection.as({ userId });
  const present = await oracle.request<{ displayname?: unknown }>('GET', path).catch((error: unknown) => {
    if (isMatrixError(error) && error.status === 404) return { displayname: undefined };
    throw error;
  });
  if (present.displayname !== name) await oracle.request('PUT', path, { body: { displayname: name } });
}

const refused = (remedy: string, cause?: MatrixError): AccountProblem => ({
  code: 'HOMESERVER_REFUSED',
  remedy,
  retryable: false,
  ...(cause === undefined ? {} : { cause }),
});

function explain(error: MatrixError, { localpart }: AccountOptions): AccountProblem {
  if (error.errcode === 'M_UNKNOWN_TOKEN' || error.errcode === 'M_MISSING_TOKEN') {
    const remedy =
      'The homeserver does not know MATRIX_AS_TOKEN: it must be the as_token of the registration file named in app_service_config_files, and the homeserver must have been restarted since.';
    return { code: 'BAD_AS_TOKEN', remedy, retryable: false, cause: error };
  }
  if (error.errcode === 'M_EXCLUSIVE' || error.errcode === 'M_FORBIDDEN') {
    const remedy = `The account @${localpart} is not in the registration's users namespace: run \`matrix-oracle init\` with the same MATRIX_ORACLE_LOCALPART and give the homeserver the new file.`;
    return { code: 'OUTSIDE_NAMESPACE', remedy, retryable: false, cause: error };
  }
  if (isOutage(error) || error.status === 0 || error.status >= 500 || error.status === 429) {
    const remedy = 'The homeserver does not answer at MATRIX_BASE_URL: start it, or correct the address.';
    return { code: 'HOMESERVER_DOWN', remedy, retryable: true, cause: error };
  }
  return refused(`The homeserver refused to set up the oracle's account (${error.errcode}, HTTP ${error.status}): see its log.`, error);
}
