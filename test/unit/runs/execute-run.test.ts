import { describe, expect, test } from 'vitest';
import { OracleError, refusal } from '../../../src/errors.ts';
import { executeRun } from '../../../src/runs/execute-run.ts';
import type { Projection } from '../../../src/runs/projection.ts';
import type { Run } from '../../../src/runs/run.ts';
import { Drain } from '../../../src/runs/runner.ts';
import { StorageError } from '../../../src/store/store.ts';
import { buildCore, type Core } from '../../fakes/core.ts';
import { incoming } from '../../fakes/events.ts';
import { breakDisk, settle } from '../../fakes/memory-store.ts';
import { completed, held, type Script } from '../../fakes/scripted-runner.ts';

/** A core with one queued run and no scheduler at work: a test executes by hand. */
async function setUp(...script: Script[]) {
  const core = buildCore();
  const execute = core.execute;
  if (execute === null) throw new Error('no execute options');
  core.execute = null;
  // It would look every second whether the agent is loaded; the test executes by hand.
  await core.scheduler.stop(0);
  await core.joinDirect();
  await core.take(incoming('a', { text: 'prompt' }));
  if (script.length > 0) core.runner.script(...script);
  const start = async (): Promise<Run> => {
    const [next] = core.runs.unfinished(1, new Set());
    const run = await core.store.write((tx) =>
      core.runs.start(tx, next?.id as never, {
        now: core.clock.now(),
        leaseUntil: core.clock.now() + 60_000,
        deadlineAt: core.clock.now() + 300_000,
      }),
    );
    if (run === undefined) throw new Error('not started');
    return run;
  };
  const signal = new AbortController();
  return { core, execute, start, signal, run: async () => executeRun(await start(), signal.signal, execute) };
}
const row = (core: Core) => core.store.read.get(core.store.sql.selectFrom('runs').selectAll());
const answers = (core: Core): string[] =>
  core.store.read
    .all(core.store.sql.selectFrom('transcript').select(['role', 'text']).orderBy('id'))
    .filter(({ role }) => role !== 'human')
    .map(({ text }) => text);
const problems = (core: Core): string[] => core.projection.views.flatMap((view) => view.problems);

