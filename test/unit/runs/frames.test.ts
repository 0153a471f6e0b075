import fc from 'fast-check';
import { expect, test } from 'vitest';
import { createFrameLog, createFrameReader, LostLease } from '../../../src/runs/frames.ts';
import { createRuns, type Runs } from '../../../src/runs/ledger.ts';
import { EMPTY_FOLD, type FoldedRun, type Frame, foldFrame, type Run, readFrame } from '../../../src/runs/run.ts';
import { StorageError, type Store } from '../../../src/store/store.ts';
import { ALICE, listed, ROOM } from '../../fakes/events.ts';
import { type FakeClock, fakeClock } from '../../fakes/fake-clock.ts';
import { breakDisk, memoryStore, settle } from '../../fakes/memory-store.ts';

const RUN = '01ARZ3NDEKTSV4RRFFQ69G5FAV' as Run['id'];

async function insertRun(store: Store, runs: Runs): Promise<void> {
  await store.write((tx) => {
    const session = { session_id: '$s', room_id: ROOM, owner: ALICE, kind: 'rolling', thread_root: null, title: null };
    tx.run(store.sql.insertInto('sessions').values({ ...session, created_at: 0, last_at: 0, retired_at: null } as never));
    runs.insert(
      tx,
      {
        ...{ id: RUN, sessionId: '$s' as never, roomId: ROOM, threadRoot: null, owner: ALICE as never, principal: listed() },
        ...{ client: 'matrix', requestId: 'r', hints: {}, direct: true },
      },
      0,
    );
  });
}
const startRun = async (store: Store, runs: Runs): Promise<Run> => {
  const run = await store.write((tx) => runs.start(tx, RUN, { now: 0, leaseUntil: 1_000, deadlineAt: 300_000 }));
  if (run === undefined) throw new Error('not started');
  return run;
};
interface Process {
  store: Store;
  clock: FakeClock;
  runs: Runs;
}
async function setUp(): Promise<Process> {
  const store = memoryStore();
  const process = { store, clock: fakeClock(), runs: createRuns({ store, fence: 1 }) };
  await insertRun(store, process.runs);
  return process;
}
async function openLog(
  { store, clock, runs }: Process,
  folded: FoldedRun = EMPTY_FOLD,
  onFrames: (frames: readonly Frame[]) => void = () => undefined,
) {
  const run = await startRun(store, runs);
  const published: Frame[] = [];
  const failures: unknown[] = [];
  const log = createFrameLog({
    store,
    runs,
    clock,
    run,
    folded,
    onCommitted: (frames) => {
      published.push(...frames);
      onFrames(frames);
    },
    onFailure: (error) => void failures.push(error),
  });
  return { run, log, published, failures };
}

test('text after a pause goes out at once, tokens soon after it together; anything else goes out at once, behind them', async () => {
  const process = await setUp();
  const { log, published } = await openLog(process);
  for (const token of ['H', 'e']) log.text(token);
  await settle();
  expect(published).toMatchObject([{ seq: 1, kind: 'text', data: { delta: 'He' } }]);

  for (const token of ['l', 'l']) log.text(token);
  await process.clock.advanceAsync(29);
  log.text('o');
  expect(published).toHaveLength(1);
  await process.clock.advanceAsync(1);
  await settle();
  expect(published.slice(1)).toMatchObject([{ seq: 2, kind: 'text', data: { delta: 'llo' } }]);

  log.text('!');
  log.append('tool_call', { id: 'c', name: 't', status: 'isRunning' });
  await settle();
  expect(published.slice(2)).toMatchObject([
    { seq: 3, kind: 'text', data: { delta: '!' } },
    { seq: 4, kind: 'tool_call' },
  ]);
  log.close();
  expect(process.clock.pending()).toBe(0);
});

test('a frame is on disk before anybody is shown it (G7)', async () => {
  const process = await setUp();
  const reader = createFrameReader(process);
  const onDisk: number[] = [];
  const { log } = await openLog(process, EMPTY_FOLD, () => void onDisk.push(reader.after(RUN, 0).length));
  log.append('run', { state: 'started', attempt: 1 });
  log.text('x');

  await log.flush();

  expect(onDisk).toEqual([2]);
  log.close();
});

