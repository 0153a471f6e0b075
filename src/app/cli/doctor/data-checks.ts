/** What lies on disk: may we write it, may others read it, and what is stuck in it. */
import { access, constants, stat } from 'node:fs/promises';
import Sqlite, { type Database } from 'better-sqlite3';
import type { Config } from '../../../config.ts';
import { dataPaths } from '../../data-paths.ts';
import { type Check, failed, passed, skipped } from './check.ts';

const BUSY_TIMEOUT_MS = 5_000;

export async function* checkData(
  config: Pick<Config, 'dataDir' | 'oracleKeyFile'>,
  { busyTimeoutMs = BUSY_TIMEOUT_MS }: { readonly busyTimeoutMs?: number } = {},
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
  yield* checkDatabase(paths.database, busyTimeoutMs);
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

async function* checkDatabase(path: string, busyTimeoutMs: number): AsyncGenerator<Check> {
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
    yield checkOutbox(database);
    yield checkInbox(database);
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

function checkOutbox(database: Database): Check {
  const name = 'outbox';
  const { parked } = database.prepare("SELECT count(*) AS parked FROM outbox WHERE state = 'parked'").get() as { parked: number };
  if (parked === 0) return passed(name, 'nothing is parked');
  const newest = database.prepare("SELECT error FROM outbox WHERE state = 'parked' ORDER BY seq DESC LIMIT 1").get() as {
    error: string | null;
  };
  return failed(
    name,
    `${parked} parked, the newest because of ${newest.error ?? 'an unknown reason'}`,
    'The homeserver refused to take these events for good; docs/operations.md says what each reason means.',
  );
}

function checkInbox(database: Database): Check {
  const { dead } = database.prepare("SELECT count(*) AS dead FROM inbox WHERE state = 'dead'").get() as { dead: number };
  if (dead === 0) return passed('inbox', 'no dead events');
  return failed('inbox', `${dead} dead`, 'See `matrix-oracle inbox list`, then `matrix-oracle inbox requeue`.');
}
