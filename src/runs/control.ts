/**
 * Who may stop which run, and how it stops (G9, DESIGN §7). One decision for a 🛑, for `!stop` and for whatever comes; it is written down before
 * anything is aborted, so that a crash in between ends the run and does not take it up again. Only the author of its prompt, or who may take back
 * what others wrote in the room, can stop a run: nobody is cut off by a bystander (G13).
 */
import { sql as raw, type SqlBool } from 'kysely';
import { refusal } from '../errors.ts';
import type { EventId, RoomId, RunId, SessionId, UserId } from '../ids.ts';
import { sessionIdOf } from '../ids.ts';
import type { Store, Tx } from '../store/store.ts';
import type { Runs } from './ledger.ts';
import { type RunStatus, TERMINAL } from './run.ts';
import type { Scheduler } from './scheduler.ts';

/** What the decision needs of a run. */
export interface Target {
  readonly id: RunId;
  readonly sessionId: SessionId;
  readonly status: RunStatus;
  /** Whose prompts it answers. */
  readonly matrixUserId: UserId;
}
export type CancelRefusal = 'no_run' | 'run_ended' | 'not_yours';
export type CancelDecision = { readonly kind: 'stop' } | { readonly kind: 'ignore'; readonly reason: CancelRefusal };

export function decideCancel(run: Target | undefined, { sender, mayRedact }: { sender: UserId; mayRedact: boolean }): CancelDecision {
  if (run === undefined) return { kind: 'ignore', reason: 'no_run' };
  if (run.matrixUserId !== sender && !mayRedact) return { kind: 'ignore', reason: 'not_yours' };
  return TERMINAL.has(run.status) ? { kind: 'ignore', reason: 'run_ended' } : { kind: 'stop' };
}

export interface Control {
  /** The run that a prompt of this room belongs to, or that wrote this event of its answer: the original, a part or an edit. The newest, when an edit of the prompt made another. */
  runAt(tx: Tx, room: RoomId, event: EventId): Target | undefined;
  /** Unfinished runs of a room, oldest first; of one thread when it is named. */
  unfinishedIn(tx: Tx, room: RoomId, thread: EventId | null): Target[];
  /** Writes down that the run stops. @returns whether it works: then call `abort` after the commit. */
  stop(tx: Tx, run: RunId, now: number): boolean;
  abort(run: Pick<Target, 'id' | 'sessionId'>): void;
  /**
   * Ends what runs in the name of any DID through this account, with REVOKED: also what was signed by that DID itself and rests on no grant. Call the
   * returned function after the commit.
   */
  stopSpeakingFor(tx: Tx, user: UserId, now: number): () => void;
}

export interface ControlOptions {
  readonly store: Store;
  readonly runs: Pick<Runs, 'askStop'>;
  readonly scheduler: Pick<Scheduler, 'cancel' | 'wake'>;
}

/** Word for word the condition of the partial index, which holds few rows whatever the history (G16). */
const IS_UNFINISHED = raw<SqlBool>`status in ('queued', 'running', 'waiting')`;
/** Somebody may edit one prompt again and again. */
const MAX_REPLACED = 100;

export function createControl({ store, runs, scheduler }: ControlOptions): Control {
  const { sql } = store;
  const columns = ['run_id', 'session_id', 'status', 'matrix_user_id'] as const;
  type Row = { run_id: RunId; session_id: SessionId; status: RunStatus; matrix_user_id: UserId };
  const toTarget = (row: Row): Target => ({
    id: row.run_id,
    sessionId: row.session_id,
    status: row.status,
    matrixUserId: row.matrix_user_id,
  });

  function runIdAt(tx: Tx, event: EventId): RunId | undefined {
    const ofPrompt = (prompt: string) => tx.get(sql.selectFrom('pending_inputs').select('run_id').where('prompt_id', '=', prompt))?.run_id;
    const prompt = ofPrompt(event);
    if (prompt !== undefined) return prompt;
    const sent = tx.get(sql.selectFrom('outbox').select(['run_id', 'kind', 'txn_id']).where('event_id', '=', event));
    if (sent?.run_id != null) return sent.run_id;
    // The copy of a portal's prompt stands for the prompt, which is no event.
    return sent?.kind === 'mirror' ? ofPrompt(sent.txn_id.slice('mirror.'.length)) : undefined;
  }
  function newestOf(tx: Tx, run: RunId): RunId {
    let newest = run;
    for (let steps = 0; steps < MAX_REPLACED; steps += 1) {
      const next = tx.get(sql.selectFrom('runs').select('run_id').where('replaces', '=', newest).orderBy('run_id', 'desc').limit(1));
      if (next === undefined) break;
      newest = next.run_id;
    }
    return newest;
  }

  const control: Control = {
    runAt(tx, room, event) {
      const id = runIdAt(tx, event);
      if (id === undefined) return undefined;
      const row = tx.get(sql.selectFrom('runs').select(columns).where('run_id', '=', newestOf(tx, id)).where('room_id', '=', room));
      return row === undefined ? undefined : toTarget(row);
    },
    unfinishedIn(tx, room, thread) {
      const more = ['room_id', 'thread_root'] as const;
      // Not asked for by room: the planner would then read all runs that the room ever had.
      const rows = tx.all(
        sql
          .selectFrom('runs')
          .select([...columns, ...more])
          .where(IS_UNFINISHED)
          .orderBy('created_at'),
      );
      return rows
        .filter((row) => row.room_id === room && (thread === null || row.thread_root === thread || row.session_id === sessionIdOf(thread)))
        .map(toTarget);
    },
    stop(tx, run, now) {
      const ended = tx.run(
        sql
          .updateTable('runs')
          .set({ status: 'cancelled', ended_at: now })
          .where('run_id', '=', run)
          .where('status', '=', 'queued')
          .where('attempt', '=', 0),
      );
      if (ended > 0) return false;
      runs.askStop(tx, run, 'RUN_CANCELLED');
      return true;
    },
    stopSpeakingFor(tx, user, now) {
      const rows = tx.all(
        sql
          .selectFrom('runs')
          .select([...columns, 'principal_id'])
          .where(IS_UNFINISHED)
          .where('matrix_user_id', '=', user),
      );
      const ended = rows.filter(({ principal_id }) => principal_id.startsWith('did:')).map(toTarget);
      const working = ended.filter(({ id }) => {
        const isWorking = control.stop(tx, id, now);
        if (isWorking) runs.askStop(tx, id, 'REVOKED');
        return isWorking;
      });
      return () => {
        for (const { id, sessionId } of working) scheduler.cancel(sessionId, id, refusal('REVOKED'));
        if (working.length > 0) scheduler.wake();
      };
    },
    abort({ id, sessionId }) {
      scheduler.cancel(sessionId, id);
      // One that a dead process left is ended by whoever looks for work.
      scheduler.wake();
    },
  };
  return control;
}
