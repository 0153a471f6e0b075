/** Loading on demand: what the model is offered, what it may call, and how long that lasts. */
import { afterEach, expect, test } from 'vitest';
import { z } from 'zod';
import { OracleError, refusal } from '../../../src/errors.ts';
import { defineTool } from '../../../src/plugin-api/define-tool.ts';
import { textReply, toolCallsReply } from '../../../synapse-dev/model/reply.ts';
import { echo, onDemand, plugin } from './recording-plugin.ts';
import { type Bench, fakeRun, resultsOf, sentWith, startBench } from './turn-fixture.ts';

let bench: Bench | undefined;
afterEach(async () => {
  await bench?.close();
  bench = undefined;
});

const offered = (one: Bench, request: number): string[] => sentWith(one, request).tools;
const systemOf = (one: Bench, request: number): string => sentWith(one, request).system;

const META = ['list_capabilities', 'load_capability'];
const start = (log: string[] = []) =>
  startBench({
    plugins: [
      plugin('clock', { getTools: () => [echo('now', log)] }),
      onDemand('maps', {
        getTools: () => [echo('route', log), { ...echo('place', log), visibility: 'always' as const }],
        getSubAgents: () => [{ name: 'guide', description: 'Guides.', systemPrompt: 'You guide.', tools: [] }],
      }),
      onDemand('mail', { getTools: () => [echo('send_mail', log)] }),
      plugin('credits', {
        manifest: { title: 'Credits', summary: 'Counts.', whenToUse: [], visibility: 'silent' },
        getTools: () => [echo('silent_tool')],
      }),
    ],
  });

test('only tools of loaded plugins are offered; a tool’s own visibility wins; silent ones are there but not listed', async () => {
  bench = await start();
  bench.server.enqueue(toolCallsReply({ name: 'list_capabilities', args: {} }), textReply('ok'));

  const { outcome } = await bench.execute();

  expect(offered(bench, 1)).toEqual(['now', 'place', 'silent_tool', ...META]);
  expect((JSON.parse(resultsOf(outcome)[0] ?? '') as { name: string }[]).map(({ name }) => name)).toEqual([
    'test',
    'clock',
    'maps',
    'mail',
  ]);
  expect(systemOf(bench, 1)).toContain('- maps: What maps does.');
  expect(systemOf(bench, 1)).not.toContain('Counts.');
});

test('without on-demand plugins there is nothing to load, and no tool for it', async () => {
  bench = await startBench({ plugins: [plugin('clock', { getTools: () => [echo('now')] })] });
  bench.server.enqueue(textReply('ok'));

  await bench.execute();

  expect(offered(bench, 1)).toEqual(['now']);
});

test('a call of a tool that is not loaded is answered with how to load it, and nothing runs', async () => {
  const log: string[] = [];
  bench = await start(log);
  bench.server.enqueue(toolCallsReply({ name: 'route', args: {} }), textReply('ok'));

  const { outcome } = await bench.execute();

  expect(resultsOf(outcome)[0]).toContain('load_capability({"names":["maps"]})');
  expect(log).toEqual([]);
});

test('what is loaded can be used in the same turn, and in every later one of the thread', async () => {
  const log: string[] = [];
  bench = await start(log);
  bench.server.enqueue(
    toolCallsReply({ name: 'load_capability', args: { names: ['maps'] } }),
    toolCallsReply({ name: 'route', args: { text: 'home' } }),
    textReply('There.'),
    textReply('Again.'),
  );

  const { outcome } = await bench.execute();
  bench.restart();
  await bench.execute();

  expect(JSON.parse(resultsOf(outcome)[0] ?? '')).toMatchObject([
    { name: 'maps', tools: [{ name: 'route' }, { name: 'place' }, { name: 'call_guide' }] },
  ]);
  expect(log).toEqual(['route runs']);
  expect(offered(bench, 2)).toEqual(['now', 'route', 'place', 'silent_tool', 'call_guide', ...META]);
  expect(offered(bench, 4)).toEqual(offered(bench, 2));
  expect(systemOf(bench, 4)).toContain('- maps: What maps does. The test asks.');
});