test('whatever is written, cut, flushed and crashed in whatever order: numbers are contiguous, and the stored log folds to what was shown (G5, G7)', async () => {
  const step = fc.oneof(
    {
      weight: 4,
      arbitrary: fc.record({ kind: fc.constant('text' as const), delta: fc.oneof(fc.string(), fc.constant('😀'), fc.constant('\ud83d')) }),
    },
    fc.record({ kind: fc.constant('truncate' as const), length: fc.nat(20) }),
    fc.record({ kind: fc.constant('tool' as const), id: fc.constantFrom('a', 'b') }),
    fc.record({ kind: fc.constant('flush' as const) }),
    fc.record({ kind: fc.constant('wait' as const), ms: fc.constantFrom(1, 39, 40, 100) }),
    fc.record({ kind: fc.constant('tick' as const) }),
    fc.record({ kind: fc.constant('crash' as const) }),
    fc.record({ kind: fc.constant('disk' as const) }),
  );
  await fc.assert(
    fc.asyncProperty(fc.array(step, { maxLength: 40 }), async (steps) => {
      const process = await setUp();
      const reader = createFrameReader(process);
      let shown: FoldedRun = EMPTY_FOLD;
      const show = (frames: readonly Frame[]): void => {
        for (const frame of frames) {
          expect(frame.seq).toBe(shown.lastSeq + 1);
          shown = foldFrame(shown, frame);
        }
      };
      /** What the writer meant, starting again from what is stored after each crash. */
      let wanted: FoldedRun = EMPTY_FOLD;
      const mean = (kind: Frame['kind'], data: unknown): void => {
        wanted = foldFrame(wanted, { seq: 0, at: 0, kind, data } as Frame);
      };
      let opened = await openLog(process, EMPTY_FOLD, show);
      const restart = async (): Promise<void> => {
        opened.log.close();
        await settle(3);
        // A crash may come between the commit and the showing: what is stored is at least what was shown, and is shown next.
        const stored = reader.fold(RUN);
        expect(stored.lastSeq).toBeGreaterThanOrEqual(shown.lastSeq);
        shown = stored;
        wanted = stored;
        opened = await openLog(process, stored, show);
      };
      for (const item of steps) {
        if (item.kind === 'text') {
          mean('text', { delta: item.delta });
          opened.log.text(item.delta);
        } else if (item.kind === 'truncate') {
          mean('truncate', { length: item.length });
          opened.log.append('truncate', { length: item.length });
        } else if (item.kind === 'tool') opened.log.append('tool_call', { id: item.id, name: 't', status: 'done' });
        else if (item.kind === 'flush') await opened.log.flush();
        else if (item.kind === 'wait') await process.clock.advanceAsync(item.ms);
        else if (item.kind === 'tick') await settle(1);
        else if (item.kind === 'crash') await restart();
        else {
          const disk = breakDisk(process.store);
          await opened.log.flush();
          disk.repair();
          if (opened.failures.length > 0) await restart();
        }
      }
      await opened.log.flush();
      const expected = wanted.text;
      const finished = await process.store.write((tx) => opened.log.finishInTx(tx, [{ kind: 'end', data: { status: 'completed' } }]));
      await settle(3);
      finished.publish();
      opened.log.close();

      const stored = reader.after(RUN, 0);
      expect(stored.map(({ seq }) => seq)).toEqual(stored.map((_, index) => index + 1));
      expect(stored.at(-1)?.kind).toBe('end');
      expect(reader.fold(RUN)).toEqual(shown);
      expect(finished.folded).toEqual(shown);
      expect(shown.text).toBe(expected);
    }),
    { numRuns: 150 },
  );
}, 60_000);

