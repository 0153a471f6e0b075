/**
 * The engine keeps its keys in IndexedDB, which Node does not have, and an IndexedDB in memory loses a ratchet with the process: the next start would
 * encrypt with a message key that was used before. Here fake-indexeddb works in memory and every transaction is written to SQLite before its `complete`
 * event is heard, so the engine learns of a commit only when the disk has it, and one transaction there is one here.
 * What is written is the state of every touched record at that moment, not a list of operations: an undone or repeated change needs no care.
 * It reaches into fake-indexeddb's own objects (its public surface names neither the keys of a deleted range nor a transaction's end), so that package
 * is pinned, and a shape that is not the known one refuses to install.
 * Costs one fsync per writing transaction, and all keys live in memory (some 10 kB each).
 */
import v8 from 'node:v8';
import type { Database } from 'better-sqlite3';
import * as fake from 'fake-indexeddb';
import { z } from 'zod';
import { type IdbKey, readKey, writeKey } from './idb-key.ts';

export interface DurableIdb {
  /** The store name to give the engine: databases called `<name>::…` are kept in this file. */
  readonly name: string;
  /** Forgets the copy in memory; what is not committed by then never is. */
  close(): Promise<void>;
}

export interface DurableIdbOptions {
  /** With IDB_TABLES in it; locked by us alone. */
  readonly sqlite: Database;
  /** A commit failed: nothing more is written or reported as committed, and the process must end. */
  readonly onFatal: (cause: unknown) => void;
}

export const IDB_TABLES = `
  CREATE TABLE IF NOT EXISTS idb_schema (db TEXT PRIMARY KEY, version INTEGER NOT NULL, stores TEXT NOT NULL) STRICT;
  CREATE TABLE IF NOT EXISTS idb_rec (db TEXT NOT NULL, store TEXT NOT NULL, key TEXT NOT NULL, val BLOB NOT NULL, PRIMARY KEY (db, store, key)) STRICT;
`;

/** Loads what the file holds, and from then on writes every change of it. */
export async function mountIndexedDb({ sqlite, onFatal }: DurableIdbOptions): Promise<DurableIdb> {
  const mounts = install();
  mounts.made += 1;
  const name = `oracle-${mounts.made}`;
  const mount = createMount({ sqlite, onFatal });
  for (const schema of mount.schemas()) await load(`${name}::${schema.db}`, schema, mount);
  mounts.byName.set(name, mount);
  return {
    name,
    async close() {
      mounts.byName.delete(name);
      for (const { name: database } of await factory.databases()) {
        if (belongsTo(database) !== name) continue;
        // The engine lets go of its connections when its memory is collected, which nobody can wait for.
        for (const connection of [...(factory._databases.get(database)?.connections ?? [])]) connection.close();
        await settled(factory.deleteDatabase(database));
      }
    },
  };
}

const belongsTo = (database: string): string => database.split('::', 1)[0] ?? '';

/** One file. */
interface Mount {
  schemas(): Iterable<Schema>;
  records(db: string): Iterable<{ store: string; key: IdbKey; value: unknown }>;
  touch(transaction: RawTransaction, store: RawStore, key: IdbKey): void;
  /** @returns whether it is on disk; `complete` must not be heard otherwise. */
  commit(transaction: RawTransaction): boolean;
}

const Schema = z.strictObject({
  db: z.string(),
  version: z.int(),
  stores: z.array(
    z.strictObject({
      name: z.string(),
      keyPath: z.union([z.null(), z.string(), z.array(z.string())]),
      indexes: z.array(
        z.strictObject({
          name: z.string(),
          keyPath: z.union([z.string(), z.array(z.string())]),
          unique: z.boolean(),
          multiEntry: z.boolean(),
        }),
      ),
    }),
  ),
});
type Schema = z.infer<typeof Schema>;

