/**
 * The cryptographic engine (matrix-sdk-crypto, as WebAssembly) in our own terms. It may panic, and a panicked or stuck call never settles: every call has
 * a limit, and the first that exceeds it, panics or meets a store that cannot commit ends the process (`onFatal`), because a ratchet whose state is in
 * doubt must not encrypt again. Whoever waited gets CryptoUnavailable, so rows are tried again after the restart.
 */
import * as wasm from '@matrix-org/matrix-sdk-crypto-wasm';
import { LRUCache } from 'lru-cache';
import { type DeviceId, type MegolmSessionId, parseUserId, type RoomId, type UserId } from '../../src/ids.ts';
import { isJsonObject, type JsonObject } from '../../src/json.ts';
import type { Logger } from '../../src/observe/logger.ts';
import { err, ok, type Result } from '../../src/result.ts';
import type { Clock } from '../../src/time.ts';
import { type CryptoDb, damagedRemedy, type ToDeviceBatch } from './crypto-db.ts';
import { CryptoUnavailable, type RoomEncryption } from './crypto-service.ts';
import { type DurableIdb, mountIndexedDb } from './durable-idb.ts';
import { createGuard } from './engine-guard.ts';
import { createEngineLog } from './engine-log.ts';
import { type OutgoingRequest, readRequest, requestType } from './engine-request.ts';
import { createLock, type Lock } from './lock.ts';

export interface EngineOptions {
  readonly userId: UserId;
  readonly deviceId: DeviceId;
  readonly db: CryptoDb;
  /** 32 bytes that encrypt the store. */
  readonly storeKey: Uint8Array;
  readonly clock: Clock;
  readonly logger: Logger;
  /** Called once; the process must end. No key material in the reason. */
  readonly onFatal: (reason: string) => void;
}
export interface EngineProblem {
  /** `STORE_KEY_WRONG`: the key does not open the store. `STORE_OF_ANOTHER`: it belongs to another account or device. */
  readonly code: 'STORE_KEY_WRONG' | 'STORE_OF_ANOTHER' | 'CRYPTO_DB_DAMAGED';
  /** One sentence for the operator. */
  readonly remedy: string;
  readonly cause?: unknown;
}

/** What became of a to-device event. */
export interface ReceivedToDevice {
  readonly kind: 'decrypted' | 'plain' | 'unreadable' | 'invalid';
  /** Clear for `decrypted` and `plain` (key material blanked), else as it arrived. */
  readonly event: JsonObject;
}

/** What is known of the device behind a ciphertext, strictly: `identity_not_verified` is the normal best case (signed by its owner, whom we never met), `identity_changed` the same by an owner who had another identity before. */
export type DeviceShield =
  | 'verified'
  | 'identity_not_verified'
  | 'identity_changed'
  | 'unsigned_device'
  | 'unknown_device'
  | 'not_guaranteed'
  | 'verification_violation'
  | 'mismatched_sender';

export interface Decrypted {
  /** Of the engine: type and content from inside, the rest from outside. */
  readonly event: JsonObject;
  /** What the outside says. Proven only by a shield that knows the device: a forged one is `mismatched_sender` (measured, 18.9.0). */
  readonly sender: string;
  readonly senderDevice: string | null;
  /** Curve25519 of the device, unpadded base64. */
  readonly senderKey: string;
  readonly shield: DeviceShield;
}
export type DecryptProblem =
  | {
      readonly code:
        | 'missing_key'
        | 'index_too_old' /** Code of the refusal, when the sender refused us the key since the engine was opened. */;
      readonly withheld: string | null;
    }
  | { readonly code: 'mismatched_sender' | 'unreadable' };

export interface Engine {
  readonly userId: UserId;
  readonly deviceId: DeviceId;
  /** Unpadded base64. */
  readonly identityKeys: { readonly ed25519: string; readonly curve25519: string };

  /** Resolves when the engine has persisted all of it. */
  receive(batch: ToDeviceBatch): Promise<readonly ReceivedToDevice[]>;
  /** Requests that wait; the same until they are marked as sent. */
  outgoing(): Promise<readonly OutgoingRequest[]>;
  /** The answer's JSON text. Nothing happens for a request without an id. */
  markSent(request: OutgoingRequest, answer: string): Promise<void>;

