/**
 * The one SQLite database (WAL, synchronous=FULL). Everything that can crash is written here first, so a commit is on the disk's plate
 * before anybody hears of it (G1). An fsync costs about a millisecond whatever it carries: `write` queues synchronous functions, gives
 * each a savepoint, and commits all of one tick together, so that 20 rooms at once share one fsync.
 * Kysely only builds statements; they run synchronously, so nothing can interleave inside a write.
 */
import Sqlite, { type Database, type Statement } from 'better-sqlite3';
import { type Compilable, DummyDriver, Kysely, SqliteAdapter, SqliteIntrospector, SqliteQueryCompiler } from 'kysely';
import { migrate } from './migrate.ts';
import type { Schema } from './schema.ts';

/** What a feature's queries need: run a built statement. A write receives one that is inside its savepoint. */
export interface Tx {
  all<Row>(query: Compilable<Row>): Row[];
  get<Row>(query: Compilable<Row>): Row | undefined;
  /** @returns how many rows changed. */
  run(query: Compilable<unknown>): number;
}

export interface Store {
  /** Statement builder; it has no connection of its own. */
  readonly sql: Kysely<Schema>;
  /** Reads what is committed. Synchronous. */
  readonly read: Tx;
  /**
   * Runs `change` in the next commit. Resolves with its value once that commit is on disk; rejects with what `change` threw (its
   * savepoint is rolled back, other changes of the tick go on), or with `StorageError` when the commit itself failed.
   */
  write<T>(change: (tx: Tx) => T): Promise<T>;
  /** Whether the last commit worked. While false, the homeserver gets no 200 and nothing is claimed. */
  writable(): boolean;
  /**
   * Gives up to so many free pages back to the file system; false when there are none, or when the file is of an older release and too large to
   * be converted in the time of a start. Small steps: nobody else writes meanwhile.
   */
  reclaim(pages: number): boolean;
  /** Whether `reclaim` can ever give something back. */
  readonly reclaims: boolean;
  /**
   * What was deleted is overwritten in the file at once, but lives on in the log beside it until that is written over: this empties the log.
   * After it nothing is found any more of what a person took back. False when another process reads at the moment: try again.
   */
  dropLog(): boolean;
  /** Tries a commit now, to find out that the disk has room again. */
  probe(): Promise<boolean>;
  close(): void;
}

/** The database is locked, read-only or full. The change certainly did not happen. */
export class StorageError extends Error {
  override readonly name = 'StorageError';
}

const BUSY_TIMEOUT_MS = 5_000;
/** Statements are few and fixed (Kysely builds the same text each time); the cap only guards against a bug. */
const MAX_CACHED_STATEMENTS = 500;

export interface OpenStoreOptions {
  /** Path of the database file, or `:memory:`. */
  readonly path: string;
  readonly now: number;
  /** How a tick's commit is scheduled; tests pass their own. */
  readonly schedule?: (flush: () => void) => void;
}

export function openStore({ path, now, schedule = setImmediate }: OpenStoreOptions): Store {
  const database = new Sqlite(path, { timeout: BUSY_TIMEOUT_MS });
  // Before anything is written: afterwards it takes a VACUUM.
  database.pragma('auto_vacuum = INCREMENTAL');
  database.pragma('journal_mode = WAL');
  database.pragma('synchronous = FULL');
  // What was taken back must be gone from the file, not only from its index (DESIGN §7): freed space is overwritten.
  database.pragma('secure_delete = ON');
  database.pragma('foreign_keys = ON');
  database.pragma('temp_store = MEMORY');
  try {
    migrate(database, now);
    forgetWords(database);
    convertWhenSmall(database);
  } catch (error) {
    database.close();
    throw error;
  }
  const tx = createTx(database);
  const begin = database.prepare('BEGIN IMMEDIATE');
  const commit = database.prepare('COMMIT');
  const savepoint = database.prepare('SAVEPOINT change');
  const release = database.prepare('RELEASE change');
  const undo = database.prepare('ROLLBACK TO change');

  type Job = { change: (tx: Tx) => unknown; resolve: (value: never) => void; reject: (reason: unknown) => void };
  let queue: Job[] = [];
  let healthy = true;
  let closed = false;

  function flush(): void {
    const jobs = queue;
    queue = [];
    if (jobs.length === 0) return;
    const settle: (() => void)[] = [];
    try {
      if (closed) throw new Error('the store is closed');
      begin.run();
      for (const job of jobs) settle.push(runJob(job));
      commit.run();
      healthy = true;
    } catch (cause) {
      healthy = false;
      if (!closed && database.inTransaction) database.exec('ROLLBACK');
      const failure = new StorageError('the database cannot be written', { cause });
      for (const job of jobs) job.reject(failure);
      return;
    }
    for (const done of settle) done();
  }

  function runJob({ change, resolve, reject }: Job): () => void {
    savepoint.run();
    try {
      const value = change(tx);
      // An async change would go on outside its savepoint, in whatever transaction is open by then.
      if (value instanceof Promise) throw new TypeError('a change must be synchronous');
      release.run();
      return () => resolve(value as never);
    } catch (error) {
      // A full disk ends the whole transaction, savepoints included: then nothing of this tick can be kept.
      if (!database.inTransaction) throw error;
      undo.run();
      release.run();
      if (isStorageFailure(error)) throw error;
      return () => reject(error);
    }
  }

  const store: Store = {
    sql: createBuilder(),
    read: tx,
    write: (change) =>
      new Promise((resolve, reject) => {
        if (queue.push({ change, resolve, reject }) === 1) schedule(flush);
      }),
    writable: () => healthy,
    reclaim(pages) {
      if (closed || database.inTransaction) return false;
      const free = countFree(database);
      if (!store.reclaims || free === 0) return false;
      database.pragma(`incremental_vacuum(${Math.trunc(pages)})`);
      return countFree(database) < free;
    },
    reclaims: database.pragma('auto_vacuum', { simple: true }) === INCREMENTAL,
    dropLog() {
      if (closed || database.inTransaction) return false;
      // A backup may read for minutes: nobody waits for it here.
      database.pragma('busy_timeout = 0');
      try {
        const [outcome] = database.pragma('wal_checkpoint(TRUNCATE)') as { busy: number }[];
        return outcome?.busy === 0;
      } catch (error) {
        if (isStorageFailure(error)) return false;
        throw error;
      } finally {
        database.pragma(`busy_timeout = ${BUSY_TIMEOUT_MS}`);
      }
    },
    probe: () =>
      store
        .write((inside) =>
          inside.run(
            store.sql
              .insertInto('meta')
              .values({ key: 'probe', value: '1' })
              .onConflict((oc) => oc.column('key').doUpdateSet({ value: '1' })),
          ),
        )
        .then(() => true)
        .catch((error: unknown) => {
          if (error instanceof StorageError) return false;
          throw error;
        }),
    close: () => {
      flush();
      closed = true;
      database.close();
    },
  };
  return store;
}