function createMount({ sqlite, onFatal }: DurableIdbOptions): Mount {
  const putSchema = sqlite.prepare('INSERT OR REPLACE INTO idb_schema (db, version, stores) VALUES (?, ?, ?)');
  const allSchemas = sqlite.prepare<[], { db: string; version: number; stores: string }>('SELECT db, version, stores FROM idb_schema');
  const putRecord = sqlite.prepare('INSERT OR REPLACE INTO idb_rec (db, store, key, val) VALUES (?, ?, ?, ?)');
  const deleteRecord = sqlite.prepare('DELETE FROM idb_rec WHERE db = ? AND store = ? AND key = ?');
  const deleteAll = sqlite.prepare('DELETE FROM idb_rec WHERE db = ?');
  const allRecords = sqlite.prepare<[string], { store: string; key: string; val: Buffer }>(
    'SELECT store, key, val FROM idb_rec WHERE db = ?',
  );

  const touched = new WeakMap<RawTransaction, Map<RawStore, Map<string, IdbKey>>>();
  let failed = false;

  const write = sqlite.transaction((transaction: RawTransaction) => {
    const database = transaction.db._rawDatabase;
    const db = database.name.slice(belongsTo(database.name).length + 2);
    if (transaction.mode === 'versionchange') return writeWhole(db, database);
    for (const [store, keys] of touched.get(transaction) ?? [])
      for (const [text, key] of keys) {
        const record = store.records.get(key);
        if (record === undefined) deleteRecord.run(db, store.name, text);
        else putRecord.run(db, store.name, text, v8.serialize(record.value));
      }
  });

  /** Stores may have been made, renamed and deleted: an upgrade happens once per release of the engine, so it writes everything. */
  function writeWhole(db: string, database: RawDatabase): void {
    const stores = [...database.rawObjectStores.values()].filter((store) => !store.deleted);
    putSchema.run(db, database.version, JSON.stringify(stores.map(describeStore)));
    deleteAll.run(db);
    for (const store of stores)
      for (const { key, value } of store.records.values()) putRecord.run(db, store.name, writeKey(key), v8.serialize(value));
  }

  return {
    schemas: () => allSchemas.all().map((row) => Schema.parse({ ...row, stores: JSON.parse(row.stores) })),
    *records(db) {
      for (const { store, key, val } of allRecords.iterate(db)) yield { store, key: readKey(key), value: v8.deserialize(val) };
    },
    touch(transaction, store, key) {
      const stores = touched.get(transaction) ?? new Map<RawStore, Map<string, IdbKey>>();
      const keys = stores.get(store) ?? new Map<string, IdbKey>();
      touched.set(transaction, stores.set(store, keys.set(writeKey(key), key)));
    },
    commit(transaction) {
      if (failed) return false;
      if (transaction.mode !== 'versionchange' && !touched.has(transaction)) return true;
      try {
        write.immediate(transaction);
        return true;
      } catch (cause) {
        failed = true;
        onFatal(cause);
        return false;
      }
    },
  };
}

function describeStore(store: RawStore): Schema['stores'][number] {
  const indexes = [...store.rawIndexes.values()].filter((index) => !index.deleted);
  return {
    name: store.name,
    keyPath: store.keyPath,
    indexes: indexes.map(({ name, keyPath, unique, multiEntry }) => ({ name, keyPath, unique, multiEntry })),
  };
}

/** Rebuilds one database through the public surface; only its records are put in directly, which is ten times as fast as a request for each. */
async function load(database: string, schema: Schema, mount: Mount): Promise<void> {
  const request = factory.open(database, schema.version);
  request.onupgradeneeded = () => {
    const stores = new Map<string, RawStore>();
    for (const { name, keyPath, indexes } of schema.stores) {
      const store = request.result.createObjectStore(name, { keyPath });
      for (const index of indexes) store.createIndex(index.name, index.keyPath, { unique: index.unique, multiEntry: index.multiEntry });
      stores.set(name, store._rawObjectStore);
    }
    for (const { store, key, value } of mount.records(schema.db)) stores.get(store)?.storeRecord({ key, value }, false);
  };
  (await settled(request)).close();
}

function settled<T>(request: Request<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}

interface Mounts {
  readonly byName: Map<string, Mount>;
  made: number;
}

/** On the patched class itself, because this file may be loaded twice in a process and the class only once. */
const MOUNTS = Symbol.for('matrix-oracle.durable-indexeddb');

/** The engine looks for the globals. Databases that belong to no mounted file stay in memory as they always did. */
function install(): Mounts {
  for (const [key, value] of Object.entries(fake))
    if (key !== 'default') Object.defineProperty(globalThis, key, { value, configurable: true, writable: true });
  const marked = fake.IDBFactory as unknown as { [MOUNTS]?: Mounts };
  if (marked[MOUNTS] !== undefined) return marked[MOUNTS];
  const mounts: Mounts = { byName: new Map(), made: 0 };
  patch(mounts);
  marked[MOUNTS] = mounts;
  return mounts;
}

function patch(mounts: Mounts): void {
  const transactions = (fake.IDBTransaction as unknown as { prototype: RawTransaction }).prototype;
  const databases = (fake.IDBDatabase as unknown as { prototype: IdbDatabase }).prototype;
  const { dispatchEvent } = transactions;
  const { createObjectStore } = databases;
  const factories = (fake.IDBFactory as unknown as { prototype: typeof factory }).prototype;
  const { deleteDatabase } = factories;
  if ([dispatchEvent, createObjectStore, deleteDatabase].some((method) => typeof method !== 'function')) throw unknownShape();

  transactions.dispatchEvent = function (event) {
    const mount = mounts.byName.get(belongsTo(this.db._rawDatabase.name));
    // What was not written must never be heard as committed: whoever waits for it waits until the process ends.
    if (event.type === 'complete' && mount !== undefined && !mount.commit(this)) return true;
    return dispatchEvent.call(this, event);
  };
  factories.deleteDatabase = function (name) {
    // The engine has no need of it, and its records would be back after a restart.
    if (mounts.byName.has(belongsTo(name))) throw new Error('a database of the key store cannot be deleted');
    return deleteDatabase.call(this, name);
  };
  databases.createObjectStore = function (name, options) {
    if (options?.autoIncrement === true && mounts.byName.has(belongsTo(this.name))) throw new Error('generated keys are not kept');
    const store = createObjectStore.call(this, name, options);
    watch(store._rawObjectStore, mounts);
    return store;
  };
}

