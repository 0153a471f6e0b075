/** What lies on disk: may we write it, may others read it, and what is stuck in it. */
import { access, constants, stat } from 'node:fs/promises';
import Sqlite, { type Database } from 'better-sqlite3';
import type { Config } from '../../../config.ts';
import { systemClock } from '../../../system-clock.ts';
import { dataPaths } from '../../data-paths.ts';
import { type Check, failed, passed, skipped, warned } from './check.ts';

const BUSY_TIMEOUT_MS = 5_000;

export async function* checkData(
  config: Pick<Config, 'dataDir' | 'oracleKeyFile'>,
  { busyTimeoutMs = BUSY_TIMEOUT_MS, now = systemClock.now() }: { readonly busyTimeoutMs?: number; readonly now?: number } = {},
): AsyncGenerator<Check> {
  const paths = dataPaths(config.dataDir);
  yield await checkKeyFile(config.oracleKeyFile ?? paths.key);
  const folder = await modeOf(paths.dir);
  if (folder === undefined) {
    yield skipped('database', `${paths.dir} is not there yet; the first start makes it`);
    return;
  }
  if ((folder & OTHERS) !== 0)
    yield failed('data folder', `${paths.dir} can be read by other users of this machine`, `Run \`chmod 700 ${paths.dir}\`.`);
  if ((await modeOf(paths.database)) === undefined) {
    const writable = await isWritable(paths.dir);
    const remedy = 'Give the user that runs the oracle the rights to it, or set DATA_DIR.';
    yield writable
      ? passed('database', 'not there yet; the first start makes it')
      : failed('database', `${paths.dir} cannot be written`, remedy);
    return;
  }
  yield* checkDatabase(paths.database, { busyTimeoutMs, now });
}

/** Group and others. */
const OTHERS = 0o077;

async function modeOf(path: string): Promise<number | undefined> {
  return stat(path).then(
    ({ mode }) => mode,
    () => undefined,
  );
}
const isWritable = (path: string): Promise<boolean> =>
  access(path, constants.W_OK).then(
    () => true,
    () => false,
  );

async function checkKeyFile(path: string): Promise<Check> {
  const mode = await modeOf(path);
  if (mode === undefined) return skipped('key file', 'there is none; ORACLE_DID is set instead');
  return (mode & OTHERS) === 0
    ? passed('key file', `${path}, for its owner only`)
    : failed('key file', `${path} can be read by other users of this machine`, `Run \`chmod 600 ${path}\`.`);
}

async function* checkDatabase(path: string, { busyTimeoutMs, now }: { busyTimeoutMs: number; now: number }): AsyncGenerator<Check> {
  let database: Database;
  try {
    database = new Sqlite(path, { fileMustExist: true, timeout: busyTimeoutMs });
  } catch (error) {
    yield unwritable(path, error);
    return;
  }
  try {
    // A commit that reaches the disk, as the running process probes it.
    database.prepare("INSERT INTO meta (key, value) VALUES ('probe', '1') ON CONFLICT (key) DO UPDATE SET value = '1'").run();
    yield passed('database', `${path} is writable`);
    yield checkOutbox(database, now);
    yield checkInbox(database);
    yield* checkParked(database, now);
    yield checkRuns(database, now);
    yield checkSize(database);
  } catch (error) {
    yield unwritable(path, error);
  } finally {
    database.close();
  }
}

const unwritable = (path: string, error: unknown): Check => {
  const code = error instanceof Error && 'code' in error ? String(error.code) : 'unknown error';
  return failed(
    'database',
    `${path} cannot be written (${code})`,
    'Check the rights on DATA_DIR and the room on its disk; see docs/operations.md.',
  );
};

/** So many reasons are told apart; more would be a page. */
const REASONS = 3;

function checkOutbox(database: Database, now: number): Check {
  const name = 'outbox';
  const { parked } = database.prepare("SELECT count(*) AS parked FROM outbox WHERE state = 'parked'").get() as { parked: number };
  if (parked > 0) {
    const reasons = database
      .prepare("SELECT error, count(*) AS events FROM outbox WHERE state = 'parked' GROUP BY error ORDER BY max(seq) DESC LIMIT ?")
      .all(REASONS) as { error: string | null; events: number }[];
    const told = reasons.map(({ error, events }) => `${events} because of ${error ?? 'an unknown reason'}`).join(', ');
    return failed(
      name,
      `${parked} parked: ${told}`,
      'The homeserver refused to take these events for good; docs/operations.md says what each reason means.',
    );
  }
  const oldest = database.prepare("SELECT created_at, error FROM outbox WHERE state = 'ready' ORDER BY seq LIMIT 1").get() as
    | { created_at: number; error: string | null }
    | undefined;
  if (oldest === undefined || now - oldest.created_at < WAITS_LONG_MS) return passed(name, 'nothing is parked');
  const { waiting } = database.prepare("SELECT count(*) AS waiting FROM outbox WHERE state = 'ready'").get() as { waiting: number };
  return warned(
    name,
    `nothing is parked, ${waiting} wait, the oldest for ${buildAge(now - oldest.created_at)} because of ${oldest.error ?? 'those before it'}`,
    'They go out by themselves once the homeserver takes them, within a day; is the oracle running?',
  );
}

