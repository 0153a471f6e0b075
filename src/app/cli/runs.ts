/**
 * Runs as the operator sees them: which there are, how one went, and two orders for the running process: end it, or have a failed one answered
 * after all. Reads the database beside that process; orders are rows in `control`, because two writers of one run would break it (G10). What people
 * and the oracle said is shown only when asked for with --text: how a run went can be told without it (G12).
 */
import type { Database } from 'better-sqlite3';
import { parseRunId } from '../../ids.ts';
import { readFrameRow } from '../../runs/compact-frames.ts';
import { EMPTY_FOLD, foldFrame, type RunStatus, TERMINAL } from '../../runs/run.ts';
import { isoTime } from '../../sidecar/wire/iso.ts';
import { systemClock } from '../../system-clock.ts';
import { sleep } from '../../time.ts';
import { buildUserFilter, type Filter } from './audit.ts';
import { CliError } from './cli-error.ts';
import { openDatabase, printable } from './open-database.ts';

interface Row {
  readonly run_id: string;
  readonly status: RunStatus;
  readonly attempt: number;
  readonly matrix_user_id: string;
  readonly principal_id: string;
  readonly tier: string;
  readonly client: string;
  readonly room_id: string;
  readonly session_id: string;
  readonly thread_root: string | null;
  readonly request_id: string;
  readonly created_at: number;
  readonly started_at: number | null;
  readonly ended_at: number | null;
  readonly deadline_at: number | null;
  readonly model_asked: string | null;
  readonly model_answered: string | null;
  readonly usage: string | null;
  readonly error: string | null;
  readonly tainted: number;
  readonly replaces: string | null;
  readonly stop_asked: string | null;
  readonly frames_pruned_at: number | null;
}
const COLUMNS =
  'run_id, status, attempt, matrix_user_id, principal_id, tier, client, room_id, session_id, thread_root, request_id, created_at, started_at, ended_at, deadline_at, model_asked, model_answered, usage, error, tainted, replaces, stop_asked, frames_pruned_at';
/** Also what this command adds to the database beside reading it. */
const PROBE = `SELECT ${COLUMNS}, (SELECT id FROM control LIMIT 1) FROM runs`;

const STATUSES: readonly string[] = ['queued', 'running', 'waiting', ...TERMINAL];
const UNFINISHED = "status IN ('queued', 'running', 'waiting')";

interface ListOptions {
  readonly status: string;
  readonly user?: string;
  readonly limit: number;
  readonly json: boolean;
  readonly settings?: string;
}

export async function runRunsList({ status, user, limit, json, settings }: ListOptions): Promise<void> {
  const filters: Filter[] = [buildStatusFilter(status), ...(user === undefined ? [] : [buildUserFilter(user)])];
  const where = filters.map((filter) => `(${filter.where})`).join(' AND ');
  const values = filters.flatMap((filter) => filter.values);
  const database = await openDatabase({ settings, readonly: true, probe: PROBE });
  try {
    const { total } = database.prepare(`SELECT count(*) AS total FROM runs WHERE ${where}`).get(...values) as { total: number };
    const rows = database.prepare(`SELECT ${COLUMNS} FROM runs WHERE ${where} ORDER BY run_id DESC LIMIT ?`).all(...values, limit) as Row[];
    process.stdout.write(json ? `${JSON.stringify({ total, rows: rows.map(showRow) }, null, 2)}\n` : buildTable(rows, total));
  } finally {
    database.close();
  }
}

function buildStatusFilter(status: string): Filter {
  if (status === 'all') return { where: '1', values: [] };
  // Word for word the condition of the partial index.
  if (status === 'unfinished') return { where: UNFINISHED, values: [] };
  if (!STATUSES.includes(status)) throw new CliError(`--status is none of: all, unfinished, ${STATUSES.join(', ')}.`);
  return { where: 'status = ?', values: [status] };
}

const errorOf = ({ error }: Row): { code: string; message: string } | null =>
  error === null ? null : (JSON.parse(error) as { code: string; message: string });
const maybeTime = (at: number | null): string | null => (at === null ? null : isoTime(at));

/** As JSON: times as ISO dates, columns that hold JSON as what they hold. */
const showRow = (row: Row) => ({
  ...row,
  created_at: isoTime(row.created_at),
  started_at: maybeTime(row.started_at),
  ended_at: maybeTime(row.ended_at),
  deadline_at: maybeTime(row.deadline_at),
  frames_pruned_at: maybeTime(row.frames_pruned_at),
  usage: row.usage === null ? null : (JSON.parse(row.usage) as unknown),
  error: errorOf(row),
  tainted: row.tainted === 1,
});

