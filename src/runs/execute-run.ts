/**
 * One execution of one run, from its start to its terminal transaction (G5, G10). The runner does the thinking; here every outcome
 * becomes durable exactly once: last text, error, end, status, transcript and the last outbox rows in a single commit, so that a run is
 * never done but unsent, and a crash before it means the run goes on.
 */
import { type ErrorCode, OracleError, type Refusal, refusal } from '../errors.ts';
import type { Logger } from '../observe/logger.ts';
import type { Transcript } from '../sessions/transcript.ts';
import { StorageError, type Store, type Tx } from '../store/store.ts';
import type { Clock } from '../time.ts';
import type { RunAuthority } from '../turn/run-authority.ts';
import { askErasure } from './erase-run.ts';
import { createFrameLog, type FrameLog, type FrameReader, LostLease } from './frames.ts';
import type { Inputs } from './inputs.ts';
import type { Runs } from './ledger.ts';
import type { Projection, RunView } from './projection.ts';
import { EMPTY_FOLD, type FoldedRun, type Frame, type Run, type RunStatus, type Usage } from './run.ts';
import { Drain, type RunJob, type Runner, type RunOutcome } from './runner.ts';

export interface ExecuteOptions {
  readonly store: Store;
  readonly runs: Runs;
  readonly inputs: Inputs;
  readonly frames: FrameReader;
  readonly transcript: Transcript;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly projections: readonly Projection[];
  readonly runner: Runner;
  readonly authority: Pick<RunAuthority, 'judgeStart'>;
  readonly observe: (event: RunObservation) => void;
}
export type RunObservation =
  | { readonly kind: 'model_called'; readonly sinceCreatedMs: number }
  | { readonly kind: 'first_text'; readonly sinceCreatedMs: number }
  | {
      readonly kind: 'ended';
      readonly status: RunStatus;
      readonly code: string | null;
      readonly usage: Usage | null;
      readonly durationMs: number;
    };

/** `suspended`: the run keeps its place and goes on at the next start, or when the disk has room again. */
export type Execution = 'ended' | 'suspended';