/** Longer than any answer takes and any short outage lasts. */
const WAITS_LONG_MS = 10 * 60_000;
/** A run past its deadline is ended within seconds by a process that lives. */
const OVERDUE_MS = 60_000;

function checkRuns(database: Database, now: number): Check {
  const name = 'runs';
  const unfinished = "status IN ('queued', 'running', 'waiting')";
  const { count } = database.prepare(`SELECT count(*) AS count FROM runs WHERE ${unfinished}`).get() as { count: number };
  if (count === 0) return passed(name, 'every run has ended');
  const oldest = database
    .prepare(`SELECT run_id, status, created_at, deadline_at FROM runs WHERE ${unfinished} ORDER BY created_at LIMIT 1`)
    .get() as { run_id: string; status: string; created_at: number; deadline_at: number | null };
  const isOverdue = oldest.deadline_at === null ? now - oldest.created_at > WAITS_LONG_MS : now - oldest.deadline_at > OVERDUE_MS;
  const detail = `${count} unfinished, the oldest (${oldest.run_id}, ${oldest.status}) is ${buildAge(now - oldest.created_at)} old`;
  if (!isOverdue) return passed(name, detail);
  return failed(
    name,
    `${detail}${oldest.deadline_at === null ? '' : ' and past its deadline'}`,
    `If the oracle is not running, start it: it goes on with it or ends it. Else see \`matrix-oracle runs show ${oldest.run_id}\`, then \`runs cancel\`.`,
  );
}

/** Above it, counting the pages of a table takes longer than doctor should. */
const MEASURED_BELOW_BYTES = 1024 ** 3;

function checkSize(database: Database): Check {
  const name = 'size';
  const number = (pragma: string): number => database.pragma(pragma, { simple: true }) as number;
  const page = number('page_size');
  const bytes = number('page_count') * page;
  const free = number('freelist_count') * page;
  const parts = [`${buildSize(bytes)} in the database, ${buildSize(free)} of it free`];
  if (bytes < MEASURED_BELOW_BYTES) {
    const frames = database.prepare("SELECT sum(pgsize) AS bytes FROM dbstat WHERE name = 'frames' AND aggregate = TRUE").get() as {
      bytes: number | null;
    };
    parts.push(`frames of runs ${buildSize(frames.bytes ?? 0)}`);
  }
  return passed(name, `${parts.join(', ')}; RETENTION_DAYS says how long frames are kept`);
}

const buildSize = (bytes: number): string =>
  bytes < 1024 ** 2 ? `${Math.ceil(bytes / 1024)} KiB` : `${(bytes / 1024 ** 2).toFixed(1)} MiB`;
const buildAge = (ms: number): string =>
  ms < 120 * 60_000 ? `${Math.max(0, Math.floor(ms / 60_000))} min` : `${Math.floor(ms / 3_600_000)} h`;

/** Nothing to say where nobody waits. */
function* checkParked(database: Database, now: number): Generator<Check> {
  const { waiting, oldest } = database
    .prepare("SELECT count(*) AS waiting, min(received_at) AS oldest FROM inbox WHERE state = 'parked'")
    .get() as { waiting: number; oldest: number | null };
  if (oldest === null) return;
  yield warned(
    'room keys',
    `${waiting} encrypted ${waiting === 1 ? 'event waits for its key' : 'events wait for their keys'}, the oldest for ${buildAge(now - oldest)}`,
    'Who sent them is asked to send them again, and after a day they end; when there are ever more, keys do not arrive: see "Encrypted rooms" in docs/operations.md.',
  );
}

function checkInbox(database: Database): Check {
  const { dead } = database.prepare("SELECT count(*) AS dead FROM inbox WHERE state = 'dead'").get() as { dead: number };
  if (dead === 0) return passed('inbox', 'no dead events');
  return failed('inbox', `${dead} dead`, 'See `matrix-oracle inbox list`, then `matrix-oracle inbox requeue`.');
}
