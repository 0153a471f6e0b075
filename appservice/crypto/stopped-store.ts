/**
 * The key store of an oracle that does not run, as commands see it. A running one holds its lock, and nothing here waits for that or goes around it:
 * two processes on one store would ratchet apart. The engine is not started: it would not be the same device any more if it said a word.
 */
import { existsSync, renameSync } from 'node:fs';
import { err, ok, type Result } from '../../src/result.ts';
import { type CryptoDbProblem, openCryptoDb } from './crypto-db.ts';

export interface StoppedStore {
  /** Of the device that the store was made with; null: it has none yet. */
  readonly deviceId: string | null;
  readonly roomKeys: number;
  readonly bytes: number;
}

/** Name of the engine's own table, which carries the version of its schema. */
const ROOM_KEYS = "SELECT count(*) FROM idb_rec WHERE store GLOB 'inbound_group_sessions*'";

/** Null: there is no store. `CRYPTO_DB_LOCKED`: an oracle runs. */
export function readStoppedStore(path: string): Result<StoppedStore | null, CryptoDbProblem> {
  if (!existsSync(path)) return ok(null);
  const db = openCryptoDb(path);
  if (!db.ok) return db;
  try {
    const roomKeys = db.value.sqlite.prepare<[], number>(ROOM_KEYS).pluck().get() ?? 0;
    return ok({ deviceId: db.value.meta.get('device_id'), roomKeys, bytes: db.value.bytes() });
  } finally {
    db.value.close();
  }
}

/** Moves the store, also a damaged one, to another name in its folder. @throws the file system's error. */
export function setStoreAside(path: string, to: string): Result<void, CryptoDbProblem> {
  const db = openCryptoDb(path);
  if (!db.ok && db.error.code !== 'CRYPTO_DB_DAMAGED') return err(db.error);
  try {
    // Folds the log into the file, so that none is left behind under the old name for the next store to take as its own.
    if (db.ok) db.value.sqlite.pragma('journal_mode = DELETE');
    renameSync(path, to);
    if (existsSync(`${path}-wal`)) renameSync(`${path}-wal`, `${to}-wal`);
  } finally {
    if (db.ok) db.value.close();
  }
  return ok(undefined);
}
