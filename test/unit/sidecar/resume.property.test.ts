/**
 * Whatever the interleaving of one writer and many readers, who join before, during and after the run, drop at any event, lose what was on its way
 * and come back with the last id they have: each has in the end exactly the events of the log from where it began, and one `done` (G7). With and
 * without compaction, in the transaction that ends the run or later, and also when another process writes, so that nobody rings.
 */
import fc from 'fast-check';
import { expect, test } from 'vitest';
import type { EventId, RoomId, RunId, SessionId, UserId } from '../../../src/ids.ts';
import { LIMITS } from '../../../src/limits.ts';
import { compactText } from '../../../src/runs/compact-frames.ts';
import { createFrameReader } from '../../../src/runs/frames.ts';
import { createRuns } from '../../../src/runs/ledger.ts';
import { EMPTY_FOLD, type Frame, foldFrame } from '../../../src/runs/run.ts';
import { createViewers } from '../../../src/runs/viewers.ts';
import { createSessions } from '../../../src/sessions/sessions.ts';
import { createTextReader, readEvents } from '../../../src/sidecar/watch-run.ts';
import { buildDone, buildSse, readCursor, type SseEvent } from '../../../src/sidecar/wire/build-sse.ts';
import { openStore } from '../../../src/store/store.ts';
import { NO_GRANTS } from '../../../src/turn/principal.ts';
import { fakeClock } from '../../fakes/fake-clock.ts';
import { alice } from '../ucan/tokens.ts';

const RUN = '01ARZ3NDEKTSV4RRFFQ69G5FAV' as RunId;
const SESSION = '$session' as SessionId;
const ROOM = '!room:example.org' as RoomId;
const CONTEXT = { runId: RUN, sessionId: SESSION, requestId: 'r' };

async function createLog() {
  const clock = fakeClock();
  const store = openStore({ path: ':memory:', now: clock.now(), schedule: (flush) => flush() });
  const runs = createRuns({ store, fence: 1 });
  const frames = createFrameReader({ store });
  const viewers = createViewers({ store, frames, clock });
  await store.write((tx) => {
    const owner = alice.did;
    const thread = { kind: 'thread', threadRoot: SESSION as EventId, title: null } as const;
    createSessions({ store }).create(tx, { id: SESSION, roomId: ROOM, owner, ...thread }, 0);
    runs.insert(
      tx,
      {
        ...{
          id: RUN,
          sessionId: SESSION,
          roomId: ROOM,
          threadRoot: null,
          owner,
          client: 'portal',
          requestId: 'r',
          hints: {},
          direct: true,
        },
        principal: { id: owner, did: owner, matrixUserId: '@alice:example.org' as UserId, tier: 'signed', grants: NO_GRANTS, trust: null },
      },
      0,
    );
    runs.start(tx, RUN, { now: 0, leaseUntil: 1e15, deadlineAt: 1e15 });
  });
  const run = runs.read(store.read, RUN)!;
  const view = viewers.open(run, EMPTY_FOLD);
  const written: Frame[] = [];
  let isLastHeard = true;
  const bare = (frame: Frame) => ({ run_id: RUN, seq: frame.seq, kind: frame.kind, data: JSON.stringify(frame.data), at: frame.at });

  return {
    clock,
    frames,
    viewers,
    run,
    written,
    isLastHeard: () => isLastHeard,
    isOver: () => written.at(-1)?.kind === 'end',
    /** One commit. `isHeard` false: by another process, as after a take-over. */
    async commit(news: readonly Pick<Frame, 'kind' | 'data'>[], { isHeard, compacts = false }: { isHeard: boolean; compacts?: boolean }) {
      const at = clock.now();
      const added = news.map((one, index) => ({ ...one, seq: written.length + index + 1, at }) as Frame);
      await store.write((tx) => {
        for (const frame of added) tx.run(store.sql.insertInto('frames').values(bare(frame)));
        if (added.at(-1)?.kind !== 'end') return;
        runs.end(tx, run, { status: 'completed', error: null, usage: null, model: null }, at);
        if (compacts) compactText(store, tx, RUN);
      });
      written.push(...added);
      isLastHeard = isHeard;
      if (isHeard) view.onFrames(added, written.reduce(foldFrame, EMPTY_FOLD));
    },
    compact: () => store.write((tx) => compactText(store, tx, RUN)),
    close: () => store.close(),
  };
}
type Log = Awaited<ReturnType<typeof createLog>>;

