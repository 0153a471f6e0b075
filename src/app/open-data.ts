/**
 * One process per data folder: two would answer everything twice (G2). The lock is a transaction that stays open on a file of its own, so
 * the operating system takes it back however the process ends. Every start then gets a higher fence than any before, which is how writes
 * of an earlier self are told from ours (G18).
 */
import { chmodSync, mkdirSync, statSync } from 'node:fs';
import { join } from 'node:path';
import Sqlite from 'better-sqlite3';
import { openStore, type Store } from '../store/store.ts';
import type { DataPaths } from './data-paths.ts';
import { StartRefused } from './start-refused.ts';

export interface Data {
  readonly store: Store;
  readonly fence: number;
  close(): void;
}

export function openData(paths: DataPaths, now: number): Data {
  mkdirSync(paths.dir, { recursive: true, mode: 0o700 });
  closeToOthers(paths.dir);
  const unlock = lockFolder(paths.dir);
  try {
    const store = openStore({ path: paths.database, now });
    try {
      return {
        store,
        fence: nextFence(paths.database),
        close() {
          store.close();
          unlock();
        },
      };
    } catch (error) {
      store.close();
      throw error;
    }
  } catch (error) {
    unlock();
    throw error;
  }
}

/** A folder that was there before keeps its mode, and the database in it holds what people write (G12). Doctor names one that is not ours. */
function closeToOthers(dir: string): void {
  try {
    if ((statSync(dir).mode & 0o077) !== 0) chmodSync(dir, 0o700);
  } catch (error) {
    if (!(error instanceof Error && 'code' in error && error.code === 'EPERM')) throw error;
  }
}

function lockFolder(dir: string): () => void {
  const lock = new Sqlite(join(dir, 'lock.db'), { timeout: 200 });
  try {
    lock.exec('BEGIN EXCLUSIVE');
  } catch (cause) {
    lock.close();
    if (!(cause instanceof Sqlite.SqliteError) || cause.code !== 'SQLITE_BUSY') throw cause;
    throw new StartRefused(`another matrix-oracle uses ${dir}: stop it, or set DATA_DIR to another folder.`, { cause });
  }
  return () => lock.close();
}

/** Written and on disk before anything is claimed; a connection of its own, because the store's commits wait for a tick. */
function nextFence(path: string): number {
  const database = new Sqlite(path, { timeout: 5_000 });
  try {
    database.pragma('synchronous = FULL');
    const row = database
      .prepare(
        "INSERT INTO meta (key, value) VALUES ('fence', '1') ON CONFLICT (key) DO UPDATE SET value = CAST(CAST(value AS INTEGER) + 1 AS TEXT) RETURNING value",
      )
      .get() as { value: string };
    return Number(row.value);
  } finally {
    database.close();
  }
}
