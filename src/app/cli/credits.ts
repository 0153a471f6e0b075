/**
 * What people may spend, for the operator: `credits grant` gives or takes back, `credits show` lists what one person was given and spent, `credits
 * list` everybody's balance. Written beside the running process, in one transaction with the entry that says so; there is no such thing over HTTP
 * or in a chat, because only whoever can write the data folder is the operator.
 */
import type { Database } from 'better-sqlite3';
import { type Accounts, createAccounts } from '../../credits/accounts.ts';
import { type PrincipalId, parseDid, parseUserId, unsignedPrincipalId } from '../../ids.ts';
import { isoTime } from '../../sidecar/wire/iso.ts';
import { readerOf, type Store } from '../../store/store.ts';
import { systemClock } from '../../system-clock.ts';
import { CliError } from './cli-error.ts';
import { openDatabase, printable } from './open-database.ts';

interface CreditsOptions {
  readonly settings?: string;
}
const ENTRIES_SHOWN = 50;
const ACCOUNTS_SHOWN = 1_000;
const MAX_REASON_CHARS = 200;

interface Books extends Pick<Store, 'sql' | 'read'> {
  readonly database: Database;
  readonly accounts: Accounts;
}

export async function runCreditsGrant(
  who: string,
  amount: string,
  { reason, settings }: CreditsOptions & { reason?: string },
): Promise<void> {
  if (!/^-?\d{1,12}$/u.test(amount) || Number(amount) === 0)
    throw new CliError('give a whole number of credits; a negative one takes back.');
  if (reason !== undefined && reason.length > MAX_REASON_CHARS) throw new CliError(`a reason has at most ${MAX_REASON_CHARS} characters.`);
  await withBooks({ settings, readonly: false }, ({ database, accounts, ...books }) => {
    const principal = readWho(books, who);
    const more = { reason: reason ?? null, now: systemClock.now() };
    const balance = database.transaction(() => accounts.grant(books.read, principal, Number(amount), more)).immediate();
    if (balance === null) {
      const present = accounts.balance(books.read, principal);
      throw new CliError(`${printable(principal)} has ${present} credits: nobody can have less than none.`);
    }
    return `${printable(principal)} has ${balance} credits now.`;
  });
}

export async function runCreditsShow(who: string, { settings }: CreditsOptions): Promise<void> {
  await withBooks({ settings, readonly: true }, ({ accounts, ...books }) => {
    const principal = readWho(books, who);
    const lines = accounts.entries(principal, ENTRIES_SHOWN).map(({ at, amount, balanceAfter, reason, runId }) => {
      const what = runId === null ? (reason ?? 'by the operator') : `run ${runId}`;
      return printable(`${isoTime(at)}  ${String(amount).padStart(10)}  ${String(balanceAfter).padStart(10)}  ${what}`);
    });
    return [`${printable(principal)} has ${accounts.balance(books.read, principal)} credits.`, ...lines].join('\n');
  });
}

export async function runCreditsList({ settings }: CreditsOptions): Promise<void> {
  await withBooks({ settings, readonly: true }, ({ sql, read }) => {
    const all = sql.selectFrom('credit_accounts').select(['principal_id', 'balance']).orderBy('balance', 'desc');
    const rows = read.all(all.limit(ACCOUNTS_SHOWN));
    if (rows.length === 0) return 'Nobody has an account yet.';
    return rows.map((row) => printable(`${String(row.balance).padStart(12)}  ${row.principal_id}`)).join('\n');
  });
}

async function withBooks(
  { settings, readonly }: { settings: string | undefined; readonly: boolean },
  work: (books: Books) => string,
): Promise<void> {
  const database = await openDatabase({ settings, readonly, probe: 'SELECT balance FROM credit_accounts' });
  try {
    const store = readerOf(database);
    // First credits are the running process's to give: it knows the prices.
    const accounts = createAccounts({ store, initial: () => 0 });
    process.stdout.write(`${work({ ...store, database, accounts })}\n`);
  } finally {
    database.close();
  }
}

/** An account that speaks for one DID means that one: it is who pays. */
function readWho({ sql, read }: Pick<Store, 'sql' | 'read'>, who: string): PrincipalId {
  const did = parseDid(who);
  if (did.ok) return did.value;
  const user = parseUserId(who);
  if (!user.ok) throw new CliError(`${printable(who)} is neither a DID nor an account such as @alice:example.org.`);
  const linked = read.all(sql.selectFrom('links').select('did').where('matrix_user_id', '=', user.value));
  if (linked.length > 1) throw new CliError(`${printable(who)} speaks for ${linked.length} DIDs: name the one you mean.`);
  return linked[0]?.did ?? unsignedPrincipalId(user.value);
}
