/** What a thread keeps: plugins' fields and what was loaded, in the checkpoint, for the person whose they are. */
import { readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import Sqlite from 'better-sqlite3';
import { afterEach, describe, expect, test } from 'vitest';
import { z } from 'zod';
import { createThreadState } from '../../../src/agent/thread-state.ts';
import type { OwnerId, PrincipalId } from '../../../src/ids.ts';
import { defineTool } from '../../../src/plugin-api/define-tool.ts';
import { checkpointName } from '../../../src/store/checkpoints/checkpoint-name.ts';
import { PruningSaver } from '../../../src/store/checkpoints/pruning-saver.ts';
import { textReply, toolCallsReply } from '../../../synapse-dev/model/reply.ts';
import { echo, onDemand, plugin } from './recording-plugin.ts';
import { type Bench, fakeRun, resultsOf, sentWith, startBench } from './turn-fixture.ts';

let bench: Bench | undefined;
afterEach(async () => {
  await bench?.close();
  bench = undefined;
});

const counter = plugin('counter', {
  stateSchema: z.object({ count: z.number().default(0), note: z.string().default('') }),
  getTools: () => [
    defineTool({
      name: 'count',
      description: 'd',
      schema: z.object({ note: z.string().optional() }),
      handler: ({ note }, ctx) => {
        const { count } = ctx.state.get() as { count: number };
        ctx.state.update({ count: count + 1, ...(note === undefined ? {} : { note }) });
        return JSON.stringify(ctx.state.get());
      },
    }),
  ],
});
const count = (args = {}) => toolCallsReply({ name: 'count', args });

describe('fields of plugins', () => {
  test('are there for the next call of the turn, for later turns and after a restart', async () => {
    bench = await startBench({ plugins: [counter] });
    bench.server.enqueue(count({ note: 'x' }), count(), textReply('ok'), count(), textReply('ok'));

    const first = await bench.execute();
    bench.restart();
    const second = await bench.execute();

    expect(resultsOf(first.outcome)).toEqual(['{"count":1,"note":"x"}', '{"count":2,"note":"x"}']);
    expect(resultsOf(second.outcome)).toEqual(['{"count":3,"note":"x"}']);
  });

  test('of parallel calls are merged', async () => {
    bench = await startBench({ plugins: [counter] });
    bench.server.enqueue(
      toolCallsReply({ name: 'count', args: { note: 'a' } }, { name: 'count', args: {} }),
      textReply('ok'),
      count(),
      textReply('ok'),
    );
    await bench.execute();

    expect(resultsOf((await bench.execute()).outcome)).toEqual(['{"count":3,"note":"a"}']);
  });

  test('in a group are the person’s, not the room’s (G13)', async () => {
    bench = await startBench({ plugins: [counter] });
    bench.server.enqueue(count({ note: 'of Alice' }), textReply('ok'), count(), textReply('ok'), count(), textReply('ok'));
    const inGroup = { direct: false, owner: '!room:test' as OwnerId };
    await bench.execute({ run: fakeRun(inGroup) });
    const bob = await bench.execute({ run: fakeRun({ ...inGroup, principalId: 'did:key:zBob' as PrincipalId }) });
    const alice = await bench.execute({ run: fakeRun(inGroup) });

    expect(resultsOf(bob.outcome)).toEqual(['{"count":1,"note":""}']);
    expect(resultsOf(alice.outcome)).toEqual(['{"count":2,"note":"of Alice"}']);
  });

  test('that a tainted run has written taint the run that reads them (G8)', async () => {
    bench = await startBench({ plugins: [counter] });
    bench.server.enqueue(count(), textReply('ok'), count(), textReply('ok'));
    await bench.execute({ run: fakeRun({ tainted: true }) });

    const { output } = await bench.execute();

    expect(output.calls).toContain('tainted');
  });

  test('of a sub-agent’s tool are in the checkpoint as well', async () => {
    const agent = plugin('agent', {
      ...counter,
      getTools: () => [],
      getSubAgents: () => [{ name: 'adder', description: 'd', systemPrompt: 's', tools: counter.getTools?.({} as never) as never }],
      getRequestTools: counter.getTools as never,
    });
    bench = await startBench({ plugins: [agent] });
    bench.server.enqueue(
      toolCallsReply({ name: 'call_adder', args: { task: 'add' } }),
      count({ note: 'inside' }),
      textReply('Added.'),
      textReply('ok'),
      count(),
      textReply('ok'),
    );
    await bench.execute();

    expect(resultsOf((await bench.execute()).outcome)).toEqual(['{"count":2,"note":"inside"}']);
  });
});

test('channels of another release, or of none, count as absent', () => {
  const thread = createThreadState({ loadedPlugins: 'maps', plugins: { maps: 7 } }, { principal: 'did:key:zAlice' as PrincipalId });

  expect([...thread.loadedPlugins]).toEqual([]);
  expect(thread.stateOf('maps')).toBeUndefined();
});

describe('a checkpoint that cannot be read', () => {
  const maps = onDemand('maps', { getTools: () => [echo('route')] });
  const withMaps = async (): Promise<Bench> => {
    bench = await startBench({ plugins: [maps] });
    bench.server.enqueue(toolCallsReply({ name: 'load_capability', args: { names: ['maps'] } }), textReply('ok'));
    await bench.execute();
    return bench;
  };
  const file = (one: Bench): string => join(one.folder, 'checkpoints', `${checkpointName('did:key:zAlice' as OwnerId)}.db`);

  test('at the moment refuses the turn, to be tried again, and what was there is there the next time', async () => {
    const one = await withMaps();
    const getTuple = PruningSaver.prototype.getTuple;
    PruningSaver.prototype.getTuple = () => Promise.reject(Object.assign(new Error('busy'), { code: 'SQLITE_BUSY' }));
    let refused: Awaited<ReturnType<Bench['execute']>>;
    try {
      refused = await one.execute();
    } finally {
      PruningSaver.prototype.getTuple = getTuple;
    }
    one.server.enqueue(textReply('ok'));
    await one.execute();

    expect(refused.outcome).toMatchObject({ kind: 'failed', refusal: { code: 'CHECKPOINT_UNAVAILABLE', retryable: true } });
    expect(sentWith(one, 3).tools).toContain('route');
  });

  test('for good, as a row, is kept aside, and the turn goes on with an empty state', async () => {
    const one = await withMaps();
    one.restart();
    const database = new Sqlite(file(one));
    database.exec(`UPDATE checkpoints SET checkpoint = '{"broken'`);
    database.close();
    one.server.enqueue(textReply('ok'));

    const { outcome } = await one.execute();

    expect(outcome).toMatchObject({ kind: 'completed', text: 'ok' });
    expect(sentWith(one, 3).tools).not.toContain('route');
    const after = new Sqlite(file(one), { readonly: true });
    expect(after.prepare('SELECT count(*) FROM unreadable_checkpoints').pluck().get()).toBeGreaterThan(0);
    after.close();
  });

  test.each(['when it is opened', 'when it is read'])(
    'for good, as a file found damaged %s, is kept aside, and this very turn goes on',
    async (when) => {
      const one = await withMaps();
      one.runner.close();
      if (when === 'when it is opened') writeFileSync(file(one), 'this is no database any more '.repeat(200));
      const getTuple = PruningSaver.prototype.getTuple;
      let reads = 0;
      if (when === 'when it is read')
        PruningSaver.prototype.getTuple = function (this: PruningSaver, ...args: Parameters<typeof getTuple>) {
          reads += 1;
          return reads === 1
            ? Promise.reject(Object.assign(new Error('malformed'), { code: 'SQLITE_CORRUPT' }))
            : getTuple.apply(this, args);
        };
      one.restart();
      one.server.enqueue(textReply('ok'));
      try {
        const { outcome } = await one.execute();

        expect(outcome).toMatchObject({ kind: 'completed', text: 'ok' });
      } finally {
        PruningSaver.prototype.getTuple = getTuple;
      }
      expect(sentWith(one, 3).tools).not.toContain('route');
      expect(readdirSync(join(one.folder, 'checkpoints')).filter((name) => name.includes('.damaged'))).not.toEqual([]);
    },
  );
});
