/**
 * The cryptographic engine (matrix-sdk-crypto, as WebAssembly) in our own terms. It may panic, and a panicked or stuck call never settles: every call has
 * a limit, and the first that exceeds it, panics or meets a store that cannot commit ends the process (`onFatal`), because a ratchet whose state is in
 * doubt must not encrypt again. Whoever waited gets CryptoUnavailable, so rows are tried again after the restart.
 */
import type { OlmMachine } from '@matrix-org/matrix-sdk-crypto-wasm';
import type { DeviceId, MegolmSessionId, RoomId, UserId } from '../../src/ids.ts';
import type { JsonObject } from '../../src/json.ts';
import type { Logger } from '../../src/observe/logger.ts';
import type { Result } from '../../src/result.ts';
import type { Clock } from '../../src/time.ts';
import type { CryptoDb, ToDeviceBatch } from './crypto-db.ts';
import type { RoomEncryption } from './crypto-service.ts';
import type { Lock } from './lock.ts';

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

/** What the engine wants sent. The body is JSON text, sent as it is. */
export type OutgoingRequest =
  | { readonly kind: 'keys_upload' | 'keys_query' | 'keys_claim'; readonly id: string; readonly body: string }
  /** No id: made by hand (cross-signing), the engine waits for no answer. */
  | { readonly kind: 'signatures'; readonly id: string | null; readonly body: string }
  | { readonly kind: 'to_device'; readonly id: string; readonly eventType: string; readonly txnId: string; readonly body: string }
  /** A message of a verification. */
  | {
      readonly kind: 'room_message';
      readonly id: string;
      readonly roomId: RoomId;
      readonly eventType: string;
      readonly txnId: string;
      readonly body: string;
    };

/** What became of a to-device event. */
export interface ReceivedToDevice {
  readonly kind: 'decrypted' | 'plain' | 'unreadable' | 'invalid';
  /** Clear for `decrypted` and `plain` (key material blanked), else as it arrived. */
  readonly event: JsonObject;
}

/** What is known of the device behind a ciphertext, strictly: `identity_not_verified` is the normal best case (signed by its owner, whom we never met). */
export type DeviceShield =
  | 'verified'
  | 'identity_not_verified'
  | 'unsigned_device'
  | 'unknown_device'
  | 'not_guaranteed'
  | 'verification_violation'
  | 'mismatched_sender';

export interface Decrypted {
  /** Of the engine: type and content from inside, the rest from outside. */
  readonly event: JsonObject;
  readonly sender: string;
  readonly senderDevice: string | null;
  readonly senderKey: string;
  readonly shield: DeviceShield;
}
export type DecryptProblem =
  | { readonly code: 'missing_key' | 'index_too_old'; readonly withheld: string | null }
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

  trackUsers(users: readonly UserId[]): Promise<void>;
  /** Users whose devices changed or were never asked for are asked for by `outgoing`. */
  missingSessions(users: readonly UserId[]): Promise<OutgoingRequest | null>;
  /** To-device messages that carry the room's key to every device that lacks it; makes or rotates the key when it must. */
  shareRoomKey(room: RoomEncryption): Promise<readonly OutgoingRequest[]>;
  /** Only after shareRoomKey under the same lock; the ratchet is on disk when it resolves. @returns content of `m.room.encrypted` */
  encrypt(room: RoomId, event: { readonly type: string; readonly content: JsonObject }): Promise<JsonObject>;
  decrypt(event: JsonObject, room: RoomId): Promise<Result<Decrypted, DecryptProblem>>;

  /** Sessions whose key arrived (or was refused to us) and is on disk. */
  onKeys(listener: (sessions: readonly MegolmSessionId[]) => void): void;
  roomKeys(): Promise<number>;

  /** One call of the engine itself, under its limit: verification and identity, within this folder. `name` is for the log. */
  call<T>(name: string, work: (machine: OlmMachine) => T | Promise<T>): Promise<T>;
  /** One at a time: everything from asking who reads until the ciphertext exists. */
  readonly sharing: Lock;
  close(): Promise<void>;
}

export declare function openEngine(options: EngineOptions): Promise<Engine>;
/** A request that a verification made, in our terms. */
export declare function readRequest(raw: unknown): OutgoingRequest;
