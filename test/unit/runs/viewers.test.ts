import fc from 'fast-check';
import { expect, test } from 'vitest';
import type { RunId } from '../../../src/ids.ts';
import { createFrameReader } from '../../../src/runs/frames.ts';
import { EMPTY_FOLD, type Run } from '../../../src/runs/run.ts';
import { createViewers, type RunNews } from '../../../src/runs/viewers.ts';
import { openStore, type Store } from '../../../src/store/store.ts';
import { fakeClock } from '../../fakes/fake-clock.ts';

const RUN = '01ARZ3NDEKTSV4RRFFQ69G5FAV' as RunId;

function createLog() {
  const clock = fakeClock();
  const opened = openStore({ path: ':memory:', now: 0, schedule: (flush) => flush() });
  let reads = 0;
  const counted = <Args extends unknown[], Value>(read: (...args: Args) => Value) => {
    return (...args: Args): Value => {
      reads += 1;
      return read(...args);
    };
  };
  const { all, get, run } = opened.read;
  const store: Store = { ...opened, read: { all: counted(all) as typeof all, get: counted(get) as typeof get, run } };
  const frames = createFrameReader({ store });
  const viewers = createViewers({ store, frames, clock });
  const view = viewers.open({ id: RUN } as Run, EMPTY_FOLD);
  let seq = 0;
  const { sql } = store;
  void store.write((tx) => {
    tx.run(
      sql.insertInto('sessions').values({
        ...{ session_id: '$s' as never, room_id: '!r' as never, owner: 'o' as never, kind: 'thread', thread_root: null, title: null },
        ...{ created_at: 0, last_at: 0, retired_at: null },
      }),
    );
    tx.run(
      sql.insertInto('runs').values({
        ...{
          run_id: RUN,
          session_id: '$s' as never,
          room_id: '!r' as never,
          thread_root: null,
          owner: 'o' as never,
          principal_id: 'o' as never,
        },
        ...{
          matrix_user_id: '@o:x' as never,
          tier: 'signed',
          client: 'portal',
          request_id: 'r',
          parent: null,
          grants: null,
          hints: '{}',
          direct: 1,
        },
        ...{ status: 'running', created_at: 0, started_at: 0, ended_at: null, deadline_at: null, model_asked: null, model_answered: null },
        ...{ usage: null, error: null },
      }),
    );
  });
  const setStatus = (status: 'completed' | 'cancelled') =>
    void store.write((tx) => tx.run(sql.updateTable('runs').set({ status }).where('run_id', '=', RUN)));
  return {
    viewers,
    clock,
    view,
    setStatus,
    forget: () => void store.write((tx) => tx.run(sql.deleteFrom('runs').where('run_id', '=', RUN))),
    reads: () => reads,
    append(kind: 'text' | 'end', silent = false) {
      seq += 1;
      const data = JSON.stringify(kind === 'end' ? { status: 'completed' } : { delta: String(seq) });
      void store.write((tx) => tx.run(sql.insertInto('frames').values({ run_id: RUN, seq, kind, data, at: 0 })));
      if (kind === 'end') setStatus('completed');
      if (!silent) view.onFrames([], { ...EMPTY_FOLD, lastSeq: seq });
      return seq;
    },
  };
}
const never = new AbortController().signal;

async function collect(news: AsyncGenerator<RunNews>): Promise<number[]> {
  const seqs: number[] = [];
  for await (const one of news) if (one.kind === 'frames') seqs.push(...one.frames.map((frame) => frame.seq));
  return seqs;
}

test('viewers that join at any point see exactly the rest, once and in order (G7)', async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(fc.nat({ max: 3 }), { minLength: 1, maxLength: 12 }), fc.nat({ max: 12 }), async (joins, after) => {
      const log = createLog();
      const viewers: { from: number; seen: Promise<number[]> }[] = [];
      let last = 0;
      for (const count of joins) {
        const from = Math.min(after, last);
        viewers.push({ from, seen: collect(log.viewers.follow(RUN, { after: from, idleMs: 1_000, signal: never })) });
        for (let i = 0; i < count; i++) {
          last = log.append('text');
          await Promise.resolve();
        }
      }
      last = log.append('end');
      for (const { from, seen } of viewers) expect(await seen).toEqual(Array.from({ length: last - from }, (_, i) => from + i + 1));
      expect(log.viewers.count()).toBe(0);
      expect(log.clock.pending()).toBe(0);
    }),
    { numRuns: 50 },
  );
});

