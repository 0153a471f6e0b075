/**
 * Runs under whatever comes in whatever order: messages that open, steer, wait or interrupt, edits, redactions, model calls, texts, ends, cancels,
 * full disks, stops and kills, also in the middle of any of these. A kill is a process whose commits, timers and jobs are gone, and a new one on
 * the same file; the homeserver then sends everything again. After each step what was terminal is what it was (G10), logs are contiguous with one
 * end (G7), and a prompt was taken by one run only (G2); in the end nothing is left undone (G5).
 */
import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { OracleError, refusal } from '../../../src/errors.ts';
import type { RoomId, RunId } from '../../../src/ids.ts';
import type { IncomingEvent } from '../../../src/inbox/inbox.ts';
import { readFrameRow } from '../../../src/runs/compact-frames.ts';
import { EMPTY_FOLD, foldFrame, TERMINAL } from '../../../src/runs/run.ts';
import type { RunJob, RunOutcome } from '../../../src/runs/runner.ts';
import { openStore, StorageError, type Store } from '../../../src/store/store.ts';
import { buildCore, type Core } from '../../fakes/core.ts';
import { eventId, incoming, roomId } from '../../fakes/events.ts';
import { FAKE_START_MS, type FakeClock, fakeClock } from '../../fakes/fake-clock.ts';
import { breakDisk, settle } from '../../fakes/memory-store.ts';

const ROOMS = [roomId('one'), roomId('two'), roomId('three')] as const;
const MAX_RUNS = 2;
const MODES = ['steer', 'enqueue', 'interrupt'] as const;

type Act =
  | { readonly do: 'say'; readonly room: number; readonly mode: (typeof MODES)[number] }
  | { readonly do: 'edit' | 'redact'; readonly which: number }
  /** What the agent does before it asks the model: takes in what waits. */
  | { readonly do: 'think'; readonly which: number }
  | { readonly do: 'text' | 'complete' | 'fail' | 'throw'; readonly which: number }
  | { readonly do: 'cancel'; readonly room: number }
  | { readonly do: 'wait'; readonly ms: number }
  | { readonly do: 'fullDisk'; readonly ms: number }
  | { readonly do: 'stop' };
/** `killedAfter`: the process dies so many turns of the event loop after the act has begun. */
type Step = Act & { readonly killedAfter: number | null };

const which = fc.nat(3);
const room = fc.nat(ROOMS.length - 1);
const act = fc.oneof<fc.MaybeWeightedArbitrary<Act>[]>(
  { weight: 8, arbitrary: fc.record({ do: fc.constant('say' as const), room, mode: fc.constantFrom(...MODES) }) },
  { weight: 6, arbitrary: fc.record({ do: fc.constant('think' as const), which }) },
  { weight: 10, arbitrary: fc.record({ do: fc.constant('text' as const), which }) },
  { weight: 5, arbitrary: fc.record({ do: fc.constant('complete' as const), which }) },
  { weight: 2, arbitrary: fc.record({ do: fc.constantFrom('fail' as const, 'throw' as const), which }) },
  { weight: 3, arbitrary: fc.record({ do: fc.constantFrom('edit' as const, 'redact' as const), which }) },
  { weight: 2, arbitrary: fc.record({ do: fc.constant('cancel' as const), room }) },
  { weight: 3, arbitrary: fc.record({ do: fc.constant('wait' as const), ms: fc.constantFrom(0, 35, 1_100, 61_000) }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('fullDisk' as const), ms: fc.constantFrom(40, 2_500) }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('stop' as const) }) },
);
const step: fc.Arbitrary<Step> = fc
  .tuple(act, fc.oneof({ weight: 8, arbitrary: fc.constant(null) }, { weight: 1, arbitrary: fc.nat(8) }))
  .map(([one, killedAfter]) => ({ ...one, killedAfter }) as Step);

