import { chmodSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import Sqlite from 'better-sqlite3';
import { afterEach, beforeEach, expect, test } from 'vitest';
import type { Check } from '../../../../../src/app/cli/doctor/check.ts';
import { checkData } from '../../../../../src/app/cli/doctor/data-checks.ts';
import { openStore } from '../../../../../src/store/store.ts';

let dir: string;
beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), 'matrix-oracle-doctor-'));
});
afterEach(() => rmSync(dir, { recursive: true }));

const run = (dataDir = dir): Promise<Check[]> => Array.fromAsync(checkData({ dataDir, oracleKeyFile: undefined }));
const shortOf = (checks: readonly Check[]): string[] => checks.map((check) => `${check.name} ${check.status}`);

test('before the first start there is nothing to complain about', async () => {
  expect(shortOf(await run(join(dir, 'later')))).toEqual(['key file skipped', 'database skipped']);
  expect(shortOf(await run())).toEqual(['key file skipped', 'database ok']);
});

test('a key or a folder that others can read is a fault (G12)', async () => {
  writeFileSync(join(dir, 'oracle.key'), 'x', { mode: 0o644 });
  chmodSync(dir, 0o755);

  const checks = await run();

  expect(shortOf(checks)).toEqual(['key file failed', 'data folder failed', 'database ok']);
  expect(JSON.stringify(checks)).toContain('chmod 600');
});

test('parked and dead rows are counted, with their reasons', async () => {
  openStore({ path: join(dir, 'oracle.db'), now: 0 }).close();
  const clean = await run();
  const database = new Sqlite(join(dir, 'oracle.db'));
  database.exec(`INSERT INTO outbox (txn_id, lane, room_id, sender, device_id, kind, event_type, content, deadline_at, created_at, state, error)
    VALUES ('t', 'l', '!r', '@o:x', 'D', 'answer', 'm.room.message', '{}', 1, 1, 'parked', '413 M_TOO_LARGE')`);
  database.exec(`INSERT INTO inbox (ord, event_id, room_id, sender, type, source, event, received_at, state)
    VALUES (1, '$e', '!r', '@a:x', 'm.room.message', 'push', '{}', 1, 'dead')`);
  database.close();

  const stuck = await run();

  expect(shortOf(clean)).toEqual(['key file skipped', 'database ok', 'outbox ok', 'inbox ok', 'runs ok', 'size ok']);
  expect(shortOf(stuck)).toEqual(['key file skipped', 'database ok', 'outbox failed', 'inbox failed', 'runs ok', 'size ok']);
  expect(JSON.stringify(stuck)).toContain('413 M_TOO_LARGE');
});

test('events that wait for their keys are said, with how long', async () => {
  const path = join(dir, 'oracle.db');
  openStore({ path, now: 0 }).close();
  const database = new Sqlite(path);
  database.exec(`INSERT INTO inbox (ord, event_id, room_id, sender, type, source, event, received_at, state)
    VALUES (1, '$e', '!r', '@a:x', 'm.room.encrypted', 'push', '{}', 1, 'parked')`);
  database.close();

  const checks = await Array.fromAsync(checkData({ dataDir: dir, oracleKeyFile: undefined }, { now: 1 + 7 * 60_000 }));

  expect(checks.find(({ name }) => name === 'room keys')).toMatchObject({
    status: 'warning',
    detail: '1 encrypted event waits for its key, the oldest for 7 min',
  });
});

test('a file that is no database is a fault with its code', async () => {
  writeFileSync(join(dir, 'oracle.db'), 'this is not a database, whatever its name says'.repeat(100));

  const checks = await run();

  expect(shortOf(checks)).toEqual(['key file skipped', 'database failed']);
  expect(JSON.stringify(checks)).toContain('SQLITE_NOTADB');
});

test('a database that another process keeps locked is a fault, not a hang', { timeout: 20_000 }, async () => {
  const path = join(dir, 'oracle.db');
  openStore({ path, now: 0 }).close();
  const other = new Sqlite(path);
  other.exec('BEGIN IMMEDIATE');

  const checks = await Array.fromAsync(checkData({ dataDir: dir, oracleKeyFile: undefined }, { busyTimeoutMs: 20 }));
  other.close();

  expect(shortOf(checks)).toEqual(['key file skipped', 'database failed']);
  expect(JSON.stringify(checks)).toContain('SQLITE_BUSY');
});

test('a folder in the place of the database is a fault', async () => {
  mkdirSync(join(dir, 'oracle.db'));

  expect(shortOf(await run())).toEqual(['key file skipped', 'database failed']);
});

const NOW = 1_800_000_000_000;

function createRun(status: string, { createdAt, deadlineAt }: { createdAt: number; deadlineAt: number | null }): void {
  const path = join(dir, 'oracle.db');
  openStore({ path, now: 0 }).close();
  const database = new Sqlite(path);
  database.exec(
    "INSERT INTO sessions (session_id, room_id, owner, kind, created_at, last_at) VALUES ('$s', '!r', '@a:x', 'rolling', 1, 1)",
  );
  database
    .prepare(
      `INSERT INTO runs (run_id, session_id, room_id, owner, principal_id, matrix_user_id, tier, client, request_id, hints, direct, status, created_at, deadline_at)
       VALUES ('01RUN', '$s', '!r', 'o', 'p', '@a:x', 'listed', 'matrix', 'q', '{"v":1}', 1, ?, ?, ?)`,
    )
    .run(status, createdAt, deadlineAt);
  database.close();
}

test.each([
  ['works and has time left', 'running', { createdAt: NOW - 200_000, deadlineAt: NOW + 100_000 }, 'ok'],
  ['is ended any moment', 'running', { createdAt: NOW - 300_000, deadlineAt: NOW - 10_000 }, 'ok'],
  ['should have ended long ago', 'running', { createdAt: NOW - 900_000, deadlineAt: NOW - 600_000 }, 'failed'],
  ['waits its turn', 'queued', { createdAt: NOW - 60_000, deadlineAt: null }, 'ok'],
  ['was never started', 'queued', { createdAt: NOW - 3_600_000, deadlineAt: null }, 'failed'],
  ['ended long ago', 'completed', { createdAt: NOW - 3_600_000, deadlineAt: NOW - 3_000_000 }, 'ok'],
])('a run that %s (%s)', async (_, status, times, expected) => {
  createRun(status, times);

  const checks = await Array.fromAsync(checkData({ dataDir: dir, oracleKeyFile: undefined }, { now: NOW }));

  const check = checks.find(({ name }) => name === 'runs');
  expect(check?.status).toBe(expected);
  if (expected === 'failed') expect(JSON.stringify(check)).toContain('matrix-oracle runs show 01RUN');
});

test('events that wait long are a warning that says since when and why', async () => {
  openStore({ path: join(dir, 'oracle.db'), now: 0 }).close();
  const database = new Sqlite(join(dir, 'oracle.db'));
  database.exec(`INSERT INTO outbox (txn_id, lane, room_id, sender, device_id, kind, event_type, content, deadline_at, created_at, state, error)
    VALUES ('t', 'l', '!r', '@o:x', 'D', 'answer', 'm.room.message', '{}', 1, ${NOW - 1_200_000}, 'ready', 'ECONNREFUSED')`);
  database.close();

  const checks = await Array.fromAsync(checkData({ dataDir: dir, oracleKeyFile: undefined }, { now: NOW }));

  const check = checks.find(({ name }) => name === 'outbox');
  expect(check?.status).toBe('warning');
  expect(check?.detail).toContain('20 min because of ECONNREFUSED');
});