/** A reader that takes events as fast as its budget allows. */
function createClient(log: Log, from: string) {
  const events: SseEvent[] = [];
  let budget = 0;
  let open = () => {};
  let stop = new AbortController();
  let reading: Promise<void> = Promise.resolve();

  async function read(at: string, { signal }: AbortController): Promise<void> {
    const cursor = readCursor(at);
    if (!cursor.ok) throw new Error(cursor.error);
    const textOf = createTextReader(log.frames);
    for await (const event of readEvents(log.run, cursor.value, { context: CONTEXT, signal, textOf }, log)) {
      while (budget <= 0 && !signal.aborted) {
        await new Promise<void>((resolve) => {
          open = resolve;
        });
      }
      if (signal.aborted) return;
      if (event === null) continue;
      budget -= 1;
      events.push(event);
    }
  }
  const lastId = (): string => events.findLast(({ id }) => id !== undefined)?.id ?? from;
  const client = {
    from,
    events,
    isCut: () => stop.signal.aborted,
    isDone: () => events.at(-1)?.event === 'done',
    allow(count: number) {
      budget += count;
      open();
    },
    /** The connection breaks, and the last `lost` events never arrived. */
    async drop(lost: number) {
      stop.abort();
      open();
      await reading;
      events.length = Math.max(0, events.length - lost);
    },
    async resume() {
      if (client.isDone()) return;
      await client.drop(0);
      stop = new AbortController();
      reading = read(lastId(), stop);
    },
  };
  reading = read(from, stop);
  return client;
}

/** The events of the log as it was written, each frame by itself: what a reader that never broke off and never met compaction is sent. */
function referenceEvents(log: Log): SseEvent[] {
  const text = log.written.reduce(foldFrame, EMPTY_FOLD).text;
  return log.written.flatMap((frame) =>
    frame.kind === 'end' ? [buildDone(CONTEXT, { ...frame.data, text, seq: frame.seq })] : buildSse(frame, CONTEXT),
  );
}
/** Times are spread evenly when text is compacted. */
const timeless = (events: readonly SseEvent[]) => events.map(({ event, id, data: { timestamp, ...data } }) => ({ event, id, data }));

function foldEvents(events: readonly SseEvent[]): string {
  let text = '';
  for (const { event, data } of events) {
    if (event === 'message') text += String(data['content']);
    if (event === 'run' && data['partialLength'] !== undefined) text = text.slice(0, Number(data['partialLength']));
  }
  return text;
}

