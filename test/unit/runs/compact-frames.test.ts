import fc from 'fast-check';
import { expect, test } from 'vitest';
import type { RunId } from '../../../src/ids.ts';
import { compactText, planMerges, readFrameRow } from '../../../src/runs/compact-frames.ts';
import { createFrameReader } from '../../../src/runs/frames.ts';
import { EMPTY_FOLD, type Frame, foldFrame } from '../../../src/runs/run.ts';
import type { Store } from '../../../src/store/store.ts';
import { buildCore } from '../../fakes/core.ts';
import { incoming } from '../../fakes/events.ts';
import { memoryStore, settle } from '../../fakes/memory-store.ts';
import { answering } from '../../fakes/scripted-runner.ts';

const RUN = '01ARZ3NDEKTSV4RRFFQ69G5FAV' as RunId;

/** A log as a run leaves it: any text in any cut, with truncates, tools and resumes between. */
const delta = fc.oneof(
  { weight: 6, arbitrary: fc.string({ unit: 'binary', maxLength: 40 }) },
  fc.constantFrom('', '😀', '\ud83d', '\ude00', '"\\\n', 'x'.repeat(1_024), 'y'.repeat(33_000)),
);
const item = fc.oneof(
  { weight: 8, arbitrary: delta.map((text) => ({ kind: 'text' as const, data: { delta: text } })) },
  fc.nat(60).map((length) => ({ kind: 'truncate' as const, data: { length } })),
  fc.constant({ kind: 'tool_call' as const, data: { id: 'c', name: 't', status: 'done' as const } }),
  fc.constant({ kind: 'run' as const, data: { state: 'resumed' as const, attempt: 2 } }),
);
const log = fc
  .tuple(fc.array(item, { maxLength: 60 }), fc.nat(50))
  .map(([items, stepMs]) =>
    [...items, { kind: 'end' as const, data: { status: 'completed' as const } }].map(
      (one, index) => ({ seq: index + 1, at: 1_000 + index * stepMs, ...one }) as Frame,
    ),
  );

async function writeLog(frames: readonly Frame[], store: Store = memoryStore()): Promise<Store> {
  await store.write((tx) => {
    tx.run(store.sql.deleteFrom('frames'));
    for (const { seq, at, kind, data } of frames)
      tx.run(store.sql.insertInto('frames').values({ run_id: RUN, seq, kind, data: JSON.stringify(data), at }));
  });
  return store;
}
const compact = (store: Store): Promise<void> => store.write((tx) => compactText(store, tx, RUN));
const rest = (store: Store, after: number): Frame[] => {
  const frames: Frame[] = [];
  for (let seq = after; ; seq = frames.at(-1)?.seq ?? seq) {
    const page = createFrameReader({ store }).after(RUN, seq);
    if (page.length === 0) return frames;
    frames.push(...page);
  }
};
const untimed = (frames: readonly Frame[]) => frames.map(({ seq, kind, data }) => ({ seq, kind, data }));

test('whoever comes back at any number after the log was compacted gets the very frames that were written (G7)', async () => {
  const store = memoryStore();
  await fc.assert(
    fc.asyncProperty(log, async (frames) => {
      await writeLog(frames, store);
      const before = createFrameReader({ store }).fold(RUN);
      await compact(store);

      for (let after = 0; after <= frames.length; after += 1) {
        const missing = rest(store, after);
        expect(untimed(missing)).toEqual(untimed(frames.slice(after)));
        const folded = missing.reduce(foldFrame, frames.slice(0, after).reduce(foldFrame, EMPTY_FOLD));
        expect(folded.text).toBe(before.text);
      }
      expect(createFrameReader({ store }).fold(RUN)).toEqual(before);
      await compact(store);
      expect(untimed(rest(store, 0))).toEqual(untimed(frames));
    }),
    { numRuns: 100 },
  );
}, 60_000);

