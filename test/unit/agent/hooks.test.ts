/** Where plugins' hooks fire (the lifecycle seed's table), and what becomes of a turn when one of them misbehaves. */
import { AIMessage, ToolMessage } from '@langchain/core/messages';
import { createMiddleware } from 'langchain';
import { afterEach, describe, expect, test } from 'vitest';
import { OracleError, refusal } from '../../../src/errors.ts';
import { LIMITS } from '../../../src/limits.ts';
import type { RuntimeContext } from '../../../src/runtime-context/runtime-context.ts';
import { systemClock } from '../../../src/system-clock.ts';
import { createGate, heldReply, textReply, toolCallsReply } from '../../../synapse-dev/model/reply.ts';
import { echo, helper, onDemand, plugin, recordingMiddleware } from './recording-plugin.ts';
import { type Bench, fakeOutput, fakeRun, resultsOf, sentWith, startBench } from './turn-fixture.ts';

let bench: Bench | undefined;
afterEach(async () => {
  await bench?.close();
  bench = undefined;
});

test('every hook fires at its place, in order, in a turn with a tool, a sub-agent and a capability that is loaded', async () => {
  const log: string[] = [];
  const outer = plugin('outer', {
    getTools: () => [echo('say', log)],
    getSubAgents: () => [helper(log)],
    getMiddlewares: () => [recordingMiddleware('a', log)],
    getRequestTools: () => {
      log.push('getRequestTools');
      return [echo('only_now', log)];
    },
    getRequestSubAgents: () => {
      log.push('getRequestSubAgents');
      return [];
    },
    getUserContext: () => {
      log.push('getUserContext');
      return { identity: 'Alice' };
    },
    getPromptContribution: () => {
      log.push('getPromptContribution');
      return 'Speak softly.';
    },
  });
  const inner = plugin('inner', { dependsOn: ['outer'], getMiddlewares: () => [recordingMiddleware('b', log)] });
  const later = onDemand('later', { getTools: () => [echo('loaded', log)] });
  bench = await startBench({ plugins: [inner, outer, later] });
  bench.server.enqueue(
    toolCallsReply({ name: 'load_capability', args: { names: ['later'] } }),
    toolCallsReply({ name: 'loaded', args: {} }),
    toolCallsReply({ name: 'only_now', args: {} }),
    toolCallsReply({ name: 'call_helper', args: { task: 'look' } }),
    toolCallsReply({ name: 'look', args: {} }),
    textReply('Looked.'),
    textReply('Done.'),
  );

  const { outcome } = await bench.execute();

  expect(outcome).toMatchObject({ kind: 'completed', text: 'Done.' });
  const model = ['a.beforeModel', 'b.beforeModel', 'a.wrapModelCall', 'b.wrapModelCall'];
  const answered = ['b.wrapModelCall done', 'a.wrapModelCall done', 'b.afterModel', 'a.afterModel'];
  const tool = (name: string, runs: string[] = []): string[] => [
    ...[`a.wrapToolCall ${name}`, `b.wrapToolCall ${name}`, ...runs, `b.wrapToolCall ${name} done`, `a.wrapToolCall ${name} done`],
  ];
  const step = [...model, ...answered];
  expect(log.slice(0, 4).sort()).toEqual(['getPromptContribution', 'getRequestSubAgents', 'getRequestTools', 'getUserContext']);
  expect(log.slice(4)).toEqual([
    ...['a.beforeAgent', 'b.beforeAgent'],
    ...step,
    ...tool('load_capability'),
    ...step,
    ...tool('loaded', ['loaded runs']),
    ...step,
    ...tool('only_now', ['only_now runs']),
    ...step,
    ...tool('call_helper', [
      'systemPrompt for did:key:zAlice',
      ...['a.beforeAgent', 'b.beforeAgent'],
      ...step,
      ...tool('look', ['look runs']),
      ...step,
      ...['b.afterAgent', 'a.afterAgent'],
    ]),
    ...step,
    ...['b.afterAgent', 'a.afterAgent'],
  ]);
});

