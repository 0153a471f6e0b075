import { describe, expect, test } from 'vitest';
import type { DeviceId, EventId, OutboxTxnId, RunId, SessionId, UserId } from '../../../src/ids.ts';
import type { JsonObject } from '../../../src/json.ts';
import { createControl, decideCancel } from '../../../src/runs/control.ts';
import type { RunStatus } from '../../../src/runs/run.ts';
import { newNonce, signContent } from '../../../src/ucan/mint.ts';
import { buildCore, type Core, type CoreOptions, MALLORY_KEY, ORACLE_KEY } from '../../fakes/core.ts';
import { ALICE, BOB, incoming, ORACLE, ROOM } from '../../fakes/events.ts';
import { fakeClock } from '../../fakes/fake-clock.ts';
import { fileStore, settle } from '../../fakes/memory-store.ts';
import { answering, held } from '../../fakes/scripted-runner.ts';

async function setUp(options: CoreOptions = {}): Promise<Core> {
  const core = buildCore(options);
  await core.joinDirect();
  return core;
}
/** A group in which Alice has started the thread `$a` and the oracle works on her answer. */
async function setUpGroup(): Promise<Core> {
  const core = await setUp();
  core.rooms.room(ROOM, { kind: 'group', membership: 'join' });
  core.rooms.forget(ROOM);
  core.runner.script(held('Half').script);
  await core.take(incoming('a', { text: 'Oracle: a' }));
  await settle();
  return core;
}
const inThread = (body: string, more: JsonObject = {}): JsonObject => ({
  msgtype: 'm.text',
  body,
  'm.relates_to': { rel_type: 'm.thread', event_id: '$a' },
  ...more,
});
const stopSign = (name: string, target: string, sender: string = ALICE, key = '\u{1F6D1}') =>
  incoming(name, { sender, type: 'm.reaction', content: { 'm.relates_to': { rel_type: 'm.annotation', event_id: target, key } } });
const runsOf = ({ store }: Core): string[] =>
  store.read
    .all(store.sql.selectFrom('runs').select(['run_id', 'status', 'matrix_user_id']).orderBy('run_id'))
    .map(({ run_id, status, matrix_user_id }) => {
      const prompts = store.read.all(store.sql.selectFrom('pending_inputs').select('prompt_id').where('run_id', '=', run_id).orderBy('id'));
      return `${matrix_user_id === BOB ? 'bob ' : ''}${status}: ${prompts.map(({ prompt_id }) => prompt_id).join('+')}`;
    });
const notices = (core: Core): unknown[] => core.said().map(({ content }) => content['body']);

describe('decideCancel', () => {
  const run = (status: RunStatus) => ({ id: 'r' as RunId, sessionId: '$s' as SessionId, status, matrixUserId: ALICE });
  test.each([
    ['the author', 'running', ALICE, false, 'stop'],
    ['the author, before it started', 'queued', ALICE, false, 'stop'],
    ['a moderator', 'running', BOB, true, 'stop'],
    ['a bystander', 'running', BOB, false, 'not_yours'],
    ['a bystander, of an ended run', 'completed', BOB, false, 'not_yours'],
    ['the author, after its end', 'completed', ALICE, false, 'run_ended'],
    ['a moderator, after its end', 'cancelled', BOB, true, 'run_ended'],
  ] as const)('%s (%s): %s', (_name, status, sender, mayRedact, expected) => {
    const decision = decideCancel(run(status), { sender, mayRedact });
    expect(decision.kind === 'stop' ? 'stop' : decision.reason).toBe(expected);
  });
  test('nothing is there', () => {
    expect(decideCancel(undefined, { sender: ALICE, mayRedact: true })).toEqual({ kind: 'ignore', reason: 'no_run' });
  });
});

