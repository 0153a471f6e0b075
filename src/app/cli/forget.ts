/**
 * Deletes what is kept of one person, for good. A running oracle does it by an order, because it works with these rows; a stopped one's folder is
 * locked and cleaned here. Asks before: nothing brings it back.
 */
import type { Database } from 'better-sqlite3';
import { readEnvironment } from '../../config.ts';
import { readerOf } from '../../store/store.ts';
import { systemClock } from '../../system-clock.ts';
import { sleep } from '../../time.ts';
import { type DataPaths, dataPaths } from '../data-paths.ts';
import { describeForgotten, FORGET_ORDER, readNamed } from '../forget-order.ts';
import { countKnown, eraserOf, forgetPerson, type Known, type Person, readPerson } from '../forget-person.ts';
import { loadDataDir } from '../load-config.ts';
import { openData } from '../open-data.ts';
import { StartRefused } from '../start-refused.ts';
import { CliError } from './cli-error.ts';
import { isSure } from './is-sure.ts';
import { openDatabase, printable } from './open-database.ts';

interface ForgetCommand {
  readonly user: string;
  readonly yes: boolean;
  readonly settings?: string;
}

const PROBE = 'SELECT run_id FROM erasures';
const KEPT = 'The audit log, ids of their events, revocations and spent tokens are kept.';
const WAIT_MS = 120_000;
const LOOK_MS = 250;

export async function runForget({ user, yes, settings }: ForgetCommand): Promise<void> {
  const named = readNamed(user);
  if (named === null) throw new CliError(`${printable(user)} is neither a Matrix account (@alice:example.org) nor a DID (did:key:…).`);
  const paths = dataPaths(await loadDataDir({ environment: readEnvironment(), settings }));
  const database = await openDatabase({ settings, readonly: false, probe: PROBE });
  try {
    const reader = readerOf(database);
    const person = readPerson(reader, named);
    const known = countKnown(reader, person);
    process.stdout.write(describe(person, known));
    if (!yes && !(await isSure({ question: 'Delete it for good?', what: 'delete it for good' })))
      throw new CliError('nothing was deleted.');
    const said = (await forgetHere(person, paths)) ?? (await order(database, user));
    process.stdout.write(`${printable(said)}. ${KEPT}\n`);
  } finally {
    database.close();
  }
}

function describe({ principals, accounts, shared }: Person, { runs, messages, conversations, grants }: Known): string {
  const names = [...accounts, ...principals].map(printable).join(', ');
  const others = shared.length === 0 ? '' : `Not included, because somebody else uses it as well: ${shared.map(printable).join(', ')}.\n`;
  return `${names}\n${runs} runs, ${messages} messages, ${conversations} conversations, ${grants} grants.\n${others}`;
}

/** Null when an oracle runs here. */
async function forgetHere(person: Person, paths: DataPaths): Promise<string | null> {
  let data: ReturnType<typeof openData>;
  try {
    data = openData(paths, systemClock.now());
  } catch (error) {
    if (error instanceof StartRefused) return null;
    throw error;
  }
  try {
    return describeForgotten(await forgetPerson(person, { store: data.store, eraseCheckpoints: eraserOf(paths) }));
  } finally {
    data.close();
  }
}

async function order(database: Database, user: string): Promise<string> {
  const { lastInsertRowid } = database
    .prepare('INSERT INTO control (kind, argument, created_at) VALUES (?, ?, ?)')
    .run(FORGET_ORDER, user, systemClock.now());
  const look = database.prepare('SELECT outcome FROM control WHERE id = ? AND done_at IS NOT NULL');
  const until = systemClock.monotonic() + WAIT_MS;
  while (systemClock.monotonic() < until) {
    const row = look.get(lastInsertRowid) as { outcome: string | null } | undefined;
    if (row !== undefined) {
      if (row.outcome?.startsWith('forgotten') === true) return row.outcome;
      throw new CliError(`${printable(row.outcome ?? 'no outcome')}.`);
    }
    await sleep(systemClock, LOOK_MS);
  }
  return 'ordered: the running oracle does it as soon as it can';
}
