/**
 * The oracle's database from beside the running process: SQLite in WAL mode has one writer and any number of readers, across processes. Commands
 * that look or write here open it, do one thing and close it. Never makes or migrates one: that is the process's work.
 */
import { existsSync } from 'node:fs';
import Sqlite, { type Database } from 'better-sqlite3';
import { readEnvironment } from '../../config.ts';
import { dataPaths } from '../data-paths.ts';
import { loadDataDir } from '../load-config.ts';
import { CliError } from './cli-error.ts';

const BUSY_TIMEOUT_MS = 5_000;

export interface OpenDatabase {
  readonly settings: string | undefined;
  readonly readonly: boolean;
  /** A statement that only works when the tables that the command needs are there. */
  readonly probe: string;
}

export async function openDatabase({ settings, readonly, probe }: OpenDatabase): Promise<Database> {
  const path = dataPaths(await loadDataDir({ environment: readEnvironment(), settings })).database;
  if (!existsSync(path)) throw new CliError(`there is no database at ${path}: run this where the oracle's .env is, or set DATA_DIR.`);
  let database: Database;
  try {
    database = new Sqlite(path, { readonly, fileMustExist: true, timeout: BUSY_TIMEOUT_MS });
    database.prepare('SELECT id FROM inbox LIMIT 1').get();
  } catch (cause) {
    throw new CliError(`${path} cannot be read as the oracle's database: run this as the user that runs the oracle.`, { cause });
  }
  try {
    database.prepare(probe);
  } catch (cause) {
    database.close();
    throw new CliError(`${path} was written by an older release: start the oracle of this release once, then try again.`, { cause });
  }
  return database;
}

/** What stands in the database comes from strangers: no control character of theirs reaches the terminal, and no text turns its direction. */
export const printable = (text: string): string =>
  text.replace(/[\u0000-\u001f\u007f-\u009f\u200e\u200f\u2028-\u202e\u2066-\u2069]/gu, '?');