test('another thread knows nothing of it (G13)', async () => {
  bench = await start();
  bench.server.enqueue(toolCallsReply({ name: 'load_capability', args: { names: ['maps'] } }), textReply('ok'), textReply('ok'));
  await bench.execute();

  await bench.execute({ run: fakeRun({ sessionId: '$another' as never }) });

  expect(offered(bench, 3)).not.toContain('route');
});

test('it survives a crash right after the call, with the step that is not over yet (G5)', async () => {
  const abort = new AbortController();
  const halt = defineTool({
    name: 'halt',
    description: 'd',
    schema: z.object({}),
    handler: async () => {
      for (let tick = 0; tick < 20; tick += 1) await new Promise((resolve) => setImmediate(resolve));
      abort.abort(new OracleError(refusal('INTERNAL')));
      return 'halted';
    },
  });
  bench = await startBench({
    plugins: [plugin('halt', { getTools: () => [halt] }), onDemand('maps', { getTools: () => [echo('route')] })],
  });
  bench.server.enqueue(
    toolCallsReply({ name: 'load_capability', args: { names: ['maps'] } }, { name: 'halt', args: {} }),
    textReply('Resumed.'),
  );
  const { run } = await bench.execute({ signal: abort.signal });
  bench.restart();

  const { outcome } = await bench.execute({ run: { ...run, attempt: 2 } });

  expect(outcome).toMatchObject({ kind: 'completed', text: 'Resumed.' });
  expect(offered(bench, 2)).toContain('route');
});

test.each([
  [['nosuch'], 'nosuch'],
  [['credits'], 'credits'],
  [['maps', 'nosuch'], 'nosuch'],
])('what cannot be loaded is an error that names what can, and loads nothing: %j', async (names, named) => {
  bench = await start();
  bench.server.enqueue(toolCallsReply({ name: 'load_capability', args: { names } }), textReply('ok'));

  const { outcome } = await bench.execute();

  expect(resultsOf(outcome)[0]).toMatch(new RegExp(`"${named}" cannot be. There are: maps, mail`, 'u'));
  expect(offered(bench, 2)).not.toContain('route');
});

test('what is there already is said to be', async () => {
  bench = await start();
  bench.server.enqueue(
    toolCallsReply({ name: 'load_capability', args: { names: ['maps', 'clock'] } }),
    toolCallsReply({ name: 'load_capability', args: { names: ['maps'] } }),
    textReply('ok'),
  );

  const { outcome } = await bench.execute();

  expect(JSON.parse(resultsOf(outcome)[0] ?? '')).toMatchObject([
    { name: 'clock', alreadyAvailable: true },
    { name: 'maps', title: 'maps' },
  ]);
  expect(JSON.parse(resultsOf(outcome)[1] ?? '')).toEqual([{ name: 'maps', alreadyAvailable: true }]);
});

test('two threads at once never see each other’s tools, in 100 interleaved turns (G13)', async () => {
  const mine = plugin('mine', { getRequestTools: (ctx) => [echo(`of_${ctx.user.did.replaceAll(':', '_').toLowerCase()}`)] });
  bench = await startBench({ plugins: [mine] });
  bench.server.respond((request) => textReply(request.tools.map((one) => one.name).join()));
  const one = bench;

  const turns = Array.from({ length: 100 }, (_, at) => {
    const did = at % 2 === 0 ? 'did:key:zalice' : 'did:key:zbob';
    const ids = { principalId: did, did, owner: did, sessionId: `$${did}.${at}` } as never;
    return one.execute({ run: fakeRun({ ...(ids as object) }) }).then(({ outcome }) => [did, (outcome as { text: string }).text]);
  });

  for (const [did, text] of await Promise.all(turns)) expect(text).toBe(`of_${did?.replaceAll(':', '_')}`);
});
