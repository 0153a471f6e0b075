/**
 * The oracle as a participant of encrypted rooms: what the rest of the transport may ask of it. Behind it stand the engine (engine.ts), its durable
 * store (durable-idb.ts, crypto-db.ts), its identity (identity.ts) and the road on which keys arrive (key-sync.ts). Ciphertext leaves only after
 * the ratchet that made it is on disk, and no key that was acknowledged to the homeserver is ever lost (research/e2ee.md).
 */
import type { Reveal } from '../../src/admission/reveal.ts';
import type { DeviceId, EventId, MegolmSessionId, RoomId, UserId } from '../../src/ids.ts';
import type { JsonObject } from '../../src/json.ts';

/** What a room's state says about who reads along; gathered by rooms.ts, never cached past a change of the room. */
export interface RoomEncryption {
  readonly roomId: RoomId;
  /** Joined, and invited where the history's visibility lets them read: all who get the key. The oracle among them. */
  readonly readers: readonly UserId[];
  readonly historyVisibility: 'invited' | 'joined' | 'shared' | 'world_readable';
  /** Of `m.room.encryption`; null: the engine's default (a week, 100 messages). */
  readonly rotationPeriodMs: number | null;
  readonly rotationPeriodMessages: number | null;
}

/** Encryption cannot be done at the moment: the sender tries again, and nothing goes out in the clear (G11). */
export class CryptoUnavailable extends Error {
  override readonly name = 'CryptoUnavailable';
}

export interface CryptoStatus {
  readonly deviceId: DeviceId;
  /** Ed25519 key of the device, unpadded base64: what people compare. */
  readonly fingerprint: string;
  /** Public master key, unpadded base64; null until cross-signing is set up. */
  readonly masterKey: string | null;
  /** The device is signed by the oracle's own identity. */
  readonly deviceIsSigned: boolean;
  /** Signed one-time keys left on the homeserver, as last heard; null before the first answer. */
  readonly oneTimeKeys: number | null;
  /** Room keys in the store. */
  readonly roomKeys: number;
  /** Bytes of the key store on disk. */
  readonly storeBytes: number;
  /** Monotonic ms of the last completed look for keys; null when there was none. */
  readonly lastSyncAt: number | null;
}

export interface CryptoService {
  /** Content of an `m.room.encrypted` event. Shares the key with every device of the readers first. @throws CryptoUnavailable, MatrixError */
  seal(event: { readonly type: string; readonly content: JsonObject }, room: RoomEncryption): Promise<JsonObject>;
  /** @see Reveal */
  readonly reveal: Reveal;
  /** The same for events that are only read (history, an own event after a lost database): no replay is judged. Null: it cannot be read. */
  read(event: JsonObject, room: RoomId): Promise<JsonObject | null>;
  /** Called with the sessions whose keys arrived and are on disk. */
  onKeys(listener: (sessions: readonly MegolmSessionId[]) => void): void;
  /** A verification event of a room, decrypted if it was encrypted. Never throws. */
  receiveVerification(event: JsonObject, room: RoomId, by: { readonly user: UserId; readonly mayVerify: boolean }): Promise<void>;
  /** A message of a verification that was sent for us is this event now. */
  verificationSent(txnId: string, eventId: EventId): Promise<void>;
  status(): Promise<CryptoStatus>;
  /** Keys do not arrive at the moment, and why, in a sentence; null when all is well. */
  trouble(): string | null;
  /** A poll of keys that began after this monotonic time has completed: what was shared before has arrived. */
  syncedSince(at: number): boolean;
  stop(): Promise<void>;
}
