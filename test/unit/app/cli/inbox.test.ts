import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import Sqlite from 'better-sqlite3';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { openStore } from '../../../../src/store/store.ts';
import { type CliFolder, createCliFolder } from '../../../cli-folder.ts';

let cli: CliFolder;
beforeEach(() => {
  cli = createCliFolder();
});
afterEach(() => cli.remove());

const SECRET_TEXT = 'what the person wrote';

function createDatabase(): Sqlite.Database {
  mkdirSync(join(cli.dir, 'data'));
  const path = join(cli.dir, 'data', 'oracle.db');
  openStore({ path, now: 0 }).close();
  const database = new Sqlite(path);
  const insert = database.prepare(
    `INSERT INTO inbox (ord, event_id, room_id, sender, type, source, event, received_at, state, attempts, error)
     VALUES (1, ?, '!room', ?, 'm.room.message', 'push', ?, 1, ?, 5, ?)`,
  );
  const event = JSON.stringify({ content: { body: SECRET_TEXT } });
  insert.run('$dead-1', '@alice:example.org', event, 'dead', 'INTERNAL');
  insert.run('$dead-2', '@bob\u001b[2J:example.org', event, 'dead', null);
  insert.run('$ready', '@alice:example.org', event, 'ready', null);
  return database;
}
const controlRows = (database: Sqlite.Database) => database.prepare('SELECT kind, argument, done_at FROM control ORDER BY id').all();

test('inbox list shows ids and reasons of dead events, never their content, and no control characters (G12)', async () => {
  createDatabase().close();

  const result = await cli.run(['inbox', 'list']);

  expect(result).toMatchObject({ status: 0, stderr: '' });
  expect(result.stdout).toContain('$dead-1');
  expect(result.stdout).toContain('5 attempts: INTERNAL');
  expect(result.stdout).not.toContain('$ready');
  expect(result.stdout).not.toContain(SECRET_TEXT);
  expect(result.stdout).not.toContain('\u001b');
});

test('inbox list --state parked shows who waits for a key, and says when nobody does', async () => {
  const database = createDatabase();
  expect((await cli.run(['inbox', 'list', '--state', 'parked'])).stdout).toBe('No parked events.\n');
  database.exec("UPDATE inbox SET state = 'parked', parked_at = 1 WHERE event_id = '$ready'");
  database.close();

  const result = await cli.run(['inbox', 'list', '--state', 'parked']);

  expect(result.stdout).toMatch(/^parked \$ready .* @alice:example\.org .*\n$/u);
});

test('whoever closes the pipe early has seen enough: no fault, no stack', async () => {
  const database = createDatabase();
  const insert = database.prepare(
    "INSERT INTO inbox (ord, event_id, room_id, sender, type, source, event, received_at, state) VALUES (1, ?, '!room', '@a:b', 'm', 'push', '{}', 1, 'dead')",
  );
  for (let index = 0; index < 3_000; index += 1) insert.run(`$long-${index}`);
  database.close();
  const listing = cli.start(['inbox', 'list', '--limit', '3000']);
  listing.child.stdout?.destroy();

  expect(await listing.ended).toMatchObject({ status: 0, stderr: '' });
});

test('inbox list --json --state all --limit 1 says how many there are', async () => {
  createDatabase().close();

  const result = await cli.run(['inbox', 'list', '--json', '--state', 'all', '--limit', '1']);

  expect(JSON.parse(result.stdout)).toMatchObject({ total: 3, rows: [{ event_id: '$dead-1', state: 'dead' }] });
});

test('inbox requeue writes one order per event and leaves the rows to the running process (G3)', async () => {
  const database = createDatabase();

  const result = await cli.run(['inbox', 'requeue', '$dead-2']);

  expect(result).toMatchObject({ status: 0, stderr: '' });
  expect(controlRows(database)).toEqual([{ kind: 'inbox.requeue', argument: '$dead-2', done_at: null }]);
  expect(database.prepare("SELECT count(*) AS dead FROM inbox WHERE state = 'dead'").get()).toEqual({ dead: 2 });
  database.close();
});

test('inbox requeue --all orders every dead event', async () => {
  const database = createDatabase();

  await cli.run(['inbox', 'requeue', '--all']);

  expect(controlRows(database).map((row) => (row as { argument: string }).argument)).toEqual(['$dead-1', '$dead-2']);
  database.close();
});

test.each([
  ['neither an event nor --all', ['inbox', 'requeue'], 'name the events'],
  ['both', ['inbox', 'requeue', '--all', '$dead-1'], 'name the events'],
  ['an id that is none', ['inbox', 'requeue', 'dead-1'], 'quote it'],
  ['an event that is not dead', ['inbox', 'requeue', '$dead-1', '$ready'], '$ready'],
  ['a state that is none', ['inbox', 'list', '--state', 'late'], 'dead, ready, parked, all'],
])('%s is refused and nothing is ordered', async (_, args, said) => {
  const database = createDatabase();

  const result = await cli.run(args);

  expect(result).toMatchObject({ status: 1, stdout: '' });
  expect(result.stderr).toContain(said);
  expect(controlRows(database)).toEqual([]);
  database.close();
});

test('without a database it is one sentence, and none is made', async () => {
  const result = await cli.run(['inbox', 'list'], { DATA_DIR: './elsewhere' });

  expect(result).toMatchObject({ status: 1, stdout: '' });
  expect(result.stderr).toContain('there is no database');
});
