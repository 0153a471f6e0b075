import { readdirSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import Sqlite from 'better-sqlite3';
import { expect, test } from 'vitest';
import { openStore, StorageError, type Store, type Tx } from '../../../src/store/store.ts';
import { ROOM } from '../../fakes/events.ts';
import { FAKE_START_MS } from '../../fakes/fake-clock.ts';
import { breakDisk, fileStore, memoryStore, pragma, tempFolder } from '../../fakes/memory-store.ts';

type MemoryStore = ReturnType<typeof memoryStore>;
const put =
  (store: MemoryStore, key: string, value = '1') =>
  (tx: Tx): string => {
    tx.run(store.sql.insertInto('meta').values({ key, value }));
    return key;
  };
const keys = (store: MemoryStore): string[] =>
  store.read.all(store.sql.selectFrom('meta').select('key').orderBy('key')).map(({ key }) => key);

test('many writes of one tick share one commit, and nothing is visible before it (G1)', async () => {
  const flushes: (() => void)[] = [];
  const store = openStore({ path: ':memory:', now: FAKE_START_MS, schedule: (flush) => void flushes.push(flush) });
  const order: string[] = [];
  const writes = ['a', 'b', 'c'].map((key) => store.write(put(store, key)).then((done) => order.push(done)));

  expect(flushes).toHaveLength(1);
  expect(keys(store)).toEqual([]);
  flushes[0]?.();
  await Promise.all(writes);

  expect(keys(store)).toEqual(['a', 'b', 'c']);
  expect(order).toEqual(['a', 'b', 'c']);
  store.close();
});

test('a change that throws takes back only itself, and its writer hears its own error', async () => {
  const store = memoryStore();
  const broken = store.write((tx) => {
    put(store, 'broken')(tx);
    throw new RangeError('a bug');
  });
  const results = await Promise.allSettled([store.write(put(store, 'before')), broken, store.write(put(store, 'after'))]);

  expect(keys(store)).toEqual(['after', 'before']);
  expect(results.map(({ status }) => status)).toEqual(['fulfilled', 'rejected', 'fulfilled']);
  await expect(broken).rejects.toBeInstanceOf(RangeError);
  expect(store.writable()).toBe(true);
});

test('a broken constraint is a bug of that change, not of the disk', async () => {
  const store = memoryStore();
  await store.write(put(store, 'twice'));

  await expect(store.write(put(store, 'twice'))).rejects.toMatchObject({ code: expect.stringContaining('CONSTRAINT') });

  expect(store.writable()).toBe(true);
});

test('an asynchronous change is refused, because it would go on in somebody else’s transaction', async () => {
  const store = memoryStore();

  await expect(store.write(async (tx) => put(store, 'late')(tx))).rejects.toBeInstanceOf(TypeError);

  expect(keys(store)).toEqual([]);
});

test('a disk that cannot be written rejects every change of the tick, and a probe finds out when it can again', async () => {
  const store = memoryStore();
  const disk = breakDisk(store);

  const results = await Promise.allSettled([store.write(put(store, 'a')), store.write(put(store, 'b'))]);

  expect(results.map((result) => result.status === 'rejected' && result.reason instanceof StorageError)).toEqual([true, true]);
  expect(store.writable()).toBe(false);
  expect(await store.probe()).toBe(false);
  disk.repair();
  expect(await store.probe()).toBe(true);
  expect(store.writable()).toBe(true);
  expect(keys(store)).toEqual(['probe']);
});

test('a full disk in the middle of a tick keeps nothing of that tick and everything before it', async () => {
  const store = memoryStore();
  await store.write(put(store, 'kept'));
  const pages = Number(pragma(store, 'page_count'));
  pragma(store, `max_page_count = ${pages}`);

  const results = await Promise.allSettled([store.write(put(store, 'small')), store.write(put(store, 'large', 'x'.repeat(1_000_000)))]);

  expect(results.map((result) => result.status === 'rejected' && result.reason instanceof StorageError)).toEqual([true, true]);
  expect(keys(store)).toEqual(['kept']);
  expect(store.writable()).toBe(false);
  pragma(store, `max_page_count = ${pages + 10_000}`);
  await store.write(put(store, 'large', 'x'.repeat(1_000_000)));
  expect(store.writable()).toBe(true);
});

test('a change that catches its own full disk cannot go on as if it had been written', async () => {
  const store = memoryStore();
  pragma(store, `max_page_count = ${Number(pragma(store, 'page_count'))}`);

  const write = store.write((tx) => {
    try {
      put(store, 'large', 'x'.repeat(1_000_000))(tx);
    } catch {
      // a careless feature
    }
  });

  await Promise.allSettled([write]);
  expect(keys(store)).toEqual([]);
});

test('every open sets WAL and synchronous FULL (G1)', () => {
  const { open } = fileStore();
  for (let start = 0; start < 2; start += 1) {
    const store = open();

    expect(pragma(store, 'journal_mode')).toBe('wal');
    expect(pragma(store, 'synchronous')).toBe(2);
    store.close();
  }
});

test('what is written is there after a restart, and opening again repeats no migration', async () => {
  const { open } = fileStore();
  const first = open();
  await first.write(put(first, 'kept'));
  first.close();

  const second = open();

  expect(keys(second)).toEqual(['kept']);
  second.close();
});

test('close writes what is queued; a write after it is refused', async () => {
  const { open } = fileStore();
  const store = open();
  const queued = store.write(put(store, 'queued'));
  store.close();

  await expect(queued).resolves.toBe('queued');
  await expect(store.write(put(store, 'late'))).rejects.toBeInstanceOf(StorageError);
  const again = open();
  expect(keys(again)).toEqual(['queued']);
  again.close();
});

test('a database of a newer release is refused with a remedy and left as it is', () => {
  const { path, open } = fileStore();
  open().close();
  const newer = new Sqlite(path);
  const count = 'SELECT count(*) AS n FROM migrations';
  newer.prepare("INSERT INTO migrations VALUES ('999-from-the-future', 0)").run();
  const before = newer.prepare(count).get();
  newer.close();

  expect(open).toThrow(/newer matrix-oracle.*999-from-the-future.*backup/u);

  const after = new Sqlite(path);
  expect(after.prepare(count).get()).toEqual(before);
  after.close();
});

const say = (store: Store, n: number) =>
  store.write((tx) =>
    tx.run(
      store.sql.insertInto('transcript').values({
        ...{ room_id: ROOM, session_id: null, run_id: null, event_id: `$${n}`, role: 'human', speaker: 'x' },
        ...{ text: `giraffe${n} ${'lorem ipsum '.repeat(200)}`, message: null, attachments: null, at: n, tier: null },
      }),
    ),
  );

test('what was deleted is nowhere in the folder any more once the log is dropped: neither its row nor its words in the index (DESIGN §7)', async () => {
  const folder = tempFolder();
  const store = fileStore(folder).open();
  for (let n = 0; n < 200; n += 1) void say(store, n);
  await say(store, 200);
  const found = (word: string) => readdirSync(folder).filter((file) => readFileSync(join(folder, file)).includes(word));
  expect(found('iraffe100')).not.toEqual([]);

  await store.write((tx) => tx.run(store.sql.deleteFrom('transcript').where('event_id', '!=', '$7')));
  expect(store.dropLog()).toBe(true);

  expect(found('iraffe100')).toEqual([]);
  expect(found('iraffe7 ')).toEqual(['oracle.db']);
  store.close();
});

test('free pages go back in small steps until there are none (G16)', async () => {
  const folder = tempFolder();
  const store = fileStore(folder).open();
  for (let n = 0; n < 200; n += 1) void say(store, n);
  await say(store, 200);
  await store.write((tx) => tx.run(store.sql.deleteFrom('transcript')));
  store.dropLog();
  const before = statSync(join(folder, 'oracle.db')).size;

  let steps = 0;
  while (store.reclaim(20)) steps += 1;
  store.dropLog();

  expect(steps).toBeGreaterThan(2);
  expect(statSync(join(folder, 'oracle.db')).size).toBeLessThan(before / 2);
  expect(pragma(store, 'integrity_check')).toBe('ok');
  store.close();
});

test('a file of an older release gives pages back from its next start on', () => {
  const { path, open } = fileStore();
  const old = new Sqlite(path);
  old.pragma('journal_mode = WAL');
  old.exec('CREATE TABLE migrations (id TEXT PRIMARY KEY, applied_at INTEGER NOT NULL) STRICT');
  expect(old.pragma('auto_vacuum', { simple: true })).toBe(0);
  old.close();

  const store = open();

  expect(store.reclaims).toBe(true);
  expect(pragma(store, 'journal_mode')).toBe('wal');
  store.close();
});

test('the log is not waited for while somebody reads, and dropped the next time', async () => {
  const { path, open } = fileStore();
  const store = open();
  await store.write(put(store, 'a'));
  const backup = new Sqlite(path, { readonly: true });
  backup.exec('BEGIN');
  backup.prepare('SELECT count(*) FROM meta').get();
  await store.write(put(store, 'b'));
  const before = performance.now();

  expect(store.dropLog()).toBe(false);
  expect(performance.now() - before).toBeLessThan(1_000);
  expect(pragma(store, 'busy_timeout')).toBe(5_000);
  backup.exec('COMMIT');
  expect(store.dropLog()).toBe(true);
  backup.close();
  store.close();
});