test('the fold does not care how the log is cut into pieces, nor how text is cut into frames', () => {
  const text = fc.record({ kind: fc.constant('text'), data: fc.record({ delta: fc.string({ unit: 'binary' }) }) });
  const cut = fc.record({ kind: fc.constant('truncate'), data: fc.record({ length: fc.nat(30) }) });
  const frames = fc.array(fc.oneof({ weight: 3, arbitrary: text }, cut), { maxLength: 30 });
  fc.assert(
    fc.property(frames, fc.array(fc.nat(30), { maxLength: 5 }), fc.nat(), (items, at, splitAt) => {
      const log = items.map((item, index) => ({ seq: index + 1, at: 0, ...item }) as Frame);
      const whole = log.reduce(foldFrame, EMPTY_FOLD);
      let pieces: FoldedRun = EMPTY_FOLD;
      let from = 0;
      for (const end of [...at.toSorted((a, b) => a - b), log.length]) {
        pieces = log.slice(from, Math.max(from, end)).reduce(foldFrame, pieces);
        from = Math.max(from, end);
      }
      const split = log.flatMap((frame): Frame[] => {
        if (frame.kind !== 'text') return [frame];
        const { delta } = frame.data;
        const middle = delta.length === 0 ? 0 : splitAt % delta.length;
        return [delta.slice(0, middle), delta.slice(middle)].map((part) => ({ ...frame, data: { delta: part } }));
      });
      return JSON.stringify(pieces) === JSON.stringify(whole) && split.reduce(foldFrame, EMPTY_FOLD).text === whole.text;
    }),
  );
});

test('a stored frame reads back as it was written; one of an unknown kind is a damaged file', () => {
  const row = (kind: string, data: unknown) => ({ seq: 1, at: 0, kind, data: JSON.stringify(data) });

  expect(readFrame(row('tool_call', { id: 'a', name: 'b', status: 'done', args: { x: [1] }, output: 'o' }))).toMatchObject({
    data: { args: { x: [1] }, output: 'o' },
  });
  expect(() => readFrame(row('future', {}))).toThrow('not known');
  expect(() => readFrame(row('text', {}))).toThrow();
});

test('after a failed write nothing more is written, and the failure is told once', async () => {
  const process = await setUp();
  const { log, published, failures } = await openLog(process);
  log.append('run', { state: 'started', attempt: 1 });
  await log.flush();
  const disk = breakDisk(process.store);
  log.text('lost');
  await log.flush();
  disk.repair();
  log.text('late');
  log.append('tool_call', { id: 'c', name: 't', status: 'done' });

  await log.flush();

  expect(failures).toMatchObject([expect.any(StorageError)]);
  expect(published).toHaveLength(1);
  expect(createFrameReader(process).fold(RUN)).toMatchObject({ lastSeq: 1, text: '' });
  log.close();
});

test('an execution that another one took over writes nothing more (G18)', async () => {
  const process = await setUp();
  const old = await openLog(process);
  old.log.text('a');
  await old.log.flush();
  const young = await openLog(process, createFrameReader(process).fold(RUN));
  young.log.text('b');
  await young.log.flush();

  old.log.text('c');
  await old.log.flush();

  expect(old.failures).toMatchObject([expect.any(LostLease)]);
  expect(createFrameReader(process).fold(RUN).text).toBe('ab');
});

test('a closed log takes nothing', async () => {
  const process = await setUp();
  const { log, published } = await openLog(process);
  log.close();
  log.text('x');
  log.append('truncate', { length: 0 });
  await log.flush();

  expect(published).toEqual([]);
});

test('a reader pages through a long log and joins at any number (G7)', async () => {
  const process = await setUp();
  const { log } = await openLog(process);
  for (let n = 0; n < 2_500; n += 1) log.append('tool_call', { id: `${n % 7}`, name: 't', status: 'done' });
  await log.flush();
  const reader = createFrameReader(process);

  expect(reader.after(RUN, 0)).toHaveLength(1_000);
  expect(reader.after(RUN, 2_499).map(({ seq }) => seq)).toEqual([2_500]);
  expect(reader.after(RUN, 2_500)).toEqual([]);
  expect(reader.fold(RUN).lastSeq).toBe(2_500);
  log.close();
});
