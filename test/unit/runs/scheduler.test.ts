import { describe, expect, test } from 'vitest';
import { refusal } from '../../../src/errors.ts';
import type { RunId, SessionId } from '../../../src/ids.ts';
import type { Projection } from '../../../src/runs/projection.ts';
import type { Run } from '../../../src/runs/run.ts';
import type { Store } from '../../../src/store/store.ts';
import type { RestsOn } from '../../../src/turn/principal.ts';
import { buildCore, type Core, type CoreOptions } from '../../fakes/core.ts';
import { ALICE, incoming, listed, ORACLE, roomId } from '../../fakes/events.ts';
import { fakeClock } from '../../fakes/fake-clock.ts';
import { breakDisk, fileStore, settle } from '../../fakes/memory-store.ts';
import { answering, completed, held, type Script } from '../../fakes/scripted-runner.ts';

async function setUp(options: CoreOptions = {}): Promise<Core> {
  const core = buildCore(options);
  await core.joinDirect();
  for (const name of ['r1', 'r2', 'r3']) await core.joinDirect(roomId(name));
  return core;
}
/** A runner that holds every job until the test lets this prompt go. */
function holdAll() {
  const waiting = new Map<string, () => void>();
  const order: string[] = [];
  const script: Script = (job) => {
    const name = job.run.prompts.map(({ text }) => text).join('+');
    order.push(name);
    return new Promise((resolve) => {
      const finish = (): void => {
        waiting.delete(name);
        resolve(completed(name));
      };
      waiting.set(name, finish);
      job.signal.addEventListener('abort', () => (job.signal.reason?.name === 'Drain' ? resolve({ kind: 'suspended' }) : finish()), {
        once: true,
      });
    });
  };
  return { script, order, waiting, go: (name: string) => waiting.get(name)?.() };
}
const REST_OF_RUN = { client: 'matrix' as const, requestId: 'r', hints: {}, direct: true };
const statuses = (store: Store) =>
  store.read
    .all(store.sql.selectFrom('runs').select(['status', 'attempt']).orderBy('run_id'))
    .map(({ status, attempt }) => `${status} ${attempt}`);

test('turns of one session run one after the other in order, sessions side by side (G3)', async () => {
  const core = await setUp();
  const hold = holdAll();
  core.runner.script(hold.script);
  await core.take(incoming('a'));
  await settle();
  await core.take(incoming('b'), incoming('other', { roomId: roomId('r1') }), incoming('c'));
  await settle();
  expect([...hold.waiting.keys()]).toEqual(['a', 'other']);

  hold.go('a');
  await settle();

  // What came while the first was answered is answered together.
  expect([...hold.waiting.keys()]).toEqual(['other', 'b+c']);
  hold.go('b+c');
  hold.go('other');
  await settle();
  expect(statuses(core.store)).toEqual(['completed 1', 'completed 1', 'completed 1']);
  expect(core.projection.views.flatMap((view) => view.problems)).toEqual([]);
});

test('never more runs than allowed, and the oldest session goes first', async () => {
  const core = await setUp({ maxConcurrentRuns: 2 });
  const hold = holdAll();
  core.runner.script(hold.script);
  for (const name of ['r1', 'r2', 'r3']) {
    await core.take(incoming(name, { roomId: roomId(name) }));
    core.clock.advance(1);
  }
  await settle();
  expect([...hold.waiting.keys()]).toEqual(['r1', 'r2']);
  expect(core.scheduler.active()).toBe(2);

  hold.go('r2');
  await settle();

  expect([...hold.waiting.keys()]).toEqual(['r1', 'r3']);
});

test('while the agent is not loaded runs wait, and start without anybody waking them', async () => {
  const core = await setUp();
  const { execute } = core;
  core.execute = null;
  await core.take(incoming('a'));
  await core.clock.advanceAsync(10_000);
  expect(statuses(core.store)).toEqual(['queued 0']);

  core.execute = execute;
  await core.clock.advanceAsync(1_000);
  await settle();

  expect(statuses(core.store)).toEqual(['completed 1']);
});