  /** Users whose devices were never asked for are then asked for by `outgoing`. */
  trackUsers(users: readonly UserId[]): Promise<void>;
  /** The claim of one-time keys that is needed before a key can be shared with them. */
  missingSessions(users: readonly UserId[]): Promise<OutgoingRequest | null>;
  /** To-device messages that carry the room's key to every device that lacks it; makes or rotates the key when it must. */
  shareRoomKey(room: RoomEncryption): Promise<readonly OutgoingRequest[]>;
  /** Only after shareRoomKey under the same lock; the ratchet is on disk when it resolves. @returns content of `m.room.encrypted` */
  encrypt(room: RoomId, event: { readonly type: string; readonly content: JsonObject }): Promise<JsonObject>;
  /** The whole event as it came from the homeserver. */
  decrypt(event: JsonObject, room: RoomId): Promise<Result<Decrypted, DecryptProblem>>;

  /** Sessions whose key arrived (or was refused to us) and is on disk. */
  onKeys(listener: (sessions: readonly MegolmSessionId[]) => void): void;
  /** How many are in the store. */
  roomKeys(): Promise<number>;

  /** One call of the engine itself, under its limit: verification and identity, within this folder. `name` is for the log. */
  call<T>(name: string, work: (machine: wasm.OlmMachine) => T | Promise<T>): Promise<T>;
  /** One at a time: everything from asking who reads until the ciphertext exists. */
  readonly sharing: Lock;
  close(): Promise<void>;
}

const WITHHELD = new Set(['m.room_key.withheld', 'org.matrix.room_key.withheld']);
const REFUSALS = 10_000;
/** What grows with the number of devices in a room: some 5 ms each, and a large room must not end the process again and again. */
const BULK_LIMIT_MS = 10 * 60_000;

