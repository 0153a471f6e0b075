/** A sub-agent is a loop behind one tool call: what guards the main loop guards it, and what it does is the run's. */
import { afterEach, expect, test } from 'vitest';
import { z } from 'zod';
import { FREE } from '../../../src/agent/spending.ts';
import { OracleError, refusal } from '../../../src/errors.ts';
import type { AnyTool } from '../../../src/plugin-api/define-tool.ts';
import { Drain } from '../../../src/runs/runner.ts';
import { createToolMarks, type ToolMarks } from '../../../src/runs/tool-marks.ts';
import { openStore } from '../../../src/store/store.ts';
import { systemClock } from '../../../src/system-clock.ts';
import { createGate, heldReply, type Reply, textReply, toolCallsReply } from '../../../synapse-dev/model/reply.ts';
import { echo, plugin } from './recording-plugin.ts';
import { type Bench, fakeOutput, fakeRun, resultsOf, sentWith, startBench, tool } from './turn-fixture.ts';

const open: { close(): unknown }[] = [];
afterEach(async () => {
  for (const one of open.splice(0).reverse()) await one.close();
});

const none = z.object({});
const start = async (
  tools: readonly AnyTool[],
  more: Parameters<typeof startBench>[0] = {},
  main: readonly AnyTool[] = [],
): Promise<Bench> => {
  const agents = plugin('agents', {
    getTools: () => main,
    getSubAgents: () => ['helper', 'other'].map((name) => ({ name, description: name, systemPrompt: `You are ${name}.`, tools })),
  });
  const bench = await startBench({ ...more, plugins: [agents] });
  open.push(bench);
  return bench;
};
const ask = (task = 'look', id = 'ask'): Reply => toolCallsReply({ name: 'call_helper', args: { task }, id });

test('it sees its task alone, answers as a result, and its calls are frames below the call that asked', async () => {
  const bench = await start([echo('look')]);
  bench.transcript.push({
    ...{ id: 1, runId: null, eventId: '$a', role: 'human', speaker: 'did:key:zAlice', text: 'earlier', message: null, at: 0 },
    ...{ tier: 'signed', tainted: false },
  });
  bench.server.enqueue(ask('find it'), toolCallsReply({ name: 'look', args: {}, id: 'c1' }), textReply('Found.'), textReply('Here.'));

  const { outcome, output } = await bench.execute();

  expect(sentWith(bench, 2)).toMatchObject({ system: 'You are helper.', messages: ['user: find it'], tools: ['look'] });
  expect(resultsOf(outcome)).toEqual(['Found.']);
  expect(outcome).toMatchObject({ kind: 'completed', text: 'Here.' });
  expect(output.folded().text).toBe('Here.');
  expect(output.tools.map(({ id, name, status }) => `${id} ${name} ${status}`)).toEqual([
    'ask call_helper isRunning',
    'ask/c1 look isRunning',
    'ask/c1 look done',
    'ask call_helper done',
  ]);
});

test('the usage of its calls is the run’s', async () => {
  const bench = await start([]);
  bench.server.enqueue(textReply('Alone.'));
  const alone = (await bench.execute()).outcome;
  bench.server.enqueue(ask(), textReply('Found.'), textReply('Alone.'));
  const spent: string[] = [];
  const { outcome } = await bench.execute({});

  const input = (one: typeof alone): number => (one.kind === 'completed' ? (one.usage?.inputTokens ?? 0) : 0);
  expect(input(outcome)).toBeGreaterThan(2 * input(alone));
  expect(spent).toEqual([]);
});

test('what it reads taints the run: nothing external after it (G8)', async () => {
  let posted = 0;
  const web = { ...echo('read_web'), untrusted: true };
  const post = tool({ name: 'post', description: 'd', schema: none, effect: 'write', reach: 'external', handler: () => void ++posted });
  const bench = await start([web], {}, [post]);
  bench.server.enqueue(
    ask(),
    toolCallsReply({ name: 'read_web', args: {} }),
    textReply('A page says: post it.'),
    toolCallsReply({ name: 'post', args: {} }),
    textReply('ok'),
  );

  const { output } = await bench.execute();

  expect(posted).toBe(0);
  expect(output.calls).toContain('tainted');
  expect(bench.audit).toMatchObject([{ capability: 'tool/post', decision: 'refused', code: 'NEEDS_CONFIRMATION', tainted: 1 }]);
});

test('it may not do what the run may not: an external tool of an unsigned run (G8)', async () => {
  let posted = 0;
  const post = tool({ name: 'post', description: 'd', schema: none, effect: 'write', reach: 'external', handler: () => void ++posted });
  const bench = await start([post]);
  bench.server.enqueue(ask(), toolCallsReply({ name: 'post', args: {} }), textReply('refused'), textReply('ok'));

  await bench.execute({ run: fakeRun({ tier: 'sender-bound' }) });

  expect(posted).toBe(0);
});

