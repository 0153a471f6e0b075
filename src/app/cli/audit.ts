/**
 * Who was let in or refused, for what and why, from the audit log: the answer to "why did it do that in my name?". Reads the database beside the
 * running process. There are no tokens and no content in these rows, only ids and rights (G12); what strangers named is printed harmless.
 */
import type { Database } from 'better-sqlite3';
import { parseDid, parseRunId, parseUserId, unsignedPrincipalId } from '../../ids.ts';
import { isoTime } from '../../sidecar/wire/iso.ts';
import { systemClock } from '../../system-clock.ts';
import { CliError } from './cli-error.ts';
import { openDatabase, printable } from './open-database.ts';

interface Row {
  readonly id: number;
  readonly at: number;
  readonly decision: string;
  readonly code: string | null;
  readonly capability: string | null;
  readonly resource: string | null;
  readonly principal_id: string | null;
  readonly matrix_user_id: string | null;
  readonly tier: string | null;
  readonly trust: string | null;
  readonly tainted: number | null;
  readonly token_id: string | null;
  readonly event_id: string | null;
  readonly run_id: string | null;
}
interface AuditOptions {
  readonly user?: string;
  readonly run?: string;
  readonly since?: string;
  readonly limit: number;
  readonly json: boolean;
  readonly settings?: string;
}

const COLUMNS =
  'id, at, decision, code, capability, resource, principal_id, matrix_user_id, tier, trust, tainted, token_id, event_id, run_id';

export async function runAudit({ user, run, since, limit, json, settings }: AuditOptions): Promise<void> {
  const filter = buildFilter({ user, run, since });
  const database = await openDatabase({ settings, readonly: true, probe: `SELECT ${COLUMNS} FROM audit` });
  try {
    const { total, rows } = select(database, filter, limit);
    process.stdout.write(json ? `${JSON.stringify({ total, rows: rows.map(showRow) }, null, 2)}\n` : buildTable(rows, total));
  } finally {
    database.close();
  }
}

export interface Filter {
  readonly where: string;
  readonly values: readonly (string | number)[];
}

function buildFilter({ user, run, since }: { user: string | undefined; run: string | undefined; since: string | undefined }): Filter {
  const parts: Filter[] = [];
  if (user !== undefined) parts.push(buildUserFilter(user));
  if (run !== undefined) {
    if (!parseRunId(run).ok) throw new CliError(`${printable(run)} is not a run id (26 letters and digits).`);
    parts.push({ where: 'run_id = ?', values: [run] });
  }
  if (since !== undefined) parts.push({ where: 'at >= ?', values: [readSince(since, systemClock.now())] });
  return { where: parts.map(({ where }) => `(${where})`).join(' AND ') || '1', values: parts.flatMap(({ values }) => values) };
}

export function buildUserFilter(user: string): Filter {
  const account = parseUserId(user);
  if (account.ok) return { where: 'matrix_user_id = ? OR principal_id = ?', values: [user, unsignedPrincipalId(account.value)] };
  if (parseDid(user).ok) return { where: 'principal_id = ?', values: [user] };
  throw new CliError(`${printable(user)} is neither a Matrix account (@alice:example.org) nor a DID (did:key:…).`);
}

const UNITS_MS: Readonly<Record<string, number>> = { m: 60_000, h: 3_600_000, d: 24 * 3_600_000 };
const ISO = /^\d{4}-\d{2}-\d{2}(?:T\d{2}:\d{2}(?::\d{2}(?:\.\d{1,3})?)?(?:Z|[+-]\d{2}:\d{2})?)?$/u;

/** `2h`, `3d`, `2026-11-30` or `2026-11-30T08:00`, in UTC unless it says otherwise; as wall clock ms. */
export function readSince(text: string, now: number): number {
  const ago = /^(?<count>[1-9]\d{0,5})(?<unit>[mhd])$/u.exec(text)?.groups;
  if (ago !== undefined) return now - Number(ago['count']) * (UNITS_MS[ago['unit'] ?? ''] ?? 0);
  const zoned = /T.*(?:Z|[+-]\d{2}:\d{2})$/u.test(text) || !text.includes('T') ? text : `${text}Z`;
  // biome-ignore lint/style/noRestrictedGlobals: converts a time that it is given; reads no clock
  const at = ISO.test(text) ? Date.parse(zoned) : Number.NaN;
  if (Number.isNaN(at)) throw new CliError('--since is neither a time ago (30m, 2h, 3d) nor an ISO date (2026-11-30, 2026-11-30T08:00).');
  return at;
}

function select(database: Database, { where, values }: Filter, limit: number): { total: number; rows: Row[] } {
  const { total } = database.prepare(`SELECT count(*) AS total FROM audit WHERE ${where}`).get(...values) as { total: number };
  const rows = database.prepare(`SELECT ${COLUMNS} FROM audit WHERE ${where} ORDER BY id DESC LIMIT ?`).all(...values, limit) as Row[];
  return { total, rows: rows.reverse() };
}

const showRow = (row: Row) => ({ ...row, at: isoTime(row.at), tainted: row.tainted === null ? null : row.tainted === 1 });

/** Oldest first, as a log is read. */
function buildTable(rows: readonly Row[], total: number): string {
  if (total === 0) return 'Nothing was recorded that fits.\n';
  const rest = total > rows.length ? [`… the newest ${rows.length} of ${total} (--limit)`] : [];
  return `${[...rest, ...rows.map(buildLine)].join('\n')}\n`;
}

function buildLine(row: Row): string {
  const what = [row.capability ?? '-', ...(row.resource === null || row.resource === row.principal_id ? [] : [`on ${row.resource}`])].join(
    ' ',
  );
  const who = [row.principal_id, row.matrix_user_id].filter((id) => id !== null).join(' ') || 'nobody known';
  const device = row.trust === null || row.trust === 'clear' ? [] : [`encrypted, device ${row.trust}`];
  const how = [row.tier ?? 'no tier', ...device, ...(row.tainted === 1 ? ['tainted'] : [])].join(', ');
  const where = [
    ['run', row.run_id],
    ['event', row.event_id],
    ['token', row.token_id],
  ].flatMap(([name, id]) => (id === null ? [] : [`${name} ${id}`]));
  const decision = row.code === null ? row.decision : `${row.decision} ${row.code}`;
  return printable([isoTime(row.at), decision, what, `by ${who} (${how})`, ...where].join('  '));
}