export async function executeRun(run: Run, signal: AbortSignal, options: ExecuteOptions): Promise<Execution> {
  const { store, clock, logger, runner, projections, frames, runs } = options;
  const log = logger.child({ run_id: run.id, session_id: run.sessionId, room_id: run.roomId });
  const earlier = run.attempt > 1 ? frames.fold(run.id) : EMPTY_FOLD;
  const stop = new AbortController();
  const abort = AbortSignal.any([signal, stop.signal]);
  const views = projections.map((projection) => projection.open(run, earlier));
  let failure: unknown = null;
  let firstText = false;
  let tainted = run.tainted;
  /** The runner has given its outcome: what a straggling tool still says would be numbered beside the last frames. */
  let over = false;
  function giveBack(error: unknown): void {
    failure ??= error;
    // Not a drain, which lets a step finish: nothing further can be kept, so the model call ends now (DESIGN §4).
    stop.abort(error instanceof Error ? error : new StorageError('the run cannot be written', { cause: error }));
  }

  const frameLog = createFrameLog({
    store,
    runs,
    clock,
    run,
    folded: earlier,
    onCommitted: (committed, folded) => show(views, committed, folded, log),
    onFailure: giveBack,
  });
  const deadline = clock.after(Math.max(0, (run.deadlineAt ?? clock.now()) - clock.now()), () =>
    stop.abort(new OracleError(refusal('RUN_DEADLINE'))),
  );

  const job: RunJob = {
    run,
    shownText: earlier.text,
    signal: abort,
    output: {
      text(delta) {
        if (over) return;
        if (!firstText && delta !== '') {
          firstText = true;
          options.observe({ kind: 'first_text', sinceCreatedMs: clock.now() - run.createdAt });
        }
        frameLog.text(delta);
      },
      truncate: (length) => (over ? undefined : frameLog.append('truncate', { length })),
      toolCall: (data) => (over ? undefined : frameLog.append('tool_call', data)),
      emit: (kind, data) => (over ? undefined : frameLog.append(kind, data)),
      inputsWaiting: () => options.inputs.waiting(store.read, run.id),
      promptsConsumed: async (ids) => {
        const consumed = await store.write((tx) => {
          if (!runs.holds(tx, run)) throw new LostLease(`run ${run.id} is no longer ours`);
          if (options.inputs.consume(tx, run.id, ids, clock.now())) return true;
          // Only that was taken back: what was said beside it is answered by a run of its own.
          options.inputs.followUp(tx, run.id, clock.now());
          // It stands in the checkpoint already; an edit leaves it to the run that answers it.
          if (!runs.isReplaced(tx, run.id)) askErasure(store, tx, run.id, clock.now());
          return false;
        });
        // Taken back a moment ago, or corrected: then this run is not what answers it.
        if (!consumed) throw new OracleError(refusal('RUN_CANCELLED'));
      },
      tainted: async () => {
        if (tainted) return;
        tainted = true;
        await store.write((tx) => {
          if (!runs.holds(tx, run)) throw new LostLease(`run ${run.id} is no longer ours`);
          runs.taint(tx, run);
        });
      },
      modelCalled: () => options.observe({ kind: 'model_called', sinceCreatedMs: clock.now() - run.createdAt }),
    },
  };

  try {
    frameLog.append('run', { state: run.attempt > 1 ? 'resumed' : 'started', attempt: run.attempt });
    const outcome = await think(runner, job, { log, giveBack });
    over = true;
    if (failure !== null || outcome.kind === 'suspended') return await suspend(outcome);
    await frameLog.settle();
    if (failure !== null) return await suspend(outcome);
    return await end(outcome);
  } finally {
    deadline.cancel();
    frameLog.close();
    for (const view of views) view.close();
  }

  async function suspend(outcome: RunOutcome): Promise<Execution> {
    // A bug, not the disk: its attempt counts, so that it ends instead of being tried every second for ever.
    if (failure !== null && !(failure instanceof StorageError) && !(failure instanceof LostLease)) throw failure;
    if (failure instanceof LostLease) log.error({ err: failure }, 'a run was taken over by another instance');
    else if (failure !== null) log.error({ err: failure }, 'a run waits: its frames cannot be written');
    else {
      await frameLog.flush();
      await store.write((tx) => runs.release(tx, run));
      log.info({ reason: outcome.kind }, 'a run was suspended');
    }
    return 'suspended';
  }

  async function end(outcome: Exclude<RunOutcome, { kind: 'suspended' }>): Promise<Execution> {
    const error = outcome.kind === 'failed' ? outcome.refusal : null;
    const status = statusOf(error);
    let publish = (): void => undefined;
    try {
      await store.write((tx) => {
        if (!runs.holds(tx, run)) throw new LostLease(`run ${run.id} is no longer ours`);
        const at = clock.now();
        const finished = frameLog.finishInTx(tx, [
          ...errorFrames(error),
          { kind: 'end', data: { status, ...optional('usage', outcome.usage), ...optional('model', outcome.model) } },
        ]);
        publish = finished.publish;
        if (tainted) runs.taint(tx, run);
        followUp(tx, run, error?.code ?? null, options);
        for (const message of runs.isReplaced(tx, run.id) ? [] : outcome.messages) {
          options.transcript.append(tx, {
            roomId: run.roomId,
            sessionId: run.sessionId,
            runId: run.id,
            eventId: null,
            speaker: 'oracle',
            at,
            tier: run.tier,
            tainted,
            ...message,
          });
        }
        runs.end(tx, run, { status, error, usage: outcome.usage ?? null, model: outcome.model ?? null }, at);
        for (const view of views) view.onEnd(tx, finished.folded);
      });
    } catch (cause) {
      if (!(cause instanceof StorageError) && !(cause instanceof LostLease)) throw cause;
      failure = cause;
      return suspend(outcome);
    }
    publish();
    const durationMs = clock.now() - run.createdAt;
    options.observe({ kind: 'ended', status, code: error?.code ?? null, usage: outcome.usage ?? null, durationMs });
    const fields = {
      duration_ms: durationMs,
      attempt: run.attempt,
      reason: status,
      ...(error === null ? {} : { code: error.code, err: error.cause }),
    };
    if (error === null || error.code === 'RUN_CANCELLED') log.info(fields, 'a turn ended');
    else log.warn(fields, 'a turn failed');
    return 'ended';
  }
}

/** Who stops a run stops what was said to it meanwhile as well; any other end leaves that to a run of its own (G2). */
const followUp = (tx: Tx, run: Run, code: ErrorCode | null, options: Pick<ExecuteOptions, 'inputs' | 'clock'>): void => {
  if (code !== 'RUN_CANCELLED') options.inputs.followUp(tx, run.id, options.clock.now());
};

