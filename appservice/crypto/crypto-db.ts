/**
 * The one file of everything cryptographic: the engine's store (durable-idb.ts), what arrived for the key-holding device and is not yet in the engine,
 * and what the device is called. One file, so that one exclusive lock guards it and `next_batch` commits together with the events it acknowledges:
 * the homeserver deletes them when it sees that position again, and a key lost in between is lost for good.
 * Two processes on one file would ratchet apart and reuse message keys, so the second open is refused.
 */
import type Sqlite from 'better-sqlite3';
import type { JsonObject } from '../../src/json.ts';
import type { Result } from '../../src/result.ts';

export interface CryptoDb {
  readonly path: string;
  /** The file was made by this open. */
  readonly isNew: boolean;
  readonly toDevice: ToDeviceStore;
  readonly meta: MetaStore;
  /** For durable-idb.ts only. */
  readonly sqlite: Sqlite.Database;
  /** Of the file and its log. */
  bytes(): number;
  close(): void;
}

export interface CryptoDbProblem {
  readonly code: 'CRYPTO_DB_LOCKED' | 'CRYPTO_DB_DAMAGED' | 'CRYPTO_DB_NEWER';
  readonly remedy: string;
  readonly cause?: unknown;
}

/** `device_id`: of the key-holding device, written when the file is made. `since`: position of the poll. */
export type MetaKey = 'device_id' | 'since' | 'user_id';
export interface MetaStore {
  get(key: MetaKey): string | null;
  set(key: MetaKey, value: string): void;
}

/** What one answer of the homeserver brought for the device, as it goes to the engine. */
export interface ToDeviceBatch {
  /** To-device events as they arrived. */
  readonly events: readonly JsonObject[];
  readonly changed: readonly string[];
  readonly left: readonly string[];
  /** Null: the answer did not say, so the last known stay (never an empty map: the engine would upload fifty more). */
  readonly oneTimeKeys: Readonly<Record<string, number>> | null;
  readonly unusedFallback: readonly string[] | null;
}
export interface StoredBatch extends ToDeviceBatch {
  readonly id: number;
}

export interface ToDeviceStore {
  /**
   * One durable transaction: what is new in the batch, and the position it acknowledges (null: the homeserver keeps none). Events that were stored
   * before are left out; a batch of which nothing is left is not stored.
   */
  put(batch: ToDeviceBatch, since: string | null): void;
  /** Not yet done, oldest first. */
  pending(): readonly StoredBatch[];
  /** The engine has persisted it. */
  done(id: number): void;
  since(): string | null;
}

export declare function openCryptoDb(path: string, now: () => number): Result<CryptoDb, CryptoDbProblem>;
