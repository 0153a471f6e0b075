/**
 * The runs a caller may see: those that answer him, in his direct room. Everything else does not exist for him (G13), whoever else spoke in the
 * same room or thread. What is shown of a run says how it went and nothing of what was said: that is in its events and in the history.
 */
import { z } from 'zod';
import { type Refusal, refusal } from '../errors.ts';
import { type Did, parseRunId, type RoomId, type RunId, type SessionId } from '../ids.ts';
import { LIMITS } from '../limits.ts';
import { err, ok, type Result } from '../result.ts';
import type { Run, RunStatus, Usage } from '../runs/run.ts';
import type { Store } from '../store/store.ts';
import type { SidecarDeps } from './deps.ts';

/** Who asks, as Matrix proved it. */
export interface Reader {
  readonly did: Did;
  readonly room: RoomId | null;
}

export interface RunSummary {
  readonly id: RunId;
  readonly sessionId: SessionId;
  readonly status: RunStatus;
  readonly attempt: number;
  readonly createdAt: number;
  readonly startedAt: number | null;
  readonly endedAt: number | null;
  readonly usage: Usage | null;
  readonly errorCode: string | null;
  /** Its events were forgotten after RETENTION_DAYS. */
  readonly isPruned: boolean;
}

/** @returns NOT_FOUND for another's as for none; RUN_PRUNED when its events are gone. */
export function findOwnRun(reader: Reader, text: string, { runs, store }: Pick<SidecarDeps, 'runs' | 'store'>): Result<Run, Refusal> {
  const id = parseRunId(text);
  const run = id.ok ? runs.read(store.read, id.value) : undefined;
  if (run === undefined || run.principalId !== reader.did || run.roomId !== reader.room) return err(refusal('NOT_FOUND'));
  const { sql } = store;
  const row = store.read.get(sql.selectFrom('runs').select('frames_pruned_at').where('run_id', '=', run.id));
  if (row?.frames_pruned_at == null) return ok(run);
  return err(refusal('RUN_PRUNED', { details: { runId: run.id, read: `/messages/${encodeURIComponent(run.sessionId)}` } }));
}

export function newestOwnRun(store: Store, { did, room }: Reader, session: SessionId): RunSummary | undefined {
  if (room === null) return undefined;
  const own = store.sql.selectFrom('runs').select(COLUMNS).where('session_id', '=', session);
  const row = store.read.get(own.where('principal_id', '=', did).where('room_id', '=', room).orderBy('run_id', 'desc').limit(1));
  return row === undefined ? undefined : toSummary(row);
}

/**
 * Newest first. A status is looked for among LIMITS.runsLookedAt runs at a time: a person may have any number of them, and few of one kind (G16).
 * @returns also where the next page begins; null when there is none.
 */
export function listOwnRuns(
  store: Store,
  { did, room }: Reader,
  { limit, status, before }: { limit: number; status?: RunStatus | undefined; before?: RunId | undefined },
): { runs: RunSummary[]; before: RunId | null } {
  if (room === null) return { runs: [], before: null };
  const { sql } = store;
  let own = sql.selectFrom('runs').where('owner', '=', did).where('principal_id', '=', did).where('room_id', '=', room);
  if (before !== undefined) own = own.where('run_id', '<', before);
  const newest = own.orderBy('run_id', 'desc');
  if (status === undefined) {
    const rows = store.read.all(newest.select(COLUMNS).limit(limit));
    return { runs: rows.map(toSummary), before: rows.length < limit ? null : (rows.at(-1)?.run_id ?? null) };
  }
  const looked = newest.select(COLUMNS).limit(LIMITS.runsLookedAt).as('looked');
  const rows = store.read.all(sql.selectFrom(looked).selectAll().where('status', '=', status).orderBy('run_id', 'desc').limit(limit));
  const end =
    rows.length === limit
      ? rows.at(-1)
      : store.read.get(
          newest
            .select('run_id')
            .offset(LIMITS.runsLookedAt - 1)
            .limit(1),
        );
  return { runs: rows.map(toSummary), before: end?.run_id ?? null };
}

const COLUMNS = [
  ...(['run_id', 'session_id', 'status', 'attempt', 'created_at', 'started_at', 'ended_at'] as const),
  ...(['usage', 'error', 'frames_pruned_at'] as const),
] as const;
interface Row {
  readonly run_id: RunId;
  readonly session_id: SessionId;
  readonly status: RunStatus;
  readonly attempt: number;
  readonly created_at: number;
  readonly started_at: number | null;
  readonly ended_at: number | null;
  readonly usage: string | null;
  readonly error: string | null;
  readonly frames_pruned_at: number | null;
}

const usageColumn = z.object({ inputTokens: z.number(), outputTokens: z.number() });
const errorColumn = z.object({ code: z.string() });
function readColumn<Value>(schema: z.ZodType<Value>, text: string | null): Value | null {
  const parsed = text === null ? undefined : schema.safeParse(JSON.parse(text));
  return parsed?.success ? parsed.data : null;
}

const toSummary = (row: Row): RunSummary => ({
  id: row.run_id,
  sessionId: row.session_id,
  status: row.status,
  attempt: row.attempt,
  createdAt: row.created_at,
  startedAt: row.started_at,
  endedAt: row.ended_at,
  usage: readColumn(usageColumn, row.usage),
  errorCode: readColumn(errorColumn, row.error)?.code ?? null,
  isPruned: row.frames_pruned_at !== null,
});
