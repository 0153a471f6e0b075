import { mkdtempSync, readdirSync, rmSync, statSync, utimesSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { emptyCheckpoint } from '@langchain/langgraph-checkpoint';
import { afterEach, beforeEach, expect, test } from 'vitest';
import type { OwnerId } from '../../../../src/ids.ts';
import { sha256Base64Url } from '../../../../src/json.ts';
import { createLogger } from '../../../../src/observe/logger.ts';
import { type CheckpointFiles, createCheckpointFiles } from '../../../../src/store/checkpoints/checkpoint-files.ts';
import type { PruningSaver } from '../../../../src/store/checkpoints/pruning-saver.ts';

let folder = '';
let files: CheckpointFiles;
const logger = createLogger({ level: 'silent', format: 'json' });
const owner = (name: string): OwnerId => name as OwnerId;
const config = { configurable: { thread_id: 't', checkpoint_ns: '' } };

beforeEach(() => {
  folder = join(mkdtempSync(join(tmpdir(), 'oracle-files-')), 'checkpoints');
  files = createCheckpointFiles({ folder, logger, maxOpen: 2 });
});
afterEach(() => {
  files.close();
  rmSync(folder, { recursive: true, force: true });
});

const put = (saver: PruningSaver) => saver.put(config, emptyCheckpoint(), { source: 'input', step: -1, parents: {} });

test('the folder is private, and file names do not name people', async () => {
  await files.use(owner('did:key:zAlice'), put);

  expect(statSync(folder).mode & 0o777).toBe(0o700);
  expect(readdirSync(folder).join()).not.toContain('Alice');
});

test('owners do not see each other (G13)', async () => {
  await files.use(owner('a'), put);

  expect(await files.use(owner('a'), (saver) => saver.getTuple(config))).toBeDefined();
  expect(await files.use(owner('b'), (saver) => saver.getTuple(config))).toBeUndefined();
});

test('every open sets synchronous=FULL and WAL', async () => {
  for (let round = 0; round < 2; round += 1) {
    const modes = await files.use(owner('a'), async (saver) => {
      await put(saver);
      return [saver.db.pragma('synchronous', { simple: true }), saver.db.pragma('journal_mode', { simple: true })];
    });
    expect(modes).toEqual([2, 'wal']);
    files.close();
    files = createCheckpointFiles({ folder, logger, maxOpen: 2 });
  }
});

test('few files stay open, and one in use is never closed', async () => {
  const gate = Promise.withResolvers<void>();
  const busy = files.use(owner('busy'), async (saver) => {
    await gate.promise;
    return saver.db.open;
  });
  for (const name of ['a', 'b', 'c', 'd']) await files.use(owner(name), put);
  expect(files.open).toBe(2);

  gate.resolve();

  expect(await busy).toBe(true);
});

test('a file in use when everything closes is closed by its last user', async () => {
  const gate = Promise.withResolvers<void>();
  let database: { open: boolean } | undefined;
  const busy = files.use(owner('busy'), async (saver) => {
    database = saver.db;
    await gate.promise;
  });
  files.close();
  expect(database?.open).toBe(true);

  gate.resolve();
  await busy;

  expect(database?.open).toBe(false);
  await expect(files.use(owner('a'), put)).rejects.toThrow('closed');
});

test('a file that is no database is set aside, and the owner goes on', async () => {
  const path = join(folder, `${sha256Base64Url('a')}.db`);
  writeFileSync(path, 'this is no database, but it is long enough to be looked at '.repeat(20));

  await files.use(owner('a'), put);

  expect(readdirSync(folder)).toContain(`${sha256Base64Url('a')}.db.damaged`);
});

test('a second damaged file does not replace the first', async () => {
  const name = sha256Base64Url('a');
  for (let round = 0; round < 2; round += 1) {
    writeFileSync(join(folder, `${name}.db`), `round ${round}: no database, but long enough to be looked at `.repeat(20));
    await files.use(owner('a'), put);
    files.close();
    files = createCheckpointFiles({ folder, logger, maxOpen: 2 });
  }

  expect(
    readdirSync(folder)
      .filter((file) => file.includes('damaged'))
      .sort(),
  ).toEqual([`${name}.db.damaged`, `${name}.db.damaged.2`]);
});

test('what outlives its turn is kept for three months, whether its file is open or not', async () => {
  const day = 24 * 60 * 60_000;
  const path = (name: string): string => join(folder, `${sha256Base64Url(name)}.db`);
  for (const name of ['lasting', 'passing']) {
    await files.use(owner(name), async (saver) => {
      await put(saver);
      if (name === 'lasting') saver.markLasting();
    });
  }
  for (const name of ['lasting', 'passing']) utimesSync(path(name), 1, 1);

  const open = files.removeIdle({ before: 30 * day, keep: [] });
  files.close();
  files = createCheckpointFiles({ folder, logger, maxOpen: 2 });
  utimesSync(path('lasting'), 1, 1);
  const closed = files.removeIdle({ before: 60 * day, keep: [] });
  const late = files.removeIdle({ before: 100 * day, keep: [] });

  expect([open, closed, late]).toEqual([1, 0, 1]);
});

test('files nobody used for long are removed, but not those in use or of unfinished runs (G14, G5)', async () => {
  for (const name of ['idle', 'fresh', 'unfinished', 'busy']) await files.use(owner(name), put);
  for (const name of ['idle', 'unfinished', 'busy']) utimesSync(join(folder, `${sha256Base64Url(name)}.db`), 1, 1);

  await files.use(owner('busy'), async () => {
    expect(files.removeIdle({ before: 10_000, keep: [owner('unfinished')] })).toBe(1);
  });

  const left = readdirSync(folder).filter((file) => file.endsWith('.db'));
  expect(left.sort()).toEqual(['fresh', 'unfinished', 'busy'].map((name) => `${sha256Base64Url(name)}.db`).sort());
  expect(await files.use(owner('idle'), (saver) => saver.getTuple(config))).toBeUndefined();
});
