/**
 * Encrypted rooms: whether people's clients give the oracle their keys, and whether these arrive. Both are decided by what the homeserver shows, so it is
 * compared with our own files. Uploads nothing, and asks no `/sync` as the device of the keys: only its owner may, because a position that is handed in
 * deletes what came before it (G1).
 */
import { existsSync } from 'node:fs';
import { stat } from 'node:fs/promises';
import { publicKeyOf, readIdentity } from '../../../../appservice/crypto/identity-file.ts';
import { readStoreKey } from '../../../../appservice/crypto/key-file.ts';
import { readPrivateFile } from '../../../../appservice/crypto/private-file.ts';
import { type PublishedKeys, queryPublishedKeys } from '../../../../appservice/crypto/published-keys.ts';
import { isMatrixError, type MatrixConnection } from '../../../../appservice/matrix-api.ts';
import type { Registration } from '../../../../appservice/registration.ts';
import type { Config } from '../../../config.ts';
import type { CryptoFiles } from '../../data-paths.ts';
import { type Check, failed, passed, skipped, warned } from './check.ts';
import type { HealthPart } from './http-checks.ts';

export interface EncryptionChecksOptions {
  readonly connection: MatrixConnection;
  readonly config: Pick<Config, 'oracleUserId' | 'matrixDeviceId' | 'cryptoTransport'>;
  readonly files: CryptoFiles;
  /** Null: it is not known. */
  readonly registration: Registration | null;
  /** What the running oracle says of its encryption; null: it does not run, or does not answer. */
  readonly health: HealthPart | null;
}

const TIMEOUT_MS = 10_000;
/** Group and others. */
const OTHERS = 0o077;

export async function* checkEncryption(options: EncryptionChecksOptions): AsyncGenerator<Check> {
  yield* checkFiles(options.files);
  yield* checkTransport(options);
  yield* checkPublished(options);
  yield checkArrival(options.health);
}

async function* checkFiles({ key, identity, database }: CryptoFiles): AsyncGenerator<Check> {
  const storeKey = readStoreKey({ keyFile: key, database });
  if (!storeKey.ok)
    yield failed(
      'encryption files',
      'the oracle does not start with the key of its key store as it is',
      `Repair it: ${storeKey.error.remedy}`,
    );
  for (const path of [key, identity]) {
    const mode = await stat(path).then(
      (found) => found.mode,
      () => 0,
    );
    if ((mode & OTHERS) !== 0)
      yield failed('encryption files', `${path} can be read by other users of this machine`, `Run \`chmod 600 ${path}\`.`);
  }
}