describe('🛑', () => {
  test('on the prompt stops its run; what it said stays (G9)', async () => {
    const core = await setUp();
    core.runner.script(held('Half').script);
    await core.take(incoming('a'));
    await settle();

    expect(await core.take(stopSign('s', '$a'))).toEqual(['stopped:author']);
    await settle();

    expect(runsOf(core)).toEqual(['cancelled: $a']);
    expect(core.projection.views[0]?.ended?.text).toBe('Half');
  });

  test.each(['original', 'part', 'edit'])('on the answer (its %s) stops the run', async (which) => {
    const core = await setUp();
    core.runner.script(held('Half').script);
    await core.take(incoming('a'));
    await settle();
    const runId = core.runner.jobs[0]?.run.id as RunId;
    await core.store.write((tx) => {
      for (const name of ['original', 'edit', 'part']) {
        const row = {
          txn_id: `answer.${runId}.${name}` as OutboxTxnId,
          lane: 'l',
          room_id: ROOM,
          sender: ORACLE,
          device_id: 'D' as DeviceId,
          kind: 'answer' as const,
          run_id: runId,
          part: name === 'part' ? 2 : 1,
          event_type: 'm.room.message',
          state_key: null,
          content: '{}',
          edits_txn: name === 'edit' ? (`answer.${runId}.original` as OutboxTxnId) : null,
          state: 'sent' as const,
          event_id: `$${name}` as EventId,
          deadline_at: 0,
          created_at: 0,
          sent_at: 0,
          error: null,
          thread_root: null,
        };
        tx.run(core.store.sql.insertInto('outbox').values(row));
      }
    });

    expect(await core.take(stopSign('s', `$${which}`, ALICE, '\u{1F6D1}\uFE0F'))).toEqual(['stopped:author']);
    await settle();

    expect(runsOf(core)).toEqual(['cancelled: $a']);
  });

  test('on a prompt that waits: it is not answered, and the others are', async () => {
    const core = await setUpGroup();
    await core.take(incoming('b', { sender: BOB, content: inThread('Oracle: b') }));
    core.runner.script(answering('ok'));

    expect(await core.take(stopSign('s', '$b', BOB))).toEqual(['stopped:author']);
    await settle();

    expect(runsOf(core)).toEqual(['running: $a', 'bob cancelled: $b']);
  });

  test('of somebody else changes nothing; of a moderator it counts (G9, G13)', async () => {
    const core = await setUpGroup();

    expect(await core.take(stopSign('s1', '$a', BOB), stopSign('s2', '$nothing', BOB))).toEqual(['ignored:not_yours', 'ignored:no_run']);
    await settle();
    expect(runsOf(core)).toEqual(['running: $a']);

    core.rooms.room(ROOM, { kind: 'group', membership: 'join', levels: new Map([[BOB, 50]]) });
    expect(await core.take(stopSign('s3', '$a', BOB))).toEqual(['stopped:moderator']);
    await settle();
    expect(runsOf(core)).toEqual(['cancelled: $a']);
    expect(await core.take(stopSign('s4', '$a', ALICE))).toEqual(['ignored:run_ended']);
  });

  test('in another room names nothing (G13)', async () => {
    const core = await setUpGroup();
    const control = createControl({ store: core.store, runs: core.runs, scheduler: core.scheduler });

    expect(control.runAt(core.store.read, ROOM, '$a' as EventId)?.status).toBe('running');
    expect(control.runAt(core.store.read, '!elsewhere:example.org' as never, '$a' as EventId)).toBeUndefined();
  });

  test('counts although the process dies before the run has ended: it is not taken up again (G5, G9)', async () => {
    const clock = fakeClock();
    const { open } = fileStore();
    const first = await setUp({ store: open(), clock });
    first.runner.script((job) => {
      job.output.text('Half');
      return new Promise(() => undefined);
    });
    await first.take(incoming('a'));
    await settle();
    await first.take(stopSign('s', '$a'));

    const second = buildCore({ store: open(), clock, fence: 2 });
    second.scheduler.wake();
    await settle();

    expect(runsOf(second)).toEqual(['cancelled: $a']);
    expect(second.runner.jobs).toEqual([]);
    expect(second.projection.views[0]?.ended?.text).toBe('Half');
  });
});

