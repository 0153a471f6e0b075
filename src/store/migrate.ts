/**
 * Stored data outlives every release, so its shape changes one appended step at a time, each in a transaction (STYLE §2 "Migrations").
 * A process that finds a step it does not know refuses to start: an older release writing into a newer shape is how data is lost.
 */
import type { Database } from 'better-sqlite3';
import { createTables } from './migrations/001-create-tables.ts';
import { putOffRuns } from './migrations/002-put-off-runs.ts';
import { addGrants } from './migrations/003-grants.ts';
import { durableRuns } from './migrations/004-durable-runs.ts';
import { controlRuns } from './migrations/005-control-runs.ts';
import { forgetting } from './migrations/006-forgetting.ts';
import { encryption } from './migrations/007-encryption.ts';
import { plugins } from './migrations/008-plugins.ts';

const MIGRATIONS: readonly { id: string; sql: string }[] = [
  createTables,
  putOffRuns,
  addGrants,
  durableRuns,
  controlRuns,
  forgetting,
  encryption,
  plugins,
];

/** What stops a start and is no bug: shown as its sentence, without a stack (src/app/cli/describe-start-error.ts knows the code). */
class NewerDatabase extends Error {
  override readonly name = 'NewerDatabase';
  readonly code = 'START_REFUSED';
}

/** Brings the database to the newest shape. Throws with a remedy when it was written by a newer release. */
export function migrate(database: Database, now: number): void {
  database.exec('CREATE TABLE IF NOT EXISTS migrations (id TEXT PRIMARY KEY, applied_at INTEGER NOT NULL) STRICT');
  const applied = new Set((database.prepare('SELECT id FROM migrations').all() as { id: string }[]).map((row) => row.id));
  const known = new Set(MIGRATIONS.map((migration) => migration.id));
  const unknown = [...applied].filter((id) => !known.has(id));
  if (unknown.length > 0) {
    throw new NewerDatabase(
      `the database was written by a newer matrix-oracle (unknown migration ${unknown.join(', ')}): start that release, or restore a backup made before it`,
    );
  }
  for (const migration of MIGRATIONS) {
    if (applied.has(migration.id)) continue;
    database
      .transaction(() => {
        // The version row first: a second process that migrates at the same time fails on it instead of half-repeating the step.
        database.prepare('INSERT INTO migrations (id, applied_at) VALUES (?, ?)').run(migration.id, now);
        database.exec(migration.sql);
      })
      .immediate();
  }
}
