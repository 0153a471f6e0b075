/** Hooks that are steps of the graph, and what may come between two steps: a further message, the end of the process, a plugin that is gone after it. */
import { createMiddleware } from 'langchain';
import { afterEach, expect, test } from 'vitest';
import { z } from 'zod';
import { OracleError, refusal } from '../../../src/errors.ts';
import { textReply, toolCallsReply } from '../../../synapse-dev/model/reply.ts';
import { echo, plugin, recordingMiddleware } from './recording-plugin.ts';
import { type Bench, fakeOutput, fakeRun, resultsOf, sentWith, startBench, tool } from './turn-fixture.ts';

const open: Bench[] = [];
afterEach(async () => {
  for (const bench of open.splice(0).reverse()) await bench.close();
});
const start = async (more: Parameters<typeof startBench>[0]): Promise<Bench> => {
  const bench = await startBench(more);
  open.push(bench);
  return bench;
};

test('what the person says meanwhile is shown once, and the hooks at the beginning run once (G2)', async () => {
  const log: string[] = [];
  const waiting: { id: string; text: string; receivedAt: number }[] = [];
  const consumed: string[] = [];
  const step = { ...echo('step'), handler: () => String(waiting.push({ id: '$more', text: 'more', receivedAt: 0 })) };
  const bench = await start({ plugins: [plugin('a', { getTools: () => [step], getMiddlewares: () => [recordingMiddleware('a', log)] })] });
  bench.server.enqueue(toolCallsReply({ name: 'step', args: {} }), textReply('Done.'));
  const output = {
    ...fakeOutput(),
    inputsWaiting: () => waiting.filter(({ id }) => !consumed.includes(id)),
    promptsConsumed: async (ids: readonly string[]) => void consumed.push(...ids),
  };

  const { outcome, run } = await bench.execute({ output });

  expect(outcome).toMatchObject({ kind: 'completed', text: 'Done.' });
  expect(sentWith(bench, 2).messages).toEqual(['user: hello', 'assistant: ', 'tool: 1', 'user: more']);
  expect(consumed).toEqual([run.prompts[0]?.id, '$more']);
  expect(log.filter((entry) => entry === 'a.beforeAgent')).toHaveLength(1);
  expect(log.filter((entry) => entry === 'a.wrapModelCall done')).toHaveLength(2);
});

/** Ends the process, as it were, the first time that its hook runs. */
function dying(): { middleware: ReturnType<typeof createMiddleware>; abort: AbortController; runs: () => number } {
  const abort = new AbortController();
  let runs = 0;
  const middleware = createMiddleware({
    name: 'dying',
    afterModel: () => {
      runs += 1;
      if (runs === 1) abort.abort(new OracleError(refusal('INTERNAL')));
    },
  });
  return { middleware, abort, runs: () => runs };
}

test('a turn that ended between the model and a hook after it goes on with the hook, and asks no model again (G5)', async () => {
  const { middleware, abort, runs } = dying();
  const bench = await start({ plugins: [plugin('dying', { getMiddlewares: () => [middleware] })] });
  bench.server.enqueue(textReply('Done.'));
  const { run } = await bench.execute({ signal: abort.signal });
  bench.restart();

  const { outcome } = await bench.execute({ run: { ...run, attempt: 2 }, shownText: 'Done.' });

  expect(outcome).toMatchObject({ kind: 'completed', text: 'Done.' });
  expect([bench.server.requests.length, runs()]).toEqual([1, 2]);
});

test('a plugin that is gone after a restart leaves no half turn: it begins anew, and what it wrote is not written again (G5, G6)', async () => {
  const { middleware, abort } = dying();
  let written = 0;
  const write = tool({ name: 'write', description: 'd', schema: z.object({}), effect: 'write', handler: () => `written ${++written}` });
  const bench = await start({ tools: [write], plugins: [plugin('dying', { getMiddlewares: () => [middleware] })] });
  bench.server.enqueue(toolCallsReply({ name: 'write', args: {}, id: 'c1' }));
  const { run } = await bench.execute({ signal: abort.signal });
  bench.runner.close();
  const after = await start({ tools: [write], options: { checkpointFolder: `${bench.folder}/checkpoints`, marks: bench.marks } });
  after.server.enqueue(toolCallsReply({ name: 'write', args: {}, id: 'c1' }), textReply('Done.'));

  const { outcome } = await after.execute({ run: fakeRun({ ...run, attempt: 2 }) });

  expect(outcome).toMatchObject({ kind: 'completed', text: 'Done.' });
  expect(resultsOf(outcome)).toEqual(['written 1']);
  expect(written).toBe(1);
});
