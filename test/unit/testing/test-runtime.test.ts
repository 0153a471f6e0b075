import { execFileSync } from 'node:child_process';
import { join } from 'node:path';
import { defineOraclePlugin, defineTool } from 'matrix-oracle';
import { createTestRuntime } from 'matrix-oracle/testing';
import { describe, expect, test } from 'vitest';
import { z } from 'zod';
import type { RuntimeContext } from '../../../src/runtime-context/runtime-context.ts';

const NOON = 1_796_040_000_000;
const probe = <T>(handler: (ctx: RuntimeContext) => T) =>
  defineTool({
    name: 'probe',
    description: 'p',
    schema: z.object({}),
    effect: 'write',
    reach: 'external',
    handler: (_args, ctx) => handler(ctx),
  });
const notes = defineOraclePlugin({
  name: 'notes',
  version: '1.0.0',
  manifest: { title: 'Notes', summary: 'n', whenToUse: ['x'] },
  configSchema: z.object({ NOTES_MAX: z.coerce.number().default(3) }),
  stateSchema: z.object({ seen: z.number().default(0) }),
});

test('the context is that of the plugin: its configuration, storage and state, from call to call', async () => {
  const runtime = createTestRuntime({ now: NOON, plugin: notes, env: { NOTES_MAX: '7', OTHER_SECRET: 'x' } });

  await runtime.call(
    probe(async ({ storage, state }) => {
      await storage.put('k', 'a dog');
      state.update({ seen: 1 });
    }),
    {},
  );

  expect(
    await runtime.call(
      probe(async ({ config, storage, state }) => [config, await storage.search('dog'), state.get()]),
      {},
    ),
  ).toEqual([{ NOTES_MAX: 7 }, [{ key: 'k', value: 'a dog' }], { seen: 1 }]);
});

test('models answer what the test wrote down, and what they were asked is kept', async () => {
  const runtime = createTestRuntime({ now: NOON, replies: ['four', { toolCalls: [{ name: 'add', args: { a: 2 } }] }] });
  const ask = probe(async ({ llm }) => {
    const first = await llm.get('utility').invoke('two and two?');
    const second = await llm.get('main').invoke('once more');
    return [first.text, second.tool_calls?.[0]?.name];
  });

  expect(await runtime.call(ask, {})).toEqual(['four', 'add']);
  expect(runtime.prompts).toEqual([
    { role: 'utility', messages: [{ role: 'human', text: 'two and two?' }] },
    { role: 'main', messages: [{ role: 'human', text: 'once more' }] },
  ]);
  await expect(runtime.call(ask, {})).rejects.toThrow('2 replies');
});

test('without replies a model is not there, and says so', async () => {
  const runtime = createTestRuntime({ now: NOON });

  await expect(
    runtime.call(
      probe(({ llm }) => llm.get('main')),
      {},
    ),
  ).rejects.toMatchObject({ refusal: { code: 'NOT_AVAILABLE' } });
});

test('secrets are the real ones: encrypted, read, and masked in results, prompts, frames and log lines (G12)', async () => {
  const runtime = createTestRuntime({ now: NOON, secrets: { GITHUB: 'ghp_secret_value' }, replies: ['ok'] });

  const result = await runtime.call(
    probe(async ({ secrets, logger, emit, llm }) => {
      const { GITHUB = '' } = await secrets.getValues(['GITHUB']);
      logger.info(`with ${GITHUB}`);
      emit.router({ step: GITHUB });
      await llm.get('main').invoke(`use ${GITHUB}`);
      return { length: GITHUB.length, GITHUB };
    }),
    {},
  );

  expect(result).toEqual({ length: 16, GITHUB: '[secret]' });
  expect(JSON.stringify([runtime.logged, runtime.emitted, runtime.prompts])).not.toContain('ghp_secret_value');
});

test('the conversation so far is there, as messages and for a search', async () => {
  const runtime = createTestRuntime({
    now: NOON,
    history: [
      { role: 'human', text: 'my dog is Rex' },
      { role: 'ai', text: 'hello Rex' },
    ],
  });

  const seen = await runtime.call(
    probe(async ({ history }) => [history.messages.map(({ text }) => text), (await history.search('rex')).map(({ role }) => role)]),
    {},
  );

  expect(seen).toEqual([
    ['my dog is Rex', 'hello Rex'],
    ['ai', 'human'],
  ]);
});