test('cancel stops the run of that session only, and only the named one (G9)', async () => {
  const core = await setUp();
  const holding = held('Half');
  core.runner.script(holding.script);
  await core.take(incoming('a'), incoming('b', { roomId: roomId('r1') }));
  await settle();
  const session = '$a' as SessionId;

  expect(core.scheduler.cancel('$nobody' as SessionId)).toBe(false);
  expect(core.scheduler.cancel(session, '01ARZ3NDEKTSV4RRFFQ69G5FAV' as RunId)).toBe(false);
  expect(core.scheduler.cancel(session)).toBe(true);
  await settle();

  expect(statuses(core.store)).toEqual(['cancelled 1', 'running 1']);
  core.runner.script(answering('Next'));
  await core.take(incoming('next'));
  await settle();
  expect(statuses(core.store)).toEqual(['cancelled 1', 'running 1', 'completed 1']);
});

describe('a new process', () => {
  /** Leaves one run as `kill -9` leaves it: running, `attempts` times started. */
  async function killedAfter(attempts: number, partial = 'Half') {
    const files = fileStore();
    const clock = fakeClock();
    let store = files.open();
    for (let start = 1; start <= attempts; start += 1) {
      const core = await setUp({ store, clock, fence: start });
      core.runner.script(held(start === 1 ? partial : '').script);
      if (start === 1) await core.take(incoming('a'));
      else core.scheduler.wake();
      await settle();
      await clock.advanceAsync(40);
      await settle();
      // Nothing is stopped in order: the connection is gone.
      store.close();
      store = files.open();
    }
    return { core: await setUp({ store, clock, fence: attempts + 1 }), store, clock };
  }

  test('resumes what runs, with the text that was shown (G5)', async () => {
    const { core, store } = await killedAfter(1);
    core.runner.script((job) => {
      job.output.text(' done');
      return completed(`${job.shownText} done`);
    });
    core.scheduler.wake();
    await settle();

    expect(core.runner.jobs[0]).toMatchObject({ shownText: 'Half', run: { attempt: 2 } });
    expect(statuses(store)).toEqual(['completed 2']);
    expect(core.projection.views[0]).toMatchObject({ ended: { text: 'Half done' }, problems: [] });
    store.close();
  });

  test('ends after three attempts visibly, with the text so far, and the session is usable (G5, G15)', async () => {
    const { core, store } = await killedAfter(3);
    core.scheduler.wake();
    await settle();

    expect(core.runner.jobs).toEqual([]);
    expect(statuses(store)).toEqual(['interrupted 4']);
    expect(core.projection.views[0]).toMatchObject({ closed: true, ended: { text: 'Half', error: { code: 'INTERRUPTED' } }, problems: [] });
    expect(core.transcript.newest('$a' as SessionId, { limit: 5 }).map(({ role, text }) => `${role}: ${text}`)).toEqual([
      'human: a',
      'ai: Half',
    ]);
    await core.take(incoming('next'));
    await settle();
    expect(statuses(store)).toEqual(['interrupted 4', 'completed 1']);
    store.close();
  });

  test('ends what is past its deadline visibly', async () => {
    const { core, store, clock } = await killedAfter(1);
    clock.advance(300_000);
    core.scheduler.wake();
    await settle();

    expect(statuses(store)).toEqual(['expired 2']);
    expect(core.projection.views[0]?.ended).toMatchObject({ error: { code: 'RUN_DEADLINE' }, text: 'Half' });
    store.close();
  });

  test('ends even a run that no view can show, so that it does not hold its session for ever', async () => {
    const { core, store } = await killedAfter(3);
    const broken: Projection = {
      open: () => {
        throw new TypeError('a bug in a view');
      },
    };
    core.execute = core.execute && { ...core.execute, projections: [broken] };
    core.scheduler.wake();
    await settle();

    expect(statuses(store)).toEqual(['interrupted 4']);
    expect(core.logger.said('error')).toEqual(['a run could not be shown and is ended without']);
    store.close();
  });

  test('an earlier process that wakes up again leaves the run of the newer one alone (G18)', async () => {
    const { core, store } = await killedAfter(1);
    core.runner.script(held().script);
    core.scheduler.wake();
    await settle();
    const earlier = buildCore({ store, fence: 1 });
    let writes = 0;
    const { write } = store;
    store.write = (change) => {
      writes += 1;
      return write(change);
    };

    earlier.scheduler.wake();
    await settle();
    await earlier.clock.advanceAsync(5_000);

    expect(earlier.runner.jobs).toEqual([]);
    expect(writes).toBe(0);
    store.close();
  });
});

