/**
 * One checkpoint file per owner (a person, or a room for groups), so that one owner's load never touches another's data (G13) and a damaged
 * file costs one owner one turn. Open files are few (`maxOpen`); one in use is never closed. A file that is damaged is set aside and replaced:
 * the conversation lives in the transcript, so only the unfinished turn is lost.
 */
import { closeSync, existsSync, mkdirSync, openSync, readdirSync, readSync, renameSync, rmSync, statSync } from 'node:fs';
import { join } from 'node:path';
import Sqlite, { type Database } from 'better-sqlite3';
import type { OwnerId } from '../../ids.ts';
import type { Logger } from '../../observe/logger.ts';
import { checkpointName } from './checkpoint-name.ts';
import { LASTING, PruningSaver } from './pruning-saver.ts';

export interface CheckpointFiles {
  /** Runs `work` with the owner's saver; the file stays open meanwhile. */
  use<T>(owner: OwnerId, work: (saver: PruningSaver) => Promise<T>): Promise<T>;
  /**
   * Removes files last written before `before` (wall clock ms), but not of `keep`: owners whose runs are not finished. Most hold only a turn, so a
   * finished one needs none, and whoever makes a new identity for each message must not fill the folder (G14); one with something that lasts
   * stays three months longer. Returns how many went.
   */
  removeIdle(options: { before: number; keep: Iterable<OwnerId> }): number;
  /** Open files, for tests and metrics. */
  readonly open: number;
  close(): void;
}

interface Entry {
  readonly path: string;
  readonly database: Database;
  readonly saver: PruningSaver;
  users: number;
  damaged: boolean;
}

export interface CheckpointFilesOptions {
  /** The folder of the files; made with mode 0700 when absent. */
  readonly folder: string;
  readonly logger: Logger;
  readonly maxOpen?: number;
}

export function createCheckpointFiles({ folder, logger, maxOpen = 64 }: CheckpointFilesOptions): CheckpointFiles {
  mkdirSync(folder, { recursive: true, mode: 0o700 });
  /** In order of last use: a Map keeps insertion order, and an entry moves to the end when it is taken. */
  const entries = new Map<string, Entry>();
  let closed = false;

  const openEntry = (path: string): Entry => {
    try {
      return openFile(path, logger);
    } catch (error) {
      if (!isDamaged(error)) throw error;
      setAside(path, logger);
      return openFile(path, logger);
    }
  };
  const closeIdle = (): void => {
    for (const [name, entry] of entries) {
      if (entries.size <= maxOpen) return;
      if (entry.users > 0) continue;
      entries.delete(name);
      entry.database.close();
    }
  };
  const take = (name: string): Entry => {
    if (closed) throw new Error('the checkpoint files are closed');
    const entry = entries.get(name) ?? openEntry(join(folder, `${name}.db`));
    entries.delete(name);
    entries.set(name, entry);
    entry.users += 1;
    closeIdle();
    return entry;
  };
  const release = (name: string, entry: Entry): void => {
    entry.users -= 1;
    if (entry.users > 0) return;
    entry.saver.flush();
    if (closed) return void entry.database.close();
    if (entry.damaged) {
      entries.delete(name);
      entry.database.close();
      setAside(entry.path, logger);
    }
    closeIdle();
  };
  return {
    async use(owner, work) {
      const name = checkpointName(owner);
      const entry = take(name);
      try {
        return await work(entry.saver);
      } catch (error) {
        entry.damaged ||= isDamaged(error);
        throw error;
      } finally {
        release(name, entry);
      }
    },
    removeIdle({ before, keep }) {
      const kept = new Set([...keep].map(checkpointName));
      let removed = 0;
      for (const file of readdirSync(folder)) {
        const name = /^(.+)\.db$/u.exec(file)?.[1];
        if (name === undefined || kept.has(name)) continue;
        const writtenAt = statSync(join(folder, file)).mtimeMs;
        if (writtenAt >= before || (writtenAt >= before - LASTING_MS && isLasting(join(folder, file)))) continue;
        const entry = entries.get(name);
        if (entry !== undefined && entry.users > 0) continue;
        entry?.database.close();
        entries.delete(name);
        for (const suffix of ['', '-wal', '-shm']) rmSync(join(folder, `${file}${suffix}`), { force: true });
        removed += 1;
      }
      return removed;
    },
    get open() {
      return entries.size;
    },
    close() {
      closed = true;
      for (const entry of entries.values()) if (entry.users === 0) entry.database.close();
      entries.clear();
    },
  };
}

const LASTING_MS = 90 * 24 * 60 * 60_000;
/** Of the database header (sqlite.org/fileformat2.html). */
const USER_VERSION_AT = 60;

function isLasting(path: string): boolean {
  const file = openSync(path, 'r');
  try {
    const bytes = Buffer.alloc(4);
    return readSync(file, bytes, 0, 4, USER_VERSION_AT) === 4 && bytes.readUInt32BE() === LASTING;
  } finally {
    closeSync(file);
  }
}

/** Kept, with the log that belongs to it, in case somebody can save something; a log that is left over would be replayed into the new file. */
function setAside(path: string, logger: Logger): void {
  const aside = [`${path}.damaged`, ...Array.from({ length: MAX_DAMAGED - 1 }, (_, at) => `${path}.damaged.${at + 2}`)];
  const free = aside.find((name) => !existsSync(name)) ?? `${path}.damaged.${MAX_DAMAGED}`;
  logger.error({ path: free }, 'checkpoint file is damaged and was set aside');
  if (existsSync(path)) renameSync(path, free);
  if (existsSync(`${path}-wal`)) renameSync(`${path}-wal`, `${free}-wal`);
  rmSync(`${path}-shm`, { force: true });
}
/** Of one owner; the last one is replaced. */
const MAX_DAMAGED = 5;

function openFile(path: string, logger: Logger): Entry {
  const database = new Sqlite(path, { timeout: 5_000 });
  try {
    database.pragma('journal_mode = WAL');
    // Per connection, so on every open: the answer of a finished step survives a power cut (G5).
    database.pragma('synchronous = FULL');
    const saver = new PruningSaver(database, (error) =>
      logger.warn(
        { path, reason: error instanceof Error ? error.name : 'thrown value' },
        'a checkpoint cannot be read; the turn goes on without it',
      ),
    );
    return { path, database, saver, users: 0, damaged: false };
  } catch (error) {
    database.close();
    throw error;
  }
}

/** Not for a while, but for good. */
export const isDamaged = (error: unknown): boolean =>
  error instanceof Error &&
  (('code' in error && typeof error.code === 'string' && /^SQLITE_(NOTADB|CORRUPT)/u.test(error.code)) || isDamaged(error.cause));
