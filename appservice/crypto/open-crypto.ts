/**
 * Opens everything that takes part in encrypted rooms, in the one order that is safe: the store before the device that is named in it, the device before its
 * keys, and its signature before anybody is talked to (clients may refuse to send keys to a device that its owner did not sign). Waits for a homeserver
 * that is down; what an operator must repair ends the start with a sentence.
 */
import type { DeviceId, UserId } from '../../src/ids.ts';
import type { Logger } from '../../src/observe/logger.ts';
import { err, ok, type Result } from '../../src/result.ts';
import { backOffMs, type Clock, sleep } from '../../src/time.ts';
import { isMatrixError, isOutage, type MatrixConnection, type MatrixError } from '../matrix-api.ts';
import type { Transaction } from '../wire/read-transaction.ts';
import { type CryptoDb, type CryptoDbProblem, openCryptoDb } from './crypto-db.ts';
import type { CryptoService } from './crypto-service.ts';
import { type Engine, type EngineProblem, openEngine } from './engine.ts';
import { deleteOldDevices, ensureKeyDevice, type KeyDeviceProblem } from './key-device.ts';
import { type KeyFileProblem, loadStoreKey } from './key-file.ts';
import { createKeyIntake, type KeyIntake } from './key-intake.ts';
import { createKeyPush } from './key-push.ts';
import { createKeySync, type KeyRoad } from './key-sync.ts';
import { createOutgoing, type Outgoing } from './outgoing.ts';
import { createReveal } from './reveal-event.ts';
import { createSeal } from './seal.ts';
import { type IdentityProblem, isDeviceSigned, setUpIdentity } from './set-up-identity.ts';
import { createVerification, type Verification } from './verification.ts';
import { createVerificationMailbox, type PostVerification } from './verification-mailbox.ts';

export interface OpenCryptoOptions {
  readonly connection: MatrixConnection;
  readonly userId: UserId;
  /** MATRIX_DEVICE_ID: it sends and holds no keys; the key-holding device's name begins with it. */
  readonly sendingDevice: DeviceId;
  /** Of the oracle, for lists of devices. */
  readonly name: string;
  readonly files: { readonly database: string; readonly key: string; readonly identity: string };
  readonly transport: 'sync' | 'appservice';
  /** Whether a verification that this account starts by to-device is answered (CRYPTO_VERIFY and the right to use the oracle). */
  readonly mayVerify: (user: UserId) => Promise<boolean>;
  /** Into the outbox. */
  readonly postVerification: PostVerification;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly newId: () => string;
  /** Called at most once: the engine or its store is in doubt, and the process must end now. */
  readonly onFatal: (reason: string) => void;
  /** The homeserver is away, and will be asked again. */
  readonly onWaiting: (error: MatrixError, attempt: number) => void;
  /** Ends the waiting. */
  readonly signal: AbortSignal;
  /** Replaces the account's identity, which everybody who verified it will be told. */
  readonly newIdentity?: boolean;
}

export interface OpenCrypto extends CryptoService {
  /** With `transport: 'appservice'`: takes the keys of a transaction; when it rejects, the transaction must not be acknowledged. Null with `sync`. */
  readonly receiveTransaction: ((transaction: Transaction) => Promise<void>) | null;
}

export type CryptoProblem =
  | CryptoDbProblem
  | EngineProblem
  | IdentityProblem
  | KeyDeviceProblem
  | KeyFileProblem
  | { readonly code: 'HOMESERVER_REFUSED' /** One sentence for the operator. */; readonly remedy: string; readonly cause?: unknown };

/** @throws the signal's reason, CryptoUnavailable after `onFatal`. */
export async function openCrypto(options: OpenCryptoOptions): Promise<Result<OpenCrypto, CryptoProblem>> {
  const { files, userId } = options;
  const storeKey = loadStoreKey({ keyFile: files.key, database: files.database });
  if (!storeKey.ok) return storeKey;
  const db = openCryptoDb(files.database);
  if (!db.ok) return db;
  const opened = await withDb(options, db.value, storeKey.value).catch((error: unknown) => {
    db.value.close();
    throw error;
  });
  if (!opened.ok) db.value.close();
  else options.logger.info({ user_id: userId }, 'encryption is ready');
  return opened;
}

async function withDb(options: OpenCryptoOptions, db: CryptoDb, storeKey: Uint8Array): Promise<Result<OpenCrypto, CryptoProblem>> {
  const { connection, userId, sendingDevice, name, clock, logger, onFatal } = options;
  const device = await whenUp(options, () => ensureKeyDevice({ connection, db, userId, sendingDevice, name }));
  if (!device.ok) return device;
  const engine = await openEngine({ userId, deviceId: device.value, db, storeKey, clock, logger, onFatal });
  if (!engine.ok) return engine;
  const service = await withEngine(options, db, engine.value).catch(async (error: unknown) => {
    await engine.value.close();
    throw error;
  });
  if (!service.ok) await engine.value.close();
  return service;
}

