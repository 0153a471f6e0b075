/** What one commit on this disk costs: the floor under every durable step. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import Sqlite from 'better-sqlite3';
import { median } from './measure.ts';

const COMMITS = 200;

/** Median ms of a one-row commit with WAL and synchronous=FULL. */
export function measureFsync(): number {
  const dir = mkdtempSync(join(tmpdir(), 'matrix-oracle-fsync-'));
  try {
    const database = new Sqlite(join(dir, 'fsync.db'));
    database.pragma('journal_mode = WAL');
    database.pragma('synchronous = FULL');
    database.exec('CREATE TABLE commits (at REAL)');
    const insert = database.prepare('INSERT INTO commits (at) VALUES (?)');
    const times = Array.from({ length: COMMITS }, () => {
      const from = performance.now();
      insert.run(from);
      return performance.now() - from;
    });
    database.close();
    return median(times);
  } finally {
    rmSync(dir, { recursive: true, force: true });
  }
}