describe('outcomes', () => {
  test('a completed run: text, usage, transcript, end frame and status in one transaction (G10)', async () => {
    const { core, run } = await setUp((job) => {
      job.output.text('Hello');
      job.output.modelCalled('m');
      return { ...completed('Hello'), usage: { inputTokens: 1, outputTokens: 2 }, model: 'm' } as never;
    });
    core.clock.advance(5);

    expect(await run()).toBe('ended');

    expect(row(core)).toMatchObject({ status: 'completed', attempt: 1, error: null, model_answered: 'm', lease_until: 0 });
    expect(JSON.parse(row(core)?.usage ?? '')).toEqual({ v: 1, inputTokens: 1, outputTokens: 2 });
    expect(answers(core)).toEqual(['Hello']);
    expect(core.projection.views).toMatchObject([{ closed: true, ended: { text: 'Hello', end: { status: 'completed' } } }]);
    expect(core.projection.views[0]?.frames.map(({ kind }) => kind)).toEqual(['run', 'text', 'end']);
    expect(core.observed.map(({ kind }) => kind)).toEqual(['first_text', 'model_called', 'ended']);
    expect(problems(core)).toEqual([]);
    expect(core.clock.pending()).toBe(0);
  });

  test.each<[string, Script, string, string]>([
    ['a refusal', () => ({ kind: 'failed', refusal: refusal('MODEL_ERROR'), messages: [] }), 'failed', 'MODEL_ERROR'],
    ['a typed throw', () => Promise.reject(new OracleError(refusal('MODEL_TIMEOUT'))), 'failed', 'MODEL_TIMEOUT'],
    ['a bug', () => Promise.reject(new TypeError('secret text')), 'failed', 'INTERNAL'],
    ['a thrown string', () => Promise.reject('secret text'), 'failed', 'INTERNAL'],
    ['a cancel', () => ({ kind: 'failed', refusal: refusal('RUN_CANCELLED'), messages: [] }), 'cancelled', 'RUN_CANCELLED'],
    ['a deadline', () => ({ kind: 'failed', refusal: refusal('RUN_DEADLINE'), messages: [] }), 'expired', 'RUN_DEADLINE'],
    ['an interruption', () => ({ kind: 'failed', refusal: refusal('INTERRUPTED'), messages: [] }), 'interrupted', 'INTERRUPTED'],
  ])('%s ends the run once, visibly, with what it said', async (_name, script, status, code) => {
    const { core, run } = await setUp((job) => {
      job.output.text('Half');
      return script(job);
    });

    expect(await run()).toBe('ended');

    expect(row(core)).toMatchObject({ status });
    expect(core.projection.views[0]?.ended).toMatchObject({ text: 'Half', error: { code }, end: { status } });
    expect(JSON.stringify([core.projection.views[0]?.frames, row(core)])).not.toContain('secret');
    expect(core.observed.at(-1)).toMatchObject({ kind: 'ended', code });
  });

  test('a drain suspends at a checkpoint: still running, nothing terminal, and the next attempt shows itself as a resume (G5)', async () => {
    const holding = held('Hel');
    const { core, execute, start, run, signal } = await setUp(holding.script, (job) => {
      expect(job.shownText).toBe('Hel');
      job.output.text('lo');
      return completed('Hello');
    });
    const first = run();
    await settle();
    signal.abort(new Drain('shutting down'));

    expect(await first).toBe('suspended');
    expect(row(core)).toMatchObject({ status: 'running', lease_until: 0, ended_at: null });
    expect(answers(core)).toEqual([]);
    expect(core.projection.views[0]).toMatchObject({ closed: true, ended: null, folded: { text: 'Hel' } });

    expect(await executeRun(await start(), new AbortController().signal, execute)).toBe('ended');

    expect(core.frames.fold(row(core)?.run_id as never)).toMatchObject({ text: 'Hello', attempt: 2, end: { status: 'completed' } });
    expect(core.projection.views[1]?.frames[0]).toMatchObject({ kind: 'run', data: { state: 'resumed', attempt: 2 } });
    expect(problems(core)).toEqual([]);
  });

  test('the deadline aborts the run with its reason, and is counted from the start, not from the resume', async () => {
    const { core, run } = await setUp(held('slow').script);
    const running = run();
    await core.clock.advanceAsync(299_999);
    expect(core.projection.views[0]?.ended).toBeNull();

    await core.clock.advanceAsync(1);

    expect(await running).toBe('ended');
    expect(row(core)).toMatchObject({ status: 'expired' });
  });

  test('a straggling tool that goes on after the outcome neither keeps the run from ending nor stands after its end', async () => {
    let talking = true;
    const { core, run } = await setUp((job) => {
      const talk = async (): Promise<void> => {
        for (let n = 0; talking && n < 5_000; n += 1) {
          job.output.text('.');
          job.output.toolCall({ id: 'x', name: 't', status: 'done' });
          await (n % 10 === 9 ? settle(1) : Promise.resolve());
        }
      };
      void talk();
      return completed('Hello');
    });

    expect(await run()).toBe('ended');
    await settle();
    talking = false;

    const frames = core.frames.after(row(core)?.run_id as never, 0);
    expect(frames.at(-1)?.kind).toBe('end');
    expect(frames.map(({ seq }) => seq)).toEqual(frames.map((_, index) => index + 1));
    expect(core.logger.said('error')).toEqual([]);
  });
});

describe('when the disk fails', () => {
  test('in the middle of a run: the model is told to stop, the run stays unfinished and is resumed where it was', async () => {
    const reasons: unknown[] = [];
    const { core, execute, start, run } = await setUp(async (job) => {
      job.output.text('Hello ');
      await settle(2);
      await core.clock.advanceAsync(40);
      const disk = breakDisk(core.store);
      job.output.text('lost');
      await core.clock.advanceAsync(40);
      await settle();
      reasons.push(job.signal.reason);
      disk.repair();
      return completed('Hello lost');
    });

    expect(await run()).toBe('suspended');

    expect(reasons).toMatchObject([expect.any(StorageError)]);
    expect(row(core)).toMatchObject({ status: 'running', ended_at: null });
    expect(answers(core)).toEqual([]);
    core.runner.script((job) => {
      expect(job.shownText).toBe('Hello ');
      job.output.text('again');
      return completed('Hello again');
    });
    expect(await executeRun(await start(), new AbortController().signal, execute)).toBe('ended');
    expect(core.frames.fold(row(core)?.run_id as never)).toMatchObject({ text: 'Hello again', end: { status: 'completed' } });
    expect(problems(core)).toEqual([]);
  });

  test('at the terminal transaction: nothing of it is kept, and the next attempt ends it once (G10)', async () => {
    let disk: { repair(): void } | undefined;
    const { core, execute, start, run } = await setUp(async (job) => {
      job.output.text('Hello');
      await core.clock.advanceAsync(40);
      await settle();
      disk = breakDisk(core.store);
      return completed('Hello');
    });

    expect(await run()).toBe('suspended');
    disk?.repair();

    expect([answers(core), row(core)?.status]).toEqual([[], 'running']);
    core.runner.script(() => completed('Hello'));
    expect(await executeRun(await start(), new AbortController().signal, execute)).toBe('ended');
    expect(answers(core)).toEqual(['Hello']);
    expect(core.frames.after(row(core)?.run_id as never, 0).filter(({ kind }) => kind === 'end')).toHaveLength(1);
  });

  test('inside the runner: a StorageError is no failure of the answer', async () => {
    const { core, run } = await setUp(() => Promise.reject(new StorageError('full')));

    expect(await run()).toBe('suspended');

    expect(row(core)).toMatchObject({ status: 'running' });
  });
});