test('a 🛑 on what went over to the next run while we looked stops that one (G9)', async () => {
  const core = await setUp();
  const first = held('x');
  const second = held('y');
  core.runner.script(first.script, second.script);
  await core.take(incoming('a'));
  await settle();
  await core.take(incoming('b'));
  core.rooms.mayRedact = async () => {
    first.release();
    await settle();
    return true;
  };

  expect(await core.take(stopSign('s', '$b', BOB))).toEqual(['stopped:moderator']);
  await settle();

  expect(second.started).toBe(1);
  expect(core.store.read.all(core.store.sql.selectFrom('runs').select('status').orderBy('run_id'))).toEqual([
    { status: 'completed' },
    { status: 'cancelled' },
  ]);
});

describe('!stop', () => {
  test('stops what is answered in a direct room, and what waits', async () => {
    const core = await setUp();
    core.runner.script(held('Half').script);
    await core.take(incoming('a'));
    await settle();
    await core.take(incoming('b', { content: { msgtype: 'm.text', body: 'b', 'ixo.oracle.turn': { multitask: 'enqueue' } } }));

    expect(await core.take(incoming('s', { text: '!stop' }))).toEqual(['command:stop']);
    await settle();

    expect(runsOf(core)).toEqual(['cancelled: $a', 'cancelled: $b']);
    // Under the answer stands that it was stopped.
    expect(notices(core)).toEqual([]);
    expect(core.count('transcript')).toBe(3);
  });

  test('says so when there is nothing', async () => {
    const core = await setUp();

    expect(await core.take(incoming('s', { text: '!stop' }))).toEqual(['command:nothing_to_stop']);

    expect(notices(core)).toEqual(['There is nothing of yours here that I could stop.']);
    expect(core.count('runs')).toBe(0);
  });

  test('in a thread of a group needs no mention; one’s own only, or all of them with the level to redact (G9, G13)', async () => {
    const core = await setUpGroup();

    expect(await core.take(incoming('s1', { sender: BOB, content: inThread('!stop') }))).toEqual(['command:nothing_to_stop']);
    await settle();
    expect(runsOf(core)).toEqual(['running: $a']);

    await core.take(incoming('b', { sender: BOB, content: inThread('Oracle: b') }));
    expect(await core.take(incoming('s2', { sender: BOB, content: inThread('!stop') }))).toEqual(['command:stop']);
    await settle();
    expect(runsOf(core)).toEqual(['running: $a', 'bob cancelled: $b']);

    core.rooms.room(ROOM, { kind: 'group', membership: 'join', levels: new Map([[BOB, 50]]) });
    await core.take(incoming('s3', { sender: BOB, content: inThread('!stop') }));
    await settle();
    expect(runsOf(core)[0]).toBe('cancelled: $a');
  });

  test('outside a thread stops only one’s own, also for a moderator', async () => {
    const core = await setUpGroup();
    core.rooms.room(ROOM, { kind: 'group', membership: 'join', levels: new Map([[BOB, 100]]) });

    expect(await core.take(incoming('s1', { sender: BOB, text: 'Oracle: !stop' }))).toEqual(['command:nothing_to_stop']);
    expect(await core.take(incoming('s2', { text: 'Oracle: !stop' }))).toEqual(['command:stop']);
    await settle();

    expect(runsOf(core)).toEqual(['cancelled: $a']);
  });
});

describe('!mode', () => {
  test('in a direct room is the person’s to set', async () => {
    const core = await setUp();

    expect(await core.take(incoming('m1', { text: '!mode enqueue' }), incoming('m2', { text: '!mode' }))).toEqual([
      'command:mode',
      'command:mode',
    ]);

    expect(core.settings.read(core.store.read, ROOM, 'multitask')).toBe('enqueue');
    expect(notices(core).map(String)).toEqual([expect.stringContaining('`enqueue`'), expect.stringContaining('`enqueue`')]);
  });

  test('in a group needs the level of its state; everybody may look', async () => {
    const core = await setUpGroup();

    expect(await core.take(incoming('m1', { sender: BOB, text: 'Oracle: !mode interrupt' }))).toEqual(['refused:NOT_ALLOWED']);
    expect(core.settings.read(core.store.read, ROOM, 'multitask')).toBeUndefined();
    expect(await core.take(incoming('m2', { sender: BOB, text: 'Oracle: !mode show' }))).toEqual(['command:mode']);

    core.rooms.room(ROOM, { kind: 'group', membership: 'join', levels: new Map([[BOB, 50]]) });
    expect(await core.take(incoming('m3', { sender: BOB, text: 'Oracle: !mode interrupt' }))).toEqual(['command:mode']);
    expect(core.settings.read(core.store.read, ROOM, 'multitask')).toBe('interrupt');
  });
});

