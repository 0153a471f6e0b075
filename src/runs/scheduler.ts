/**
 * Decides which run executes when: turns of one session one after the other, sessions side by side, never more than the operator allows
 * (G3). What a dead process left is taken up here as well: a running row that nobody in this process executes is resumed, or ended
 * visibly when its attempts or its time are over (G5).
 */
import { OracleError, type Refusal, refusal } from '../errors.ts';
import type { RunId, SessionId } from '../ids.ts';
import type { Logger } from '../observe/logger.ts';
import { StorageError, type Store } from '../store/store.ts';
import { type Clock, sleep, type Timer } from '../time.ts';
import { type ExecuteOptions, type Execution, endWithoutExecution, executeRun } from './execute-run.ts';
import type { Runs } from './ledger.ts';
import { planRecovery, type RecoveryStep } from './recovery.ts';
import type { Run } from './run.ts';
import { Drain } from './runner.ts';

export interface SchedulerOptions {
  readonly store: Store;
  readonly runs: Runs;
  readonly clock: Clock;
  readonly logger: Logger;
  /** Null until the agent library is loaded: runs wait. */
  readonly execute: () => ExecuteOptions | null;
  readonly maxConcurrentRuns: number;
  readonly runDeadlineMs: number;
}
export interface Scheduler {
  /** A run may be startable: after `open`, and once the agent is loaded. */
  wake(): void;
  active(): number;
  /** Stops the run that executes in this session; its text so far stays with a marker (G9). False when none does. `why`: RUN_CANCELLED unless given. */
  cancel(session: SessionId, only?: RunId, why?: Refusal): boolean;
  /** Stops starting runs, asks the running ones to reach a checkpoint, and waits up to `timeoutMs`. */
  stop(timeoutMs: number): Promise<void>;
}

const LEASE_MS = 60_000;
const RETRY_MS = 1_000;

export function createScheduler(options: SchedulerOptions): Scheduler {
  const { store, runs, clock, logger, maxConcurrentRuns, runDeadlineMs } = options;
  const executing = new Map<SessionId, { run: RunId; work: Promise<void>; stop: AbortController }>();
  const drain = new AbortController();
  let retry: Timer | null = null;
  let stopped = false;

  function wake(): void {
    const execute = options.execute();
    if (stopped || execute === null || !store.writable()) {
      scheduleRetry();
      return;
    }
    const free = maxConcurrentRuns - executing.size;
    if (free <= 0) return;
    const busy = new Set(executing.keys());
    for (const { run, step } of planRecovery(runs.unfinished(free, busy), clock.now(), { free, busy })) {
      if (step.kind === 'wait') continue;
      const stop = new AbortController();
      const work = take(run.id, step, execute, stop.signal).finally(() => {
        executing.delete(run.sessionId);
        wake();
      });
      executing.set(run.sessionId, { run: run.id, work, stop });
    }
  }

  /** While the disk is full or the agent is not loaded, look again: nothing else would wake us. */
  function scheduleRetry(): void {
    if (stopped || retry !== null) return;
    retry = clock.after(RETRY_MS, () => {
      retry = null;
      if (store.writable()) wake();
      else void store.probe().then(wake);
    });
  }

  async function take(
    id: RunId,
    step: Exclude<RecoveryStep, { kind: 'wait' }>,
    execute: ExecuteOptions,
    cancelled: AbortSignal,
  ): Promise<void> {
    try {
      const now = clock.now();
      const run = await store.write((tx) => runs.start(tx, id, { now, leaseUntil: now + LEASE_MS, deadlineAt: now + runDeadlineMs }));
      if (run === undefined) return;
      if (step.kind === 'end') return await endWithoutExecution(run, refusal(step.because), execute);
      const ended = execute.authority.judgeStart(run, now);
      if (ended !== null) return await endWithoutExecution(run, refusal(ended), execute);
      // Taken back while nobody executed it: there is nothing left to answer.
      if (run.prompts.every(({ text }) => text === '')) return await endWithoutExecution(run, refusal('RUN_CANCELLED'), execute);
      if ((await execution(run, cancelled, execute)) === 'ended' || stopped) return;
      // Not at a stop, where it gave itself back: the disk failed it.
      await giveBack(run);
      if (cancelled.aborted && !stopped) await endWithoutExecution(run, readReason(cancelled), execute);
    } catch (error) {
      if (error instanceof StorageError) return await pause();
      // A bug: without the pause a run that always throws here would spin. Its attempts are counted, so it ends.
      logger.error({ run_id: id, err: error }, 'a run could not be executed');
      await pause();
    }
  }

  async function execution(run: Run, cancelled: AbortSignal, execute: ExecuteOptions): Promise<Execution> {
    const lease = keepLease(run.id);
    try {
      return await executeRun(run, AbortSignal.any([drain.signal, cancelled]), execute);
    } catch (error) {
      if (error instanceof StorageError) return 'suspended';
      throw error;
    } finally {
      lease.stop();
    }
  }

  /** A run that waits for the disk waits as long as it takes, and its attempt does not count. */
  async function giveBack(run: Run): Promise<void> {
    for (;;) {
      await pause();
      if (stopped) return;
      try {
        if (store.writable() || (await store.probe())) return await store.write((tx) => runs.release(tx, run));
      } catch (error) {
        if (!(error instanceof StorageError)) throw error;
      }
    }
  }

  function keepLease(id: RunId): { stop: () => void } {
    let timer: Timer;
    const extend = () => {
      timer = clock.after(LEASE_MS / 3, extend);
      const renewed = store.write((tx) => {
        const run = runs.read(tx, id);
        if (run !== undefined) runs.extendLease(tx, run, clock.now() + LEASE_MS);
      });
      renewed.catch((error: unknown) => logger.warn({ run_id: id, err: error }, 'a lease could not be extended'));
    };
    timer = clock.after(LEASE_MS / 3, extend);
    return { stop: () => timer.cancel() };
  }

  const pause = (): Promise<void> => sleep(clock, RETRY_MS, drain.signal).catch(() => undefined);

  return {
    wake,
    active: () => executing.size,
    cancel(session, only, why = refusal('RUN_CANCELLED')) {
      const execution = executing.get(session);
      if (execution === undefined || (only !== undefined && execution.run !== only)) return false;
      execution.stop.abort(new OracleError(why));
      return true;
    },
    async stop(timeoutMs) {
      stopped = true;
      retry?.cancel();
      drain.abort(new Drain('shutting down'));
      const all = Promise.all([...executing.values()].map(({ work }) => work));
      let timer: Timer | undefined;
      const timeUp = new Promise<void>((resolve) => {
        timer = clock.after(timeoutMs, resolve);
      });
      await Promise.race([all, timeUp]);
      timer?.cancel();
      if (executing.size > 0) logger.warn({ count: executing.size }, 'runs did not reach a checkpoint in time and go on at the next start');
    },
  };
}

const readReason = ({ reason }: AbortSignal): Refusal => (reason instanceof OracleError ? reason.refusal : refusal('RUN_CANCELLED'));