export async function openEngine(options: EngineOptions): Promise<Result<Engine, EngineProblem>> {
  const { userId, deviceId, db, clock } = options;
  const guard = createGuard({ clock, onFatal: options.onFatal });
  await wasm.initAsync();
  let idb: DurableIdb;
  try {
    idb = await mountIndexedDb({ sqlite: db.sqlite, onFatal: () => guard.fail('the key store could not be written') });
  } catch (cause) {
    guard.close();
    return err({ code: 'CRYPTO_DB_DAMAGED', remedy: damagedRemedy(db.path), cause });
  }
  const opened = await openMachine({ ...options, name: idb.name, call: guard.call }).catch(async (error: unknown) => {
    await idb.close();
    throw error;
  });
  if (!opened.ok) {
    guard.close();
    await idb.close();
    return opened;
  }
  const machine = opened.value;
  // Both would ask or answer other devices of the oracle, which has none.
  machine.roomKeyRequestsEnabled = false;
  machine.roomKeyForwardingEnabled = false;

  const call = <T>(name: string, work: (machine: wasm.OlmMachine) => T | Promise<T>, limitMs?: number): Promise<T> =>
    guard.call(name, () => work(machine), limitMs);
  const listeners: ((sessions: readonly MegolmSessionId[]) => void)[] = [];
  const announce = async (sessions: readonly { readonly sessionId: string }[]): Promise<void> => {
    const ids = sessions.map(({ sessionId }) => sessionId as MegolmSessionId);
    for (const listener of listeners) listener(ids);
  };
  await call('register', () => {
    machine.registerRoomKeyUpdatedCallback(announce);
    machine.registerRoomKeysWithheldCallback(announce);
  });
  /** The identity is not the one by which we knew this person first, and they have not verified us with it. The shield says nothing of that. */
  const hasChanged = (user: string): Promise<boolean> =>
    call('identity', async () => {
      const identity = await machine.getIdentity(new wasm.UserId(user));
      return identity instanceof wasm.OtherUserIdentity && identity.identityNeedsUserApproval();
    });
  const shared = new Set<RoomId>();
  /** Who refused which session. The engine believes anybody's word on it (measured, 18.9.0), and sessions can be read on every event. */
  const refused = new LRUCache<string, true>({ max: REFUSALS });

  return ok({
    userId,
    deviceId,
    identityKeys: { ed25519: machine.identityKeys.ed25519.toBase64(), curve25519: machine.identityKeys.curve25519.toBase64() },

    async receive({ events, changed, left, oneTimeKeys, unusedFallback }) {
      for (const { type, sender, content } of events)
        if (WITHHELD.has(String(type)) && isJsonObject(content)) refused.set(`${String(sender)} ${String(content['session_id'])}`, true);
      const processed = await call('receive', () => {
        const lists = new wasm.DeviceLists(toUserIds(changed), toUserIds(left));
        const counts = new Map(Object.entries(oneTimeKeys ?? {}));
        const unused = unusedFallback === null ? undefined : new Set(unusedFallback);
        // Both read the batch alike but for an algorithm that `counts` leaves out: none left, or not said.
        const method = oneTimeKeys === null ? 'receiveSyncChangesMsc4186' : 'receiveSyncChanges';
        return machine[method](JSON.stringify(events), lists, counts, unused, new wasm.DecryptionSettings(wasm.TrustRequirement.Untrusted));
      });
      return processed.map(readReceived);
    },
    outgoing: async () => (await call('outgoing', () => machine.outgoingRequests())).map(readRequest),
    async markSent(request, answer) {
      const { id } = request;
      if (id !== null) await call('mark_sent', () => machine.markRequestAsSent(id, requestType(request), answer), BULK_LIMIT_MS);
    },

    trackUsers: (users) => call('track', () => machine.updateTrackedUsers(toUserIds(users))),
    async missingSessions(users) {
      const claim = await call('missing_sessions', () => machine.getMissingSessions(toUserIds(users)), BULK_LIMIT_MS);
      return claim == null ? null : readRequest(claim);
    },
    async shareRoomKey(room) {
      const requests = await call(
        'share',
        () => machine.shareRoomKey(new wasm.RoomId(room.roomId), toUserIds(room.readers), buildSettings(room)),
        BULK_LIMIT_MS,
      );
      shared.add(room.roomId);
      return requests.map(readRequest);
    },
    async encrypt(room, { type, content }) {
      // The engine panics.
      if (!shared.has(room)) throw new Error('a room key must be shared before it is used');
      return JSON.parse(await call('encrypt', () => machine.encryptRoomEvent(new wasm.RoomId(room), type, JSON.stringify(content))));
    },
    async decrypt(event, room) {
      try {
        const settings = new wasm.DecryptionSettings(wasm.TrustRequirement.Untrusted);
        const decrypted = readDecrypted(
          await call('decrypt', () => machine.decryptRoomEvent(JSON.stringify(event), new wasm.RoomId(room), settings)),
        );
        const isOfAnother = decrypted.shield === 'identity_not_verified' && (await hasChanged(decrypted.sender));
        return ok(isOfAnother ? { ...decrypted, shield: 'identity_changed' } : decrypted);
      } catch (error) {
        if (!(error instanceof wasm.MegolmDecryptionError)) throw error;
        const { sender, content } = event;
        const session = isJsonObject(content) ? content['session_id'] : undefined;
        return err(readDecryptProblem(error, refused.has(`${String(sender)} ${String(session)}`)));
      }
    },

    onKeys: (listener) => void listeners.push(listener),
    roomKeys: async () => (await call('count', () => machine.roomKeyCounts())).total,
    call,
    sharing: createLock(),
    async close() {
      guard.close();
      machine.close();
      await idb.close();
    },
  });
}

interface OpenMachineOptions extends EngineOptions {
  readonly name: string;
  readonly call: <T>(name: string, work: () => Promise<T>) => Promise<T>;
}
async function openMachine({
  userId,
  deviceId,
  db,
  storeKey,
  clock,
  logger,
  name,
  call,
}: OpenMachineOptions): Promise<Result<wasm.OlmMachine, EngineProblem>> {
  let handle: wasm.StoreHandle;
  try {
    handle = await call('open_store', () => wasm.StoreHandle.openWithKey(name, Uint8Array.from(storeKey)));
  } catch (cause) {
    if (cause instanceof CryptoUnavailable) throw cause;
    const remedy = `CRYPTO_KEY_FILE does not hold the key that ${db.path} was encrypted with: put that key back. If it is lost, run \`matrix-oracle crypto new-device\`: the identity stays.`;
    return err({ code: 'STORE_KEY_WRONG', remedy, cause });
  }
  try {
    const log = createEngineLog({ logger, clock });
    return ok(await call('open', () => wasm.OlmMachine.initFromStore(new wasm.UserId(userId), new wasm.DeviceId(deviceId), handle, log)));
  } catch (cause) {
    if (cause instanceof CryptoUnavailable) throw cause;
    if (!String(cause).includes("doesn't match")) return err({ code: 'CRYPTO_DB_DAMAGED', remedy: damagedRemedy(db.path), cause });
    const remedy = `${db.path} belongs to another account or device than ${userId}: each oracle needs a DATA_DIR of its own.`;
    return err({ code: 'STORE_OF_ANOTHER', remedy, cause });
  }
}