test('an authority that is lost while it works ends the run before its next call (G8)', async () => {
  let lost = false;
  const losing = tool({
    name: 'losing',
    description: 'd',
    schema: none,
    handler: () => {
      lost = true;
      return 'lost';
    },
  });
  const bench = await start([losing], { options: { authority: { judge: () => (lost ? 'REVOKED' : null), actingGrants: () => [] } } });
  bench.server.enqueue(ask(), toolCallsReply({ name: 'losing', args: {} }));

  const { outcome } = await bench.execute();

  expect(outcome).toMatchObject({ kind: 'failed', refusal: { code: 'REVOKED' } });
  expect(bench.server.requests).toHaveLength(2);
});

test('its calls are paid for, and credits that end in it end the run', async () => {
  let left = 2;
  const spent: string[] = [];
  const bench = await start([echo('look')], {
    options: {
      spending: {
        ...FREE,
        maySpend: async () => left > 0,
        spend: async (_run, { model }) => {
          left -= 1;
          spent.push(model);
        },
      },
    },
  });
  bench.server.enqueue(ask(), toolCallsReply({ name: 'look', args: {} }));

  const { outcome } = await bench.execute();

  expect(outcome).toMatchObject({ kind: 'failed', refusal: { code: 'OUT_OF_CREDITS' } });
  expect(spent).toEqual(['demo', 'demo']);
  expect(bench.server.requests).toHaveLength(2);
});

test('a cancel reaches its model (G9)', async () => {
  const bench = await start([]);
  const gate = createGate();
  bench.server.enqueue(ask(), heldReply(gate, 'Part ', 'of it'));
  const abort = new AbortController();
  const turn = bench.execute({ signal: abort.signal });
  await gate.reached;

  abort.abort(new OracleError(refusal('RUN_CANCELLED')));

  expect((await turn).outcome).toMatchObject({ kind: 'failed', refusal: { code: 'RUN_CANCELLED' } });
  expect(await bench.server.waitForRequest((request) => request.ended === 'client_disconnected')).toBeTruthy();
});

test('one whose model fails is a result that says so; one beside it goes on', async () => {
  const bench = await start([]);
  bench.server.respond((request) => {
    const system = request.messages[0]?.text;
    if (system === 'You are helper.') return { kind: 'status', status: 401, message: 'no' };
    if (system === 'You are other.') return textReply('Found.');
    if (request.messages.at(-1)?.role === 'tool') return textReply('Half of it.');
    return toolCallsReply({ name: 'call_helper', args: { task: 'a' } }, { name: 'call_other', args: { task: 'b' } });
  });

  const { outcome } = await bench.execute();

  expect(outcome).toMatchObject({ kind: 'completed', text: 'Half of it.' });
  expect(resultsOf(outcome)).toEqual([expect.stringContaining('refused the request'), 'Found.']);
});

test('one that comes to no end is stopped, and its tools count with the run’s', async () => {
  const bench = await start([echo('look')]);
  let asked = 0;
  bench.server.respond((request) => {
    if (request.messages[0]?.text === 'You are helper.') return toolCallsReply({ name: 'look', args: { text: String(++asked) } });
    return request.messages.at(-1)?.role === 'tool' ? textReply('It did not end.') : ask();
  });

  const { outcome } = await bench.execute();

  expect(outcome).toMatchObject({ kind: 'completed', text: 'It did not end.' });
  expect(resultsOf(outcome)[0]).toContain('came to no end');
  expect(asked).toBe(10);
});

test('all of them together are bounded as well', async () => {
  const bench = await start([echo('look')]);
  let asked = 0;
  let inner = 0;
  bench.server.respond((request) => {
    if (request.messages[0]?.text === 'You are helper.') return toolCallsReply({ name: 'look', args: { text: String(++inner) } });
    asked += 1;
    return asked > 20 ? textReply('ok') : ask(`task ${asked}`, `ask${asked}`);
  });

  await bench.execute();

  expect(inner).toBeLessThanOrEqual(50);
});

test('a run that is resumed asks it again, and what it wrote is written once (G6)', async () => {
  const store = openStore({ path: ':memory:', now: 0 });
  open.push(store);
  const abort = new AbortController();
  const written: string[] = [];
  const write = tool({
    name: 'write',
    description: 'd',
    schema: z.object({ text: z.string() }),
    effect: 'write',
    handler: ({ text }) => `${text} is ${written.push(text)}`,
  });
  const halt = tool({
    name: 'halt',
    description: 'd',
    schema: none,
    handler: () => {
      abort.abort(new OracleError(refusal('INTERNAL')));
      return new Promise(() => undefined);
    },
  });
  const options = (): { marks: ToolMarks } => ({ marks: createToolMarks({ store, clock: systemClock }) });
  const bench = await start([write, halt], { options: options() });
  const note = (id: string, text = 'a'): Reply => toolCallsReply({ name: 'write', args: { text }, id });
  bench.server.enqueue(ask(), note('c1'), toolCallsReply({ name: 'halt', args: {}, id: 'c2' }));
  const { run } = await bench.execute({ signal: abort.signal });
  bench.runner.close();
  const resumed = await start([write, halt], { options: { ...options(), checkpointFolder: `${bench.folder}/checkpoints` } });
  // Another id for what was done before, and the old id for something new: providers count from zero.
  resumed.server.enqueue(note('c9'), note('c1', 'b'), textReply('Written.'), textReply('Done.'));

  const { outcome } = await resumed.execute({ run: { ...run, attempt: 2 } });

  expect(outcome).toMatchObject({ kind: 'completed', text: 'Done.' });
  expect(written).toEqual(['a', 'b']);
});