test('any split of the same tokens folds to the same text, before and after compaction', async () => {
  const store = memoryStore();
  const tokens = fc.array(fc.string({ unit: 'binary', maxLength: 12 }), { maxLength: 60 });
  await fc.assert(
    fc.asyncProperty(tokens, fc.array(fc.boolean(), { minLength: 60, maxLength: 60 }), async (said, joins) => {
      const deltas: string[] = [];
      said.forEach((token, index) => {
        if (joins[index] === true && deltas.length > 0) deltas.push(`${deltas.pop()}${token}`);
        else deltas.push(token);
      });
      await writeLog(
        deltas.map((text, index) => ({ seq: index + 1, at: 0, kind: 'text', data: { delta: text } })),
        store,
      );
      expect(createFrameReader({ store }).fold(RUN).text).toBe(said.join(''));
      await compact(store);
      expect(createFrameReader({ store }).fold(RUN).text).toBe(said.join(''));
    }),
    { numRuns: 100 },
  );
}, 60_000);

test('times between the first and the last frame of a row are spread evenly and never run backwards', () => {
  const frames = [10, 20, 60, 100].map((at, index) => ({ seq: index + 5, at, kind: 'text' as const, data: { delta: 'ab' } }));
  const [merge] = planMerges(frames);

  expect(merge).toMatchObject({ from: 5, row: { seq: 8, at: 100 } });
  expect(readFrameRow(merge!.row).map(({ at }) => at)).toEqual([10, 40, 70, 100]);
  const [back] = planMerges(frames.map((frame, index) => ({ ...frame, at: 100 - index })));
  expect(readFrameRow(back!.row).map(({ at }) => at)).toEqual([97, 97, 97, 97]);
});

test('one row holds no more than 32 Ki units, so that reading on from its middle stays cheap (G14)', () => {
  const frames = Array.from({ length: 100 }, (_, index) => ({
    seq: index + 1,
    at: 0,
    kind: 'text' as const,
    data: { delta: 'x'.repeat(1_000) },
  }));
  const merges = planMerges(frames);

  expect(merges.map(({ from, row }) => row.seq - from + 1)).toEqual([32, 32, 32, 4]);
});

test('a row whose lengths do not fit is a damaged file', () => {
  const row = (data: unknown) => ({ seq: 3, kind: 'text', at: 0, data: JSON.stringify(data) });

  expect(() => readFrameRow(row({ delta: 'abc', from: 1, ms: 0, lengths: 'BB' }))).toThrow('do not fit');
  expect(() => readFrameRow(row({ delta: 'abc', from: 1, ms: 0, lengths: 'B!B' }))).toThrow('cannot be read');
  expect(() => readFrameRow(row({ delta: 'abc', from: 'one', ms: 0, lengths: '' }))).toThrow();
});

test.each([
  ['a short answer', 'The quick brown fox. ', 10],
  ['a long one', 'Lorem ipsum dolor sit amet, consectetur adipiscing elit. ', 400],
  ['one in another script', 'これは長い答えです。', 500],
])('a finished run costs about its own text: %s (G16)', async (_name, sentence, times) => {
  const core = buildCore();
  await core.joinDirect();
  const text = sentence.repeat(times);
  core.runner.script(async (job) => {
    // As a model at 100 tokens a second is written: three tokens to a frame.
    for (let from = 0; from < text.length; from += 12) {
      job.output.text(text.slice(from, from + 12));
      await core.clock.advanceAsync(31);
    }
    return answering('')(job);
  });
  await core.take(incoming('hello'));
  core.scheduler.wake();
  await settle(text.length / 4 + 200);

  const [run] = core.store.read.all(core.store.sql.selectFrom('runs').select(['run_id', 'status']));
  expect(run?.status).toBe('completed');
  const rows = core.store.read.all(core.store.sql.selectFrom('frames').selectAll());
  const bytes = rows.reduce((sum, row) => sum + Buffer.byteLength(`${row.run_id}${row.kind}${row.data}`) + 12, 0);
  expect(core.frames.fold(run!.run_id).text).toBe(text);
  expect(core.frames.fold(run!.run_id).lastSeq).toBeGreaterThan(text.length / 12);
  expect(rows.length).toBeLessThan(6);
  expect(bytes).toBeLessThan(Buffer.byteLength(text) * 1.3 + 500);
});