test('time passes when the test says so', async () => {
  const runtime = createTestRuntime({ now: NOON });
  const id = (await runtime.call(
    probe(({ blobStore, user }) => blobStore.put({ userDid: user.did, name: 'n', value: 'v', ttlSeconds: 60 })),
    {},
  )) as string;
  const read = probe(({ blobStore, user }) => blobStore.get({ userDid: user.did, blobId: id }));

  expect(await runtime.call(read, {})).toEqual({ name: 'n', value: 'v' });
  runtime.advance(60_000);
  expect(await runtime.call(read, {})).toBeNull();
});

test('somebody else in the same world sees nothing of the first one (G13)', async () => {
  const runtime = createTestRuntime({ now: NOON, plugin: notes, secrets: { A: 'value-of-a' }, history: [{ role: 'human', text: 'dog' }] });
  await runtime.call(
    probe(async ({ storage, state }) => {
      await storage.put('k', 'mine');
      state.update({ seen: 5 });
    }),
    {},
  );
  const look = probe(async ({ storage, state, secrets, history, user }) => [
    await storage.list(),
    state.get(),
    await secrets.getIndex(),
    await history.search('dog'),
    history.messages,
    user.matrixUserId,
  ]);

  expect(await runtime.as('bob').call(look, {})).toEqual([[], { seen: 0 }, [], [], [], '@bob:example.org']);
  expect((await runtime.call(look, {})) as unknown[]).toMatchObject([
    [{ key: 'k' }],
    { seen: 5 },
    [{ name: 'A' }],
    [{ text: 'dog' }],
    [{}],
    '@user:example.org',
  ]);
});

test('neighbours share what they share', async () => {
  const neighbour = defineOraclePlugin({ ...notes, name: 'neighbour', getSharedState: () => ({ weather: (_state, ctx) => ctx.config }) });
  const runtime = createTestRuntime({ now: NOON, plugin: notes, neighbours: [neighbour] });

  expect(
    await runtime.call(
      probe(({ shared }) => (shared as Record<string, unknown>)['weather']),
      {},
    ),
  ).toEqual({ NOTES_MAX: 3 });
});

test('rooms that both have joined may be written, and reading one taints', async () => {
  const runtime = createTestRuntime({ now: NOON, rooms: ['!other:example.org'] });
  await runtime.call(
    probe(({ matrix }) => matrix.postToRoom('!other:example.org', { msgtype: 'm.text', body: 'x' })),
    {},
  );
  expect(runtime.sent).toMatchObject([{ roomId: '!other:example.org' }]);
  expect(runtime.lastReadForeign).toBe(false);

  await runtime.call(
    probe(({ matrix }) => matrix.getRoomState('!other:example.org')),
    {},
  );
  expect(runtime.lastReadForeign).toBe(true);
  await expect(
    runtime.call(
      probe(({ matrix }) => matrix.getRoomState('!third:example.org')),
      {},
    ),
  ).rejects.toThrow('both joined');
});

describe('hooks besides tools', () => {
  test('have a context of no call', async () => {
    const runtime = createTestRuntime({ now: NOON, plugin: notes, userContext: { name: 'Alice' } });

    expect(await runtime.with((ctx) => [ctx.history.userContext, ctx.toolCallId, ctx.config])).toEqual([
      { name: 'Alice' },
      undefined,
      { NOTES_MAX: 3 },
    ]);
  });

  test('that are over give nothing', async () => {
    const runtime = createTestRuntime({ now: NOON });
    const { storage } = await runtime.with((ctx) => ({ storage: ctx.storage }));

    expect(() => storage.list()).toThrow('over');
  });
});

test('a call can be stopped', async () => {
  const stop = new AbortController();
  const waiting = createTestRuntime({ now: NOON }).call(
    probe(({ abortSignal }) => {
      stop.abort(new Error('stopped'));
      abortSignal.throwIfAborted();
    }),
    {},
    { signal: stop.signal },
  );

  await expect(waiting).rejects.toThrow('stopped');
});

test('importing it loads neither the agent library nor a database', () => {
  // Resolved before anything is loaded, so what is imported on the way is heard.
  const script = `import { registerHooks } from 'node:module';
    const seen = [];
    registerHooks({ load(url, context, next) { seen.push(url); return next(url, context); } });
    await import('matrix-oracle/testing');
    console.log(JSON.stringify([seen.length > 10, seen.filter((url) => /@langchain|langgraph|better-sqlite3/.test(url))]));`;
  const options = { encoding: 'utf8', cwd: join(import.meta.dirname, '../../..') } as const;

  const said = execFileSync(process.execPath, ['--conditions=matrix-oracle-source', '--input-type=module', '-e', script], options);

  expect(JSON.parse(said)).toEqual([true, []]);
});
