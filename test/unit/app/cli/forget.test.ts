import { mkdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import Sqlite from 'better-sqlite3';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { dataPaths } from '../../../../src/app/data-paths.ts';
import { createForgetOrder, FORGET_ORDER } from '../../../../src/app/forget-order.ts';
import { obeyControl } from '../../../../src/app/obey-control.ts';
import { openData } from '../../../../src/app/open-data.ts';
import { systemClock } from '../../../../src/system-clock.ts';
import { type CliFolder, createCliFolder } from '../../../cli-folder.ts';
import { fakeLogger } from '../../../fakes/fake-logger.ts';

let cli: CliFolder;
beforeEach(() => {
  cli = createCliFolder();
});
afterEach(() => cli.remove());

const SECRET = 'hippopotamus';
const paths = () => dataPaths(join(cli.dir, 'data'));

function createDatabase(): void {
  mkdirSync(join(cli.dir, 'data'));
  openData(paths(), 0).close();
  const database = new Sqlite(paths().database);
  const insert = database.prepare(
    `INSERT INTO transcript (room_id, role, speaker, text, at) VALUES ('!room', 'human', 'matrix:u/alice:example.org', ?, 1)`,
  );
  for (let n = 0; n < 3; n += 1) insert.run(`${SECRET} ${n}`);
  database.close();
}
const isGone = (): boolean => ['', '-wal'].every((suffix) => !readOrEmpty(`${paths().database}${suffix}`).includes(SECRET));
function readOrEmpty(path: string): Buffer {
  try {
    return readFileSync(path);
  } catch {
    return Buffer.alloc(0);
  }
}

test('forget --yes cleans the folder of a stopped oracle, and says what it deleted and what it kept', async () => {
  createDatabase();

  const result = await cli.run(['forget', '--user', '@alice:example.org', '--yes']);

  expect(result).toMatchObject({ status: 0, stderr: '' });
  expect(result.stdout).toContain('@alice:example.org, matrix:u/alice:example.org');
  expect(result.stdout).toContain('forgotten: 0 runs, 3 messages, 0 conversations, 0 grants. The audit log');
  expect(isGone()).toBe(true);
});

test('beside a running oracle it orders, and waits until that has done it', async () => {
  createDatabase();
  const data = openData(paths(), 1);
  const order = createForgetOrder({
    store: data.store,
    runs: { askStop: () => undefined },
    scheduler: { cancel: () => false, wake: () => undefined },
    clock: systemClock,
    eraseCheckpoints: () => undefined,
  });
  const control = obeyControl({
    store: data.store,
    inbox: {} as never,
    clock: systemClock,
    logger: fakeLogger(),
    nudge: () => undefined,
    orders: { [FORGET_ORDER]: order },
  });

  const result = await cli.run(['forget', '--user', '@alice:example.org', '--yes']);

  expect(result).toMatchObject({ status: 0, stderr: '' });
  expect(result.stdout).toContain('forgotten: 0 runs, 3 messages');
  expect(isGone()).toBe(true);
  control.stop();
  data.close();
});

test('it deletes nothing unless somebody says so, and names a bad id', async () => {
  createDatabase();

  const unasked = await cli.run(['forget', '--user', '@alice:example.org']);
  const bad = await cli.run(['forget', '--user', 'alice', '--yes']);

  expect(unasked).toMatchObject({ status: 1 });
  expect(unasked.stderr).toContain('give --yes');
  expect(bad.stderr).toContain('neither a Matrix account');
  expect(isGone()).toBe(false);
});
