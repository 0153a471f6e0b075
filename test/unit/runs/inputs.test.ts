import { describe, expect, test } from 'vitest';
import { type OracleError, refusal } from '../../../src/errors.ts';
import type { SessionId } from '../../../src/ids.ts';
import type { RunJob, RunOutcome } from '../../../src/runs/runner.ts';
import type { Store } from '../../../src/store/store.ts';
import { buildCore, type Core, type CoreOptions } from '../../fakes/core.ts';
import { ALICE, BOB, incoming, ROOM } from '../../fakes/events.ts';
import { fakeClock } from '../../fakes/fake-clock.ts';
import { fileStore, settle } from '../../fakes/memory-store.ts';
import { answering, completed, held } from '../../fakes/scripted-runner.ts';

async function setUp(options: CoreOptions = {}): Promise<Core> {
  const core = buildCore(options);
  await core.joinDirect();
  return core;
}
const said = (name: string, multitask?: string) =>
  incoming(name, { content: { msgtype: 'm.text', body: name, ...(multitask === undefined ? {} : { 'ixo.oracle.turn': { multitask } }) } });
const runsOf = (store: Store): string[] =>
  store.read.all(store.sql.selectFrom('runs').select(['run_id', 'status']).orderBy('run_id')).map(({ run_id, status }) => {
    const prompts = store.read.all(store.sql.selectFrom('pending_inputs').select('text').where('run_id', '=', run_id).orderBy('id'));
    return `${status}: ${prompts.map(({ text }) => text).join('+')}`;
  });
/** Takes what waits before its one model call, as the built-in agent does before each. */
const taking =
  (until: Promise<void>) =>
  async ({ run, output }: RunJob): Promise<RunOutcome> => {
    await output.promptsConsumed(run.prompts.map(({ id }) => id));
    await until;
    const further = output.inputsWaiting();
    if (further.length > 0) await output.promptsConsumed(further.map(({ id }) => id));
    return completed([...run.prompts, ...further].map(({ text }) => text).join(' and '));
  };

describe('steer', () => {
  test('a working run is given what its principal says, in order and once (G2, G3)', async () => {
    const core = await setUp();
    const go = Promise.withResolvers<void>();
    core.runner.script(taking(go.promise));
    await core.take(said('a'));
    await settle();
    await core.take(said('b'), said('c'));

    go.resolve();
    await settle();

    expect(runsOf(core.store)).toEqual(['completed: a+b+c']);
    expect(core.store.read.get(core.store.sql.selectFrom('transcript').select('text').where('role', '=', 'ai'))?.text).toBe(
      'a and b and c',
    );
  });

  test.each<[string, RunOutcome, string]>([
    ['ended', completed('x'), 'completed'],
    ['failed', { kind: 'failed', refusal: refusal('MODEL_ERROR'), messages: [] }, 'failed'],
  ])('what a run that %s did not take becomes the next run, in order (G2)', async (_name, outcome, status) => {
    const core = await setUp();
    const holding = held('x');
    core.runner.script(holding.script, answering('second'));
    await core.take(said('a'));
    await settle();
    await core.take(said('b'), said('c'));

    holding.release(outcome);
    await settle();

    expect(runsOf(core.store)).toEqual([`${status}: a`, 'completed: b+c']);
    expect(core.runner.jobs.map(({ run }) => [run.prompts.map(({ text }) => text), run.tier, run.principalId])).toEqual([
      [['a'], 'listed', 'matrix:u/alice:example.org'],
      [['b', 'c'], 'listed', 'matrix:u/alice:example.org'],
    ]);
    // The window of the next run holds the first prompt and not its own.
    expect(
      core.transcript.newest('$a' as SessionId, { limit: 10, withoutRun: core.runner.jobs[1]?.run.id as never }).map(({ text }) => text),
    ).toEqual(outcome.kind === 'completed' ? ['a', 'x'] : ['a']);
  });

  test('a run that somebody stops takes along what was said to it', async () => {
    const core = await setUp();
    core.runner.script(held('x').script);
    await core.take(said('a'));
    await settle();
    await core.take(said('b'));

    core.scheduler.cancel('$a' as SessionId);
    await settle();

    expect(runsOf(core.store)).toEqual(['cancelled: a+b']);
  });

  test('a crash neither forgets nor repeats what waited (G2, G5)', async () => {
    const clock = fakeClock();
    const { open } = fileStore();
    const first = await setUp({ store: open(), clock });
    first.runner.script(held('x').script);
    await first.take(said('a'));
    await settle();
    await first.take(said('b'));

    const second = buildCore({ store: open(), clock, fence: 2 });
    await second.joinDirect();
    second.runner.script(held('x').script);
    second.scheduler.wake();
    await settle();
    await second.take(said('c'));
    second.scheduler.cancel('$a' as SessionId, undefined, refusal('RUN_DEADLINE'));
    second.runner.script(answering('rest'));
    await settle();

    expect(second.runner.jobs[0]?.run.prompts.map(({ text }) => text)).toEqual(['a', 'b']);
    expect(runsOf(second.store)).toEqual(['expired: a', 'completed: b+c']);
  });

  test('what is taken back before the run took it is not answered, and the run goes on (G9)', async () => {
    const core = await setUp();
    const holding = held('x');
    core.runner.script(holding.script);
    await core.take(said('a'));
    await settle();
    await core.take(said('b'));
    const redaction = incoming('r', { type: 'm.room.redaction', content: { redacts: '$b' } });

    await core.take(redaction);
    await settle();
    expect(runsOf(core.store)).toEqual(['running: a']);
    holding.release();
    await settle();

    expect(runsOf(core.store)).toEqual(['completed: a']);
  });
});

