/**
 * What becomes of runs that no execution of this process holds: those that wait, and those that a dead process left (G5). A plan as data, so that
 * recovery can be read in a test: which goes on, which ends and why, which waits for its session or for a free place (G3). Pure.
 */
import type { ErrorCode } from '../errors.ts';
import type { RunId, SessionId } from '../ids.ts';

/** A run that no execution of this process holds. */
export interface Unfinished {
  readonly id: RunId;
  readonly sessionId: SessionId;
  readonly status: 'queued' | 'running';
  /** Attempts that count: those that a stop or a full disk ended are not its fault. */
  readonly attempt: number;
  readonly deadlineAt: number | null;
  /** Somebody asked it to stop before the process died. */
  readonly stopAsked: ErrorCode | null;
}
export type RecoveryStep =
  | { readonly kind: 'execute' }
  | { readonly kind: 'end'; readonly because: ErrorCode }
  /** Its session is busy, or there is no free place. */
  | { readonly kind: 'wait' };
export interface Recovery {
  readonly run: Unfinished;
  readonly step: RecoveryStep;
}

/** A run is tried so often; then it ends visibly with what it has (G5). */
export const MAX_ATTEMPTS = 3;

/**
 * @param rows in order of arrival. Ending a run takes a place as well: it writes its last word.
 * @param free places for further executions. `busy` are the sessions in which one runs.
 */
export function planRecovery(
  rows: readonly Unfinished[],
  now: number,
  { free = Number.POSITIVE_INFINITY, busy = new Set() }: { free?: number; busy?: ReadonlySet<SessionId> } = {},
): Recovery[] {
  const taken = new Set<SessionId>();
  return rows.map((run) => {
    if (taken.size >= free || busy.has(run.sessionId) || taken.has(run.sessionId)) return { run, step: { kind: 'wait' } };
    taken.add(run.sessionId);
    return { run, step: planStep(run, now) };
  });
}

function planStep({ status, attempt, deadlineAt, stopAsked }: Unfinished, now: number): RecoveryStep {
  if (stopAsked !== null) return { kind: 'end', because: stopAsked };
  if (status === 'running' && attempt >= MAX_ATTEMPTS) return { kind: 'end', because: 'INTERRUPTED' };
  if (deadlineAt !== null && deadlineAt <= now) return { kind: 'end', because: 'RUN_DEADLINE' };
  return { kind: 'execute' };
}