async function withEngine(options: OpenCryptoOptions, db: CryptoDb, engine: Engine): Promise<Result<OpenCrypto, CryptoProblem>> {
  const { connection, userId, sendingDevice, files, logger, postVerification, mayVerify } = options;
  const { deviceId } = engine;
  const api = connection.as({ userId, deviceId });
  const mailbox = createVerificationMailbox({ post: postVerification, clock: options.clock, logger });
  const outgoing = createOutgoing({ engine, api, onRoomMessage: mailbox.post });
  const { signal, newIdentity: wantsNew = false } = options;
  const identity = await whenUp(options, () => setUpIdentity({ engine, outgoing, api, file: files.identity, logger, wantsNew, signal }));
  if (!identity.ok) return identity;
  await deleteOld(options, { deviceId, sendingDevice });

  const verification = createVerification({ engine, outgoing, post: postVerification, mailbox, mayVerify, logger });
  const intake = createKeyIntake({ store: db.toDevice, engine, logger, onReceived: (events) => void verification.received(events) });
  const road = buildRoad(options, { engine, db, intake, outgoing });
  await road.start();
  return ok(compose(options, { engine, db, intake, outgoing, verification, mailbox, road, masterKey: identity.value.masterKey }));
}

interface Parts {
  readonly engine: Engine;
  readonly db: CryptoDb;
  readonly intake: KeyIntake;
  readonly outgoing: Outgoing;
}
type Road = KeyRoad & { receive?(transaction: Transaction): Promise<void> };

function buildRoad(
  { connection, transport, userId, clock, logger, newId }: OpenCryptoOptions,
  { engine, db, intake, outgoing }: Parts,
): Road {
  const { deviceId } = engine;
  if (transport === 'appservice') return createKeyPush({ device: { user: userId, device: deviceId }, intake, outgoing, clock, logger });
  return createKeySync({ api: connection.as({ userId, deviceId }), store: db.toDevice, intake, outgoing, clock, logger, newId });
}

interface Composed extends Parts {
  readonly verification: Verification;
  readonly mailbox: { stop(): void };
  readonly road: Road;
  readonly masterKey: string;
}

function compose(
  { logger }: OpenCryptoOptions,
  { engine, db, intake, outgoing, verification, mailbox, road, masterKey }: Composed,
): OpenCrypto {
  const { reveal, read } = createReveal({ engine, outgoing });
  return {
    seal: createSeal({ engine, outgoing, logger }),
    reveal,
    read,
    onKeys: engine.onKeys,
    receiveVerification: verification.receive,
    verificationSent: verification.sent,
    status: async () => ({
      deviceId: engine.deviceId,
      fingerprint: engine.identityKeys.ed25519,
      masterKey,
      deviceIsSigned: await isDeviceSigned(engine),
      oneTimeKeys: intake.oneTimeKeys(),
      roomKeys: await engine.roomKeys(),
      storeBytes: db.bytes(),
      lastSyncAt: road.lastSyncAt(),
    }),
    trouble: road.trouble,
    syncedSince: road.syncedSince,
    receiveTransaction: road.receive ?? null,
    async stop() {
      mailbox.stop();
      await road.stop();
      await engine.close();
      db.close();
    },
  };
}

/** They can read nothing any more; that they are still listed does no harm but to people's eyes. */
async function deleteOld(
  { connection, userId, logger }: OpenCryptoOptions,
  devices: { deviceId: DeviceId; sendingDevice: DeviceId },
): Promise<void> {
  try {
    const count = await deleteOldDevices(connection.as({ userId }), devices);
    if (count > 0) logger.info({ count }, 'deleted devices of earlier key stores');
  } catch (error) {
    if (!isMatrixError(error)) throw error;
    logger.warn({ code: error.errcode, status: error.status }, 'devices of earlier key stores could not be deleted');
  }
}

/** Repeats what is safe to repeat while the homeserver is away. */
async function whenUp<T, P>(
  { clock, signal, onWaiting }: OpenCryptoOptions,
  work: () => Promise<Result<T, P>>,
): Promise<Result<T, P | Extract<CryptoProblem, { code: 'HOMESERVER_REFUSED' }>>> {
  for (let attempt = 1; ; attempt += 1) {
    signal.throwIfAborted();
    try {
      return await work();
    } catch (error) {
      if (!isMatrixError(error)) throw error;
      if (!mayPass(error)) return err(refused(error));
      onWaiting(error, attempt);
      await sleep(clock, backOffMs(attempt, { baseMs: 500, capMs: 5_000 }), signal);
    }
  }
}

const mayPass = (error: MatrixError): boolean => isOutage(error) || !error.certain || error.status >= 500 || error.status === 429;
const refused = (cause: MatrixError): Extract<CryptoProblem, { code: 'HOMESERVER_REFUSED' }> => ({
  code: 'HOMESERVER_REFUSED',
  remedy: `The homeserver refused to set up the device of the oracle's keys (${cause.errcode}, HTTP ${cause.status}): see its log.`,
  cause,
});
