import fc from 'fast-check';
import { expect, test } from 'vitest';
import type { RunId } from '../../../src/ids.ts';
import { createToolMarks, decideMark, type ToolCallKey } from '../../../src/runs/tool-marks.ts';
import type { Store } from '../../../src/store/store.ts';
import { fakeClock } from '../../fakes/fake-clock.ts';
import { memoryStore } from '../../fakes/memory-store.ts';

const RUN = '01ARZ3NDEKTSV4RRFFQ69G5FAV' as RunId;
const OTHER_RUN = '01ARZ3NDEKTSV4RRFFQ69G5FAW' as RunId;
const call = (id: string, change: Partial<ToolCallKey> = {}): ToolCallKey => ({
  runId: RUN,
  toolCallId: id,
  tool: 'pay',
  argsHash: 'h',
  ...change,
});
const mark = (id: string, state: 'started' | 'finished', change: { tool?: string; args_hash?: string; result?: string | null } = {}) => ({
  ...{ tool_call_id: id, tool: 'pay', args_hash: 'h', state, result: state === 'finished' ? `result of ${id}` : null },
  ...change,
});
const none: ReadonlySet<string> = new Set();

test.each<[string, ReturnType<typeof mark>[], { resumed: boolean; adopted: ReadonlySet<string> }, object]>([
  ['no mark', [], { resumed: false, adopted: none }, { decision: { kind: 'run' } }],
  ['no mark, resumed', [], { resumed: true, adopted: none }, { decision: { kind: 'run' } }],
  ['its own, finished', [mark('c', 'finished')], { resumed: true, adopted: none }, { decision: { kind: 'stored', result: 'result of c' } }],
  ['its own, started', [mark('c', 'started')], { resumed: true, adopted: none }, { decision: { kind: 'unknown_outcome' } }],
  ['its own, in the same attempt', [mark('c', 'started')], { resumed: false, adopted: none }, { decision: { kind: 'unknown_outcome' } }],
  [
    'an orphan, finished',
    [mark('old', 'finished')],
    { resumed: true, adopted: none },
    { decision: { kind: 'stored', result: 'result of old' }, adopts: 'old' },
  ],
  [
    'an orphan, started',
    [mark('old', 'started')],
    { resumed: true, adopted: none },
    { decision: { kind: 'unknown_outcome' }, adopts: 'old' },
  ],
  ['the same call again in one attempt', [mark('old', 'finished')], { resumed: false, adopted: none }, { decision: { kind: 'run' } }],
  ['an orphan met before', [mark('old', 'finished')], { resumed: true, adopted: new Set(['old']) }, { decision: { kind: 'run' } }],
  [
    'two orphans, one met before',
    [mark('o1', 'finished'), mark('o2', 'started')],
    { resumed: true, adopted: new Set(['o1']) },
    { decision: { kind: 'unknown_outcome' }, adopts: 'o2' },
  ],
  ['another tool', [mark('old', 'finished', { tool: 'mail' })], { resumed: true, adopted: none }, { decision: { kind: 'run' } }],
  ['other arguments', [mark('old', 'finished', { args_hash: 'x' })], { resumed: true, adopted: none }, { decision: { kind: 'run' } }],
  [
    'its own before an orphan',
    [mark('old', 'started'), mark('c', 'finished')],
    { resumed: true, adopted: none },
    { decision: { kind: 'stored', result: 'result of c' } },
  ],
  [
    'a stored null',
    [mark('c', 'finished', { result: null })],
    { resumed: true, adopted: none },
    { decision: { kind: 'stored', result: '' } },
  ],
])('decideMark: %s (G6)', (_name, marks, state, expected) => {
  expect(decideMark(call('c'), marks, state)).toEqual(expected);
});

const marksIn = (store: Store) => createToolMarks({ store, clock: fakeClock() });
const rows = (store: Store) => store.read.all(store.sql.selectFrom('tool_marks').select(['tool_call_id', 'state']).orderBy('tool_call_id'));

test('a call is marked started before it runs and finished with its result after it', async () => {
  const store = memoryStore();
  const marks = marksIn(store);

  expect(await marks.begin(call('a'), 1)).toEqual({ kind: 'run' });
  expect(rows(store)).toEqual([{ tool_call_id: 'a', state: 'started' }]);
  await marks.finish(call('a'), 'paid');

  expect(rows(store)).toEqual([{ tool_call_id: 'a', state: 'finished' }]);
  expect(await marksIn(store).begin(call('a'), 2)).toEqual({ kind: 'stored', result: 'paid' });
});

test('after a crash the repeated call under a new id is met by its mark once; the next one is a new call', async () => {
  const store = memoryStore();
  const before = marksIn(store);
  await before.begin(call('old'), 1);
  await before.finish(call('old'), 'paid');
  const after = marksIn(store);

  expect(await after.begin(call('new'), 2)).toEqual({ kind: 'stored', result: 'paid' });
  expect(await after.begin(call('again'), 2)).toEqual({ kind: 'run' });
});

test('a call whose step is in the checkpoint is no orphan: asking for the same again is a new call', async () => {
  const store = memoryStore();
  const before = marksIn(store);
  await before.begin(call('old'), 1);
  await before.finish(call('old'), 'paid');

  expect(await marksIn(store).begin(call('new'), 2, new Set(['old', 'new']))).toEqual({ kind: 'run' });
});

test('two same calls of one attempt are two calls, and their marks are not taken for orphans later in it', async () => {
  const store = memoryStore();
  const marks = marksIn(store);

  expect(await marks.begin(call('a'), 2)).toEqual({ kind: 'run' });
  expect(await marks.begin(call('b'), 2)).toEqual({ kind: 'run' });
});

test('a run that is tried again in the same process meets what its earlier attempt left, and does it once (G6)', async () => {
  const marks = marksIn(memoryStore());
  await marks.begin(call('one'), 1);
  await marks.finish(call('one'), 'paid');

  // Put off by a full disk before the checkpoint with the call's result; the model wishes the same under a new id.
  expect(await marks.begin(call('two'), 2)).toEqual({ kind: 'stored', result: 'paid' });
  expect(await marks.begin(call('three'), 2)).toEqual({ kind: 'run' });
});

test('of the same call twice at once one runs', async () => {
  const marks = marksIn(memoryStore());

  const decisions = await Promise.all([marks.begin(call('a'), 1), marks.begin(call('a'), 1)]);

  expect(decisions.map(({ kind }) => kind).toSorted()).toEqual(['run', 'unknown_outcome']);
});

test('marks of another run are not looked at (G13)', async () => {
  const store = memoryStore();
  const before = marksIn(store);
  await before.begin(call('a', { runId: OTHER_RUN }), 1);

  expect(await marksIn(store).begin(call('a'), 2)).toEqual({ kind: 'run' });
});

test('whatever crashes between the steps, an effect happens at most once per call that the model meant (G6)', async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.array(fc.constantFrom('before', 'after-start', 'after-effect', 'after-finish'), { maxLength: 4 }),
      async (crashes) => {
        const store = memoryStore();
        let effects = 0;
        // One step asks for one call; the provider gives it a new id each time the step is repeated.
        for (let attempt = 1; attempt <= crashes.length + 1; attempt += 1) {
          const crash = crashes[attempt - 1];
          const marks = marksIn(store);
          const key = call(`id${attempt}`);
          if (crash === 'before') continue;
          const decision = await marks.begin(key, attempt);
          if (decision.kind !== 'run' || crash === 'after-start') continue;
          effects += 1;
          if (crash === 'after-effect') continue;
          await marks.finish(key, 'done');
        }
        return effects <= 1;
      },
    ),
  );
});