test('a run that always fails to be written at its end is tried again with pauses, not in a spin, and ends', async () => {
  const core = await setUp();
  let ends = 0;
  const broken: Projection = {
    open: () => ({
      onFrames: () => undefined,
      onEnd: () => {
        ends += 1;
        throw new TypeError('a bug in a view');
      },
      close: () => undefined,
    }),
  };
  core.execute = core.execute && { ...core.execute, projections: [broken] };
  await core.take(incoming('a'));
  await settle(200);
  expect(ends).toBe(1);

  for (let second = 0; second < 10; second += 1) await core.clock.advanceAsync(1_000).then(() => settle());

  expect(ends).toBe(4);
  expect(statuses(core.store)).toEqual(['interrupted 4']);
});

test('while the disk is full nothing is started; when it has room again runs go on by themselves', async () => {
  const core = await setUp();
  await core.take(incoming('a'));
  await settle();
  core.runner.script(answering('x'));
  const { execute } = core;
  core.execute = null;
  await core.take(incoming('b'));
  const disk = breakDisk(core.store);
  core.execute = execute;
  for (let second = 0; second < 5; second += 1) await core.clock.advanceAsync(1_000).then(() => settle());
  expect(core.runner.jobs).toHaveLength(1);
  expect(core.store.writable()).toBe(false);

  disk.repair();
  for (let second = 0; second < 3; second += 1) await core.clock.advanceAsync(1_000).then(() => settle());

  expect(statuses(core.store)).toEqual(['completed 1', 'completed 1']);
});

test('a lease is kept as long as the run lasts', async () => {
  const core = await setUp();
  core.runner.script(held('x').script);
  await core.take(incoming('a'));
  await settle();
  for (let minute = 0; minute < 4; minute += 1) {
    await core.clock.advanceAsync(60_000);
    await settle();
    const row = core.store.read.get(core.store.sql.selectFrom('runs').select('lease_until'));
    expect(row?.lease_until).toBeGreaterThan(core.clock.now());
  }
});

describe('stop', () => {
  test('asks the runs for a checkpoint, waits for them, starts no other, and leaves no timer', async () => {
    const core = await setUp();
    const hold = holdAll();
    core.runner.script(hold.script);
    await core.take(incoming('a'));
    await settle();
    await core.take(incoming('b', { content: { msgtype: 'm.text', body: 'b', 'ixo.oracle.turn': { multitask: 'enqueue' } } }));

    await core.scheduler.stop(10_000);
    await settle();

    expect(hold.order).toEqual(['a']);
    expect(statuses(core.store)).toEqual(['running 1', 'queued 0']);
    expect(core.scheduler.active()).toBe(0);
    expect(core.clock.pending()).toBe(0);
    core.scheduler.wake();
    await settle();
    expect(hold.order).toEqual(['a']);
  });

  test('while it waits for the agent leaves no timer either', async () => {
    const core = await setUp();
    core.execute = null;
    await core.take(incoming('a'));
    expect(core.clock.pending()).toBe(1);

    await core.scheduler.stop(10_000);

    expect(core.clock.pending()).toBe(0);
  });

  test('does not wait for a run that does not listen longer than it was told to', async () => {
    const core = await setUp();
    core.runner.script(() => new Promise(() => undefined));
    await core.take(incoming('a'));
    await settle();
    let stopped = false;
    const stopping = core.scheduler.stop(10_000).then(() => {
      stopped = true;
    });
    await core.clock.advanceAsync(9_999);
    expect(stopped).toBe(false);

    await core.clock.advanceAsync(1);
    await stopping;

    expect(core.logger.said('warn')).toContain('runs did not reach a checkpoint in time and go on at the next start');
  });

  test('does not wait out the pause of a run that was given back', async () => {
    const core = await setUp();
    core.runner.script(() => ({ kind: 'suspended' }));
    await core.take(incoming('a'));
    await settle();

    await core.scheduler.stop(10_000);

    expect(core.clock.pending()).toBe(0);
  });
});