/** Fresh ones for every call, which takes them over. What is no user id is left out: the list comes from the homeserver. */
const toUserIds = (users: readonly string[]): wasm.UserId[] => users.filter((user) => parseUserId(user).ok).flatMap(toUserId);
function toUserId(user: string): wasm.UserId[] {
  try {
    return [new wasm.UserId(user)];
  } catch {
    // Stricter than we are about server names: it can have no device.
    return [];
  }
}

const US_PER_MS = 1_000n;
const VISIBILITY = {
  invited: wasm.HistoryVisibility.Invited,
  joined: wasm.HistoryVisibility.Joined,
  shared: wasm.HistoryVisibility.Shared,
  world_readable: wasm.HistoryVisibility.WorldReadable,
} as const satisfies Record<RoomEncryption['historyVisibility'], wasm.HistoryVisibility>;

function buildSettings({ historyVisibility, rotationPeriodMs, rotationPeriodMessages }: RoomEncryption): wasm.EncryptionSettings {
  const settings = new wasm.EncryptionSettings();
  settings.historyVisibility = VISIBILITY[historyVisibility];
  settings.sharingStrategy = wasm.CollectStrategy.allDevices();
  if (rotationPeriodMs !== null) settings.rotationPeriod = BigInt(Math.trunc(rotationPeriodMs)) * US_PER_MS;
  if (rotationPeriodMessages !== null) settings.rotationPeriodMessages = BigInt(Math.trunc(rotationPeriodMessages));
  return settings;
}

const RECEIVED: Readonly<Record<wasm.ProcessedToDeviceEventType, ReceivedToDevice['kind']>> = {
  [wasm.ProcessedToDeviceEventType.Decrypted]: 'decrypted',
  [wasm.ProcessedToDeviceEventType.UnableToDecrypt]: 'unreadable',
  [wasm.ProcessedToDeviceEventType.PlainText]: 'plain',
  [wasm.ProcessedToDeviceEventType.Invalid]: 'invalid',
};
function readReceived({ type, rawEvent }: { readonly type: wasm.ProcessedToDeviceEventType; readonly rawEvent: string }): ReceivedToDevice {
  const event: unknown = JSON.parse(rawEvent);
  return isJsonObject(event) ? { kind: RECEIVED[type], event } : { kind: 'invalid', event: {} };
}

const SHIELD: Readonly<Record<wasm.ShieldStateCode, DeviceShield>> = {
  [wasm.ShieldStateCode.AuthenticityNotGuaranteed]: 'not_guaranteed',
  [wasm.ShieldStateCode.UnknownDevice]: 'unknown_device',
  [wasm.ShieldStateCode.UnsignedDevice]: 'unsigned_device',
  [wasm.ShieldStateCode.UnverifiedIdentity]: 'identity_not_verified',
  [wasm.ShieldStateCode.VerificationViolation]: 'verification_violation',
  [wasm.ShieldStateCode.MismatchedSender]: 'mismatched_sender',
};
function readDecrypted(decrypted: wasm.DecryptedRoomEvent): Decrypted {
  // The strict reading calls an unsigned device and an owner whom we never met the same; the lax one has no word for the latter.
  const code = decrypted.shieldState(false).code;
  const isVerified = decrypted.shieldState(true).code === undefined;
  return {
    event: JSON.parse(decrypted.event),
    sender: decrypted.sender.toString(),
    senderDevice: decrypted.senderDevice?.toString() ?? null,
    senderKey: decrypted.senderCurve25519Key,
    shield: isVerified ? 'verified' : code === undefined ? 'identity_not_verified' : SHIELD[code],
  };
}
function readDecryptProblem({ code, withheldCode }: wasm.MegolmDecryptionError, senderRefused: boolean): DecryptProblem {
  const withheld = senderRefused ? (withheldCode ?? null) : null;
  if (code === wasm.DecryptionErrorCode.MissingRoomKey) return { code: 'missing_key', withheld };
  if (code === wasm.DecryptionErrorCode.UnknownMessageIndex) return { code: 'index_too_old', withheld };
  return { code: code === wasm.DecryptionErrorCode.MismatchedSender ? 'mismatched_sender' : 'unreadable' };
}