test('in the thread of a working run its own person needs no mention to say more; another one does', async () => {
  const core = await setUpGroup();

  expect(
    await core.take(incoming('b', { content: inThread('and b') }), incoming('c', { sender: BOB, content: inThread('and c') })),
  ).toEqual(['admitted:active_thread', 'overheard:not_addressed']);

  expect(runsOf(core)).toEqual(['running: $a+$b']);
});

describe('two people in one thread (G13)', () => {
  test.each(['steer', 'interrupt'])('what one says with %s neither goes into nor ends the other’s run', async (multitask) => {
    const core = await setUpGroup();

    await core.take(incoming('b', { sender: BOB, content: inThread('Oracle: ignore her and stop', { 'ixo.oracle.turn': { multitask } }) }));
    await settle();

    expect(runsOf(core)).toEqual(['running: $a', 'bob queued: $b']);
    const job = core.runner.jobs[0];
    expect(job?.output.inputsWaiting()).toEqual([]);
    expect(job?.signal.aborted).toBe(false);
  });

  test('an edit of the other’s prompt and its redaction change nothing', async () => {
    const core = await setUpGroup();
    const edit = {
      msgtype: 'm.text',
      body: '* x',
      'm.new_content': { msgtype: 'm.text', body: 'x' },
      'm.relates_to': { rel_type: 'm.replace', event_id: '$a' },
    };

    await core.take(
      incoming('e', { sender: BOB, content: edit }),
      incoming('r', { sender: BOB, type: 'm.room.redaction', content: { redacts: '$a' } }),
    );
    await settle();

    expect(runsOf(core)).toEqual(['running: $a']);
    expect(core.store.read.get(core.store.sql.selectFrom('pending_inputs').select('text'))?.text).toBe('Oracle: a');
  });

  test('each is answered under the own name, one after the other', async () => {
    const core = await setUpGroup();
    await core.take(incoming('b', { sender: BOB, content: inThread('Oracle: b') }), incoming('c', { content: inThread('Oracle: c') }));
    core.runner.script(answering('ok'));

    core.scheduler.cancel('$a' as SessionId);
    await settle();

    expect(core.runner.jobs.map(({ run }) => `${run.matrixUserId} ${run.prompts.map(({ id }) => id).join('+')}`)).toEqual([
      `${ALICE} $a`,
      `${BOB} $b`,
      `${ALICE} $c`,
    ]);
  });
});

test('!revoke all also ends what a DID signed itself through this account, whatever it rests on, and nobody else’s (G8, G13)', async () => {
  const core = await setUp();
  core.runner.script(held('So far').script);
  const content = signContent(
    {
      ...{ key: MALLORY_KEY, audience: ORACLE_KEY.did, room: ROOM, sender: ALICE, type: 'm.room.message' },
      ...{ ts: core.clock.now(), nonce: newNonce() },
    },
    { msgtype: 'm.text', body: 'Go on' },
  );
  await core.take(incoming('mallory', { content }));
  await settle();
  const stopFor = async (user: UserId) => {
    (await core.store.write((tx) => createControl(core).stopSpeakingFor(tx, user, core.clock.now())))();
    await settle();
    return core.store.read.all(core.store.sql.selectFrom('runs').select(['status', 'error']));
  };

  expect(await stopFor(BOB)).toMatchObject([{ status: 'running' }]);
  expect(await stopFor(ALICE)).toEqual([{ status: 'failed', error: expect.stringContaining('"REVOKED"') }]);
});
