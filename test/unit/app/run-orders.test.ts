/** What an operator orders about a run is decided against what is on disk, once, and never against its person's authority (G8, G10). */
import { afterEach, expect, test } from 'vitest';
import type { AccessRules } from '../../../src/admission/access.ts';
import { obeyControl } from '../../../src/app/obey-control.ts';
import { createRunOrders } from '../../../src/app/run-orders.ts';
import { refusal } from '../../../src/errors.ts';
import type { RunId } from '../../../src/ids.ts';
import { createJudgeAccess } from '../../../src/turn/judge-access.ts';
import { buildCore, type Core } from '../../fakes/core.ts';
import { incoming } from '../../fakes/events.ts';
import { settle } from '../../fakes/memory-store.ts';
import { answering, held } from '../../fakes/scripted-runner.ts';

let stopControl = (): void => undefined;
afterEach(() => stopControl());

async function setUp(authority: { judge: () => 'REVOKED' | null } = { judge: () => null }) {
  const core = buildCore();
  await core.joinDirect();
  const { store, inbox, runs, scheduler, clock, logger, newRunId } = core;
  const judgeAccess = createJudgeAccess(core);
  const orders = createRunOrders({ store, runs, scheduler, authority, judgeAccess, clock, newRunId });
  const control = obeyControl({ store, inbox, clock, logger, nudge: () => undefined, orders });
  stopControl = () => control.stop();
  async function order(kind: string, argument: string): Promise<string | null> {
    await store.write((tx) =>
      tx.run(store.sql.insertInto('control').values({ kind, argument, created_at: 0, done_at: null, outcome: null })),
    );
    await clock.advanceAsync(1_000);
    await settle();
    return store.read.get(store.sql.selectFrom('control').select('outcome').orderBy('id', 'desc').limit(1))?.outcome ?? null;
  }
  return { core, order };
}
const rowsOf = ({ store }: Core) =>
  store.read.all(store.sql.selectFrom('runs').select(['run_id', 'status', 'replaces', 'session_id']).orderBy('run_id'));
const firstRun = (core: Core): RunId => rowsOf(core)[0]?.run_id as RunId;

async function failedRun(core: Core): Promise<RunId> {
  core.runner.script((job) => {
    job.output.text('Half an ');
    return { kind: 'failed', refusal: refusal('MODEL_ERROR'), messages: [{ role: 'ai', text: 'Half an ', message: null }] };
  }, answering('The whole answer.'));
  await core.take(incoming('a'));
  core.scheduler.wake();
  await settle();
  expect(rowsOf(core).map(({ status }) => status)).toEqual(['failed']);
  return firstRun(core);
}

test('a failed run is answered by a run of the same principal that replaces it; its half answer is no part of the conversation', async () => {
  const { core, order } = await setUp();
  const failed = await failedRun(core);

  const outcome = await order('run.retry', failed);
  await settle();

  const [old, next] = rowsOf(core);
  expect(outcome).toBe(`answered again by run ${next?.run_id}`);
  expect(old).toMatchObject({ run_id: failed, status: 'failed' });
  expect(next).toMatchObject({ status: 'completed', replaces: failed, session_id: old?.session_id });
  const [first, second] = core.runner.jobs;
  expect(second?.run.prompts).toEqual(first?.run.prompts);
  expect(second?.run.principalId).toBe(first?.run.principalId);
  expect(second?.run.tier).toBe(first?.run.tier);
  const said = core.store.read.all(core.store.sql.selectFrom('transcript').select(['role', 'text', 'run_id']).orderBy('id'));
  expect(said.filter(({ text }) => text !== '').map(({ role, run_id }) => [role, run_id])).toEqual([
    ['human', next?.run_id],
    ['ai', next?.run_id],
  ]);
});