function* checkTransport({ config, registration }: EncryptionChecksOptions): Generator<Check> {
  const name = 'key transport';
  if (config.cryptoTransport === 'sync') return;
  if (registration !== null) {
    const missing = (['receive_ephemeral', 'org.matrix.msc3202'] as const).filter((flag) => !registration[flag]);
    if (missing.length > 0) {
      yield failed(
        name,
        `the registration lacks ${missing.join(' and ')}, so with CRYPTO_TRANSPORT=appservice no key arrives`,
        `Set ${missing.map((flag) => `\`${flag}: true\``).join(' and ')} in it, where the homeserver reads it, and restart the homeserver.`,
      );
      return;
    }
  }
  yield warned(
    name,
    'with CRYPTO_TRANSPORT=appservice keys come with transactions: what is sent while a transaction fails, or the oracle is down, is lost, and presence and typing come as well',
    'Leave CRYPTO_TRANSPORT out unless the homeserver refuses /sync to application services (the check `/sync` says so).',
  );
}

async function* checkPublished(options: EncryptionChecksOptions): AsyncGenerator<Check> {
  const { connection, config, files } = options;
  const whose = { user: config.oracleUserId, sendingDevice: config.matrixDeviceId };
  let published: PublishedKeys;
  try {
    published = await queryPublishedKeys(connection.as({ userId: config.oracleUserId, deviceId: config.matrixDeviceId }), whose);
  } catch (error) {
    if (!isMatrixError(error)) throw error;
    yield failed('identity', `the homeserver does not show keys (${error.errcode}, HTTP ${error.status})`, 'See its log.');
    return;
  }
  const own = readOwnMasterKey(files.identity, options);
  if (published.masterKey === null && own === null) {
    yield skipped('identity', 'there is none for encryption yet; the first start makes it');
    return;
  }
  yield decideIdentityCheck(own, published.masterKey, files);
  yield* checkKeyDevice(options, published);
}

/** @returns `broken`: the file is not a whole identity of this account. */
function readOwnMasterKey(path: string, { config }: EncryptionChecksOptions): { readonly key: string } | 'broken' | null {
  try {
    const text = readPrivateFile(path);
    if (text === null) return null;
    const identity = readIdentity(text, config.oracleUserId);
    return identity.ok ? { key: publicKeyOf(identity.value.masterKey) } : 'broken';
  } catch {
    return 'broken';
  }
}

const WAYS =
  'Bring a saved copy back with `matrix-oracle crypto import`, or make a new identity with `matrix-oracle crypto new-identity`, which everybody sees.';

function decideIdentityCheck(
  own: { readonly key: string } | 'broken' | null,
  published: string | null,
  { identity: file, database }: CryptoFiles,
): Check {
  const name = 'identity';
  if (own === 'broken') return failed(name, `${file} cannot be read, or is no whole identity of this account`, WAYS);
  if (own === null && existsSync(database))
    return failed(
      name,
      `the homeserver has one, but there is no ${file}`,
      `Restart the oracle, which writes it again from its key store. If it is refused, the store has none either: ${WAYS}`,
    );
  if (own === null)
    return failed(name, `the homeserver has one, but there is no ${file}: the oracle cannot sign a device of its own`, WAYS);
  if (published === null) return failed(name, 'it is not on the homeserver', 'Start the oracle, which publishes it.');
  if (own.key !== published)
    return failed(name, `the homeserver has another than ${file}: somebody replaced it, or the file is an old copy`, WAYS);
  return passed(name, `the homeserver has the one of ${file}`);
}

async function* checkKeyDevice({ connection, config }: EncryptionChecksOptions, { devices }: PublishedKeys): AsyncGenerator<Check> {
  const name = 'key device';
  if (devices.length === 0) {
    yield failed(name, 'the homeserver shows no device of the oracle that holds keys', 'Start the oracle, which makes one.');
    return;
  }
  for (const { deviceId, isSigned } of devices) {
    if (!isSigned) {
      yield failed(
        name,
        `${deviceId} is not signed by the oracle's identity, so clients that want this give it no keys`,
        'Restart the oracle, which signs it; the log names what stands in the way.',
      );
      continue;
    }
    yield (await isEchoed(connection, config, deviceId))
      ? passed(name, `${deviceId} has its keys on the homeserver, signed by the identity`)
      : failed(name, `the homeserver does not let the oracle act as ${deviceId}`, 'Use Synapse 1.141 or newer.');
  }
}

async function isEchoed(
  connection: MatrixConnection,
  { oracleUserId: userId }: EncryptionChecksOptions['config'],
  deviceId: PublishedKeys['devices'][number]['deviceId'],
): Promise<boolean> {
  try {
    const api = connection.as({ userId, deviceId });
    const answer = await api.request<{ device_id?: unknown }>('GET', '/_matrix/client/v3/account/whoami', { timeoutMs: TIMEOUT_MS });
    return answer.device_id === deviceId;
  } catch (error) {
    if (!isMatrixError(error)) throw error;
    return false;
  }
}

function checkArrival(health: HealthPart | null): Check {
  const name = 'keys';
  if (health === null) return skipped(name, 'whether they arrive only the running oracle knows; start it and run doctor again');
  if (health.ok) return passed(name, 'the running oracle gets the keys of encrypted rooms');
  return failed(
    name,
    `the running oracle does not get them: ${health.detail?.replace(/\.$/u, '') ?? 'no reason given'}`,
    'See "Encrypted rooms" in docs/operations.md.',
  );
}