test('taken back between the look and the mark: what came with it is answered by another run (G2)', async () => {
  const core = await setUp();
  const go = Promise.withResolvers<void>();
  core.runner.script(async ({ run, output }) => {
    await output.promptsConsumed(run.prompts.map(({ id }) => id));
    await go.promise;
    const further = output.inputsWaiting();
    await core.take(incoming('r', { type: 'm.room.redaction', content: { redacts: '$b' } }));
    return output.promptsConsumed(further.map(({ id }) => id)).then(
      () => completed('all'),
      (error: OracleError) => ({ kind: 'failed', refusal: error.refusal, messages: [] }),
    );
  }, answering('second'));
  await core.take(said('a'));
  await settle();
  await core.take(said('b'), said('c'));

  go.resolve();
  await settle();

  expect(runsOf(core.store)).toEqual(['cancelled: a', 'completed: c']);
  // The checkpoint of the first holds it by then.
  expect(core.store.read.all(core.store.sql.selectFrom('erasures').select('run_id'))).toEqual([{ run_id: core.runner.jobs[0]?.run.id }]);
});

test('taken back while its run ends: the run that it went over to does not answer it (G9)', async () => {
  const core = await setUp();
  const first = held('x');
  const second = held('y');
  core.runner.script(first.script, second.script);
  await core.take(said('a'));
  await settle();
  await core.take(said('b'));
  core.rooms.mayRedact = async () => {
    first.release();
    await settle();
    return true;
  };

  await core.take(incoming('r', { sender: BOB, type: 'm.room.redaction', content: { redacts: '$b' } }));
  await settle();

  expect(second.started).toBe(1);
  expect(runsOf(core.store)).toEqual(['completed: a', 'cancelled: ']);
  expect(core.store.read.all(core.store.sql.selectFrom('erasures').select('run_id'))).toEqual([{ run_id: core.runner.jobs[1]?.run.id }]);
});