test('a retry is refused once another run answers the prompts, or the conversation went on, or there is nothing to answer', async () => {
  const { core, order } = await setUp();
  const failed = await failedRun(core);
  expect(await order('run.retry', '01KB7Q3V5M8T2X4Z6A9C1E3G5J')).toBe('not possible: there is no such run');
  await order('run.retry', failed);
  await settle();
  const answered = rowsOf(core).at(-1)?.run_id as RunId;

  expect(await order('run.retry', failed)).toBe('not possible: another run answers its prompts already');
  expect(await order('run.retry', answered)).toMatch(/^not possible: the run is completed; only failed/u);
  expect(rowsOf(core)).toHaveLength(2);
});

test('a retry does not overtake what was said since (G3)', async () => {
  const { core, order } = await setUp();
  const failed = await failedRun(core);
  await core.take(incoming('b'));
  await settle();

  expect(await order('run.retry', failed)).toMatch(/the conversation went on since/u);
});

test('a prompt that was taken back is not answered after all', async () => {
  const { core, order } = await setUp();
  const failed = await failedRun(core);
  await core.store.write((tx) => tx.run(core.store.sql.updateTable('pending_inputs').set({ text: '' })));

  expect(await order('run.retry', failed)).toBe('not possible: its prompts were taken back or are kept no more');
});

test('a run whose authority ended is not retried, whoever asks (G8)', async () => {
  const { core, order } = await setUp({ judge: () => 'REVOKED' });
  const failed = await failedRun(core);

  expect(await order('run.retry', failed)).toMatch(/counts no more \(REVOKED\)/u);
  expect(rowsOf(core)).toHaveLength(1);
});

test.each<[string, Partial<AccessRules>]>([
  ['the server of its person is trusted no more', { trustedHomeservers: [] }],
  ['only others are let in', { access: 'allowed', allowedUsers: ['@bob:example.org'] }],
  ['only who was named is let in', { access: 'granted' }],
  ['accounts without a signature are let in no more', { unsignedUsers: [] }],
])('nobody is let in again through a retry: %s (G8)', async (_name, change) => {
  const { core, order } = await setUp();
  const failed = await failedRun(core);
  Object.assign(core.rules, change);

  expect(await order('run.retry', failed)).toMatch(/^not possible: its person may not use this oracle any more/u);
  expect(rowsOf(core)).toHaveLength(1);
});

test('a working run is cancelled and keeps what it said; a run that ended stays as it is (G9, G10)', async () => {
  const { core, order } = await setUp();
  const slow = held('Half an ');
  core.runner.script(slow.script);
  await core.take(incoming('a'));
  core.scheduler.wake();
  await settle();
  const id = firstRun(core);

  expect(await order('run.retry', id)).toBe('not possible: the run is running, and goes on by itself');
  expect(await order('run.cancel', id)).toBe('cancelled');
  await settle();

  expect(rowsOf(core)).toMatchObject([{ status: 'cancelled' }]);
  expect(core.frames.fold(id).text).toBe('Half an ');
  expect(await order('run.cancel', id)).toBe('the run is cancelled already');
  expect(await order('run.retry', id)).toMatch(/^not possible: the run is cancelled/u);
});

test('a run that waits is cancelled before it starts, and the next of its session is not held up (G3)', async () => {
  const { core, order } = await setUp();
  core.execute = null;
  await core.take(incoming('a'));
  const id = firstRun(core);

  expect(await order('run.cancel', id)).toBe('cancelled before it started');
  expect(await order('run.cancel', 'no id')).toBe('there is no such run');

  expect(rowsOf(core)).toMatchObject([{ status: 'cancelled' }]);
  await core.scheduler.stop(0);
});

test('an order that fails by a bug is said to have failed and holds up no other', async () => {
  const { core, order } = await setUp();
  const control = obeyControl({
    ...core,
    nudge: () => undefined,
    orders: { broken: () => Promise.reject(new Error('a bug')) },
  });
  stopControl();
  stopControl = () => control.stop();

  expect(await order('broken', '')).toBe('failed: see the log');
  expect(await order('run.cancel', 'x')).toBe('unknown order');
});