test('who asks past the end, or for a run cancelled before it began, is told that it is over', async () => {
  const log = createLog();
  const waiting = log.viewers.follow(RUN, { after: 0, idleMs: 1_000, signal: never });
  const first = waiting.next();
  log.setStatus('cancelled');
  // Nobody rings for a run that never started: the next look at the clock finds it.
  await log.clock.advanceAsync(1_000);
  expect((await first).value).toEqual({ kind: 'idle' });
  expect((await waiting.next()).value).toEqual({ kind: 'over', status: 'cancelled' });
  expect((await waiting.next()).done).toBe(true);
});

test('who reads a run that is forgotten with its person is told that it is over', async () => {
  const log = createLog();
  const waiting = log.viewers.follow(RUN, { after: 0, idleMs: 1_000, signal: never });
  const first = waiting.next();
  log.forget();
  await log.clock.advanceAsync(1_000);
  expect((await first).value).toEqual({ kind: 'idle' });
  const next = waiting.next();
  await log.clock.advanceAsync(1_000);

  expect((await next).value).toEqual({ kind: 'over', status: 'cancelled' });
});

test('frames that another process wrote are found at the next idle look (G18)', async () => {
  const log = createLog();
  const waiting = log.viewers.follow(RUN, { after: 0, idleMs: 1_000, signal: never });
  const first = waiting.next();
  log.append('text', true);
  await log.clock.advanceAsync(1_000);
  expect((await first).value).toEqual({ kind: 'idle' });
  expect((await waiting.next()).value).toMatchObject({ kind: 'frames', frames: [{ seq: 1 }] });
  await waiting.return();
});

test('an aborted viewer ends at once and leaves nothing behind', async () => {
  const log = createLog();
  const stop = new AbortController();
  const waiting = log.viewers.follow(RUN, { after: 0, idleMs: 1_000, signal: stop.signal });
  const next = waiting.next();
  expect(log.viewers.count()).toBe(1);
  stop.abort();
  expect((await next).done).toBe(true);
  expect([log.viewers.count(), log.clock.pending()]).toEqual([0, 0]);
});

test('two hundred viewers of one run cost one read each flush, not two hundred (G7)', async () => {
  const log = createLog();
  const followed = Array.from({ length: 200 }, () => collect(log.viewers.follow(RUN, { after: 0, idleMs: 1_000, signal: never })));
  await log.clock.advanceAsync(0);
  const joined = log.reads();
  for (let flush = 0; flush < 50; flush++) {
    log.append('text');
    await log.clock.advanceAsync(0);
  }
  expect(log.reads() - joined).toBe(50);
  log.append('end');

  const seen = await Promise.all(followed);
  expect(log.reads() - joined).toBe(51);
  for (const seqs of seen) expect(seqs).toEqual(Array.from({ length: 51 }, (_, i) => i + 1));
  expect([log.viewers.count(), log.clock.pending()]).toEqual([0, 0]);
});

test('viewers at different places share nothing that is not theirs', async () => {
  const log = createLog();
  for (let i = 0; i < 9; i++) log.append('text');
  const places = [0, 3, 9, 5, 0, 7, 2, 8, 12];
  const followed = places.map((after) => collect(log.viewers.follow(RUN, { after, idleMs: 1_000, signal: never })));
  log.append('text');
  await log.clock.advanceAsync(0);
  log.append('end');

  const all = Array.from({ length: 11 }, (_, i) => i + 1);
  expect(await Promise.all(followed)).toEqual(places.map((after) => all.slice(after)));
});

test('a log of many pages is read to its end without waiting for a bell', async () => {
  const log = createLog();
  for (let i = 0; i < 2_499; i++) log.append('text', true);
  const early = collect(log.viewers.follow(RUN, { after: 7, idleMs: 1_000, signal: never }));
  log.append('end', true);

  expect(await early).toEqual(Array.from({ length: 2_493 }, (_, i) => i + 8));
  expect(await collect(log.viewers.follow(RUN, { after: 0, idleMs: 1_000, signal: never }))).toHaveLength(2_500);
});
