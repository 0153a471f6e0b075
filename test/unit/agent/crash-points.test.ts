/**
 * What is on disk at a given instant is copied, as `kill -9` would leave it, and another runner goes on from the copy: the order of checkpoint, effect
 * and next step is looked at from outside, whatever the saver batches.
 */
import { cpSync } from 'node:fs';
import { join } from 'node:path';
import { setImmediate as nextTask } from 'node:timers/promises';
import { afterEach, expect, test } from 'vitest';
import { z } from 'zod';
import type { AnyTool } from '../../../src/plugin-api/define-tool.ts';
import { textReply, toolCallsReply } from '../../../synapse-dev/model/reply.ts';
import { type Bench, fakeOutput, type fakeRun, startBench, tool } from './turn-fixture.ts';

const open: Bench[] = [];
afterEach(async () => {
  for (const bench of open.splice(0)) await bench.close();
});

/** Runs a turn; `kill` copies the disk, and the returned function resumes from that copy. */
async function killable(makeTools: (kill: () => void, calls: string[]) => readonly AnyTool[]) {
  const calls: string[] = [];
  let copy = '';
  const before: Bench = await startBench({
    tools: makeTools(() => {
      copy = join(before.folder, 'copy');
      cpSync(join(before.folder, 'checkpoints'), copy, { recursive: true });
    }, calls),
  });
  open.push(before);
  return {
    before,
    calls,
    resume: async (run: ReturnType<typeof fakeRun>, shownText: string) => {
      calls.length = 0;
      const after = await startBench({ tools: makeTools(() => undefined, calls), options: { checkpointFolder: copy } });
      open.push(after);
      after.server.enqueue(textReply('Resumed.'));
      const output = fakeOutput(shownText);
      const { outcome } = await after.execute({ run: { ...run, attempt: 2 }, shownText, output });
      return { outcome, output, requests: after.server.requests.length };
    },
  };
}
const noArguments = z.object({});

test('killed while a tool runs: its call is on disk, the same call runs again and no answer is asked for twice (G5, G6)', async () => {
  const { before, calls, resume } = await killable((kill, seen) => [
    tool({
      name: 'step',
      description: 'd',
      schema: noArguments,
      handler: (_args, ctx) => {
        seen.push(ctx.toolCallId ?? '');
        kill();
        return 'stepped';
      },
    }),
  ]);
  before.server.enqueue({ kind: 'toolCalls', text: 'Looking.', calls: [{ name: 'step', args: {}, id: 'c1' }] }, textReply('Done.'));
  const { run } = await before.execute();

  const { outcome, output, requests } = await resume(run, 'Looking.\n\nDo');

  expect(outcome).toMatchObject({ kind: 'completed', text: 'Looking.\n\nResumed.' });
  expect(output.folded().text).toBe('Looking.\n\nResumed.');
  expect(calls).toEqual(['c1']);
  expect(requests).toBe(1);
});

test('killed with one of two tools done: only the other runs again (G5)', async () => {
  const { before, calls, resume } = await killable((kill, seen) => [
    tool({ name: 'quick', description: 'd', schema: noArguments, handler: () => `quick ${seen.push('quick')}` }),
    tool({
      name: 'slow',
      description: 'd',
      schema: noArguments,
      handler: async () => {
        seen.push('slow');
        for (let task = 0; task < 20; task += 1) await nextTask();
        kill();
        return 'slow';
      },
    }),
  ]);
  before.server.enqueue(toolCallsReply({ name: 'quick', args: {} }, { name: 'slow', args: {} }), textReply('Done.'));
  const { run } = await before.execute();

  const { outcome } = await resume(run, '');

  expect(outcome).toMatchObject({ kind: 'completed', text: 'Resumed.' });
  expect(calls).toEqual(['slow']);
});
