import { mkdirSync, readdirSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { type EraseOptions, eraseDue } from '../../../src/app/erase-taken-back.ts';
import type { EventId, OwnerId, RunId, SessionId } from '../../../src/ids.ts';
import { noticeTxnId, unsignedPrincipalId } from '../../../src/ids.ts';
import type { RunOutcome } from '../../../src/runs/runner.ts';
import { createCheckpointFiles } from '../../../src/store/checkpoints/checkpoint-files.ts';
import { eraseCheckpoints } from '../../../src/store/checkpoints/erase-checkpoints.ts';
import { buildCore, type Core } from '../../fakes/core.ts';
import { ALICE, incoming, ROOM } from '../../fakes/events.ts';
import { fileStore, settle, tempFolder } from '../../fakes/memory-store.ts';
import { held } from '../../fakes/scripted-runner.ts';

const SECRET = 'hippopotamus';
const ANSWER = 'I looked it up.';
const OWNER = unsignedPrincipalId(ALICE) as OwnerId;

const redaction = (name: string, target: string) => {
  const base = incoming(name, { type: 'm.room.redaction' });
  return { ...base, event: { ...base.event, redacts: target, content: { redacts: target } } };
};
const filesWith = (folder: string, text: string): string[] =>
  readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((file) => file.isFile())
    .map((file) => join(file.parentPath, file.name))
    .filter((path) => readFileSync(path).includes(text));

function setUp() {
  const folder = tempFolder();
  const checkpoints = join(folder, 'checkpoints');
  mkdirSync(checkpoints);
  const store = fileStore(folder).open();
  const core = buildCore({ store });
  const files = createCheckpointFiles({ folder: checkpoints, logger: core.logger });
  /** As the graph leaves it after a step: prompts, calls and results of one turn. */
  const checkpoint = (thread: string, text: string, owner: OwnerId = OWNER) =>
    files.use(owner, async (saver) => {
      const id = `1ef${Math.random().toString(16).slice(2, 10)}-0000-6000-8000-000000000000`;
      const state = { v: 4, id, ts: '', channel_values: { messages: [text.repeat(50)] }, channel_versions: {}, versions_seen: {} };
      await saver.put({ configurable: { thread_id: thread, checkpoint_ns: '' } }, state as never, { source: 'loop', step: 1, parents: {} });
    });
  const erase: EraseOptions = {
    ...core,
    eraseCheckpoints: (owner, thread) => void eraseCheckpoints(checkpoints, { owner, thread }),
  };
  const close = () => {
    files.close();
    store.close();
  };
  return { folder, checkpoints, core, files, checkpoint, erase, close };
}

const usesATool = (outcome: RunOutcome = done()) => ({
  before: (output: Core['runner']['jobs'][number]['output']) => {
    output.emit('reasoning', { reasoning: `They want ${SECRET}.` });
    output.toolCall({ id: 'c', name: 'search', status: 'isRunning', args: { query: SECRET } });
    output.toolCall({ id: 'c', name: 'search', status: 'done', output: `Nothing about ${SECRET}.` });
    output.emit('action_call', { toolCallId: 'a', toolName: 'open', args: { q: SECRET } });
    output.emit('browser_tool_call', { toolCallId: 'b', toolName: 'go', args: { q: SECRET } });
    output.emit('render_component', { componentName: 'Card', args: { title: SECRET } });
    output.text(ANSWER);
  },
  outcome,
});
const done = (): RunOutcome => ({
  kind: 'completed',
  text: ANSWER,
  messages: [
    { role: 'ai', text: '', message: { v: 1, kind: 'ai', toolCalls: [{ id: 'c', name: 'search', args: { query: SECRET } }] } },
    { role: 'tool', text: `Nothing about ${SECRET}.`, message: { v: 1, kind: 'tool', callId: 'c', name: 'search', status: 'success' } },
    { role: 'ai', text: ANSWER, message: null },
  ],
});

test('a prompt taken back after its answer is found nowhere in the folder any more, and the answer stays (G9, DESIGN §7)', async () => {
  const { folder, core, checkpoint, erase, close } = setUp();
  const script = usesATool();
  core.runner.script((job) => {
    script.before(job.output);
    return script.outcome;
  });
  await core.joinDirect();
  await core.take(incoming('a', { text: `what about ${SECRET}?` }));
  core.scheduler.wake();
  await settle();
  await checkpoint('$a', SECRET);
  const [run] = core.store.read.all(core.store.sql.selectFrom('runs').select(['run_id', 'status']));
  await core.store.write((tx) =>
    tx.run(
      core.store.sql.insertInto('tool_marks').values({
        ...{ run_id: run?.run_id as RunId, tool_call_id: 'w', tool: 'write', args_hash: 'h', state: 'finished' },
        ...{ result: JSON.stringify({ v: 1, status: 'success', text: SECRET }), at: 0 },
      }),
    ),
  );
  expect(filesWith(folder, SECRET)).not.toEqual([]);

  expect(await core.take(redaction('r', '$a'))).toEqual(['redacted:redaction']);
  await settle();
  await eraseDue(erase);

  expect(filesWith(folder, SECRET)).toEqual([]);
  expect(core.frames.fold(run!.run_id)).toMatchObject({
    text: ANSWER,
    reasoning: '',
    tools: [{ id: 'c', name: 'search', status: 'done' }],
  });
  expect(core.transcript.newest('$a' as SessionId, { limit: 10 })).toMatchObject([
    { role: 'ai', message: { toolCalls: [{ id: 'c', name: 'search', args: {} }] } },
    { role: 'tool', text: '[removed]' },
    { role: 'ai', text: ANSWER },
  ]);
  expect(core.store.read.all(core.store.sql.selectFrom('erasures').selectAll())).toEqual([]);
  close();
});

test('a prompt taken back while its run works: what the run writes until it has heard of it goes as well, once it is over', async () => {
  const { folder, core, checkpoint, erase, close } = setUp();
  const holding = held(ANSWER);
  const script = usesATool();
  core.runner.script(async (job) => {
    script.before(job.output);
    await checkpoint('$a', SECRET);
    const outcome = await holding.script(job);
    return { ...outcome, messages: script.outcome.kind === 'suspended' ? [] : script.outcome.messages } as RunOutcome;
  });
  await core.joinDirect();
  await core.take(incoming('a', { text: `what about ${SECRET}?` }));
  await settle();
  expect(holding.started).toBe(1);

  await core.take(redaction('r', '$a'));
  // The run has not ended yet: nothing is taken from under it.
  const before = core.store.read.all(core.store.sql.selectFrom('erasures').selectAll()).length;
  await settle();
  await eraseDue(erase);

  expect(before).toBe(1);
  expect(core.store.read.get(core.store.sql.selectFrom('runs').select('status'))?.status).toBe('cancelled');
  expect(filesWith(folder, SECRET)).toEqual([]);
  close();
});

test('a run that a crash left is ended at the next start and erased, and never answers what was taken back (G5)', async () => {
  const { folder, core, checkpoint, erase, close } = setUp();
  const { execute } = core;
  core.execute = null;
  await core.joinDirect();
  await core.take(incoming('a', { text: `what about ${SECRET}?` }), incoming('b', { text: 'and this' }));
  await core.store.write((tx) => {
    const [run] = core.runs.unfinished(1, new Set());
    core.runs.start(tx, run?.id as never, { now: 0, leaseUntil: 0, deadlineAt: core.clock.now() + 100_000 });
  });
  await checkpoint('$a', SECRET);
  await core.take(redaction('r', '$a'));
  await eraseDue(erase);
  expect(core.store.read.all(core.store.sql.selectFrom('erasures').selectAll())).toHaveLength(1);

  core.execute = execute;
  core.scheduler.wake();
  await settle();
  await eraseDue(erase);

  expect(core.runner.jobs).toEqual([]);
  expect(filesWith(folder, SECRET)).toEqual([]);
  close();
});

test("a later turn of the same session is not disturbed; the thread's file is cleaned when that is over", async () => {
  const { folder, core, checkpoint, erase, close } = setUp();
  await core.joinDirect();
  await core.take(incoming('a', { text: SECRET }));
  core.scheduler.wake();
  await settle();
  await checkpoint('$a', SECRET);
  const holding = held('second');
  core.runner.script(holding.script);
  await core.take(incoming('b', { text: 'next' }));
  core.scheduler.wake();
  await settle();
  expect(holding.started).toBe(1);

  await core.take(redaction('r', '$a'));
  await settle();
  await eraseDue(erase);
  expect(filesWith(join(folder, 'checkpoints'), SECRET)).not.toEqual([]);
  holding.release();
  await settle();
  await eraseDue(erase);

  expect(filesWith(folder, SECRET)).toEqual([]);
  expect(core.store.read.all(core.store.sql.selectFrom('runs').select('status').orderBy('run_id'))).toEqual([
    { status: 'completed' },
    { status: 'completed' },
  ]);
  close();
});

test('an edited prompt taken back before it was answered anew goes from what answered it before as well', async () => {
  const { folder, core, checkpoint, erase, close } = setUp();
  const script = usesATool();
  core.runner.script((job) => {
    script.before(job.output);
    return script.outcome;
  });
  await core.joinDirect();
  await core.take(incoming('a', { text: `what about ${SECRET}?` }));
  await settle();
  await checkpoint('$a', SECRET);
  core.execute = null;
  const content = {
    ...{ msgtype: 'm.text', body: '* x', 'm.new_content': { msgtype: 'm.text', body: `about ${SECRET}` } },
    'm.relates_to': { rel_type: 'm.replace', event_id: '$a' },
  };
  expect(await core.take(incoming('e', { content }), redaction('r', '$a'))).toEqual(['admitted:edit', 'redacted:redaction']);

  await eraseDue(erase);

  expect(core.store.read.all(core.store.sql.selectFrom('erasures').selectAll())).toEqual([]);
  expect(filesWith(folder, SECRET)).toEqual([]);
  close();
});

test('what a run wrote is known until the run that replaces it has taken it over (G6)', async () => {
  const { core, erase, close } = setUp();
  await core.joinDirect();
  const { execute } = core;
  core.execute = null;
  await core.take(incoming('a'), incoming('b'));
  core.execute = execute;
  core.scheduler.wake();
  await settle();
  const old = core.runner.jobs[0]?.run.id as RunId;
  await core.store.write((tx) =>
    tx.run(
      core.store.sql.insertInto('tool_marks').values({
        ...{ run_id: old, tool_call_id: 'w', tool: 'write', args_hash: 'h', state: 'finished', result: '{}', at: 0 },
      }),
    ),
  );
  core.execute = null;
  const content = {
    ...{ msgtype: 'm.text', body: '* x', 'm.new_content': { msgtype: 'm.text', body: 'x' } },
    'm.relates_to': { rel_type: 'm.replace', event_id: '$b' },
  };
  await core.take(incoming('e', { content }), redaction('r', '$a'));

  await eraseDue(erase);
  expect(core.store.read.all(core.store.sql.selectFrom('tool_marks').select('args_hash'))).toEqual([{ args_hash: 'h' }]);
  core.execute = execute;
  core.scheduler.wake();
  await settle();
  await eraseDue(erase);

  expect(core.runner.jobs.at(-1)?.run.prompts.map(({ text }) => text)).toEqual(['x']);
  expect(core.store.read.all(core.store.sql.selectFrom('erasures').selectAll())).toEqual([]);
  close();
});

test("a portal's prompt is taken back by its copy in the room, which a moderator can redact", async () => {
  const { folder, core, erase, close } = setUp();
  await core.joinDirect();
  core.rooms.room(ROOM, { kind: 'direct', membership: 'join', levels: new Map([[ALICE, 100]]) });
  await core.take(incoming('a', { text: SECRET }));
  core.scheduler.wake();
  await settle();
  // As POST /messages writes it.
  await core.store.write((tx) => {
    tx.run(core.store.sql.updateTable('pending_inputs').set({ prompt_id: 'http:token' }));
    tx.run(core.store.sql.updateTable('transcript').set({ event_id: 'http:token' }).where('event_id', '=', '$a'));
    core.outbox.insert(
      tx,
      {
        ...{ txnId: noticeTxnId('mirror', 'http:token'), lane: 'run.x', roomId: ROOM, kind: 'mirror', eventType: 'm.room.message' },
        content: { msgtype: 'm.notice', body: SECRET },
      },
      0,
    );
  });
  const [row] = core.outbox.due(core.clock.now(), { limit: 10, busy: new Set() });
  await core.outbox.markSent(row as never, '$mirror' as EventId, 0);

  expect(await core.take(redaction('r', '$mirror'))).toEqual(['redacted:redaction']);
  await eraseDue(erase);

  expect(filesWith(folder, SECRET)).toEqual([]);
  close();
});

test('a busy file is tried again, and the rest is erased meanwhile', async () => {
  const { core, erase, close } = setUp();
  await core.joinDirect();
  await core.take(incoming('a', { text: SECRET }));
  core.scheduler.wake();
  await settle();
  await core.take(redaction('r', '$a'));
  const busy = {
    ...erase,
    eraseCheckpoints: () => {
      throw new Error('busy');
    },
  };

  await expect(eraseDue(busy)).rejects.toThrow('busy');
  expect(core.store.read.all(core.store.sql.selectFrom('erasures').selectAll())).toHaveLength(1);
  await eraseDue(erase);
  expect(core.store.read.all(core.store.sql.selectFrom('erasures').selectAll())).toEqual([]);
  close();
});

test("what is erased of one thread leaves an owner's other threads as they are", async () => {
  const { checkpoints, files, checkpoint, close } = setUp();
  await checkpoint('$a', SECRET);
  await checkpoint('$b', 'kept');
  eraseCheckpoints(checkpoints, { owner: OWNER, thread: '$a' as SessionId });

  expect(filesWith(checkpoints, SECRET)).toEqual([]);
  const kept = await files.use(OWNER, (saver) => saver.getTuple({ configurable: { thread_id: '$b', checkpoint_ns: '' } }));
  expect(JSON.stringify(kept?.checkpoint)).toContain('kept');
  expect(eraseCheckpoints(checkpoints, { owner: '!nobody' as OwnerId })).toBe(false);
  expect(statSync(checkpoints).isDirectory()).toBe(true);
  close();
});

test('what no run has taken, and what was only overheard, is gone at once', async () => {
  const { folder, core, close } = setUp();
  core.execute = null;
  await core.joinDirect();
  await core.take(incoming('a', { text: SECRET }), incoming('b', { text: 'stays' }));
  core.rooms.room(ROOM, { kind: 'group' });
  core.rooms.forget(ROOM);
  await core.take(incoming('noise', { text: `overheard ${SECRET}` }));
  expect(filesWith(folder, SECRET)).not.toEqual([]);

  await core.take(redaction('r1', '$a'), redaction('r2', '$noise'));

  expect(filesWith(folder, SECRET)).toEqual([]);
  expect(core.store.read.all(core.store.sql.selectFrom('pending_inputs').select('text'))).toEqual([{ text: 'stays' }]);
  close();
});
