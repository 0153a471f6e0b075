/**
 * What an operator may do to a run from the command line: end it, or have a failed one answered after all. Both are decided here, in one
 * transaction, against what is on disk at that moment, so that neither meets a run half way: terminal stays terminal (G10), and a retry is a run of
 * its own that rests on exactly what the first one did and is judged again when it starts (G8).
 */
import type { ErrorCode } from '../errors.ts';
import { parseRunId, type RunId, type SessionId } from '../ids.ts';
import { createControl } from '../runs/control.ts';
import type { Runs } from '../runs/ledger.ts';
import { type Run, TERMINAL } from '../runs/run.ts';
import type { Scheduler } from '../runs/scheduler.ts';
import type { Store, Tx } from '../store/store.ts';
import type { Clock } from '../time.ts';
import type { JudgeAccess } from '../turn/judge-access.ts';
import type { RunAuthority } from '../turn/run-authority.ts';
import type { Order } from './obey-control.ts';

export interface RunOrdersOptions {
  readonly store: Store;
  readonly runs: Pick<Runs, 'read' | 'repeat' | 'askStop' | 'isReplaced'>;
  readonly scheduler: Pick<Scheduler, 'cancel' | 'wake'>;
  readonly authority: Pick<RunAuthority, 'judge'>;
  readonly judgeAccess: JudgeAccess;
  readonly clock: Clock;
  readonly newRunId: (now: number) => RunId;
}

/** Statuses that a retry can mend; a cancelled run ended as somebody wished, and a completed one has its answer. */
export const RETRIABLE = ['failed', 'interrupted', 'expired'] as const satisfies readonly Run['status'][];

export function createRunOrders(options: RunOrdersOptions): Readonly<Record<'run.cancel' | 'run.retry', Order>> {
  const { store, runs, scheduler, authority, clock, newRunId } = options;
  const { sql } = store;
  const control = createControl({ store, runs, scheduler });
  const find = (tx: Tx, argument: string): Run | undefined => {
    const id = parseRunId(argument);
    return id.ok ? runs.read(tx, id.value) : undefined;
  };

  /** As !stop does it: what the run said stays, and what was said to it meanwhile goes with it. */
  async function cancel(argument: string, done: Parameters<Order>[1]): Promise<void> {
    const working = await store.write((tx) => {
      const run = find(tx, argument);
      if (run === undefined || TERMINAL.has(run.status)) {
        done(tx, run === undefined ? 'there is no such run' : `the run is ${run.status} already`);
        return null;
      }
      const works = control.stop(tx, run.id, clock.now());
      done(tx, works ? 'cancelled' : 'cancelled before it started');
      return works ? run : null;
    });
    if (working !== null) control.abort(working);
    // The next in its session may start.
    else scheduler.wake();
  }

  async function retry(argument: string, done: Parameters<Order>[1]): Promise<void> {
    await store.write((tx) => {
      const run = find(tx, argument);
      const refused = run === undefined ? 'there is no such run' : refuseRetry(tx, run);
      if (run === undefined || refused !== null) return done(tx, `not possible: ${refused}`);
      const now = clock.now();
      const next = newRunId(now);
      runs.repeat(tx, run.id, next, now);
      tx.run(sql.updateTable('runs').set({ replaces: run.id }).where('run_id', '=', next));
      tx.run(sql.updateTable('pending_inputs').set({ run_id: next, consumed_at: null, steers: 0 }).where('run_id', '=', run.id));
      // The prompts and only they: what the first run said and did is no part of the conversation any more.
      const said = { session_id: run.sessionId, run_id: run.id };
      tx.run(
        sql
          .updateTable('transcript')
          .set({ run_id: next })
          .where((eb) => eb.and(said))
          .where('role', '=', 'human'),
      );
      tx.run(sql.deleteFrom('transcript').where((eb) => eb.and(said)));
      // The caller that repeats its request is shown the run that answers it.
      tx.run(sql.updateTable('replay_marks').set({ run_id: next }).where('run_id', '=', run.id));
      done(tx, `answered again by run ${next}`);
    });
    scheduler.wake();
  }

  /** Why it cannot be answered again, as the rest of a sentence; null when it can. */
  function refuseRetry(tx: Tx, run: Run): string | null {
    if (!TERMINAL.has(run.status)) return `the run is ${run.status}, and goes on by itself`;
    if (!RETRIABLE.some((status) => status === run.status))
      return `the run is ${run.status}; only failed, interrupted and expired ones are retried`;
    if (runs.isReplaced(tx, run.id)) return 'another run answers its prompts already';
    if (run.prompts.length === 0 || run.prompts.some(({ text }) => text === '')) return 'its prompts were taken back or are kept no more';
    if (newestOf(tx, run.sessionId) !== run.id) return 'the conversation went on since; the person may ask again';
    const refused = options.judgeAccess(run);
    if (refused !== null) return `its person may not use this oracle any more (${refused})`;
    const ended = authority.judge(run, clock.now());
    return ended === null ? null : `${describeEnd(ended)}; the person may ask again`;
  }

  const newestOf = (tx: Tx, session: SessionId): RunId | undefined =>
    tx.get(sql.selectFrom('runs').select('run_id').where('session_id', '=', session).orderBy('run_id', 'desc').limit(1))?.run_id;

  return { 'run.cancel': cancel, 'run.retry': retry };
}

const describeEnd = (code: ErrorCode): string => `what it rests on counts no more (${code})`;
