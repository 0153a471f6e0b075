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

const FAILED = '01KB7Q3V5M8T2X4Z6A9C1E3G5A';
const WORKING = '01KB7Q3V5M8T2X4Z6A9C1E3G5B';
const SECRET_PROMPT = 'what the person asked';
const SECRET_ANSWER = 'what the oracle said';

function createDatabase(): Sqlite.Database {
  mkdirSync(join(cli.dir, 'data'));
  const path = join(cli.dir, 'data', 'oracle.db');
  openStore({ path, now: 0 }).close();
  const database = new Sqlite(path);
  database.exec(
    "INSERT INTO sessions (session_id, room_id, owner, kind, created_at, last_at) VALUES ('$s', '!r', '@a:x', 'rolling', 1, 1)",
  );
  const run = database.prepare(
    `INSERT INTO runs (run_id, session_id, room_id, owner, principal_id, matrix_user_id, tier, client, request_id, hints, direct, status, attempt, created_at, started_at, ended_at, error, usage)
     VALUES (?, '$s', '!r', 'o', ?, ?, 'listed', 'matrix', 'q', '{"v":1}', 1, ?, 2, 1000, 1100, ?, ?, ?)`,
  );
  const error = JSON.stringify({ v: 1, code: 'MODEL_ERROR', message: 'The language model failed.', retryable: true, status: 502 });
  run.run(FAILED, 'matrix:u/alice:example.org', '@alice:example.org', 'failed', 3_500, error, '{"v":1,"inputTokens":3,"outputTokens":4}');
  run.run(WORKING, 'matrix:u/bob\u001b[2J:example.org', '@bob\u001b[2J:example.org', 'running', null, null, null);
  const frame = database.prepare('INSERT INTO frames (run_id, seq, kind, data, at) VALUES (?, ?, ?, ?, ?)');
  frame.run(FAILED, 1, 'run', '{"state":"started","attempt":1}', 1_100);
  frame.run(FAILED, 3, 'text', JSON.stringify({ delta: SECRET_ANSWER, from: 2, ms: 30, lengths: 'KK' }), 1_200);
  frame.run(FAILED, 4, 'run', '{"state":"resumed","attempt":2}', 2_000);
  frame.run(FAILED, 5, 'end', '{"status":"failed"}', 3_500);
  database
    .prepare(
      'INSERT INTO pending_inputs (run_id, session_id, prompt_id, principal_id, tier, text, received_at) VALUES (?, ?, ?, ?, ?, ?, ?)',
    )
    .run(FAILED, '$s', '$prompt', 'p', 'listed', SECRET_PROMPT, 1_000);
  database
    .prepare(
      `INSERT INTO outbox (txn_id, lane, room_id, sender, device_id, kind, run_id, event_type, content, deadline_at, created_at, state, error)
       VALUES ('t', 'l', '!r', '@o:x', 'D', 'answer', ?, 'm.room.message', ?, 1, 1, 'parked', '403 M_FORBIDDEN')`,
    )
    .run(FAILED, JSON.stringify({ body: SECRET_ANSWER }));
  return database;
}
const orders = (database: Sqlite.Database) => database.prepare('SELECT kind, argument, done_at FROM control ORDER BY id').all();

test('runs list shows the newest first, how each went, no text and no control characters (G12)', async () => {
  createDatabase().close();

  const result = await cli.run(['runs', 'list']);

  expect(result).toMatchObject({ status: 0, stderr: '' });
  const [first, second] = result.stdout.split('\n');
  expect(first).toContain(`${WORKING}  running`);
  expect(second).toContain(`${FAILED}  failed`);
  expect(second).toContain('took 2.5 s, attempt 2, MODEL_ERROR');
  expect(result.stdout).not.toContain('\u001b');
  expect(result.stdout).not.toContain('what the');
});

