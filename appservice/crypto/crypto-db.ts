/**
 * The one file of everything cryptographic: the engine's store (durable-idb.ts), what arrived for the key-holding device and is not yet in the engine,
 * and what the device is called. One file, so that one exclusive lock guards it and `next_batch` commits together with the events it acknowledges:
 * the homeserver deletes them when it sees that position again, and a key lost in between is lost for good.
 * Two processes on one file would ratchet apart and reuse message keys, so the second open is refused.
 */
import { statSync } from 'node:fs';
import Sqlite from 'better-sqlite3';
import { z } from 'zod';
import { isJsonObject, type JsonObject, sha256Base64Url } from '../../src/json.ts';
import { err, ok, type Result } from '../../src/result.ts';
import { IDB_TABLES } from './durable-idb.ts';

export interface CryptoDb {
  readonly path: string;
  readonly toDevice: ToDeviceStore;
  readonly meta: MetaStore;
  /** For durable-idb.ts only. */
  readonly sqlite: Sqlite.Database;
  /** Of the file and its log. */
  bytes(): number;
  close(): void;
}

export interface CryptoDbProblem {
  readonly code: 'CRYPTO_DB_LOCKED' | 'CRYPTO_DB_DAMAGED' | 'CRYPTO_DB_NEWER' | 'CRYPTO_DB_UNUSABLE';
  /** One sentence for the operator. */
  readonly remedy: string;
  readonly cause?: unknown;
}

/** `user_id`, `device_id`: of the key-holding device, written when the file is made. `device_made`: the homeserver has it. `since`: position of the poll. */
export type MetaKey = 'device_id' | 'user_id' | 'device_made' | 'since';
export interface MetaStore {
  get(key: MetaKey): string | null;
  /** One durable transaction. */
  set(values: Partial<Record<MetaKey, string>>): void;
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
  /** How often the engine was handed it, this process and earlier ones together. */
  readonly tries: number;
}

export interface ToDeviceStore {
  /**
   * One durable transaction: what is new in the batch, and the position it acknowledges (null: the homeserver keeps none). Events that were stored
   * before are left out; a batch of which nothing is left is not stored.
   */
  put(batch: ToDeviceBatch, since: string | null): void;
  /** Not yet done, oldest first. */
  pending(): readonly StoredBatch[];
  /** Before the engine is handed it: a process that dies of it must know at its next start. */
  begin(id: number): void;
  /** Leaves only these events of it. */
  keep(id: number, events: ToDeviceBatch['events']): void;
  /** The engine has persisted it. */
  done(id: number): void;
  since(): string | null;
}

const SCHEMA_VERSION = 1;
const TABLES = `
  ${IDB_TABLES}
  CREATE TABLE IF NOT EXISTS to_device (id INTEGER PRIMARY KEY AUTOINCREMENT, batch TEXT NOT NULL) STRICT;
  CREATE TABLE IF NOT EXISTS to_device_tries (id INTEGER PRIMARY KEY, tries INTEGER NOT NULL) STRICT;
  CREATE TABLE IF NOT EXISTS to_device_seen (id INTEGER PRIMARY KEY AUTOINCREMENT, hash TEXT NOT NULL UNIQUE) STRICT;
  CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
`;
/** A homeserver repeats what it was not told to forget: the last answer, or a transaction. This is many of them. */
const SEEN_KEPT = 20_000;

const Batch = z.strictObject({
  events: z.array(z.custom<JsonObject>(isJsonObject)),
  changed: z.array(z.string()),
  left: z.array(z.string()),
  oneTimeKeys: z.record(z.string(), z.number()).nullable(),
  unusedFallback: z.array(z.string()).nullable(),
});

export function openCryptoDb(path: string): Result<CryptoDb, CryptoDbProblem> {
  let sqlite: Sqlite.Database | null = null;
  try {
    sqlite = new Sqlite(path, { timeout: 200 });
    return prepareFile(sqlite, path);
  } catch (cause) {
    sqlite?.close();
    return err(explain(cause, path));
  }
}

function prepareFile(sqlite: Sqlite.Database, path: string): Result<CryptoDb, CryptoDbProblem> {
  // Before the log is touched: then there is no shared memory beside it, and the lock lasts as long as the connection.
  sqlite.pragma('locking_mode = EXCLUSIVE');
  sqlite.pragma('journal_mode = WAL');
  // A commit that a power cut takes back would let a ratchet go back with it.
  sqlite.pragma('synchronous = FULL');
  // A used message key must be gone from the file.
  sqlite.pragma('secure_delete = ON');
  const version = sqlite.pragma('user_version', { simple: true }) as number;
  if (version > SCHEMA_VERSION) {
    sqlite.close();
    return err({ code: 'CRYPTO_DB_NEWER', remedy: `${path} was written by a newer release of matrix-oracle: run that release.` });
  }
  sqlite
    .transaction(() => {
      sqlite.exec(TABLES);
      sqlite.pragma(`user_version = ${SCHEMA_VERSION}`);
    })
    .immediate();
  const meta = createMeta(sqlite);
  return ok({
    path,
    meta,
    toDevice: createToDevice(sqlite, meta),
    sqlite,
    bytes: () => bytesOf(path) + bytesOf(`${path}-wal`),
    close: () => sqlite.close(),
  });
}