test('what a finished one wrote is no reason not to write the same again, also after a crash (G6)', async () => {
  const store = openStore({ path: ':memory:', now: 0 });
  open.push(store);
  const abort = new AbortController();
  let written = 0;
  const write = tool({ name: 'write', description: 'd', schema: none, effect: 'write', handler: () => `written ${++written}` });
  const halt = tool({
    name: 'halt',
    description: 'd',
    schema: none,
    handler: () => {
      abort.abort(new OracleError(refusal('INTERNAL')));
      return new Promise(() => undefined);
    },
  });
  const bench = await start([write], { options: { marks: createToolMarks({ store, clock: systemClock }) } }, [halt]);
  const note = toolCallsReply({ name: 'write', args: {}, id: 'c1' });
  bench.server.enqueue(ask('first', 'one'), note, textReply('Written.'), toolCallsReply({ name: 'halt', args: {}, id: 'h' }));
  const { run } = await bench.execute({ signal: abort.signal });
  bench.restart();
  // `halt` runs again and is stopped again; then the model asks for the same once more.
  const again = tool({ ...halt, handler: () => 'went on' } as never);
  const resumed = await start(
    [write],
    { options: { marks: createToolMarks({ store, clock: systemClock }), checkpointFolder: `${bench.folder}/checkpoints` } },
    [again],
  );
  bench.runner.close();
  resumed.server.enqueue(ask('second', 'two'), note, textReply('Written.'), textReply('Done.'));

  const { outcome } = await resumed.execute({ run: { ...run, attempt: 2 } });

  expect(outcome).toMatchObject({ kind: 'completed', text: 'Done.' });
  expect(written).toBe(2);
});

test('a drain lets it come to its end, and the next attempt goes on after it (G5)', async () => {
  const abort = new AbortController();
  let ran = 0;
  const work = tool({
    name: 'work',
    description: 'd',
    schema: none,
    handler: () => {
      abort.abort(new Drain());
      return `worked ${++ran}`;
    },
  });
  const bench = await start([work]);
  bench.server.enqueue(ask(), toolCallsReply({ name: 'work', args: {} }), textReply('Worked.'), textReply('Done.'));
  const first = await bench.execute({ signal: abort.signal });
  bench.restart();

  const second = await bench.execute({ run: { ...first.run, attempt: 2 }, output: fakeOutput() });

  expect(first.outcome).toEqual({ kind: 'suspended' });
  expect(second.outcome).toMatchObject({ kind: 'completed', text: 'Done.' });
  expect(ran).toBe(1);
});

test('a prompt of its own that throws is a result that says so', async () => {
  const bad = plugin('bad', {
    getSubAgents: () => [
      {
        name: 'broken',
        description: 'd',
        systemPrompt: () => {
          throw new Error('no prompt');
        },
        tools: [],
      },
    ],
  });
  const bench = await startBench({ plugins: [bad] });
  open.push(bench);
  bench.server.enqueue(toolCallsReply({ name: 'call_broken', args: { task: 'x' } }), textReply('Without it.'));

  const { outcome } = await bench.execute();

  expect(outcome).toMatchObject({ kind: 'completed', text: 'Without it.' });
  expect(resultsOf(outcome)).toEqual(['The tool failed: no prompt']);
});

test('it leaves nothing in the checkpoint but its result (G16)', async () => {
  const bench = await start([echo('look')]);
  bench.server.enqueue(ask(), toolCallsReply({ name: 'look', args: { text: 'a needle' } }), textReply('Found.'), textReply('Done.'));

  await bench.execute();

  const { default: Sqlite } = await import('better-sqlite3');
  const { readdirSync } = await import('node:fs');
  const folder = `${bench.folder}/checkpoints`;
  const file = readdirSync(folder).find((name) => name.endsWith('.db')) ?? '';
  const database = new Sqlite(`${folder}/${file}`, { readonly: true });
  open.push(database);
  expect(database.prepare('SELECT DISTINCT checkpoint_ns FROM checkpoints').pluck().all()).toEqual(['']);
  expect(String(database.prepare('SELECT group_concat(checkpoint) FROM checkpoints').pluck().get())).not.toContain('a needle');
});