function buildTable(rows: readonly Row[], total: number): string {
  if (total === 0) return 'No such runs.\n';
  const now = systemClock.now();
  const rest = total > rows.length ? [`… the newest ${rows.length} of ${total} (--limit)`] : [];
  const lines = rows.map((row) => {
    const took =
      row.ended_at === null ? `for ${buildDuration(now - row.created_at)}` : `took ${buildDuration(row.ended_at - row.created_at)}`;
    const code = errorOf(row)?.code;
    const attempts = row.attempt > 1 ? [`attempt ${row.attempt}`] : [];
    const how = [
      took,
      ...attempts,
      ...(code === undefined ? [] : [code]),
      ...(row.stop_asked === null || row.ended_at !== null ? [] : ['stopping']),
    ];
    return printable(
      `${isoTime(row.created_at)}  ${row.run_id}  ${row.status.padEnd(11)}  ${row.matrix_user_id}  ${row.room_id}  ${how.join(', ')}`,
    );
  });
  return `${[...lines, ...rest].join('\n')}\n`;
}

function buildDuration(ms: number): string {
  if (ms < 1_000) return `${Math.max(0, Math.round(ms))} ms`;
  if (ms < 120_000) return `${(ms / 1_000).toFixed(1)} s`;
  return ms < 7_200_000 ? `${Math.floor(ms / 60_000)} min` : `${Math.floor(ms / 3_600_000)} h`;
}

interface ShowOptions {
  readonly text: boolean;
  readonly json: boolean;
  readonly settings?: string;
}
interface OutboxState {
  readonly kind: string;
  readonly state: string;
  readonly error: string | null;
  readonly events: number;
  readonly attempts: number;
}

export async function runRunsShow(id: string, { text, json, settings }: ShowOptions): Promise<void> {
  requireRunId(id);
  const database = await openDatabase({ settings, readonly: true, probe: PROBE });
  try {
    const row = database.prepare(`SELECT ${COLUMNS} FROM runs WHERE run_id = ?`).get(id) as Row | undefined;
    if (row === undefined) throw new CliError(`there is no run ${id}. See \`matrix-oracle runs list\`.`);
    const shown = { ...showRow(row), ...readLog(database, id), ...(text ? readText(database, id) : {}) };
    process.stdout.write(json ? `${JSON.stringify(shown, null, 2)}\n` : buildRecord(shown));
  } finally {
    database.close();
  }
}

function readLog(database: Database, id: string) {
  const frames = database.prepare('SELECT seq, kind, data, at FROM frames WHERE run_id = ? ORDER BY seq').all(id) as FrameRows;
  const read = frames.flatMap(readFrameRow);
  const kinds: Record<string, number> = {};
  for (const { kind } of read) kinds[kind] = (kinds[kind] ?? 0) + 1;
  const events = database.prepare(
    'SELECT kind, state, error, count(*) AS events, sum(attempts) AS attempts FROM outbox WHERE run_id = ? GROUP BY kind, state, error',
  );
  const prompts = database
    .prepare('SELECT prompt_id, received_at, consumed_at FROM pending_inputs WHERE run_id = ? ORDER BY id')
    .all(id) as {
    prompt_id: string;
    received_at: number;
    consumed_at: number | null;
  }[];
  const replacedBy = database.prepare('SELECT run_id FROM runs WHERE replaces = ?').get(id) as { run_id: string } | undefined;
  return {
    replaced_by: replacedBy?.run_id ?? null,
    prompts: prompts.map((one) => ({ id: one.prompt_id, received_at: isoTime(one.received_at), taken_at: maybeTime(one.consumed_at) })),
    frames: {
      count: read.length,
      rows: frames.length,
      kinds,
      first_at: maybeTime(read[0]?.at ?? null),
      last_at: maybeTime(read.at(-1)?.at ?? null),
      attempts: read.flatMap((frame) => (frame.kind === 'run' ? [{ state: frame.data.state, at: isoTime(frame.at) }] : [])),
    },
    tools: database.prepare('SELECT tool, state, count(*) AS calls FROM tool_marks WHERE run_id = ? GROUP BY tool, state').all(id) as {
      tool: string;
      state: string;
      calls: number;
    }[],
    outbox: events.all(id) as OutboxState[],
  };
}
type FrameRows = { seq: number; kind: string; data: string; at: number }[];

function readText(database: Database, id: string) {
  const rows = database.prepare('SELECT seq, kind, data, at FROM frames WHERE run_id = ? ORDER BY seq').all(id) as FrameRows;
  const asked = database.prepare('SELECT text FROM pending_inputs WHERE run_id = ? ORDER BY id').all(id) as { text: string }[];
  return { prompt_text: asked.map(({ text }) => text), answer_text: rows.flatMap(readFrameRow).reduce(foldFrame, EMPTY_FOLD).text };
}

type Shown = ReturnType<typeof showRow> & ReturnType<typeof readLog> & Partial<ReturnType<typeof readText>>;