describe('a hook that misbehaves', () => {
  const boom = (): never => {
    throw new Error('boom');
  };
  test.each<[string, Parameters<typeof createMiddleware>[0]]>([
    ['beforeAgent', { name: 'bad', beforeAgent: boom }],
    ['beforeModel', { name: 'bad', beforeModel: boom }],
    ['afterModel', { name: 'bad', afterModel: boom }],
    ['afterAgent', { name: 'bad', afterAgent: boom }],
    ['wrapModelCall before the call', { name: 'bad', wrapModelCall: boom }],
    [
      'wrapModelCall after the call',
      {
        name: 'bad',
        wrapModelCall: async (request, handler) => {
          await handler(request);
          return boom();
        },
      },
    ],
    ['wrapToolCall before the call', { name: 'bad', wrapToolCall: boom }],
    [
      'wrapToolCall after the call',
      {
        name: 'bad',
        wrapToolCall: async (request, handler) => {
          await handler(request);
          return boom();
        },
      },
    ],
    ['no message', { name: 'bad', wrapModelCall: (() => undefined) as never, wrapToolCall: (() => 7) as never }],
    ['a state it may not change', { name: 'bad', beforeModel: () => ({ messages: [], loadedPlugins: ['x'] }) as never }],
  ])('%s: it is left out, each call is made once, and the turn goes on', async (_name, middleware) => {
    const log: string[] = [];
    const bad = plugin('bad', { getTools: () => [echo('say', log)], getMiddlewares: () => [createMiddleware(middleware)] });
    bench = await startBench({ plugins: [bad, plugin('good', { getMiddlewares: () => [recordingMiddleware('good', log)] })] });
    bench.server.enqueue(toolCallsReply({ name: 'say', args: { text: 'hi' } }), textReply('Done.'));

    const { outcome } = await bench.execute();

    expect(outcome).toMatchObject({ kind: 'completed', text: 'Done.' });
    expect(log.filter((entry) => entry === 'say runs')).toHaveLength(1);
    expect(log).toContain('good.afterAgent');
    expect(bench.server.requests).toHaveLength(2);
  });

  test('what asks for the person and for the prompt may fail or never answer', async () => {
    const bad = plugin('bad', {
      getUserContext: () => new Promise(() => undefined),
      getPromptContribution: boom,
      getRequestTools: boom,
      getRequestSubAgents: boom,
    });
    const fine = plugin('fine', { getPromptContribution: () => 'Speak softly.' });
    bench = await startBench({ plugins: [bad, fine] });
    bench.server.enqueue(textReply('Done.'));

    expect((await bench.execute()).outcome).toMatchObject({ kind: 'completed', text: 'Done.' });
    expect(sentWith(bench, 1).system).toContain('Speak softly.');
  });

  const never = (): Promise<never> => new Promise(() => undefined);
  test.each<[string, Parameters<typeof createMiddleware>[0]]>([
    ['beforeModel', { name: 'slow', beforeModel: never }],
    ['wrapModelCall before the call', { name: 'slow', wrapModelCall: never }],
    [
      'wrapModelCall after the call',
      {
        name: 'slow',
        wrapModelCall: async (request, handler) => {
          await handler(request);
          return never();
        },
      },
    ],
    ['wrapToolCall', { name: 'slow', wrapToolCall: never }],
  ])('%s that never answers is left behind after its time', async (_name, middleware) => {
    // Ten seconds that take none; everything else takes as long as it does, the model behind the hook included.
    const clock = { ...systemClock, after: (ms: number, done: () => void) => systemClock.after(ms === 10_000 ? 5 : ms, done) };
    const slow = plugin('slow', { getTools: () => [echo('say')], getMiddlewares: () => [createMiddleware(middleware)] });
    bench = await startBench({ plugins: [slow], clock });
    bench.server.enqueue(toolCallsReply({ name: 'say', args: { text: 'hi' } }), textReply('Done.'));

    const { outcome } = await bench.execute();

    expect(outcome).toMatchObject({ kind: 'completed', text: 'Done.' });
    expect(resultsOf(outcome)).toEqual(['say: hi']);
    expect(bench.server.requests).toHaveLength(2);
  });

  test('a tool that floods is cut before the model and the frames are given it', async () => {
    const flood = { ...echo('flood'), handler: () => 'x'.repeat(10_000_000) };
    bench = await startBench({ plugins: [plugin('flood', { getTools: () => [flood] })] });
    bench.server.enqueue(toolCallsReply({ name: 'flood', args: {} }), textReply('Done.'));

    const { outcome, output } = await bench.execute();

    expect(resultsOf(outcome)[0]?.length).toBeLessThanOrEqual(LIMITS.toolResultChars);
    expect(output.tools.at(-1)?.output?.length).toBeLessThanOrEqual(2_000);
  });

  test('one that catches everything does not swallow a cancel (G9)', async () => {
    const greedy = createMiddleware({
      name: 'greedy',
      wrapModelCall: async (request, handler) => {
        try {
          return await handler(request);
        } catch {
          return new AIMessage('All is well.');
        }
      },
    });
    bench = await startBench({ plugins: [plugin('greedy', { getMiddlewares: () => [greedy] })] });
    const gate = createGate();
    bench.server.enqueue(heldReply(gate, 'Part ', 'of it'));
    const abort = new AbortController();
    const turn = bench.execute({ signal: abort.signal });
    await gate.reached;

    abort.abort(new OracleError(refusal('RUN_CANCELLED')));

    expect((await turn).outcome).toMatchObject({ kind: 'failed', refusal: { code: 'RUN_CANCELLED' } });
  });

  test('nor a lost authority, nor what the person says meanwhile (G8, G2)', async () => {
    let lost = false;
    const greedy = createMiddleware({
      name: 'greedy',
      wrapModelCall: async (request, handler) => {
        try {
          return await handler(request);
        } catch {
          return new AIMessage('All is well.');
        }
      },
    });
    bench = await startBench({
      plugins: [plugin('greedy', { getMiddlewares: () => [greedy] })],
      options: { authority: { judge: () => (lost ? 'REVOKED' : null), actingGrants: () => [] } },
    });
    const waiting = [{ id: '$more', text: 'more', receivedAt: 0 }];
    const output = { ...fakeOutput(), inputsWaiting: () => waiting.splice(0) };
    bench.server.enqueue(textReply('Both.'));
    const both = await bench.execute({ output });
    lost = true;

    const revoked = await bench.execute();

    expect(both.outcome).toMatchObject({ kind: 'completed', text: 'Both.' });
    expect(revoked.outcome).toMatchObject({ kind: 'failed', refusal: { code: 'REVOKED' } });
  });
});