test('runs list filters by status and person, and says how many there are', async () => {
  createDatabase().close();

  const unfinished = await cli.run(['runs', 'list', '--status', 'unfinished', '--json']);
  const ofAlice = await cli.run(['runs', 'list', '--user', '@alice:example.org', '--status', 'all', '--json']);
  const none = await cli.run(['runs', 'list', '--user', '@alice:example.org', '--status', 'running']);
  const limited = await cli.run(['runs', 'list', '--limit', '1']);

  expect(JSON.parse(unfinished.stdout)).toMatchObject({ total: 1, rows: [{ run_id: WORKING, error: null }] });
  expect(JSON.parse(ofAlice.stdout)).toMatchObject({
    total: 1,
    rows: [{ run_id: FAILED, created_at: '1970-01-01T00:00:01.000Z', error: { code: 'MODEL_ERROR' }, usage: { inputTokens: 3 } }],
  });
  expect(none.stdout).toBe('No such runs.\n');
  expect(limited.stdout).toContain('… the newest 1 of 2');
});

test('runs show tells how a run went, and what was said only with --text (G12)', async () => {
  createDatabase().close();

  const quiet = await cli.run(['runs', 'show', FAILED]);
  const full = await cli.run(['runs', 'show', FAILED, '--text']);
  const json = await cli.run(['runs', 'show', FAILED, '--json']);

  expect(quiet).toMatchObject({ status: 0, stderr: '' });
  expect(quiet.stdout).toMatch(/^status +failed, MODEL_ERROR/mu);
  expect(quiet.stdout).toMatch(/^frames +5 in 4 rows \(run 2, text 2, end 1\)$/mu);
  expect(quiet.stdout).toMatch(/^resumed +1970-01-01T00:00:02\.000Z$/mu);
  expect(quiet.stdout).toMatch(/^outbox +1 answer parked \(403 M_FORBIDDEN\)$/mu);
  expect(quiet.stdout).not.toContain('what the');
  expect(full.stdout).toContain(SECRET_PROMPT);
  expect(full.stdout).toContain(SECRET_ANSWER);
  expect(JSON.parse(json.stdout)).toMatchObject({ run_id: FAILED, frames: { count: 5 }, prompts: [{ id: '$prompt' }] });
  expect(json.stdout).not.toContain('what the');
});

test.each(['cancel', 'retry'])(
  'runs %s writes an order and leaves the run to the running process (G10)',
  { timeout: 20_000 },
  async (name) => {
    const database = createDatabase();

    const result = await cli.run(['runs', name, FAILED]);

    expect(result).toMatchObject({ status: 0, stderr: '' });
    expect(result.stdout).toContain('Ordered.');
    expect(orders(database)).toEqual([{ kind: `run.${name}`, argument: FAILED, done_at: null }]);
    expect(database.prepare('SELECT status FROM runs WHERE run_id = ?').get(FAILED)).toEqual({ status: 'failed' });
    database.close();
  },
);

test.each([
  ['answered again by run X', 0],
  ['cancelled', 0],
  ['not possible: its prompts were taken back', 1],
])('what the oracle made of an order is said: %s', { timeout: 20_000 }, async (outcome, status) => {
  const database = createDatabase();
  database.exec(`CREATE TRIGGER obey AFTER INSERT ON control BEGIN
    UPDATE control SET done_at = 1, outcome = '${outcome}' WHERE id = new.id; END`);

  const result = await cli.run(['runs', 'retry', FAILED]);

  expect(result.status).toBe(status);
  expect(status === 0 ? result.stdout : result.stderr).toContain(`${outcome}.`);
  database.close();
});

test.each([
  ['an id that is none', ['runs', 'show', 'x\u001b[2J'], 'is not a run id'],
  ['a run that is not there', ['runs', 'show', '01KB7Q3V5M8T2X4Z6A9C1E3G5Z'], 'there is no run'],
  ['an order for none', ['runs', 'cancel', '01KB7Q3V5M8T2X4Z6A9C1E3G5Z'], 'there is no run'],
  ['a status that is none', ['runs', 'list', '--status', 'late'], 'unfinished'],
  ['a person that is none', ['runs', 'list', '--user', 'alice'], 'neither a Matrix account'],
])('%s is refused and nothing is ordered', async (_, args, said) => {
  const database = createDatabase();

  const result = await cli.run(args);

  expect(result).toMatchObject({ status: 1, stdout: '' });
  expect(result.stderr).toContain(said);
  expect(result.stderr).not.toContain('\u001b');
  expect(orders(database)).toEqual([]);
  database.close();
});
