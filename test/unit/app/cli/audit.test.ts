import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import Sqlite from 'better-sqlite3';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { readSince } from '../../../../src/app/cli/audit.ts';
import { openStore } from '../../../../src/store/store.ts';
import { type CliFolder, createCliFolder } from '../../../cli-folder.ts';

let cli: CliFolder;
beforeEach(() => {
  cli = createCliFolder();
});
afterEach(() => cli.remove());

const RUN = '01JDZZZZZZZZZZZZZZZZZZZZZZ';
const DID = 'did:key:z6MkAlice';
/** 2026-01-01T00:00:00Z. */
const AT = 1_767_225_600_000;

function createDatabase(): void {
  mkdirSync(join(cli.dir, 'data'));
  const path = join(cli.dir, 'data', 'oracle.db');
  openStore({ path, now: 0 }).close();
  const database = new Sqlite(path);
  const insert = database.prepare(
    `INSERT INTO audit (at, event_id, run_id, token_id, principal_id, matrix_user_id, tier, capability, resource, decision, code, tainted, trust)
     VALUES (@at, @event, @run, @token, @principal, @account, @tier, @capability, @resource, @decision, @code, @tainted, @trust)`,
  );
  const nothing = {
    event: null,
    run: null,
    token: null,
    principal: null,
    account: null,
    tier: null,
    resource: null,
    code: null,
    tainted: null,
    trust: null,
  };
  const turn = { ...nothing, capability: 'oracle/message', decision: 'allowed', tier: 'signed' };
  insert.run({
    ...turn,
    at: AT,
    event: '$a',
    run: RUN,
    token: 'T1',
    principal: DID,
    account: '@alice:example.org',
    resource: DID,
    trust: 'clear',
  });
  insert.run({
    ...{ ...turn, at: AT + 1_000, run: RUN, principal: DID, account: '@alice:example.org', capability: 'room/topic', resource: '!room' },
    ...{ decision: 'refused', code: 'NEEDS_CONFIRMATION', tainted: 1 },
  });
  insert.run({
    ...turn,
    at: AT + 2_000,
    tier: 'listed',
    trust: 'unverified',
    principal: 'matrix:u/bob:example.org',
    account: '@bob:example.org',
  });
  insert.run({
    ...nothing,
    at: AT + 3_000,
    account: '@eve\u001b[2J\u202e:example.org',
    capability: 'oracle/message',
    decision: 'refused',
    code: 'REPLAY',
  });
  database.close();
}
const lines = (stdout: string) => stdout.trimEnd().split('\n');

test('audit shows who was let in or refused, oldest first, and no control characters of strangers (G12)', async () => {
  createDatabase();

  const result = await cli.run(['audit']);

  expect(result).toMatchObject({ status: 0, stderr: '' });
  expect(lines(result.stdout)).toEqual([
    `2026-01-01T00:00:00.000Z  allowed  oracle/message  by ${DID} @alice:example.org (signed)  run ${RUN}  event $a  token T1`,
    `2026-01-01T00:00:01.000Z  refused NEEDS_CONFIRMATION  room/topic on !room  by ${DID} @alice:example.org (signed, tainted)  run ${RUN}`,
    '2026-01-01T00:00:02.000Z  allowed  oracle/message  by matrix:u/bob:example.org @bob:example.org (listed, encrypted, device unverified)',
    '2026-01-01T00:00:03.000Z  refused REPLAY  oracle/message  by @eve?[2J?:example.org (no tier)',
  ]);
});

test.each([
  ['an account', ['--user', '@alice:example.org'], 2],
  ['an account that signs nothing', ['--user', '@bob:example.org'], 1],
  ['a DID', ['--user', DID], 2],
  ['a run', ['--run', RUN], 2],
  ['a time', ['--since', '2026-01-01T00:00:02Z'], 2],
  ['all of them', ['--user', DID, '--run', RUN, '--since', '2026-01-01T00:00:01'], 1],
  ['the last hour', ['--since', '1h'], 0],
])('audit --json of %s', async (_, args, count) => {
  createDatabase();

  const result = await cli.run(['audit', '--json', ...args]);

  const { total, rows } = JSON.parse(result.stdout) as { total: number; rows: unknown[] };
  expect([total, rows.length]).toEqual([count, count]);
});

test('audit --limit shows the newest and says how many there are', async () => {
  createDatabase();

  const text = await cli.run(['audit', '--limit', '1']);
  const json = await cli.run(['audit', '--limit', '1', '--run', RUN, '--json']);

  expect(lines(text.stdout)).toEqual(['… the newest 1 of 4 (--limit)', expect.stringContaining('REPLAY')]);
  expect(JSON.parse(json.stdout)).toMatchObject({
    total: 2,
    rows: [{ at: '2026-01-01T00:00:01.000Z', decision: 'refused', code: 'NEEDS_CONFIRMATION', tainted: true, run_id: RUN }],
  });
});

test.each([
  ['a user that is none', ['--user', 'alice'], 'neither a Matrix account'],
  ['a run that is none', ['--run', "x' OR 1=1"], 'not a run id'],
  ['a time that is none', ['--since', 'yesterday'], '--since'],
])('%s is one sentence', async (_, args, said) => {
  createDatabase();

  const result = await cli.run(['audit', ...args]);

  expect(result).toMatchObject({ status: 1, stdout: '' });
  expect(result.stderr).toContain(said);
});

test('a database of an older release, and none at all, are one sentence with a remedy', async () => {
  expect((await cli.run(['audit'])).stderr).toContain('there is no database');
  mkdirSync(join(cli.dir, 'data'));
  const database = new Sqlite(join(cli.dir, 'data', 'oracle.db'));
  database.exec('CREATE TABLE inbox (id INTEGER); CREATE TABLE audit (id INTEGER, at INTEGER)');
  database.close();

  const result = await cli.run(['audit']);
  expect(result).toMatchObject({ status: 1, stdout: '' });
  expect(result.stderr).toContain('older release');
});

describe('--since', () => {
  test.each([
    ['30m', AT - 30 * 60_000],
    ['2h', AT - 2 * 3_600_000],
    ['3d', AT - 3 * 24 * 3_600_000],
    ['2026-01-01', AT],
    ['2026-01-01T00:00', AT],
    ['2026-01-01T00:00:00.5Z', AT + 500],
    ['2026-01-01T01:00+01:00', AT],
  ])('reads %s', (text, at) => expect(readSince(text, AT)).toBe(at));

  test.each(['', '0h', '2w', '-1h', '2026-13-01', '2026', '01/02/2026', '2026-01-01 00:00', '9999999d'])('refuses "%s"', (text) => {
    expect(() => readSince(text, AT)).toThrow('--since');
  });
});
