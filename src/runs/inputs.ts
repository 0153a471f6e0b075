/**
 * What its principal says while a run works (DESIGN §7): given to the run before its next model call, or, when the run ends without having taken it,
 * answered by a run of its own. Each exactly once and in order, whatever crashes (G2, G3): an input is a row from the moment it was admitted, the
 * checkpoint says which of them the model was shown, and the rest moves in the transaction that ends the run.
 * Cost: one indexed read per model call and per end of a run.
 */
import { sql as raw, type SqlBool } from 'kysely';
import { nextRunId, type RunId, type SessionId } from '../ids.ts';
import type { Store, Tx } from '../store/store.ts';
import type { Principal } from '../turn/principal.ts';
import { type Runs, writeGrants } from './ledger.ts';
import type { Prompt, TurnHints } from './run.ts';

export type Multitask = 'steer' | 'enqueue' | 'interrupt';
const MODES: readonly string[] = ['steer', 'enqueue', 'interrupt'] satisfies readonly Multitask[];
export const isMultitask = (text: unknown): text is Multitask => typeof text === 'string' && MODES.includes(text);

export interface Inputs {
  /**
   * The working run that a further message of this principal may be given to: the last of its session, by the very same principal, account and tier,
   * resting on the same grants, with the same wishes. Never another person's (G13), and never past a message that came in between (G3).
   */
  steerable(tx: Tx, session: SessionId, principal: Principal, hints: TurnHints): RunId | undefined;
  /** The working run of this principal at this tier, for `interrupt`. */
  interruptible(tx: Tx, session: SessionId, principal: Principal): RunId | undefined;
  /** What waits to be taken by a working run, in order. */
  waiting(tx: Tx, run: RunId): Prompt[];
  /** Marks these as shown to the model. @returns false, and marks none, when one of them was taken back meanwhile. */
  consume(tx: Tx, run: RunId, ids: readonly string[], now: number): boolean;
  /**
   * What an interrupted run has not taken goes to the run that interrupts it, or to one of its own before that when the two rest on different grants:
   * nothing is answered under other grants than it came with (G8).
   */
  handOver(tx: Tx, from: RunId, to: { runId: RunId; principal: Principal }, now: number): void;
  /** What the run has not taken becomes a run of its own; null when there is none. */
  followUp(tx: Tx, run: RunId, now: number): RunId | null;
}

/** Word for word the condition of the partial index: without it every message would look at all runs its session ever had (G16). */
const IS_UNFINISHED = raw<SqlBool>`status in ('queued', 'running', 'waiting')`;

export interface InputsOptions {
  readonly store: Store;
  readonly runs: Pick<Runs, 'repeat'>;
  readonly newRunId: (now: number) => RunId;
}

export function createInputs({ store, runs, newRunId }: InputsOptions): Inputs {
  const { sql } = store;

  const working = (session: SessionId, principal: Principal) =>
    sql
      .selectFrom('runs')
      .select('run_id')
      .where('session_id', '=', session)
      .where(IS_UNFINISHED)
      .where('status', '=', 'running')
      .where('stop_asked', 'is', null)
      .where('principal_id', '=', principal.id)
      .where('matrix_user_id', '=', principal.matrixUserId)
      .where('tier', '=', principal.tier);

  const untaken = (tx: Tx, run: RunId) =>
    tx.all(
      sql
        .selectFrom('pending_inputs')
        .select(['prompt_id', 'text', 'received_at'])
        .where('run_id', '=', run)
        .where('steers', '=', 1)
        .where('consumed_at', 'is', null)
        .orderBy('id'),
    );

  /** Runs of a session are executed in the order of their ids, so what was said before the next of them is answered before it (G3). Null: none waits, or it is taken. */
  function idBehind(tx: Tx, run: RunId): RunId | null {
    const session = sql.selectFrom('runs').select('session_id').where('run_id', '=', run);
    const waiting = sql
      .selectFrom('runs')
      .select('run_id')
      .where('session_id', '=', session)
      .where(IS_UNFINISHED)
      .where('run_id', '>', run);
    if (tx.get(waiting.limit(1)) === undefined) return null;
    const next = nextRunId(run);
    const isTaken = next !== null && tx.get(sql.selectFrom('runs').select('run_id').where('run_id', '=', next)) !== undefined;
    return isTaken ? null : next;
  }

  function move(tx: Tx, from: RunId, to: RunId): void {
    for (const { prompt_id: id } of untaken(tx, from)) {
      tx.run(sql.updateTable('pending_inputs').set({ run_id: to, steers: 0 }).where('prompt_id', '=', id));
      tx.run(sql.updateTable('transcript').set({ run_id: to }).where('event_id', '=', id).where('run_id', '=', from));
    }
  }

  const inputs: Inputs = {
    steerable(tx, session, principal, hints) {
      const grants = writeGrants(principal.grants);
      let query = working(session, principal)
        .where('trust', 'is', principal.trust)
        .where('hints', '=', JSON.stringify({ v: 1, ...hints }));
      query = grants === null ? query.where('grants', 'is', null) : query.where('grants', '=', grants);
      const found = tx.get(query)?.run_id;
      const last = tx.get(sql.selectFrom('runs').select('run_id').where('session_id', '=', session).orderBy('run_id', 'desc').limit(1));
      return found !== undefined && last?.run_id === found ? found : undefined;
    },
    interruptible: (tx, session, principal) => tx.get(working(session, principal))?.run_id,
    waiting: (tx, run) => untaken(tx, run).map((row) => ({ id: row.prompt_id, text: row.text, receivedAt: row.received_at })),
    consume(tx, run, ids, now) {
      const there = tx.all(sql.selectFrom('pending_inputs').select('id').where('prompt_id', 'in', ids).where('run_id', '=', run));
      if (there.length < ids.length) return false;
      tx.run(
        sql
          .updateTable('pending_inputs')
          .set((eb) => ({ consumed_at: eb.fn.coalesce('consumed_at', eb.val(now)) }))
          .where('prompt_id', 'in', ids)
          .where('run_id', '=', run),
      );
      return true;
    },
    handOver(tx, from, { runId, principal }, now) {
      const grants = tx.get(sql.selectFrom('runs').select('grants').where('run_id', '=', from))?.grants ?? null;
      if (grants === writeGrants(principal.grants)) move(tx, from, runId);
      else inputs.followUp(tx, from, now);
    },
    followUp(tx, run, now) {
      if (untaken(tx, run).length === 0) return null;
      const next = idBehind(tx, run) ?? newRunId(now);
      runs.repeat(tx, run, next, now);
      move(tx, run, next);
      return next;
    },
  };
  return inputs;
}
