/**
 * What the oracle gave up on, and a way to have it tried again. Never shows content: the operator needs the id and the reason (G12).
 * Reads the database beside the running process, and orders by a row in `control` that the process executes: there is no admin over HTTP,
 * and two writers of one inbox row would break its order (G3).
 */
import { parseEventId } from '../../ids.ts';
import { systemClock } from '../../system-clock.ts';
import { CliError } from './cli-error.ts';
import { openDatabase, printable } from './open-database.ts';

interface Row {
  readonly event_id: string;
  readonly room_id: string;
  readonly sender: string;
  readonly type: string;
  readonly state: string;
  readonly attempts: number;
  readonly received_at: number;
  readonly error: string | null;
}
interface ListOptions {
  readonly state: string;
  readonly limit: number;
  readonly json: boolean;
  readonly settings?: string;
}
const STATES: Readonly<Record<string, string>> = {
  dead: "state = 'dead'",
  ready: "state = 'ready'",
  parked: "state = 'parked'",
  all: '1',
};

export async function runInboxList({ state, limit, json, settings }: ListOptions): Promise<void> {
  const where = STATES[state];
  if (where === undefined) throw new CliError(`--state is none of: ${Object.keys(STATES).join(', ')}.`);
  const database = await openDatabase({ settings, readonly: true, probe: PROBE });
  try {
    const columns = 'event_id, room_id, sender, type, state, attempts, received_at, error';
    const rows = database.prepare(`SELECT ${columns} FROM inbox WHERE ${where} ORDER BY id LIMIT ?`).all(limit) as Row[];
    const { total } = database.prepare(`SELECT count(*) AS total FROM inbox WHERE ${where}`).get() as { total: number };
    process.stdout.write(
      json ? `${JSON.stringify({ total, rows }, null, 2)}\n` : buildTable(rows, { total, state, now: systemClock.now() }),
    );
  } finally {
    database.close();
  }
}

function buildTable(rows: readonly Row[], { total, state, now }: { total: number; state: string; now: number }): string {
  if (total === 0) return state === 'all' ? 'The inbox is empty.\n' : `No ${state} events.\n`;
  const lines = rows.map(
    (row) =>
      `${row.state.padEnd(6)} ${row.event_id}  ${row.room_id}  ${row.sender}  ${row.type}  ${buildAge(now - row.received_at)} ago, ${row.attempts} attempts${row.error === null ? '' : `: ${printable(row.error)}`}`,
  );
  const rest = total > rows.length ? [`… and ${total - rows.length} more (--limit)`] : [];
  const hint = rows.some((row) => row.state === 'dead') ? ["Try again: matrix-oracle inbox requeue '<event id>', or --all"] : [];
  return `${[...lines.map(printable), ...rest, ...hint].join('\n')}\n`;
}

function buildAge(ms: number): string {
  const minutes = Math.floor(ms / 60_000);
  if (minutes < 60) return `${Math.max(0, minutes)} min`;
  return minutes < 48 * 60 ? `${Math.floor(minutes / 60)} h` : `${Math.floor(minutes / (24 * 60))} d`;
}

interface RequeueOptions {
  readonly all: boolean;
  readonly settings?: string;
}

export async function runInboxRequeue(events: readonly string[], { all, settings }: RequeueOptions): Promise<void> {
  if (all === events.length > 0) throw new CliError('name the events to requeue, or give --all.');
  const bad = events.find((event) => !parseEventId(event).ok);
  if (bad !== undefined) throw new CliError(`${printable(bad)} is not an event id ($…); quote it, because of the $.`);
  const database = await openDatabase({ settings, readonly: false, probe: PROBE });
  try {
    const dead = new Set((database.prepare("SELECT event_id FROM inbox WHERE state = 'dead'").all() as Row[]).map((row) => row.event_id));
    const asked = all ? [...dead] : events;
    const missing = asked.filter((event) => !dead.has(event));
    if (missing.length > 0)
      throw new CliError(`not dead in the inbox, so nothing was changed: ${missing.join(', ')}. See \`matrix-oracle inbox list\`.`);
    const insert = database.prepare('INSERT INTO control (kind, argument, created_at) VALUES (?, ?, ?)');
    const now = systemClock.now();
    database.transaction(() => {
      for (const event of asked) insert.run(REQUEUE, event, now);
    })();
    process.stdout.write(
      asked.length === 0
        ? 'No dead events.\n'
        : `${asked.length} requeued. The running oracle takes them within seconds, a stopped one at its next start.\n`,
    );
  } finally {
    database.close();
  }
}

/** `control.kind`; its argument is the event id. */
const REQUEUE = 'inbox.requeue';
const PROBE = 'SELECT id FROM control';
