import { emptyCheckpoint } from '@langchain/langgraph-checkpoint';
import Sqlite from 'better-sqlite3';
import { expect, test } from 'vitest';
import { PruningSaver } from '../../../../src/store/checkpoints/pruning-saver.ts';

async function putChain(saver: PruningSaver, count: number): Promise<string[]> {
  let config: { configurable?: Record<string, unknown> } = { configurable: { thread_id: 't', checkpoint_ns: '' } };
  const ids: string[] = [];
  for (let at = 0; at < count; at += 1) {
    const checkpoint = { ...emptyCheckpoint(), id: `1f0-${String(at).padStart(6, '0')}` };
    config = await saver.put(config, checkpoint, { source: 'loop', step: at, parents: {} });
    await saver.putWrites(config, [['messages', `w${at}`]], 'task');
    ids.push(checkpoint.id);
  }
  return ids;
}

test('only the newest checkpoint and its parent stay, with their writes (G16)', async () => {
  const database = new Sqlite(':memory:');
  const saver = new PruningSaver(database);

  const ids = await putChain(saver, 10);

  const stored = (table: string) => database.prepare(`SELECT checkpoint_id FROM ${table} ORDER BY checkpoint_id`).pluck().all();
  expect(stored('checkpoints')).toEqual(ids.slice(-2));
  expect(stored('writes')).toEqual(ids.slice(-2));
});

test('rows of an owner are numbered without going back, also after pruning and a new start', async () => {
  const database = new Sqlite(':memory:');
  await putChain(new PruningSaver(database), 3);
  await putChain(new PruningSaver(database), 5);

  expect(database.prepare('SELECT max(owner_seq) FROM checkpoints').pluck().get()).toBe(8);
});

test('other threads and namespaces are left alone', async () => {
  const database = new Sqlite(':memory:');
  const saver = new PruningSaver(database);
  await saver.put({ configurable: { thread_id: 'other' } }, { ...emptyCheckpoint(), id: '0' }, { source: 'input', step: -1, parents: {} });

  await putChain(saver, 5);

  expect(await saver.getTuple({ configurable: { thread_id: 'other' } })).toBeDefined();
});

test('a row that no longer parses counts as absent and is reported', async () => {
  const database = new Sqlite(':memory:');
  const seen: unknown[] = [];
  const saver = new PruningSaver(database, (error) => seen.push(error));
  await putChain(saver, 1);
  database.exec(`UPDATE checkpoints SET checkpoint = '{"broken'`);

  expect(await saver.getTuple({ configurable: { thread_id: 't' } })).toBeUndefined();
  expect(seen).toHaveLength(1);
});

test('what cannot be read is kept aside, out of the way of what comes after it', async () => {
  const database = new Sqlite(':memory:');
  const saver = new PruningSaver(database);
  await putChain(saver, 1);
  database.exec(`UPDATE checkpoints SET checkpoint = '{"broken'`);
  await saver.getTuple({ configurable: { thread_id: 't' } });

  await putChain(saver, 5);

  expect(await saver.getTuple({ configurable: { thread_id: 't' } })).toBeDefined();
  const aside = database.prepare('SELECT source, data FROM unreadable_checkpoints ORDER BY id').all() as {
    source: string;
    data: unknown;
  }[];
  expect(aside.map(({ source, data }) => [source, String(data)])).toEqual([
    ['checkpoints', '{"broken'],
    ['writes:messages', '"w0"'],
  ]);
});

test('an error of the database is no reason to set anything aside: it may be read the next time', async () => {
  const database = new Sqlite(':memory:');
  const saver = new PruningSaver(database);
  await putChain(saver, 1);
  database.exec('ALTER TABLE writes RENAME TO gone');

  await expect(saver.getTuple({ configurable: { thread_id: 't' } })).rejects.toThrow('no such table');
  database.exec('ALTER TABLE gone RENAME TO writes');

  expect(await saver.getTuple({ configurable: { thread_id: 't' } })).toBeDefined();
});

test('writes share the commit of the checkpoint they lead to, and the input that of the first step', async () => {
  const database = new Sqlite(':memory:');
  let commits = 0;
  const transaction = database.transaction.bind(database);
  Object.assign(database, {
    transaction: (work: never) => {
      const run = transaction(work) as unknown as (...args: unknown[]) => unknown;
      return (...args: unknown[]) => {
        commits += 1;
        return run(...args);
      };
    },
  });
  const saver = new PruningSaver(database);
  const root = { configurable: { thread_id: 't', checkpoint_ns: '' } };

  const input = await saver.put(root, { ...emptyCheckpoint(), id: '1' }, { source: 'input', step: -1, parents: {} });
  const writes = saver.putWrites(input, [['messages', 'w']], 'task');
  await saver.put(input, { ...emptyCheckpoint(), id: '2' }, { source: 'loop', step: 0, parents: {} });
  await writes;

  expect(commits).toBe(1);
  expect(database.prepare('SELECT count(*) FROM writes').pluck().get()).toBe(1);
});

test('writes without a checkpoint are on disk when their promise says so', async () => {
  const database = new Sqlite(':memory:');
  const saver = new PruningSaver(database);
  const [id] = await putChain(saver, 1);

  await saver.putWrites({ configurable: { thread_id: 't', checkpoint_ns: '', checkpoint_id: id } }, [['messages', 'late']], 'other');

  expect(database.prepare(`SELECT count(*) FROM writes WHERE task_id = 'other'`).pluck().get()).toBe(1);
});

test('a commit that fails fails all that it carries', async () => {
  const database = new Sqlite(':memory:');
  const saver = new PruningSaver(database);
  const ids = await putChain(saver, 1);
  database.pragma('query_only = ON');
  const config = { configurable: { thread_id: 't', checkpoint_ns: '', checkpoint_id: ids[0] } };

  const writes = saver.putWrites(config, [['messages', 'w']], 'task');
  const put = saver.put(config, { ...emptyCheckpoint(), id: '9' }, { source: 'loop', step: 1, parents: {} });

  expect((await Promise.allSettled([writes, put])).map(({ status }) => status)).toEqual(['rejected', 'rejected']);
});