const bytesOf = (path: string): number => statSync(path, { throwIfNoEntry: false })?.size ?? 0;

function createMeta(sqlite: Sqlite.Database): MetaStore {
  const get = sqlite.prepare<[string], string>('SELECT value FROM meta WHERE key = ?').pluck();
  const set = sqlite.prepare('INSERT OR REPLACE INTO meta (key, value) VALUES (?, ?)');
  const write = sqlite.transaction((values: Partial<Record<MetaKey, string>>) => {
    for (const [key, value] of Object.entries(values)) set.run(key, value);
  });
  return {
    get: (key) => get.get(key) ?? null,
    set: (values) => write.immediate(values),
  };
}

function createToDevice(sqlite: Sqlite.Database, meta: MetaStore): ToDeviceStore {
  const see = sqlite.prepare('INSERT OR IGNORE INTO to_device_seen (hash) VALUES (?)');
  const forget = sqlite.prepare('DELETE FROM to_device_seen WHERE id <= (SELECT max(id) FROM to_device_seen) - ?');
  const insert = sqlite.prepare('INSERT INTO to_device (batch) VALUES (?)');
  const all = sqlite.prepare<[], { id: number; batch: string; tries: number }>(
    'SELECT id, batch, coalesce(tries, 0) AS tries FROM to_device LEFT JOIN to_device_tries USING (id) ORDER BY id',
  );
  const count = sqlite.prepare('INSERT INTO to_device_tries (id, tries) VALUES (?, 1) ON CONFLICT (id) DO UPDATE SET tries = tries + 1');
  const one = sqlite.prepare<[number], { batch: string }>('SELECT batch FROM to_device WHERE id = ?');
  const replace = sqlite.prepare('UPDATE to_device SET batch = ? WHERE id = ?');
  const remove = sqlite.prepare('DELETE FROM to_device WHERE id = ?');
  const removeTries = sqlite.prepare('DELETE FROM to_device_tries WHERE id = ?');
  const finish = sqlite.transaction((id: number) => {
    remove.run(id);
    removeTries.run(id);
  });
  /** Counts as they were last handed to the engine by this process: every answer repeats them. */
  let lastCounts = '';

  const write = sqlite.transaction((batch: ToDeviceBatch, since: string | null) => {
    const events = batch.events.filter((event) => see.run(sha256Base64Url(JSON.stringify(event))).changes > 0);
    if (events.length > 0) forget.run(SEEN_KEPT);
    const counts = JSON.stringify([batch.oneTimeKeys, batch.unusedFallback]);
    const saysCounts = (batch.oneTimeKeys !== null || batch.unusedFallback !== null) && counts !== lastCounts;
    if (events.length > 0 || batch.changed.length > 0 || batch.left.length > 0 || saysCounts)
      insert.run(JSON.stringify({ ...batch, events } satisfies ToDeviceBatch));
    if (since !== null) meta.set({ since });
    return saysCounts ? counts : lastCounts;
  });

  return {
    put(batch, since) {
      lastCounts = write.immediate(batch, since);
    },
    pending: () => all.all().map(({ id, batch, tries }) => ({ id, tries, ...Batch.parse(JSON.parse(batch)) })),
    begin: (id) => void count.run(id),
    keep(id, events) {
      const row = one.get(id);
      if (row !== undefined) replace.run(JSON.stringify({ ...Batch.parse(JSON.parse(row.batch)), events } satisfies ToDeviceBatch), id);
    },
    done: (id) => finish.immediate(id),
    since: () => meta.get('since'),
  };
}

function explain(cause: unknown, path: string): CryptoDbProblem {
  const code = cause instanceof Sqlite.SqliteError ? cause.code : '';
  if (code.startsWith('SQLITE_BUSY') || code.startsWith('SQLITE_LOCKED')) {
    const remedy = `Another process uses ${path}: stop it. Two processes with the same keys would make both unreadable.`;
    return { code: 'CRYPTO_DB_LOCKED', remedy, cause };
  }
  if (code.startsWith('SQLITE_NOTADB') || code.startsWith('SQLITE_CORRUPT') || cause instanceof z.ZodError)
    return { code: 'CRYPTO_DB_DAMAGED', remedy: damagedRemedy(path), cause };
  return { code: 'CRYPTO_DB_UNUSABLE', remedy: `${path} cannot be opened or written: see to its folder, its owner and the disk.`, cause };
}

/** Also said when the engine cannot read what is in the file. */
export const damagedRemedy = (path: string): string =>
  `${path} cannot be read as a key store. Move it away, and the oracle makes a new device with the same identity; older encrypted messages stay unreadable to it. Never put an older copy in its place.`;
