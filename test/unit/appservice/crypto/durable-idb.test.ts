import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import Sqlite from 'better-sqlite3';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { type DurableIdb, IDB_TABLES, mountIndexedDb } from '../../../../appservice/crypto/durable-idb.ts';

type Db = any;
type Upgrade = (db: Db, transaction: any) => void;

describe('an IndexedDB that is on disk before it says committed', () => {
  let folder: string;
  let sqlite: Sqlite.Database;
  let mount: DurableIdb;
  let fatal: unknown[];
  let opened: Db[];
  beforeEach(async () => {
    folder = mkdtempSync(join(tmpdir(), 'idb-'));
    fatal = [];
    opened = [];
    await mountFile();
  });
  afterEach(async () => {
    await unmountFile();
    rmSync(folder, { recursive: true });
  });

  async function mountFile(): Promise<void> {
    sqlite = new Sqlite(join(folder, 'file.db'));
    sqlite.exec(IDB_TABLES);
    mount = await mountIndexedDb({ sqlite, onFatal: (cause) => void fatal.push(cause) });
  }
  async function unmountFile(): Promise<void> {
    for (const db of opened.splice(0)) db.close();
    await mount.close();
    sqlite.close();
  }
  /** What a new process would find. */
  async function reload(): Promise<void> {
    await unmountFile();
    await mountFile();
  }
  const done = <T>(request: any): Promise<T> =>
    new Promise((resolve, reject) => {
      request.onsuccess = () => resolve(request.result);
      request.onerror = (event: any) => {
        event.preventDefault();
        reject(request.error);
      };
    });
  async function open(version = 1, upgrade: Upgrade = (db) => db.createObjectStore('s')): Promise<Db> {
    const request = (globalThis as any).indexedDB.open(`${mount.name}::test`, version);
    request.onupgradeneeded = () => upgrade(request.result, request.transaction);
    const db = await done<Db>(request);
    opened.push(db);
    return db;
  }
  /** One transaction; resolves with how it ended. */
  function change(db: Db, work: (store: any, transaction: any) => void, stores: string[] = ['s']): Promise<'complete' | 'abort'> {
    const transaction = db.transaction(stores, 'readwrite');
    const end = new Promise<'complete' | 'abort'>((resolve) => {
      transaction.oncomplete = () => resolve('complete');
      transaction.onabort = () => resolve('abort');
    });
    work(transaction.objectStore(stores[0]), transaction);
    return end;
  }
  async function all(db: Db, store = 's'): Promise<[unknown, unknown][]> {
    const source = db.transaction([store]).objectStore(store);
    const [keys, values] = await Promise.all([done<unknown[]>(source.getAllKeys()), done<unknown[]>(source.getAll())]);
    return keys.map((key, index) => [key, values[index]]);
  }
  const rows = () => sqlite.prepare('SELECT key FROM idb_rec ORDER BY key').pluck().all();

  test('what was put is there after a restart, with everything a value can be made of', async () => {
    const value = {
      text: 'ü\u0000\ud83d\ude00',
      bytes: new Uint8Array([0, 255]),
      list: [1, null, undefined],
      nested: new Map([['a', 1n]]),
    };
    await change(await open(), (store) => store.put(value, 'key'));

    await reload();

    expect(await all(await open())).toEqual([['key', value]]);
  });

  test('a second put replaces the first, also within one transaction', async () => {
    const db = await open();
    await change(db, (store) => store.put(1, 'key'));
    await change(db, (store) => {
      store.put(2, 'key');
      store.put(3, 'key');
    });

    await reload();

    expect(await all(await open())).toEqual([['key', 3]]);
  });

  test.each<[string, (store: any) => void, string[]]>([
    ['one key', (store) => store.delete('b'), ['a', 'c', 'd']],
    ['a range of keys', (store) => store.delete((globalThis as any).IDBKeyRange.bound('b', 'd', false, true)), ['a', 'd']],
    ['everything', (store) => store.clear(), []],
    ['everything, and one put after it', (store) => [store.clear(), store.put(9, 'z')], ['z']],
    ['one that is put again', (store) => [store.delete('b'), store.put(9, 'b')], ['a', 'b', 'c', 'd']],
    ['one that was put before', (store) => [store.put(9, 'x'), store.delete('x')], ['a', 'b', 'c', 'd']],
  ])('a deletion stays deleted: %s', async (_name, work, left) => {
    const db = await open();
    await change(db, (store) => void ['a', 'b', 'c', 'd'].map((key, index) => store.put(index, key)));
    await change(db, (store) => void work(store));

    await reload();

    expect((await all(await open())).map(([key]) => key)).toEqual(left);
    expect(rows()).toHaveLength(left.length);
  });

  test('what a cursor changed and deleted is so after a restart', async () => {
    const db = await open();
    await change(db, (store) => void ['a', 'b', 'c'].map((key) => store.put(0, key)));
    await change(db, (store) => {
      store.openCursor().onsuccess = ({ target: { result: cursor } }: any) => {
        if (cursor === null) return;
        if (cursor.key === 'a') cursor.update(1);
        if (cursor.key === 'b') cursor.delete();
        cursor.continue();
      };
    });

    await reload();

    expect(await all(await open())).toEqual([
      ['a', 1],
      ['c', 0],
    ]);
  });

  test('a transaction that was aborted leaves nothing behind', async () => {
    const db = await open();
    await change(db, (store) => store.put('before', 'key'));
    const end = await change(db, (store, transaction) => {
      store.put('after', 'key');
      store.put('new', 'other');
      store.delete('key');
      transaction.abort();
    });

    expect(end).toBe('abort');
    await reload();
    expect(await all(await open())).toEqual([['key', 'before']]);
  });

  test('a refused insert keeps the rest of its transaction when the error is handled', async () => {
    const db = await open();
    await change(db, (store) => store.put('before', 'key'));
    const end = await change(db, (store) => {
      store.add('after', 'key').onerror = (event: any) => {
        event.preventDefault();
        event.stopPropagation();
      };
      store.put('more', 'other');
    });

    expect(end).toBe('complete');
    await reload();
    expect(await all(await open())).toEqual([
      ['key', 'before'],
      ['other', 'more'],
    ]);
  });

  test('an insert refused by a unique index is not written', async () => {
    const upgrade: Upgrade = (db) => db.createObjectStore('s').createIndex('by_name', 'name', { unique: true });
    const db = await open(1, upgrade);
    await change(db, (store) => store.put({ name: 'x' }, 'a'));
    await change(db, (store) => {
      store.put({ name: 'x' }, 'b').onerror = (event: any) => {
        event.preventDefault();
        event.stopPropagation();
      };
    });

    await reload();

    expect(await all(await open(1, upgrade))).toEqual([['a', { name: 'x' }]]);
  });

  test('indexes are built again', async () => {
    const upgrade: Upgrade = (db) => {
      const store = db.createObjectStore('s');
      store.createIndex('by_name', 'name', { unique: true });
      store.createIndex('by_both', ['name', 'n']);
      store.createIndex('by_tag', 'tags', { multiEntry: true });
    };
    const db = await open(1, upgrade);
    await change(db, (store) => store.put({ name: 'x', n: 1, tags: ['t', 'u'] }, 'a'));

    await reload();

    const store = (await open(1, () => expect.unreachable())).transaction(['s']).objectStore('s');
    const { name, keyPath, unique, multiEntry } = store.index('by_tag');
    expect({ name, keyPath, unique, multiEntry }).toEqual({ name: 'by_tag', keyPath: 'tags', unique: false, multiEntry: true });
    expect(store.index('by_name').unique).toBe(true);
    expect(await done(store.index('by_both').getKey(['x', 1]))).toBe('a');
    expect(await done(store.index('by_tag').getKey('u'))).toBe('a');
  });

  test('an upgrade of the schema is kept: stores made, renamed, deleted, and records moved', async () => {
    const first = await open(1, (db) => {
      db.createObjectStore('old').put(1, 'moved');
      db.createObjectStore('gone').put(2, 'lost');
      db.createObjectStore('kept').put(3, 'here');
    });
    first.close();
    const second = await open(2, (db, transaction) => {
      transaction.objectStore('old').name = 'renamed';
      db.deleteObjectStore('gone');
      db.createObjectStore('made').put(4, 'new');
    });
    second.close();

    await reload();

    const db = await open(2, () => expect.unreachable());
    expect([...db.objectStoreNames]).toEqual(['kept', 'made', 'renamed']);
    expect([await all(db, 'renamed'), await all(db, 'kept'), await all(db, 'made')]).toEqual([[['moved', 1]], [['here', 3]], [['new', 4]]]);
    expect(rows()).toHaveLength(3);
  });

  test('one key has one text: a number, a text of the same look and a list are three keys, and 0 is -0', async () => {
    const db = await open();
    await change(db, (store) => {
      for (const key of [1, '1', ['1'], [1], 0, '\ud800', 'é', 'e\u0301']) store.put('first', key);
    });
    await change(db, (store) => store.put('second', -0));

    await reload();

    const reloaded = await all(await open());
    expect(reloaded).toHaveLength(8);
    expect(reloaded[0]).toEqual([0, 'second']);
    expect(reloaded.map(([key]) => key)).toContain('\ud800');
  });

  test('a key that has no text is refused to whoever puts it, and the file stays as it was', async () => {
    const db = await open();
    const end = await change(db, (store) => store.put(1, new Date(0)));

    expect(end).toBe('abort');
    expect(rows()).toEqual([]);
    expect(await all(db)).toEqual([]);
  });

  test('generated keys, which would begin again after a restart, are refused', async () => {
    await expect(open(1, (db) => db.createObjectStore('s', { autoIncrement: true }))).rejects.toThrow();
  });

  test('a database of the file cannot be deleted behind its back', async () => {
    (await open()).close();

    expect(() => (globalThis as any).indexedDB.deleteDatabase(`${mount.name}::test`)).toThrow('cannot be deleted');
  });

  test('`complete` is heard after the commit, and one transaction there is one here', async () => {
    const db = await open();
    const seen: unknown[][] = [];
    const end = change(db, (store, transaction) => {
      store.put(1, 'a').onsuccess = () => seen.push(rows());
      store.put(2, 'b');
      transaction.addEventListener('complete', () => seen.push(rows()));
    });

    await end;

    expect(seen).toEqual([[], ['"a"', '"b"']]);
  });

  test('a commit that fails is never heard as complete, is reported once, and nothing is written after it', async () => {
    const db = await open();
    sqlite.exec('CREATE TRIGGER full BEFORE INSERT ON idb_rec BEGIN SELECT RAISE(ABORT, "disk full"); END');
    const heard: string[] = [];
    void change(db, (store) => store.put(1, 'a')).then((end) => heard.push(end));
    await expect.poll(() => fatal.length).toBe(1);
    sqlite.exec('DROP TRIGGER full');
    void change(db, (store) => store.put(2, 'b')).then((end) => heard.push(end));
    await new Promise((resolve) => setImmediate(() => setImmediate(() => setImmediate(resolve))));

    expect(heard).toEqual([]);
    expect(fatal).toHaveLength(1);
    expect(rows()).toEqual([]);
  });

  test('two files in one process do not know each other', async () => {
    const other = new Sqlite(':memory:');
    other.exec(IDB_TABLES);
    const second = await mountIndexedDb({ sqlite: other, onFatal: () => undefined });
    await change(await open(), (store) => store.put(1, 'mine'));

    expect(second.name).not.toBe(mount.name);
    expect(other.prepare('SELECT count(*) FROM idb_rec').pluck().get()).toBe(0);
    await second.close();
    other.close();
  });

  test('a database of nobody stays in memory', async () => {
    const request = (globalThis as any).indexedDB.open('somebody::else', 1);
    request.onupgradeneeded = () => request.result.createObjectStore('s', { autoIncrement: true });
    const db = await done<Db>(request);
    await change(db, (store) => store.put(1));
    db.close();

    expect(rows()).toEqual([]);
    await done((globalThis as any).indexedDB.deleteDatabase('somebody::else'));
  });

  test('thousands of random changes leave the file equal to the memory', async () => {
    let seed = 1;
    const next = (below: number): number => {
      seed = (seed * 48_271) % 2_147_483_647;
      return seed % below;
    };
    const upgrade: Upgrade = (db) => {
      db.createObjectStore('s');
      db.createObjectStore('t');
    };
    const db = await open(1, upgrade);
    for (let round = 0; round < 150; round += 1)
      await change(
        db,
        (store, transaction) => {
          for (let step = 0; step < 20; step += 1) {
            const target = next(2) === 0 ? store : transaction.objectStore('t');
            const key = `k${next(40)}`;
            const kind = next(10);
            if (kind < 6) target.put({ round, step }, key);
            else if (kind < 8) target.delete(key);
            else if (kind === 8) target.delete((globalThis as any).IDBKeyRange.upperBound(`k${next(3)}`));
            else if (next(20) === 0) target.clear();
          }
          if (next(5) === 0) transaction.abort();
        },
        ['s', 't'],
      );
    const before = [await all(db), await all(db, 't')];

    await reload();

    const again = await open(1, upgrade);
    expect([await all(again), await all(again, 't')]).toEqual(before);
    expect(before[0]!.length + before[1]!.length).toBeGreaterThan(20);
  });
});