function buildRecord(shown: Shown): string {
  const { frames, error, usage } = shown;
  const kinds = Object.entries(frames.kinds).map(([kind, count]) => `${kind} ${count}`);
  const lines: (readonly [string, string | null])[] = [
    ['run', shown.run_id],
    ['status', [shown.status, ...(error === null ? [] : [`${error.code}: ${error.message}`])].join(', ')],
    ['asked to stop', shown.ended_at === null ? shown.stop_asked : null],
    ['attempt', String(shown.attempt)],
    ['person', `${shown.matrix_user_id} (${shown.principal_id}, ${shown.tier}${shown.tainted ? ', tainted' : ''})`],
    ['room', shown.room_id],
    ['session', shown.session_id],
    ['came by', `${shown.client}, request ${shown.request_id}`],
    ['replaces', shown.replaces],
    ['replaced by', shown.replaced_by],
    ['created', shown.created_at],
    ['started', shown.started_at],
    ['ended', shown.ended_at],
    ['deadline', shown.ended_at === null ? shown.deadline_at : null],
    ['model', shown.model_answered ?? shown.model_asked],
    ['usage', usage === null ? null : JSON.stringify(usage)],
    ...shown.prompts.map(
      ({ id, received_at, taken_at }) => ['prompt', `${id}, received ${received_at}${taken_at === null ? ', not taken yet' : ''}`] as const,
    ),
    [
      'frames',
      shown.frames_pruned_at === null
        ? `${frames.count} in ${frames.rows} rows (${kinds.join(', ') || 'none'})`
        : `forgotten ${shown.frames_pruned_at}`,
    ],
    ...frames.attempts.map(({ state, at }) => [state, at] as const),
    ...shown.tools.map(({ tool, state, calls }) => ['write tool', `${tool}, ${state}, ${calls} times`] as const),
    ...shown.outbox.map(
      ({ kind, state, error: why, events, attempts }) =>
        [
          'outbox',
          `${events} ${kind} ${state}${why === null ? '' : ` (${why})`}${attempts > 0 ? `, ${attempts} tries failed` : ''}`,
        ] as const,
    ),
    ...(shown.prompt_text ?? []).map((text) => ['asked', text] as const),
    ['answered', shown.answer_text ?? null],
  ];
  const said = lines.flatMap(([name, value]) => (value === null ? [] : [`${name.padEnd(13)} ${indented(value)}`]));
  return `${said.join('\n')}\n`;
}

/** Lines of a text stay lines; nothing else of it reaches the terminal raw. */
const indented = (text: string): string =>
  text
    .split('\n')
    .map(printable)
    .join(`\n${' '.repeat(14)}`);

interface OrderOptions {
  readonly settings?: string;
}
export const runRunsCancel = (id: string, options: OrderOptions): Promise<void> => order('run.cancel', id, options);
export const runRunsRetry = (id: string, options: OrderOptions): Promise<void> => order('run.retry', id, options);

const WAIT_MS = 5_000;
const LOOK_MS = 100;

/** Writes the order and waits a few seconds for what the running oracle makes of it. */
async function order(kind: 'run.cancel' | 'run.retry', id: string, { settings }: OrderOptions): Promise<void> {
  requireRunId(id);
  const database = await openDatabase({ settings, readonly: false, probe: PROBE });
  try {
    const row = database.prepare('SELECT status FROM runs WHERE run_id = ?').get(id) as { status: RunStatus } | undefined;
    if (row === undefined) throw new CliError(`there is no run ${id}. See \`matrix-oracle runs list\`.`);
    const { lastInsertRowid } = database
      .prepare('INSERT INTO control (kind, argument, created_at) VALUES (?, ?, ?)')
      .run(kind, id, systemClock.now());
    const outcome = await waitForOutcome(database, lastInsertRowid);
    if (outcome === null) {
      process.stdout.write('Ordered. No oracle is running here at the moment, or it is busy: it is done at its next start or look.\n');
      return;
    }
    const isDone = outcome.startsWith('cancelled') || outcome.startsWith('answered');
    if (!isDone) throw new CliError(`${printable(outcome)}.`);
    process.stdout.write(`${printable(outcome)}.\n`);
  } finally {
    database.close();
  }
}

async function waitForOutcome(database: Database, orderId: number | bigint): Promise<string | null> {
  const look = database.prepare('SELECT outcome FROM control WHERE id = ? AND done_at IS NOT NULL');
  const until = systemClock.monotonic() + WAIT_MS;
  while (systemClock.monotonic() < until) {
    const done = look.get(orderId) as { outcome: string | null } | undefined;
    if (done !== undefined) return done.outcome ?? '';
    await sleep(systemClock, LOOK_MS);
  }
  return null;
}

function requireRunId(id: string): void {
  if (!parseRunId(id).ok) throw new CliError(`${printable(id)} is not a run id (26 letters and digits).`);
}