describe('fence (G18)', () => {
  test('an execution that was taken over ends nothing, marks no prompt and leaves the row to the other', async () => {
    let consumed: Promise<unknown> | undefined;
    const { core, start, run } = await setUp(async (job) => {
      // The first frame is on disk by then: only the terminal transaction is left to find out.
      await settle();
      await start();
      consumed = job.output.promptsConsumed(job.run.prompts.map(({ id }) => id)).catch((error: Error) => error.name);
      await consumed;
      return completed('stolen');
    });

    expect(await run()).toBe('suspended');

    expect(await consumed).toBe('LostLease');
    expect(row(core)).toMatchObject({ status: 'running', attempt: 2 });
    expect(answers(core)).toEqual([]);
  });

  test('a bug while frames are written is no full disk: it is thrown, so that the attempt counts (G5)', async () => {
    const { core, execute, start } = await setUp(async (job) => {
      job.output.text('half');
      await settle();
      return completed('half');
    });
    const runs = {
      ...core.runs,
      holds: (): boolean => {
        throw new ReferenceError('a bug');
      },
    };

    const ending = executeRun(await start(), new AbortController().signal, { ...execute, runs });

    await expect(ending).rejects.toBeInstanceOf(ReferenceError);
    expect(row(core)).toMatchObject({ status: 'running', put_off: 0 });
  });

  test('terminal is terminal: a run that ended is not started, ended or written again (G10)', async () => {
    const { core, start, run } = await setUp();
    let ended: Run | undefined;
    core.runner.script((job) => {
      ended = job.run;
      return completed('x');
    });
    await run();

    const changes = await core.store.write((tx) => ({
      started: core.runs.start(tx, ended?.id as never, { now: 0, leaseUntil: 0, deadlineAt: 0 }),
      holds: core.runs.holds(tx, ended as Run),
      ended: core.runs.end(tx, ended as Run, { status: 'failed', error: refusal('INTERNAL'), usage: null, model: null }, 0),
    }));

    expect(changes).toEqual({ started: undefined, holds: false, ended: false });
    expect(row(core)?.status).toBe('completed');
    await expect(start()).rejects.toThrow('not started');
  });
});

describe('views', () => {
  const broken = (where: 'onFrames' | 'onEnd'): Projection => ({
    open: () => ({
      onFrames: () => undefined,
      onEnd: () => undefined,
      close: () => undefined,
      [where]: () => {
        throw new TypeError('a bug in a view');
      },
    }),
  });

  test('a view that cannot show frames stops neither the run nor the other views', async () => {
    const { core, execute, start } = await setUp();
    const projections = [broken('onFrames'), core.projection];

    expect(await executeRun(await start(), new AbortController().signal, { ...execute, projections })).toBe('ended');

    expect(core.projection.views[0]?.ended).toMatchObject({ text: 'Hello.' });
    expect(core.logger.said('error')).toContain('a view of a run could not show its frames');
  });

  test('a view that cannot write its last word undoes the end: never done but unsent (G4)', async () => {
    const { core, execute, start } = await setUp();

    const ending = executeRun(await start(), new AbortController().signal, { ...execute, projections: [broken('onEnd')] });

    await expect(ending).rejects.toBeInstanceOf(TypeError);
    expect(row(core)).toMatchObject({ status: 'running' });
    expect(answers(core)).toEqual([]);
    expect(core.clock.pending()).toBe(0);
  });
});

test('nothing of the conversation reaches the logs (G12)', async () => {
  const { core, run } = await setUp((job) => {
    job.output.text('my secret answer');
    return Promise.reject(new OracleError(refusal('MODEL_ERROR')));
  });
  await run();

  expect(JSON.stringify(core.logger.lines)).not.toContain('secret');
});