const words = fc.oneof(
  { weight: 6, arbitrary: fc.string({ minLength: 1, maxLength: 6 }) },
  { weight: 1, arbitrary: fc.constantFrom('🦀', '\ud83e', '\udd80') },
  {
    weight: 1,
    arbitrary: fc.tuple(fc.constantFrom('x', '🦀', '"'), fc.integer({ min: 9_999, max: 25_000 })).map(([unit, n]) => unit.repeat(n)),
  },
);
const frame = fc.oneof(
  { weight: 8, arbitrary: words.map((delta) => ({ kind: 'text', data: { delta } }) as const) },
  {
    weight: 1,
    arbitrary: words.map(
      (output) => ({ kind: 'tool_call', data: { id: 'c', name: 't', status: 'done', output: output.slice(0, 9) } }) as const,
    ),
  },
  { weight: 1, arbitrary: fc.nat({ max: 30 }).map((length) => ({ kind: 'truncate', data: { length } }) as const) },
  { weight: 1, arbitrary: words.map((reasoning) => ({ kind: 'reasoning', data: { reasoning } }) as const) },
  { weight: 1, arbitrary: fc.nat({ max: 3 }).map((attempt) => ({ kind: 'run', data: { state: 'resumed', attempt } }) as const) },
);
const END = { kind: 'end', data: { status: 'completed' } } as const;
const step = fc.oneof(
  {
    weight: 5,
    arbitrary: fc.record({
      do: fc.constant('write' as const),
      frames: fc.array(frame, { minLength: 1, maxLength: 4 }),
      isHeard: fc.boolean(),
    }),
  },
  // From the beginning, or from an event that somebody has already.
  { weight: 2, arbitrary: fc.record({ do: fc.constant('join' as const), at: fc.nat() }) },
  { weight: 4, arbitrary: fc.record({ do: fc.constant('take' as const), who: fc.nat(), count: fc.nat({ max: 6 }) }) },
  { weight: 2, arbitrary: fc.record({ do: fc.constant('drop' as const), who: fc.nat(), lost: fc.nat({ max: 3 }) }) },
  { weight: 2, arbitrary: fc.record({ do: fc.constant('resume' as const), who: fc.nat() }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('wait' as const) }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('end' as const), isHeard: fc.boolean(), compacts: fc.boolean() }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('compact' as const) }) },
);

test('every interleaving of writer and readers gives each reader exactly the rest and one done (G7)', async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(step, { minLength: 1, maxLength: 40 }), async (steps) => {
      const log = await createLog();
      const clients = [createClient(log, '0')];
      const one = (who: number) => clients[who % clients.length]!;
      const end = async (isHeard: boolean, compacts: boolean) => {
        if (!log.isOver()) await log.commit([END], { isHeard, compacts });
      };
      for (const next of steps) {
        if (next.do === 'write' && !log.isOver()) await log.commit(next.frames, next);
        if (next.do === 'join') {
          const ids = [
            '0',
            ...clients.flatMap(({ events }) => events.flatMap(({ event, id }) => (event === 'done' || id === undefined ? [] : [id]))),
          ];
          clients.push(createClient(log, ids[next.at % ids.length]!));
        }
        if (next.do === 'take') one(next.who).allow(next.count);
        if (next.do === 'drop') await one(next.who).drop(next.lost);
        if (next.do === 'resume') await one(next.who).resume();
        if (next.do === 'wait') await log.clock.advanceAsync(LIMITS.sseHeartbeatMs);
        if (next.do === 'end') await end(next.isHeard, next.compacts);
        if (next.do === 'compact' && log.isOver()) await log.compact();
        await log.clock.advanceAsync(0);
      }
      await end(true, false);
      clients.push(createClient(log, '0'));
      await log.compact();
      clients.push(createClient(log, '0'));
      for (const client of clients) {
        client.allow(1e6);
        if (client.isCut()) await client.resume();
      }
      // Who was told of the end waits for nothing else; who was not looks again after a while.
      if (!log.isLastHeard()) await log.clock.advanceAsync(LIMITS.sseHeartbeatMs);
      for (let i = 0; i < 10 && !clients.every((client) => client.isDone()); i++) await log.clock.advanceAsync(0);

      const all = referenceEvents(log);
      const whole = log.written.reduce(foldFrame, EMPTY_FOLD).text;
      for (const { from, events } of clients) {
        const before = from === '0' ? 0 : all.findIndex(({ id }) => id === from) + 1;
        expect(timeless(events)).toEqual(timeless(all.slice(before)));
        expect(foldEvents([...all.slice(0, before), ...events])).toBe(whole);
        expect(events.filter(({ event }) => event === 'done')).toHaveLength(1);
      }
      expect(log.frames.fold(RUN).text).toBe(whole);
      expect([log.viewers.count(), log.clock.pending()]).toEqual([0, 0]);
      log.close();
    }),
    { numRuns: 150 },
  );
}, 60_000);
