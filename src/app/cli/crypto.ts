/**
 * Encrypted rooms from the operator's side: what stands where, the identity out and in, and the two ways to begin anew. A running oracle holds its key store
 * alone, so beside it only the homeserver and the files are asked, and what begins anew is refused. Each command that cannot be taken back says first
 * what people will see.
 */
import { existsSync, statSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { relative } from 'node:path';
import { connectMatrix } from '../../../appservice/client.ts';
import { buildIdentityFile, type Identity, publicKeyOf, readIdentity } from '../../../appservice/crypto/identity-file.ts';
import { readStoreKey } from '../../../appservice/crypto/key-file.ts';
import { readPrivateFile, writePrivateFile } from '../../../appservice/crypto/private-file.ts';
import { type PublishedKeys, queryPublishedKeys } from '../../../appservice/crypto/published-keys.ts';
import { readStoppedStore, setStoreAside } from '../../../appservice/crypto/stopped-store.ts';
import { isMatrixError, type MatrixConnection } from '../../../appservice/matrix-api.ts';
import { type Config, readEnvironment } from '../../config.ts';
import { systemClock } from '../../system-clock.ts';
import { type CryptoFiles, cryptoFiles } from '../data-paths.ts';
import { loadConfig } from '../load-config.ts';
import { CliError, configError } from './cli-error.ts';
import { type CryptoFacts, describeCrypto, type HomeserverFacts, inGroups, type StoreFacts } from './crypto-report.ts';
import { readHealthPart } from './doctor/http-checks.ts';
import { freeName } from './free-name.ts';
import { isSure } from './is-sure.ts';

interface CryptoCommand {
  readonly settings?: string;
}

const TIMEOUT_MS = 10_000;
const say = (lines: readonly string[]): boolean => process.stdout.write(`${lines.join('\n')}\n`);
const shown = (path: string): string => relative('.', path) || path;
const codeOf = (cause: unknown): string => (cause instanceof Error && 'code' in cause ? String(cause.code) : 'unknown error');

export async function runCryptoStatus(options: CryptoCommand): Promise<void> {
  const config = await readSettings(options);
  const files = cryptoFiles(config);
  const store = await lookAtStore(config, files);
  const homeserver = await withHomeserver(config, (connection) => askHomeserver(connection, config, store)).catch(faultOf);
  say(
    describeCrypto({
      account: config.oracleUserId,
      identityFile: shown(files.identity),
      identity: describeFile(files.identity, config),
      storeFile: shown(files.database),
      store,
      homeserver,
    }),
  );
}

export async function runCryptoExport(file: string, options: CryptoCommand): Promise<void> {
  const config = await readSettings(options);
  const identity = readOwnIdentity(config);
  await writeFile(file, buildIdentityFile(identity, config.oracleUserId), { mode: 0o600, flag: 'wx', flush: true }).catch(
    (cause: unknown) => {
      const why = codeOf(cause) === 'EEXIST' ? 'is there already, and was not changed' : `cannot be written (${codeOf(cause)})`;
      throw new CliError(`${file} ${why}: give another name.`, { cause });
    },
  );
  say([
    `Written (mode 0600): ${file}, the identity ${inGroups(publicKeyOf(identity.masterKey))} of ${config.oracleUserId}.`,
    'Whoever has it can pass for the oracle in encrypted rooms: keep it offline. `matrix-oracle crypto import` brings it back.',
  ]);
}

export async function runCryptoImport(file: string, options: CryptoCommand): Promise<void> {
  const config = await readSettings(options);
  const path = cryptoFiles(config).identity;
  const given = readGivenIdentity(file, config);
  const published = await withHomeserver(config, (connection) => askForKeys(connection, config)).catch((cause: unknown) => {
    throw new CliError(`${faultOf(cause).fault}, so nothing was changed: the file must be compared with what it shows.`, { cause });
  });
  const kept = readPrivateFile(path);
  const refused = decideImport({ given, published, kept: describeFile(path, config), path: shown(path) });
  if (refused !== null) throw new CliError(`${refused} Nothing was changed.`);
  const text = buildIdentityFile(given, config.oracleUserId);
  const aside = kept === null || kept === text ? null : await keepAside(path, kept);
  if (kept !== text) writePrivateFile(path, text);
  say([
    `${kept === text ? 'There already' : 'Written (mode 0600)'}: ${shown(path)}, the identity ${inGroups(publicKeyOf(given.masterKey))} of ${config.oracleUserId}.`,
    ...(aside === null ? [] : [`What was there before is ${shown(aside)}; remove it when the oracle runs.`]),
    'The next start of the oracle uses it.',
  ]);
}

export async function runCryptoNewDevice(options: CryptoCommand): Promise<void> {
  const config = await readSettings(options);
  const { database } = cryptoFiles(config);
  if (!existsSync(database)) throw new CliError(`there is no ${shown(database)}: the next start makes a new device anyway.`);
  const identity = readOwnIdentity(config);
  const aside = await freeName(database);
  const moved = setStoreAside(database, aside);
  if (!moved.ok) throw new CliError(moved.error.remedy, { cause: moved.error.cause });
  say([
    `Moved: ${shown(database)} is ${shown(aside)} now.`,
    `The next start makes a new device under the same identity (${inGroups(publicKeyOf(identity.masterKey))}), so nobody who verified the oracle is warned, and deletes the old one.`,
    'The new device reads what is sent to it from then on. Messages from before that were not read yet stay unreadable: their senders are asked to send them again.',
    `Never put ${shown(aside)} back once the oracle has started: its keys are used up. Remove it then.`,
  ]);
}

export async function runCryptoNewIdentity({ yes, ...options }: CryptoCommand & { readonly yes: boolean }): Promise<void> {
  const config = await readSettings(options);
  const { identity: path, database } = cryptoFiles(config);
  const store = readStoppedStore(database);
  if (!store.ok) throw new CliError(store.error.remedy, { cause: store.error.cause });
  say([
    `${config.oracleUserId} gets a new identity for encryption. Everybody who has talked to it in an encrypted room sees that its identity changed,`,
    'as if somebody had taken its place; who verified it must verify it again. Tell them before. The old identity counts no more.',
  ]);
  if (!yes && !(await isSure({ question: 'Make a new identity?', what: 'make a new identity' })))
    throw new CliError('nothing was changed.');
  const kept = readPrivateFile(path);
  const aside = kept === null ? null : await keepAside(path, kept);
  const { makeNewIdentity } = await import('./make-new-identity.ts');
  const made = await withHomeserver(config, (connection) => makeNewIdentity({ connection, config })).catch((error: unknown) => {
    const before = aside === null ? '' : ` The identity of before is in ${shown(aside)}; \`matrix-oracle crypto import\` brings it back.`;
    if (error instanceof CliError) throw new CliError(`${error.message}${before}`, { cause: error });
    throw error;
  });
  say([
    `The identity is ${inGroups(made.masterKey)} now (${shown(path)}), and the device ${made.deviceId} is signed by it.`,
    ...(aside === null ? [] : [`The old one is ${shown(aside)}; remove it.`]),
    'Start the oracle, and keep a copy of the new identity: `matrix-oracle crypto export <file>`.',
  ]);
}

async function keepAside(path: string, text: string): Promise<string> {
  const aside = await freeName(path);
  await writeFile(aside, text, { mode: 0o600, flag: 'wx', flush: true });
  return aside;
}

/** Why this identity is not taken; null when it is. */
function decideImport({
  given,
  published: { masterKey, selfSigningKey, userSigningKey },
  kept,
  path,
}: {
  readonly given: Identity;
  readonly published: PublishedKeys;
  readonly kept: CryptoFacts['identity'];
  readonly path: string;
}): string | null {
  const own = publicKeyOf(given.masterKey);
  if (masterKey === null) {
    if (kept === null || 'fault' in kept || kept.masterKey === own) return null;
    return `the account has no identity on the homeserver yet, and ${path} holds another one, which the oracle would publish: move it away if this one is right.`;
  }
  if (masterKey !== own) {
    return `the account has another identity on the homeserver (${inGroups(masterKey)}) than the file (${inGroups(own)}), which is older, or of another homeserver. \`matrix-oracle crypto new-identity\` makes a new one, and everybody who verified the oracle will be warned.`;
  }
  const fits = [
    [selfSigningKey, given.selfSigningKey],
    [userSigningKey, given.userSigningKey],
  ].every(([there, seed]) => there == null || there === publicKeyOf(seed ?? ''));
  return fits ? null : 'the master key of the file is the one on the homeserver, but the keys under it are others: it is an older copy.';
}

async function readSettings({ settings }: CryptoCommand): Promise<Config> {
  const loaded = await loadConfig({ environment: readEnvironment(), settings });
  if (!loaded.ok) throw configError(loaded.error);
  return loaded.value.config;
}

function describeFile(path: string, config: Config): CryptoFacts['identity'] {
  const text = readPrivateFile(path);
  if (text === null) return null;
  const identity = readIdentity(text, config.oracleUserId);
  if (identity.ok) return { masterKey: publicKeyOf(identity.value.masterKey) };
  return { fault: `${shown(path)} ${identity.error === 'OF_ANOTHER_ACCOUNT' ? 'belongs to another account' : NO_IDENTITY}` };
}
const NO_IDENTITY = 'is not a file of an oracle’s identity, or not whole';

function readOwnIdentity(config: Config): Identity {
  const path = cryptoFiles(config).identity;
  const text = readPrivateFile(path);
  if (text === null) {
    const remedy = 'start the oracle once, which writes it, or bring a saved copy back with `matrix-oracle crypto import`';
    throw new CliError(`there is no identity at ${shown(path)}: ${remedy}. Without it a new device would be a new identity.`);
  }
  const identity = readIdentity(text, config.oracleUserId);
  if (!identity.ok) throw new CliError(`${shown(path)} ${NO_IDENTITY}: bring a saved copy back with \`matrix-oracle crypto import\`.`);
  return identity.value;
}

function readGivenIdentity(file: string, config: Config): Identity {
  const text = readPrivateFile(file);
  if (text === null) throw new CliError(`there is no file ${file}.`);
  const identity = readIdentity(text, config.oracleUserId);
  if (identity.ok) return identity.value;
  const fault = identity.error === 'OF_ANOTHER_ACCOUNT' ? `is of another account than ${config.oracleUserId}` : NO_IDENTITY;
  throw new CliError(`${file} ${fault}. Nothing was changed.`);
}

async function lookAtStore(config: Config, { key, database: path }: CryptoFiles): Promise<StoreFacts> {
  const store = readStoppedStore(path);
  if (store.ok) {
    const storeKey = readStoreKey({ keyFile: key, database: path });
    if (!storeKey.ok) return { kind: 'unreadable', fault: storeKey.error.remedy };
    return store.value === null ? { kind: 'none' } : { kind: 'stopped', ...store.value };
  }
  if (store.error.code !== 'CRYPTO_DB_LOCKED') return { kind: 'unreadable', fault: store.error.remedy };
  const bytesOf = (file: string): number => statSync(file, { throwIfNoEntry: false })?.size ?? 0;
  return { kind: 'running', bytes: bytesOf(path) + bytesOf(`${path}-wal`), health: await readHealthPart(config, 'encryption') };
}

async function withHomeserver<T>(config: Config, work: (connection: MatrixConnection) => Promise<T>): Promise<T> {
  const connection = await connectMatrix({ baseUrl: config.matrixBaseUrl, asToken: config.matrixAsToken.reveal(), clock: systemClock });
  try {
    return await work(connection);
  } finally {
    await connection.close();
  }
}
const askForKeys = (connection: MatrixConnection, { oracleUserId, matrixDeviceId }: Config): Promise<PublishedKeys> =>
  queryPublishedKeys(connection.as({ userId: oracleUserId, deviceId: matrixDeviceId }), {
    user: oracleUserId,
    sendingDevice: matrixDeviceId,
  });

async function askHomeserver(connection: MatrixConnection, config: Config, store: StoreFacts): Promise<HomeserverFacts> {
  const published = await askForKeys(connection, config);
  const own = store.kind === 'stopped' ? store.deviceId : null;
  const device = published.devices.find(({ deviceId }) => own === null || deviceId === own);
  if (device === undefined) return { published, oneTimeKeys: null };
  // Uploads nothing, and is answered with what is there.
  const answer = await connection
    .as({ userId: config.oracleUserId, deviceId: device.deviceId })
    .request<{ one_time_key_counts?: { signed_curve25519?: unknown } }>('POST', '/_matrix/client/v3/keys/upload', {
      body: {},
      timeoutMs: TIMEOUT_MS,
    });
  const left = answer.one_time_key_counts?.signed_curve25519;
  return { published, oneTimeKeys: typeof left === 'number' ? left : null };
}

function faultOf(error: unknown): { readonly fault: string } {
  if (!isMatrixError(error)) throw error;
  return { fault: `the homeserver does not say its keys (${error.errcode}, HTTP ${error.status})` };
}