test('what a run did not take is answered before what somebody else said after it (G3)', async () => {
  const core = await setUp();
  core.rooms.room(ROOM, { kind: 'group', membership: 'join' });
  core.rooms.forget(ROOM);
  const holding = held('x');
  core.runner.script(holding.script);
  const inThread = (name: string, sender = ALICE) =>
    incoming(name, {
      sender,
      content: { msgtype: 'm.text', body: `Oracle: ${name}`, 'm.relates_to': { rel_type: 'm.thread', event_id: '$a' } },
    });
  await core.take(incoming('a', { text: 'Oracle: a' }));
  await settle();
  core.clock.advance(1);
  await core.take(inThread('b'), inThread('c', BOB), inThread('d'));

  holding.release();
  await settle();

  expect(core.runner.jobs.map(({ run }) => run.prompts.map(({ text }) => text).join('+'))).toEqual([
    'Oracle: a',
    'Oracle: b',
    'Oracle: c',
    'Oracle: d',
  ]);
  expect(core.runner.jobs.map(({ run }) => run.matrixUserId)).toEqual([ALICE, ALICE, BOB, ALICE]);
});

describe('interrupt', () => {
  test('the run stops with what it said, and the message is the next run, after what waited (G9)', async () => {
    const core = await setUp();
    core.runner.script(held('Half').script, answering('second'));
    await core.take(said('a'));
    await settle();

    await core.take(said('b'), said('c', 'interrupt'));
    await settle();

    expect(runsOf(core.store)).toEqual(['cancelled: a', 'completed: b+c']);
    expect(core.projection.views[0]?.ended?.text).toBe('Half');
  });

  test('what was said under other grants than the interrupting message is answered first, under its own (G3, G8)', async () => {
    const core = await setUp();
    core.runner.script(held('Half').script, answering('second'), answering('third'));
    await core.take(said('a'));
    await settle();
    const until = core.clock.now() + 3_600_000;
    const link = { tokenId: 't', cid: 'c', issuer: 'did:key:zIssuer', audience: 'did:key:zAudience', expiresAt: until };
    const grants = JSON.stringify({ v: 1, path: [link], until });
    await core.take(said('b'));
    await core.store.write((tx) => tx.run(core.store.sql.updateTable('runs').set({ grants })));
    core.clock.advance(5);

    await core.take(said('c', 'interrupt'));
    await settle();

    expect(runsOf(core.store)).toEqual(['cancelled: a', 'completed: b', 'completed: c']);
    const rows = core.store.read.all(core.store.sql.selectFrom('runs').select('grants').orderBy('run_id'));
    expect(rows.map((row) => row.grants)).toEqual([grants, grants, null]);
  });

  test('survives a crash before the run has ended: it is not taken up again', async () => {
    const clock = fakeClock();
    const { open } = fileStore();
    const first = await setUp({ store: open(), clock });
    first.runner.script(() => new Promise(() => undefined));
    await first.take(said('a'));
    await settle();
    await first.take(said('b', 'interrupt'));

    const second = buildCore({ store: open(), clock, fence: 2 });
    second.runner.script(answering('second'));
    second.scheduler.wake();
    await settle();

    expect(runsOf(second.store)).toEqual(['cancelled: a', 'completed: b']);
    expect(second.runner.jobs.map(({ run }) => run.prompts.map(({ text }) => text))).toEqual([['b']]);
  });
});

test.each([
  ['steer', ['completed: a+b']],
  ['enqueue', ['running: a', 'queued: b']],
  ['interrupt', ['cancelled: a', 'running: b']],
] as const)('the room says what a further message does: %s', async (mode, expected) => {
  const core = await setUp();
  await core.store.write((tx) => core.settings.write(tx, '!room:example.org' as never, 'multitask', mode, 0));
  const holding = held('x');
  core.runner.script(holding.script);
  await core.take(said('a'));
  await settle();

  await core.take(said('b'));
  await settle();

  if (mode === 'steer') {
    expect(runsOf(core.store)).toEqual(['running: a+b']);
  } else expect(runsOf(core.store)).toEqual(expected);
});
