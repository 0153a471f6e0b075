/**
 * Who may use the oracle with ACCESS=granted: one row for each DID. Written beside the running process, which reads it at every turn, so that
 * somebody who is taken off the list is refused with the next message. There is no such thing over HTTP or in a chat: only whoever can write the
 * data folder is the operator.
 */
import type { Database } from 'better-sqlite3';
import { readEnvironment } from '../../config.ts';
import { parseDid } from '../../ids.ts';
import { isoTime } from '../../sidecar/wire/iso.ts';
import { systemClock } from '../../system-clock.ts';
import { loadAccess } from '../load-config.ts';
import { CliError } from './cli-error.ts';
import { openDatabase, printable } from './open-database.ts';

interface GrantUseOptions {
  readonly list: boolean;
  readonly remove: boolean;
  readonly settings?: string;
}

export async function runGrantUse(did: string | undefined, { list, remove, settings }: GrantUseOptions): Promise<void> {
  if (list ? did !== undefined || remove : did === undefined) throw new CliError('name one DID, or give --list.');
  if (did !== undefined && !parseDid(did).ok) {
    const hint = did.startsWith('@') ? ': rows name DIDs, because an account is only as good as its server' : '';
    throw new CliError(`${printable(did)} is not a DID (did:key:… or did:ixo:…)${hint}.`);
  }
  const database = await openDatabase({ settings, readonly: list, probe: 'SELECT did FROM use_grants' });
  try {
    const said = did === undefined ? buildList(database) : remove ? removeRow(database, did) : addRow(database, did);
    process.stdout.write(`${said}\n${await buildEffect(settings)}`);
  } finally {
    database.close();
  }
}

function addRow(database: Database, did: string): string {
  const { changes } = database
    .prepare('INSERT INTO use_grants (did, granted_at) VALUES (?, ?) ON CONFLICT (did) DO NOTHING')
    .run(did, systemClock.now());
  return changes > 0 ? `${did} may use the oracle from now on.` : `${did} was on the list already.`;
}

function removeRow(database: Database, did: string): string {
  const { changes } = database.prepare('DELETE FROM use_grants WHERE did = ?').run(did);
  if (changes === 0) throw new CliError(`${did} is not on the list. See \`matrix-oracle grant-use --list\`.`);
  return `${did} is off the list: its next message is refused.`;
}

function buildList(database: Database): string {
  const rows = database.prepare('SELECT did, granted_at FROM use_grants ORDER BY granted_at, did').all() as {
    did: string;
    granted_at: number;
  }[];
  if (rows.length === 0) return 'Nobody is on the list.';
  return rows.map((row) => printable(`${isoTime(row.granted_at)}  ${row.did}`)).join('\n');
}

/** An operator who names people and sees no difference must be told why. */
async function buildEffect(settings: string | undefined): Promise<string> {
  const access = await loadAccess({ environment: readEnvironment(), settings });
  return access === 'granted'
    ? ''
    : `This has no effect yet: ACCESS is ${access ?? 'not readable'}, and the list counts only with ACCESS=granted.\n`;
}
