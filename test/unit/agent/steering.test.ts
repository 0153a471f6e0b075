/** What the principal says while the agent works, as the model is shown it and as the checkpoint keeps it. */
import { afterEach, expect, test } from 'vitest';
import { z } from 'zod';
import { OracleError, refusal } from '../../../src/errors.ts';
import type { Prompt } from '../../../src/runs/run.ts';
import { textReply, toolCallsReply } from '../../../synapse-dev/model/reply.ts';
import { type Bench, type FakeOutput, fakeOutput, fakeRun, startBench, tool } from './turn-fixture.ts';

let bench: Bench | undefined;
afterEach(async () => {
  await bench?.close();
  bench = undefined;
});

const prompt = (name: string): Prompt => ({ id: `$${name}`, text: name, receivedAt: 0 });
/** Inputs that wait, until they are marked consumed. */
function steeredOutput(shownText = ''): FakeOutput & { readonly waiting: Prompt[]; readonly consumed: string[] } {
  const waiting: Prompt[] = [];
  const consumed: string[] = [];
  return {
    ...fakeOutput(shownText),
    waiting,
    consumed,
    inputsWaiting: () => [...waiting],
    async promptsConsumed(ids) {
      consumed.push(...ids);
      for (const id of ids) {
        const at = waiting.findIndex((one) => one.id === id);
        if (at >= 0) waiting.splice(at, 1);
      }
    },
  };
}
/** A tool during which something happens. */
const during = (act: () => void) =>
  tool({
    name: 'step',
    description: 'd',
    schema: z.object({}),
    handler: () => {
      act();
      return 'stepped';
    },
  });
const shownTo = (one: Bench, call: number): string[] =>
  (one.server.requests[call - 1]?.body as unknown as { messages: { role: string; content: unknown }[] } | undefined)?.messages
    .filter(({ role }) => role !== 'system')
    .map(({ role, content }) => `${role}: ${typeof content === 'string' ? content : ''}`) ?? [];

test('what came during a tool is shown after its result, each once and in order, and belongs to the same answer (G2)', async () => {
  const output = steeredOutput();
  bench = await startBench({ tools: [during(() => output.waiting.push(prompt('b'), prompt('c')))] });
  bench.server.enqueue({ kind: 'toolCalls', text: 'Looking.', calls: [{ name: 'step', args: {} }] }, textReply('Done.'));
  const run = fakeRun({ text: 'a' });

  const { outcome } = await bench.execute({ run, output });

  expect(outcome).toMatchObject({ kind: 'completed', text: 'Looking.\n\nDone.' });
  expect(shownTo(bench, 2)).toEqual(['user: a', 'assistant: Looking.', 'tool: stepped', 'user: b', 'user: c']);
  expect(output.consumed).toEqual([run.prompts[0]?.id, '$b', '$c']);
  expect(output.waiting).toEqual([]);
  expect(outcome.kind === 'completed' && outcome.messages.map(({ role, text }) => `${role}: ${text}`)).toEqual([
    'ai: Looking.',
    'tool: stepped',
    'ai: Done.',
  ]);
});

test('what came before the first model call is shown with the prompt', async () => {
  const output = steeredOutput();
  output.waiting.push(prompt('b'));
  bench = await startBench();
  bench.server.enqueue(textReply('Both.'));

  await bench.execute({ run: fakeRun({ text: 'a' }), output });

  expect(shownTo(bench, 1)).toEqual(['user: a', 'user: b']);
  expect(bench.server.requests).toHaveLength(1);
});

test('what comes with two tool calls at once stands behind both results, again and again', async () => {
  const output = steeredOutput();
  let said = 0;
  bench = await startBench({ tools: [during(() => output.waiting.push(prompt(`said ${++said}`)))] });
  bench.server.enqueue(
    toolCallsReply({ name: 'step', args: {} }, { name: 'step', args: {} }),
    toolCallsReply({ name: 'step', args: {} }),
    textReply('Done.'),
  );

  await bench.execute({ run: fakeRun({ text: 'a' }), output });

  expect(shownTo(bench, 3).map((line) => line.replace('assistant: ', 'assistant:'))).toEqual([
    'user: a',
    'assistant:',
    'tool: stepped',
    'tool: stepped',
    'user: said 1',
    'user: said 2',
    'assistant:',
    'tool: stepped',
    'user: said 3',
  ]);
});