/** Each of a store's three ways to change notes the keys it touches, when a transaction asked for it (a rollback or the loading has no log). */
function watch(raw: RawStore, mounts: Mounts): void {
  const { storeRecord, deleteRecord, clear } = raw;
  if (typeof storeRecord !== 'function' || typeof deleteRecord !== 'function' || typeof clear !== 'function') throw unknownShape();
  function touch(log: RollbackLog | undefined, keys: Iterable<IdbKey>): void {
    const mount = mounts.byName.get(belongsTo(raw.rawDatabase.name));
    if (mount === undefined || log === undefined) return;
    const transaction = raw.rawDatabase.transactions.find((candidate) => candidate._rollbackLog === log);
    if (transaction === undefined) throw unknownShape();
    for (const key of keys) mount.touch(transaction, raw, key);
  }
  raw.storeRecord = (record, noOverwrite, log) => {
    const key = storeRecord.call(raw, record, noOverwrite, log);
    touch(log, [key]);
    return key;
  };
  raw.deleteRecord = (keyOrRange, log) => {
    touch(log, isRange(keyOrRange) ? keysOf(raw, keyOrRange) : [keyOrRange]);
    deleteRecord.call(raw, keyOrRange, log);
  };
  raw.clear = (log) => {
    touch(log, keysOf(raw));
    clear.call(raw, log);
  };
}

const keysOf = (raw: RawStore, range?: IdbRange): IdbKey[] => Array.from(raw.records.values(range), ({ key }) => key);
const isRange = (value: IdbKey | IdbRange): value is IdbRange => value instanceof (fake.IDBKeyRange as unknown as new () => IdbRange);
const unknownShape = (): Error => new Error('this release of fake-indexeddb is not the one that the key store was written for');

// What we use of fake-indexeddb 6.2.8; its own types are those of a browser, which this program does not load.
const factory = fake.indexedDB as unknown as {
  open(name: string, version: number): Request<IdbDatabase> & { onupgradeneeded: () => void };
  deleteDatabase(name: string): Request<undefined>;
  databases(): Promise<{ name: string }[]>;
  readonly _databases: ReadonlyMap<string, { readonly connections: readonly IdbDatabase[] }>;
};
interface Request<T> {
  readonly result: T;
  readonly error: unknown;
  onsuccess: () => void;
  onerror: () => void;
}
interface IdbDatabase {
  readonly name: string;
  createObjectStore(name: string, options?: { keyPath?: string | string[] | null; autoIncrement?: boolean }): IdbStore;
  close(): void;
}
interface IdbStore {
  readonly _rawObjectStore: RawStore;
  createIndex(name: string, keyPath: string | string[], options: { unique: boolean; multiEntry: boolean }): unknown;
}
type IdbRange = { readonly lower: unknown; readonly upper: unknown };
type RollbackLog = (() => void)[];
interface RawTransaction {
  readonly mode: 'readonly' | 'readwrite' | 'versionchange';
  readonly db: { readonly _rawDatabase: RawDatabase };
  readonly _rollbackLog: RollbackLog;
  dispatchEvent(event: { readonly type: string }): boolean;
}
interface RawDatabase {
  readonly name: string;
  readonly version: number;
  readonly transactions: readonly RawTransaction[];
  readonly rawObjectStores: ReadonlyMap<string, RawStore>;
}
interface RawStore {
  readonly name: string;
  readonly deleted: boolean;
  readonly keyPath: string | string[] | null;
  readonly rawDatabase: RawDatabase;
  readonly rawIndexes: ReadonlyMap<
    string,
    {
      readonly name: string;
      readonly keyPath: string | string[];
      readonly unique: boolean;
      readonly multiEntry: boolean;
      readonly deleted: boolean;
    }
  >;
  readonly records: {
    get(key: IdbKey): { value: unknown } | undefined;
    values(range?: IdbRange): Iterable<{ key: IdbKey; value: unknown }>;
  };
  storeRecord(record: { key: IdbKey; value: unknown }, noOverwrite: boolean, log?: RollbackLog): IdbKey;
  deleteRecord(keyOrRange: IdbKey | IdbRange, log?: RollbackLog): void;
  clear(log?: RollbackLog): void;
}