interface Job {
  readonly job: RunJob;
  readonly end: (outcome: RunOutcome) => void;
  text: string;
  hasThought: boolean;
}
interface Process {
  readonly core: Core;
  readonly store: Store;
  readonly jobs: Map<RunId, Job>;
  dead: boolean;
}
/** Of a runner that throws, and of a full disk. */
const EXPECTED_ERRORS = /the runner threw|its frames cannot be written/u;
const never = (): Promise<never> => new Promise(() => undefined);

/** A kill is no power cut: the commits need not wait for a disk. */
const memoryFolder = (): string => mkdtempSync(join(existsSync('/dev/shm') ? '/dev/shm' : tmpdir(), 'matrix-oracle-runs-'));

function createWorld() {
  const folder = memoryFolder();
  const path = join(folder, 'oracle.db');
  const clock = fakeClock();
  const sent: IncomingEvent[] = [];
  const taken = new Map<string, Set<RunId>>();
  const ended = new Map<RunId, string>();
  /** What the model said in the attempt that came to its end. */
  const said = new Map<RunId, string>();
  const processes: Process[] = [];
  const stores: Store[] = [];
  const prompts: { id: string; room: RoomId }[] = [];

  async function start(): Promise<Process> {
    const self: Process = { core: undefined as never, store: undefined as never, jobs: new Map(), dead: false };
    const own: FakeClock = { ...clock, after: (ms, callback) => clock.after(ms, () => (self.dead ? undefined : callback())) };
    const opened = openStore({ path, now: FAKE_START_MS, schedule: (flush) => void setImmediate(() => (self.dead ? undefined : flush())) });
    stores.push(opened);
    const store: Store = { ...opened, write: (change) => (self.dead ? never() : opened.write(change)) };
    const core = buildCore({ store, clock: own, fence: processes.length + 1, maxConcurrentRuns: MAX_RUNS });
    core.runner.script((job) => hold(self, job));
    Object.assign(self, { core, store });
    processes.push(self);
    for (const one of ROOMS) await core.joinDirect(one);
    core.scheduler.wake();
    await core.inbox.receive(sent);
    await work(self);
    return self;
  }

  function hold({ jobs }: Process, job: RunJob): Promise<RunOutcome> {
    expect(
      [...jobs.values()].filter((one) => one.job.run.sessionId === job.run.sessionId),
      'one run of a session at a time',
    ).toEqual([]);
    expect(jobs.size).toBeLessThan(MAX_RUNS);
    return new Promise((resolve) => {
      const one: Job = {
        job,
        text: job.shownText,
        hasThought: false,
        end: (outcome) => {
          jobs.delete(job.run.id);
          resolve(outcome);
        },
      };
      jobs.set(job.run.id, one);
      const onAbort = (): void => {
        const { reason } = job.signal;
        if (reason instanceof OracleError) one.end({ kind: 'failed', refusal: reason.refusal, messages: [] });
        else one.end({ kind: 'suspended' });
      };
      if (job.signal.aborted) onAbort();
      else job.signal.addEventListener('abort', onAbort, { once: true });
    });
  }

  /** Handles what the inbox holds, as the dispatcher does. */
  async function work({ core, dead }: Process): Promise<void> {
    for (const one of ROOMS) {
      for (let claimed = core.inbox.claim(one); !dead && claimed.kind === 'row'; claimed = core.inbox.claim(one)) {
        try {
          await core.admit.handle(claimed.row);
        } catch (error) {
          if (error instanceof StorageError) return;
          throw error;
        }
      }
    }
  }

  async function receive(process: Process, event: IncomingEvent): Promise<void> {
    sent.push(event);
    const stored = await process.core.inbox.receive([event]).then(
      () => true,
      () => false,
    );
    if (stored) await work(process);
  }

  async function think(self: Process, one: Job): Promise<void> {
    const { job, end } = one;
    one.hasThought = true;
    const ids = [...new Set([...job.run.prompts.map(({ id }) => id), ...job.output.inputsWaiting().map(({ id }) => id)])];
    try {
      await job.output.promptsConsumed(ids);
    } catch (error) {
      return end(error instanceof OracleError ? { kind: 'failed', refusal: error.refusal, messages: [] } : { kind: 'suspended' });
    }
    if (self.dead) return;
    for (const id of ids) taken.set(id, (taken.get(id) ?? new Set()).add(job.run.id));
  }

  function complete({ job, end, text }: Job): void {
    said.set(job.run.id, text);
    end({ kind: 'completed', text, messages: [{ role: 'ai', text, message: null }] });
  }

  const pick = <T>(list: readonly T[], at: number): T | undefined => (list.length === 0 ? undefined : list[at % list.length]);

  async function perform(self: Process, one: Act): Promise<void> {
    const { core, jobs } = self;
    const job = 'which' in one ? pick([...jobs.values()], one.which) : undefined;
    const prompt = 'which' in one ? pick(prompts.slice(-4).toReversed(), one.which) : undefined;
    const name = `e${sent.length}`;
    switch (one.do) {
      case 'say': {
        const at = ROOMS[one.room] ?? ROOMS[0];
        prompts.push({ id: eventId(name), room: at });
        const content = { msgtype: 'm.text', body: name, 'ixo.oracle.turn': { multitask: one.mode } };
        return receive(self, incoming(name, { roomId: at, content }));
      }
      case 'edit': {
        if (prompt === undefined) return;
        const relation = { rel_type: 'm.replace', event_id: prompt.id };
        const content = {
          msgtype: 'm.text',
          body: `* ${name}`,
          'm.new_content': { msgtype: 'm.text', body: name },
          'm.relates_to': relation,
        };
        return receive(self, incoming(name, { roomId: prompt.room, content }));
      }
      case 'redact': {
        if (prompt === undefined) return;
        const base = incoming(name, { roomId: prompt.room, type: 'm.room.redaction' });
        return receive(self, { ...base, event: { ...base.event, redacts: prompt.id, content: { redacts: prompt.id } } });
      }
      case 'think':
        return job === undefined ? undefined : think(self, job);
      case 'text':
        if (job !== undefined) job.text += 'word ';
        return job?.job.output.text('word ');
      case 'complete':
        // What comes during its last call of the model the agent has not taken.
        if (job?.hasThought === false) await think(self, job);
        return job === undefined ? undefined : complete(job);
      case 'fail':
        return job?.end({ kind: 'failed', refusal: refusal('MODEL_ERROR'), messages: [] });
      case 'throw':
        return job?.end(Promise.reject(new TypeError('a bug')) as never);
      case 'cancel': {
        const running = [...jobs.values()].find((held) => held.job.run.roomId === ROOMS[one.room]);
        if (running !== undefined) core.scheduler.cancel(running.job.run.sessionId, running.job.run.id);
        return;
      }
      case 'wait':
        return clock.advanceAsync(one.ms);
      case 'fullDisk': {
        const disk = breakDisk(self.store);
        await clock.advanceAsync(one.ms);
        disk.repair();
        return;
      }
      case 'stop': {
        const stopped = core.scheduler.stop(10_000);
        await settle(4);
        await clock.advanceAsync(10_000);
        await stopped;
        self.dead = true;
        return;
      }
    }
  }

  function check({ store, core }: Process): void {
    const { sql } = store;
    expect(
      core.logger.said('error').filter((line) => !EXPECTED_ERRORS.test(line)),
      'errors that are nobody’s doing',
    ).toEqual([]);
    const runs = store.read.all(sql.selectFrom('runs').select(['run_id', 'status', 'ended_at', 'replaces']));
    const replaced = new Map(runs.map(({ run_id, replaces }) => [run_id, replaces]));
    const first = (run: RunId): RunId => {
      const before = replaced.get(run);
      return before == null ? run : first(before);
    };
    for (const { run_id: run, status, ended_at } of runs) {
      const rows = store.read.all(sql.selectFrom('frames').select(['seq', 'kind', 'data', 'at']).where('run_id', '=', run).orderBy('seq'));
      const frames = rows.flatMap(readFrameRow);
      expect(frames.map(({ seq }) => seq)).toEqual(frames.map((_, index) => index + 1));
      const ends = frames.flatMap((frame) => (frame.kind === 'end' ? [frame.data.status] : []));
      const isEnded = TERMINAL.has(status as never);
      expect(ends, `the ends in the log of a run that is ${status}`).toEqual(isEnded && frames.length > 0 ? [status] : []);
      if (ends.length > 0) expect(frames.at(-1)?.kind).toBe('end');
      if (status === 'completed') expect(frames.reduce(foldFrame, EMPTY_FOLD).text).toBe(said.get(run));
      const record = `${status} at ${ended_at}, ${frames.length} frames`;
      if (isEnded) expect(ended.get(run) ?? record, 'terminal is terminal').toBe(record);
      if (isEnded) ended.set(run, record);
    }
    const inputs = store.read.all(
      sql
        .selectFrom('pending_inputs as p')
        .innerJoin('runs as r', 'r.run_id', 'p.run_id')
        .select(['p.prompt_id', 'p.steers', 'p.consumed_at', 'r.status']),
    );
    const forgotten = inputs.filter(
      (row) => row.steers === 1 && row.consumed_at === null && TERMINAL.has(row.status as never) && row.status !== 'cancelled',
    );
    expect(forgotten, 'given to a run that has ended without taking it').toEqual([]);
    expect(new Set(inputs.map(({ prompt_id }) => prompt_id)).size, 'a prompt waits in one run').toBe(inputs.length);
    // An edit is a new run for the same prompts; any other second run would be a second answer.
    for (const [prompt, by] of taken) expect(new Set([...by].map(first)).size, `${prompt} was taken by ${[...by].join()}`).toBe(1);
  }

  return {
    processes,
    start,
    perform,
    check,
    work,
    /** Everything that still runs is answered, until nothing is left. */
    async finish(self: Process): Promise<void> {
      for (let round = 0; round < 60; round += 1) {
        await work(self);
        for (const job of [...self.jobs.values()]) {
          await Promise.race([think(self, job), settle(10)]);
          if (self.jobs.has(job.job.run.id)) complete(job);
        }
        await clock.advanceAsync(1_000);
        await settle(4);
      }
      const left = self.store.read.all(
        self.store.sql.selectFrom('runs').select(['run_id', 'status']).where('status', 'in', ['queued', 'running', 'waiting']),
      );
      expect(left, 'unfinished in the end').toEqual([]);
      const known = self.store.read.all(self.store.sql.selectFrom('pending_inputs').select('prompt_id')).map(({ prompt_id }) => prompt_id);
      for (const { id } of prompts)
        if (!known.includes(id))
          expect(
            sent.some(({ event }) => event['redacts'] === id),
            `${id} was lost`,
          ).toBe(true);
    },
    async close() {
      for (const { core } of processes) void core.scheduler.stop(0);
      await settle(10);
      for (const process of processes) process.dead = true;
      for (const store of stores) store.close();
      await settle(2);
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

test('whatever happens in whatever order: terminal is terminal, one end, contiguous, each prompt taken by one run (G2, G5, G7, G10)', async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(step, { minLength: 20, maxLength: 60 }), async (steps) => {
      const world = createWorld();
      let self = await world.start();
      for (const { killedAfter, ...one } of steps) {
        const done = world.perform(self, one as Act);
        if (killedAfter === null) {
          await done;
          await settle(6);
        } else {
          done.catch(() => undefined);
          await settle(killedAfter);
          self.dead = true;
        }
        if (self.dead) self = await world.start();
        world.check(self);
      }
      await world.finish(self);
      world.check(self);
      await world.close();
    }),
    { numRuns: Number(process.env['FC_RUNS'] ?? 60) },
  );
}, 120_000);