test('in a group it is named like the prompt', async () => {
  const output = steeredOutput();
  output.waiting.push(prompt('b'));
  bench = await startBench();
  bench.server.enqueue(textReply('ok'));

  await bench.execute({ run: fakeRun({ text: 'a', direct: false }), output });

  expect(shownTo(bench, 1)).toEqual(['user: @alice:test: a', 'user: @alice:test: b']);
});

test('it is in the checkpoint before the model sees it: a resumed turn goes on with it and asks once (G5)', async () => {
  const output = steeredOutput();
  bench = await startBench({ tools: [during(() => output.waiting.push(prompt('b')))] });
  const stop = new AbortController();
  bench.server.enqueue(
    { kind: 'toolCalls', text: 'Looking.', calls: [{ name: 'step', args: {} }] },
    { kind: 'stall', text: '', afterChunks: 0 },
  );
  const run = fakeRun({ text: 'a' });
  const first = bench.execute({ run, output, signal: stop.signal });
  await expect.poll(() => bench?.server.requests.length).toBe(2);
  stop.abort(new OracleError(refusal('INTERNAL')));
  await first;

  bench.restart();
  bench.server.enqueue(textReply('Done.'));
  const resumed = steeredOutput('Looking.');
  const again = { ...run, attempt: 2, prompts: [...run.prompts, prompt('b')] };
  const { outcome } = await bench.execute({ run: again, output: resumed, shownText: 'Looking.' });

  expect(outcome).toMatchObject({ kind: 'completed', text: 'Looking.\n\nDone.' });
  expect(shownTo(bench, 3)).toEqual(['user: a', 'assistant: Looking.', 'tool: stepped', 'user: b']);
  expect(resumed.consumed).toEqual([run.prompts[0]?.id, '$b']);
});

test('a resumed turn whose checkpoint lacks what waits takes it then (G2)', async () => {
  const stop = new AbortController();
  bench = await startBench({ tools: [during(() => undefined)] });
  bench.server.enqueue(
    { kind: 'toolCalls', text: 'Looking.', calls: [{ name: 'step', args: {} }] },
    { kind: 'stall', text: '', afterChunks: 0 },
  );
  const run = fakeRun({ text: 'a' });
  const first = bench.execute({ run, signal: stop.signal });
  await expect.poll(() => bench?.server.requests.length).toBe(2);
  stop.abort(new OracleError(refusal('INTERNAL')));
  await first;

  bench.restart();
  bench.server.enqueue(textReply('Done.'));
  const output = steeredOutput('Looking.');
  output.waiting.push(prompt('b'));
  const again = { ...run, attempt: 2, prompts: [...run.prompts, prompt('b')] };
  await bench.execute({ run: again, output, shownText: 'Looking.' });

  expect(shownTo(bench, 3)).toEqual(['user: a', 'assistant: Looking.', 'tool: stepped', 'user: b']);
  expect(output.consumed).toEqual([run.prompts[0]?.id, '$b']);
});

test('what was taken back in the last moment reaches no model (G9)', async () => {
  const output = steeredOutput();
  output.waiting.push(prompt('b'));
  bench = await startBench();
  const promptsConsumed = async (ids: readonly string[]): Promise<void> => {
    if (ids.includes('$b')) throw new OracleError(refusal('RUN_CANCELLED'));
  };

  const { outcome } = await bench.execute({ run: fakeRun({ text: 'a' }), output: { ...output, promptsConsumed } as FakeOutput });

  expect(outcome).toMatchObject({ kind: 'failed', refusal: { code: 'RUN_CANCELLED' } });
  expect(bench.server.requests).toHaveLength(0);
});

test('the checkpoint of a prompt that was edited since is another turn’s', async () => {
  bench = await startBench();
  bench.server.enqueue(textReply('Old.'), textReply('New.'));
  const run = fakeRun({ text: 'old' });
  await bench.execute({ run });
  const edited = fakeRun({ attempt: 2, prompts: run.prompts.map((one) => ({ ...one, text: 'new' })) });

  const { outcome } = await bench.execute({ run: edited });

  expect(outcome).toMatchObject({ text: 'New.' });
});