/** The runner's throw is a bug of ours or of a plugin: one of the four doors (STYLE §2 "Errors"). */
async function think(
  runner: Runner,
  job: RunJob,
  { log, giveBack }: { log: Logger; giveBack: (error: unknown) => void },
): Promise<RunOutcome> {
  try {
    return await runner.execute(job);
  } catch (error) {
    if (error instanceof Drain) return { kind: 'suspended' };
    if (error instanceof StorageError || error instanceof LostLease) {
      giveBack(error);
      return { kind: 'suspended' };
    }
    if (error instanceof OracleError) return { kind: 'failed', refusal: error.refusal, messages: [] };
    log.error({ err: error }, 'the runner threw');
    return { kind: 'failed', refusal: refusal('INTERNAL', { cause: error }), messages: [] };
  }
}

/** The frames are on disk: a view that cannot show them must neither stop the run nor keep the next view from it. */
function show(views: readonly RunView[], frames: readonly Frame[], folded: FoldedRun, log: Logger): void {
  for (const view of views) {
    try {
      view.onFrames(frames, folded);
    } catch (error) {
      log.error({ err: error }, 'a view of a run could not show its frames');
    }
  }
}

function statusOf(error: Refusal | null): RunStatus {
  if (error === null) return 'completed';
  if (error.code === 'RUN_CANCELLED') return 'cancelled';
  if (error.code === 'INTERRUPTED') return 'interrupted';
  return error.code === 'RUN_DEADLINE' ? 'expired' : 'failed';
}

function errorFrames(
  error: Refusal | null,
): { kind: 'error'; data: { code: string; message: string; retryable: boolean; status: number } }[] {
  return error === null
    ? []
    : [{ kind: 'error', data: { code: error.code, message: error.message, retryable: error.retryable, status: error.status } }];
}

const optional = <K extends string, V>(key: K, value: V | undefined): { [P in K]?: V } =>
  value === undefined ? {} : ({ [key]: value } as { [P in K]: V });

/** Ends a run that may not be executed again: after its last attempt, or past its deadline. The text so far is kept with a marker. */
export async function endWithoutExecution(run: Run, error: Refusal, options: ExecuteOptions): Promise<void> {
  const log = options.logger.child({ run_id: run.id, session_id: run.sessionId, room_id: run.roomId });
  const status = statusOf(error);
  try {
    await endWith(options.projections, status);
  } catch (cause) {
    if (cause instanceof StorageError || cause instanceof LostLease) throw cause;
    // A view that fails would keep the run, and with it the session, for ever.
    log.error({ err: cause }, 'a run could not be shown and is ended without');
    await endWith([], status);
  }
  options.observe({ kind: 'ended', status, code: error.code, usage: null, durationMs: options.clock.now() - run.createdAt });
  log.warn({ code: error.code, attempt: run.attempt }, 'a run was ended without another attempt');

  async function endWith(projections: readonly Projection[], status: RunStatus): Promise<void> {
    const folded = options.frames.fold(run.id);
    const views = projections.map((projection) => projection.open(run, folded));
    const frameLog: FrameLog = createFrameLog({
      ...options,
      run,
      folded,
      onCommitted: (frames, now) => show(views, frames, now, log),
      onFailure: () => undefined,
    });
    try {
      const publish = await options.store.write((tx) => {
        if (!options.runs.holds(tx, run)) throw new LostLease(`run ${run.id} is no longer ours`);
        const at = options.clock.now();
        const finished = frameLog.finishInTx(tx, [...errorFrames(error), { kind: 'end', data: { status } }]);
        followUp(tx, run, error.code, options);
        if (folded.text !== '' && !options.runs.isReplaced(tx, run.id)) {
          options.transcript.append(tx, {
            roomId: run.roomId,
            sessionId: run.sessionId,
            runId: run.id,
            eventId: null,
            role: 'ai',
            speaker: 'oracle',
            text: folded.text,
            message: null,
            at,
            tier: run.tier,
            tainted: run.tainted,
          });
        }
        options.runs.end(tx, run, { status, error, usage: null, model: null }, at);
        for (const view of views) view.onEnd(tx, finished.folded);
        return finished.publish;
      });
      publish();
    } finally {
      frameLog.close();
      for (const view of views) view.close();
    }
  }
}