const createBuilder = (): Kysely<Schema> =>
  new Kysely<Schema>({
    dialect: {
      createAdapter: () => new SqliteAdapter(),
      createDriver: () => new DummyDriver(),
      createIntrospector: (db) => new SqliteIntrospector(db),
      createQueryCompiler: () => new SqliteQueryCompiler(),
    },
  });

/** For commands beside the running process, which neither migrate nor write through a store. */
export const readerOf = (database: Database): Pick<Store, 'sql' | 'read'> => ({ sql: createBuilder(), read: createTx(database) });

const INCREMENTAL = 2;
/** A VACUUM of so much takes a few seconds; a larger file keeps its size, and what is free in it is used again. */
const CONVERT_BELOW_BYTES = 256 * 1024 * 1024;

const countFree = (database: Database): number => database.pragma('freelist_count', { simple: true }) as number;

/** Files of releases before 0.2 give no page back. Needs room for a copy; without it, or beside another process, it stays as it is. */
function convertWhenSmall(database: Database): void {
  if (database.pragma('auto_vacuum', { simple: true }) === INCREMENTAL) return;
  const bytes = (database.pragma('page_count', { simple: true }) as number) * (database.pragma('page_size', { simple: true }) as number);
  if (bytes >= CONVERT_BELOW_BYTES) return;
  try {
    database.pragma('auto_vacuum = INCREMENTAL');
    database.exec('VACUUM');
  } catch (error) {
    if (!isStorageFailure(error)) throw error;
  }
}

/** A removed word stays in the search index until its segments are merged, unless it is told otherwise; the setting is kept in the file. */
function forgetWords(database: Database): void {
  for (const index of ['transcript_search', 'plugin_storage_search']) {
    const set = database.prepare(`SELECT v FROM ${index}_config WHERE k = 'secure-delete'`).pluck().get();
    if (set !== 1) database.exec(`INSERT INTO ${index} (${index}, rank) VALUES ('secure-delete', 1)`);
  }
}

const STORAGE_CODES = /^SQLITE_(FULL|IOERR|READONLY|BUSY|LOCKED|CANTOPEN|CORRUPT|NOTADB)/u;
function isStorageFailure(error: unknown): boolean {
  return error instanceof Error && 'code' in error && typeof error.code === 'string' && STORAGE_CODES.test(error.code);
}

function createTx(database: Database): Tx {
  const statements = new Map<string, Statement>();
  function prepare(text: string): Statement {
    const cached = statements.get(text);
    if (cached) return cached;
    const statement = database.prepare(text);
    if (statements.size < MAX_CACHED_STATEMENTS) statements.set(text, statement);
    return statement;
  }
  return {
    all<Row>(query: Compilable<Row>): Row[] {
      const { sql, parameters } = query.compile();
      return prepare(sql).all(...parameters) as Row[];
    },
    get<Row>(query: Compilable<Row>): Row | undefined {
      const { sql, parameters } = query.compile();
      return prepare(sql).get(...parameters) as Row | undefined;
    },
    run(query: Compilable<unknown>): number {
      const { sql, parameters } = query.compile();
      return prepare(sql).run(...parameters).changes;
    },
  };
}
