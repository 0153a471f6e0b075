import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import Sqlite from 'better-sqlite3';
import { afterEach, expect, test } from 'vitest';
import { z } from 'zod';
import { buildSystemPrompt } from '../../../src/agent/prompt.ts';
import { createToolBinder, createToolSet } from '../../../src/agent/tool-set.ts';
import type { RunId, SessionId } from '../../../src/ids.ts';
import { createModels } from '../../../src/models/models.ts';
import type { AnyOraclePlugin } from '../../../src/plugin-api/define-oracle-plugin.ts';
import { createTranscript } from '../../../src/sessions/transcript.ts';
import { openStore, type Store } from '../../../src/store/store.ts';
import { systemClock } from '../../../src/system-clock.ts';
import { textReply, toolCallsReply } from '../../../synapse-dev/model/reply.ts';
import { hostOf } from '../../fakes/plugin-host.ts';
import { echo, onDemand, plugin, recordingMiddleware } from './recording-plugin.ts';
import { type Bench, fakeRun, startBench, tool } from './turn-fixture.ts';

const FACTS = {
  oracleName: 'Oracle',
  room: { kind: 'direct', name: null },
  user: '@alice:test',
  localTime: '2026-11-30T13:00:59+01:00',
  weekday: 'Monday',
  timeZone: null,
} as const;

const open: { close(): unknown }[] = [];
afterEach(async () => {
  for (const one of open.splice(0)) await one.close();
});

async function fillThread(store: Store, length: number): Promise<void> {
  const transcript = createTranscript({ store });
  const run = fakeRun();
  await store.write((tx) => {
    for (let at = 0; at < length; at += 1) {
      transcript.append(tx, {
        roomId: run.roomId,
        sessionId: run.sessionId,
        runId: `00000000000000000000${String(at >> 1).padStart(6, '0')}` as RunId,
        eventId: null,
        role: at % 2 === 0 ? 'human' : 'ai',
        speaker: at % 2 === 0 ? 'did:key:zAlice' : 'oracle',
        text: `${at} `.padEnd(400, 'x'),
        message: null,
        at,
      });
    }
  });
}

/** Rows, pages and bytes that one turn with one tool call leaves, and what it sends to the model. */
async function measureTurn(length: number, plugins: readonly AnyOraclePlugin[] = []) {
  const store = openStore({ path: ':memory:', now: 0 });
  open.push(store);
  await fillThread(store, length);
  const transcript = createTranscript({ store });
  const noon = tool({ name: 'now', description: 'time', schema: z.object({}), handler: () => 'noon' });
  let readRows = 0;
  const bench: Bench = await startBench({
    tools: [noon],
    plugins,
    options: {
      contextMessages: 16,
      transcript: {
        overheard: () => [],
        newest: (session: SessionId, options) => {
          const rows = transcript.newest(session, options);
          readRows += rows.length;
          return rows;
        },
      },
    },
  });
  open.push(bench);
  bench.server.enqueue(toolCallsReply({ name: 'now', args: {}, id: 'c' }), textReply('It is noon.'));
  await bench.execute();

  const folder = join(bench.folder, 'checkpoints');
  const database = new Sqlite(join(folder, readdirSync(folder).find((name) => name.endsWith('.db')) ?? ''));
  const number = (query: string): number => database.prepare(query).pluck().get() as number;
  const cost = {
    readRows,
    checkpoints: number('SELECT count(*) FROM checkpoints'),
    steps: number('SELECT last FROM owner_sequence'),
    bytes:
      number('SELECT sum(length(checkpoint) + length(metadata)) FROM checkpoints') +
      number('SELECT coalesce(sum(length(value)), 0) FROM writes'),
    modelMessages: (bench.server.requests[1]!.body as { messages: unknown[] }).messages.length,
  };
  database.close();
  return cost;
}

test('a turn in a thread of 2,000 messages reads, writes and sends what it does in one of 20 (G16)', async () => {
  const short = await measureTurn(20);
  const long = await measureTurn(2_000);

  // Times and random ids differ in length by a few bytes.
  expect(Math.abs(long.bytes - short.bytes)).toBeLessThan(200);
  expect({ ...long, bytes: 0 }).toEqual({ ...short, bytes: 0 });
  expect(short).toMatchObject({ readRows: 16, checkpoints: 2 });
  expect(short.bytes).toBeLessThan(10_000);
});

test('a plugin whose hooks are around calls costs no checkpoint; one with hooks before or after them pays for its own (G16)', async () => {
  const none = await measureTurn(20);
  const around = await measureTurn(20, [plugin('around', { getMiddlewares: () => [recordingMiddleware('around', [], { nodes: false })] })]);
  const nodes = await measureTurn(20, [plugin('nodes', { getMiddlewares: () => [recordingMiddleware('nodes', [])] })]);

  expect(around.steps).toBe(none.steps);
  // Before and after the agent once, before and after each of two model calls.
  expect(nodes.steps).toBe(none.steps + 6);
});

test('with 500 tools of which 20 are loaded, prompt and tools of a model call cost less than 2 ms', async () => {
  const plugins = Array.from({ length: 50 }, (_, at) =>
    onDemand(`plugin-${at}`, { getTools: () => Array.from({ length: 10 }, (__, tool) => echo(`tool_${at}_${tool}`)) }),
  );
  const host = await hostOf(plugins);
  const tools = createToolSet(host.tools, host.visibilityOf);
  const bind = createToolBinder();
  const models = createModels({ clock: systemClock, apiKey: 'x', roles: { main: 'demo' }, idleTimeoutMs: 1_000 });
  const loaded = new Set(['plugin-3', 'plugin-44']);
  const times: number[] = [];
  for (let round = 0; round < 50; round += 1) {
    // A turn of its own each time: nothing is bound yet.
    const model = models.get('main', undefined, { onUsage: () => undefined });
    const begin = performance.now();
    const offered = tools.offered(loaded);
    bind(model, offered);
    buildSystemPrompt({ ...FACTS, plugins: host.plugins.filter(({ name }) => loaded.has(name)).map(({ manifest }) => manifest) });
    times.push(performance.now() - begin);
    expect(offered.names.size).toBe(20);
  }

  expect(times.sort((a, b) => a - b)[25]).toBeLessThan(2);
});

test('the prompts are marked consumed only when a checkpoint holds them (G5)', async () => {
  const bench = await startBench();
  open.push(bench);
  bench.server.enqueue(textReply('ok'));
  const run = fakeRun({ text: 'remember me' });
  const folder = join(bench.folder, 'checkpoints');
  let held = '';
  await bench.runner.execute({
    run,
    shownText: '',
    signal: new AbortController().signal,
    output: {
      text: () => undefined,
      truncate: () => undefined,
      toolCall: () => undefined,
      emit: () => undefined,
      modelCalled: () => undefined,
      tainted: async () => undefined,
      inputsWaiting: () => [],
      promptsConsumed: async () => {
        const database = new Sqlite(join(folder, readdirSync(folder).find((name) => name.endsWith('.db')) ?? ''), { readonly: true });
        held = String(database.prepare('SELECT checkpoint FROM checkpoints ORDER BY checkpoint_id DESC LIMIT 1').pluck().get());
        database.close();
      },
    },
  });

  expect(held).toContain('remember me');
});
