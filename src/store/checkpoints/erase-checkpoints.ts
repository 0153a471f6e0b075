/**
 * Takes what was said out of a checkpoint file, for good: rows, free pages and log. A checkpoint holds one turn, and the conversation lives in the
 * transcript, so an ended turn loses nothing by it. Works on the file itself, beside a saver that has it open, and without loading the agent library.
 * To be called between turns only: an unfinished one would start again. Cost: the file is rewritten; it holds some turns of one owner.
 */
import { existsSync, readdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import Sqlite from 'better-sqlite3';
import type { OwnerId, SessionId } from '../../ids.ts';
import { checkpointName } from './checkpoint-name.ts';

/** Nobody holds a lock for longer: steps are single synchronous transactions. */
const BUSY_TIMEOUT_MS = 1_000;

/** Without `thread` all of the owner's; `null`: only what earlier turns left in free pages, safe at any time. Returns whether there was a file. */
export function eraseCheckpoints(folder: string, { owner, thread }: { owner: OwnerId; thread?: SessionId | null }): boolean {
  const name = checkpointName(owner);
  // Set aside because it was damaged: nobody can say what is in it.
  for (const file of existsSync(folder) ? readdirSync(folder) : []) {
    if (file.startsWith(`${name}.db.damaged`)) rmSync(join(folder, file), { force: true });
  }
  const path = join(folder, `${name}.db`);
  if (!existsSync(path)) return false;
  const database = new Sqlite(path, { timeout: BUSY_TIMEOUT_MS });
  try {
    const tables = database
      .prepare("SELECT name FROM sqlite_schema WHERE type = 'table' AND name IN ('checkpoints', 'writes', 'unreadable_checkpoints')")
      .pluck()
      .all();
    database.transaction(() => {
      for (const table of tables as string[]) {
        if (thread === undefined) database.prepare(`DELETE FROM ${table}`).run();
        else if (thread !== null) database.prepare(`DELETE FROM ${table} WHERE thread_id = ?`).run(thread);
      }
    })();
    // Earlier turns lie in free pages as well: the saver deletes without overwriting.
    database.exec('VACUUM');
    database.pragma('wal_checkpoint(TRUNCATE)');
    return true;
  } finally {
    database.close();
  }
}