test('what a plugin knows of the person is in the prompt, and in the context of every tool of the turn', async () => {
  const seen: unknown[] = [];
  const look = { ...echo('look'), handler: (_args: unknown, ctx: RuntimeContext) => String(seen.push(ctx.history.userContext)) };
  const memory = plugin('memory', {
    // Looked for by what was just asked.
    getUserContext: (ctx) => ({ identity: ctx.history.recent(1)[0]?.text === 'who am I?' ? 'Alice, a baker' : 'somebody' }),
    getTools: () => [look],
  });
  bench = await startBench({ plugins: [memory, plugin('more', { getUserContext: () => ({ goals: ['bread'] }) })] });
  bench.server.enqueue(toolCallsReply({ name: 'look', args: {} }), textReply('ok'));

  await bench.execute({ run: fakeRun({ text: 'who am I?' }) });

  expect(seen).toEqual([{ identity: 'Alice, a baker', goals: ['bread'] }]);
  expect(sentWith(bench, 1).system).toContain('- identity: "Alice, a baker"\n- goals: ["bread"]');
});

describe('what a hook may do', () => {
  test('wrapModelCall may answer a failing model in another way, and what it says is the answer', async () => {
    const fallback = createMiddleware({
      name: 'fallback',
      wrapModelCall: async (request, handler) => {
        try {
          return await handler(request);
        } catch {
          return new AIMessage('Please try again later.');
        }
      },
    });
    bench = await startBench({ plugins: [plugin('fallback', { getMiddlewares: () => [fallback] })] });
    bench.server.enqueue({ kind: 'status', status: 401, message: 'no' });

    const { outcome, output } = await bench.execute();

    expect(outcome).toMatchObject({ kind: 'completed', text: 'Please try again later.' });
    expect(output.folded().text).toBe('Please try again later.');
  });

  test('without one the failure is the person’s to read', async () => {
    bench = await startBench();
    bench.server.enqueue({ kind: 'status', status: 401, message: 'no' });

    expect((await bench.execute()).outcome).toMatchObject({ kind: 'failed', refusal: { code: 'MODEL_REFUSED' } });
  });

  test('one that asks twice, or rewrites the answer, leaves one answer in frames and conversation', async () => {
    const twice = createMiddleware({
      name: 'twice',
      wrapModelCall: async (request, handler) => {
        await handler(request);
        const answer = await handler(request);
        return new AIMessage(`${answer.text} Indeed.`);
      },
    });
    bench = await startBench({ plugins: [plugin('twice', { getMiddlewares: () => [twice] })] });
    bench.server.enqueue(textReply('First thought.'), textReply('Second thought.'));

    const { outcome, output } = await bench.execute();

    expect(outcome).toMatchObject({ kind: 'completed', text: 'Second thought. Indeed.' });
    expect(output.folded().text).toBe('Second thought. Indeed.');
  });

  test('it may change what is sent: messages, prompt, and fewer tools, but no other ones', async () => {
    const edit = createMiddleware({
      name: 'edit',
      wrapModelCall: (request, handler) =>
        handler({
          ...request,
          systemPrompt: `${request.systemPrompt}\nBe brief.`,
          tools: [...request.tools.filter((one) => (one as { name: string }).name !== 'hidden'), { name: 'smuggled' } as never],
        }),
    });
    bench = await startBench({
      plugins: [plugin('edit', { getTools: () => [echo('shown'), echo('hidden')], getMiddlewares: () => [edit] })],
    });
    bench.server.enqueue(textReply('ok'));

    await bench.execute();

    expect(sentWith(bench, 1).system).toMatch(/Be brief\.$/u);
    expect(sentWith(bench, 1).tools).toEqual(['shown']);
  });

  test('a node may end the loop with an answer', async () => {
    const stop = createMiddleware({
      name: 'stop',
      beforeModel: { canJumpTo: ['end'], hook: () => ({ jumpTo: 'end', messages: [new AIMessage('Closed on Sundays.')] }) },
    });
    bench = await startBench({ plugins: [plugin('stop', { getMiddlewares: () => [stop] })] });

    const { outcome, output } = await bench.execute();

    expect(outcome).toMatchObject({ kind: 'completed', text: 'Closed on Sundays.' });
    expect(output.folded().text).toBe('Closed on Sundays.');
    expect(bench.server.requests).toHaveLength(0);
  });

  test('a node that ends it without one is no silence', async () => {
    const stop = createMiddleware({ name: 'stop', beforeModel: { canJumpTo: ['end'], hook: () => ({ jumpTo: 'end' }) } });
    bench = await startBench({ plugins: [plugin('stop', { getMiddlewares: () => [stop] })] });

    expect((await bench.execute()).outcome).toMatchObject({ kind: 'failed', refusal: { code: 'EMPTY_ANSWER' } });
  });

  test('its hooks have the context of their own plugin, for this run', async () => {
    const seen: unknown[] = [];
    const look = createMiddleware({
      name: 'look',
      beforeModel: (_state, { context }) => void seen.push((context as { user: { did: string } }).user.did),
      wrapToolCall: (request, handler) => {
        seen.push((request.runtime.context as { session: { id: string } }).session.id, request.tool?.name);
        return handler(request);
      },
    });
    bench = await startBench({ plugins: [plugin('look', { getTools: () => [echo('say')], getMiddlewares: () => [look] })] });
    bench.server.enqueue(toolCallsReply({ name: 'say', args: {} }), textReply('ok'));

    await bench.execute();

    expect(seen).toEqual(['did:key:zAlice', '$session', 'say', 'did:key:zAlice']);
  });

  test('a hook that gives a call another id does not have it run twice (G6)', async () => {
    let ran = 0;
    const rename = createMiddleware({
      name: 'rename',
      wrapToolCall: async (request, handler) => {
        await handler(request);
        return handler({ ...request, toolCall: { ...request.toolCall, id: 'another' } });
      },
    });
    const write = { ...echo('write'), effect: 'write' as const, handler: () => `ran ${++ran}` };
    bench = await startBench({ plugins: [plugin('rename', { getTools: () => [write], getMiddlewares: () => [rename] })] });
    bench.server.enqueue(toolCallsReply({ name: 'write', args: {} }), textReply('ok'));

    const { outcome } = await bench.execute();

    expect(resultsOf(outcome)).toEqual(['ran 1']);
    expect(ran).toBe(1);
  });

  test('a tool result that it replaces keeps its call, its bounds and its taint', async () => {
    const replace = createMiddleware({
      name: 'replace',
      wrapToolCall: async (request, handler) => {
        await handler(request);
        return new ToolMessage({ tool_call_id: 'another', content: 'x'.repeat(100_000) });
      },
    });
    const web = { ...echo('read_web'), untrusted: true };
    bench = await startBench({ plugins: [plugin('web', { getTools: () => [web], getMiddlewares: () => [replace] })] });
    bench.server.enqueue(toolCallsReply({ name: 'read_web', args: {}, id: 'c1' }), textReply('ok'));

    const { output, outcome } = await bench.execute({ run: fakeRun() });

    expect(output.calls).toContain('tainted');
    const [, result] = outcome.kind === 'completed' ? outcome.messages : [];
    expect(result?.text.length).toBeLessThan(62_000);
    expect(result?.message).toMatchObject({ kind: 'tool', callId: 'c1' });
  });
});