test('a message joins a waiting run of the very same principal, account, tier and hints only', async () => {
  const core = await setUp();
  core.execute = null;
  await core.take(incoming('a'));
  const [run] = core.runs.unfinished(1, new Set());
  const joins = (change: object, hints = {}) =>
    core.runs.waitingFor(core.store.read, '$a' as SessionId, { ...listed(), ...change }, hints) === run?.id;

  expect(joins({})).toBe(true);
  expect(joins({ tier: 'signed' })).toBe(false);
  expect(joins({ matrixUserId: ORACLE })).toBe(false);
  expect(joins({ id: 'did:key:z' })).toBe(false);
  expect(joins({}, { timezone: 'Europe/Zurich' })).toBe(false);
});

const RESTING = {
  path: [{ tokenId: 't', cid: 'c', issuer: 'did:key:zA', audience: 'did:key:zB', expiresAt: 5 }],
  until: 5,
} as unknown as RestsOn;

test('a run keeps what it rests on word for word, and only a message of the very same grants joins it (G8)', async () => {
  const core = await setUp();
  core.execute = null;
  await core.take(incoming('a'));
  const [first] = core.runs.unfinished(1, new Set());
  const id = core.newRunId(core.clock.now() + 1);
  const principal = { ...listed(), grants: RESTING };
  await core.store.write((tx) => {
    const { sessionId, roomId, owner } = core.runs.read(tx, first?.id as RunId) as Run;
    core.runs.insert(tx, { ...{ id, sessionId, roomId, threadRoot: null, owner, principal }, ...REST_OF_RUN }, core.clock.now());
  });
  const joins = (grants: RestsOn) => core.runs.waitingFor(core.store.read, '$a' as SessionId, { ...principal, grants }, {});

  expect(core.runs.read(core.store.read, id)?.grants).toEqual(RESTING);
  expect(joins(structuredClone(RESTING))).toBe(id);
  expect(joins({ ...RESTING, until: 4 })).toBeUndefined();
  expect(joins({ path: [], until: null })).toBeUndefined();
});

test('grants that cannot be read are grants that have ended: the run ends, and the next one goes on', async () => {
  const core = await setUp();
  const { execute } = core;
  core.execute = null;
  await core.take(incoming('a'));
  await core.store.write((tx) => tx.run(core.store.sql.updateTable('runs').set({ grants: '{"v":1,"path":[' })));
  await core.take(incoming('b', { roomId: roomId('r1') }));
  core.execute = execute;

  core.scheduler.wake();
  await settle();

  expect(core.observed.filter(({ kind }) => kind === 'ended').map((event) => event.kind === 'ended' && [event.status, event.code])).toEqual(
    [
      ['failed', 'GRANT_EXPIRED'],
      ['completed', null],
    ],
  );
});

test('a run is stopped for the reason given, and its text so far stays', async () => {
  const core = await setUp();
  const hold = held('Half an');
  core.runner.script(hold.script);
  await core.take(incoming('a'));
  await settle();

  expect(core.scheduler.cancel('$a' as SessionId, undefined, refusal('REVOKED'))).toBe(true);
  await settle();

  const [run] = core.store.read.all(core.store.sql.selectFrom('runs').select(['run_id', 'status', 'error']));
  expect(run?.status).toBe('failed');
  expect(run?.error).toContain('REVOKED');
  expect(core.frames.fold(run?.run_id as RunId)).toMatchObject({ text: 'Half an', error: { code: 'REVOKED' } });
});

test('the inbox knows an own answer of a run that is ours, and marks nothing for it', async () => {
  const core = await setUp();
  core.execute = null;
  await core.take(incoming('a'));
  const [run] = core.runs.unfinished(1, new Set());

  await core.inbox.receive([
    incoming('answer', {
      sender: ORACLE,
      content: { msgtype: 'm.text', body: 'x', 'ixo.oracle.run': { run_id: run?.id ?? '', prompts: ['$later'] } },
    }),
    incoming('later', { sender: ALICE }),
  ]);

  expect(core.inbox.depth().rows).toBe(1);
});
