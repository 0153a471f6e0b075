/** One model call: what is said of a wait, how a conversation is made fit for a strict provider, and what is no cancel. */
import { AIMessage, AIMessageChunk, type BaseMessage, HumanMessage, SystemMessage, ToolMessage } from '@langchain/core/messages';
import { describe, expect, test } from 'vitest';
import { createAnswerWriter } from '../../../src/agent/answer-writer.ts';
import { callModel } from '../../../src/agent/call-model.ts';
import { mergeNeighbours } from '../../../src/agent/merge-neighbours.ts';
import { OracleError, refusal } from '../../../src/errors.ts';
import { fakeClock } from '../../fakes/fake-clock.ts';
import { fakeLogger } from '../../fakes/fake-logger.ts';
import { fakeOutput } from './turn-fixture.ts';

async function* saying(text: string): AsyncIterable<AIMessageChunk> {
  yield new AIMessageChunk({ content: text });
  yield new AIMessageChunk({ content: '', response_metadata: { finish_reason: 'stop' } });
}
const problem = (status: number, more: object = {}) => Object.assign(new Error('no'), { status, ...more });
const busy = (seconds: number) => problem(429, { headers: { 'retry-after': String(seconds) } });

function setUp(...replies: readonly (string | Error)[]) {
  const clock = fakeClock();
  const output = fakeOutput('Before.');
  const asked: BaseMessage[][] = [];
  const stop = new AbortController();
  const takingTurns = new Set<string>();
  const left = [...replies];
  const call = (messages: BaseMessage[] = [new HumanMessage('hi')], writer = createAnswerWriter(output, 'Before.')) =>
    callModel({
      model: {
        async stream(given) {
          asked.push(given);
          const next = left.shift();
          if (next === undefined || typeof next !== 'string') throw next;
          return saying(next);
        },
      },
      modelName: 'demo',
      messages,
      messageId: 'm',
      usedCallIds: new Set(),
      writer,
      signal: stop.signal,
      deadlineAt: clock.now() + 300_000,
      clock,
      chance: () => 0.5,
      logger: fakeLogger(),
      requireAuthority: () => undefined,
      takingTurns,
      onCall: () => undefined,
    });
  return { clock, output, asked, stop, takingTurns, call, shown: () => output.folded().text };
}

describe('a wait for the provider', () => {
  test('of more than ten seconds is said, and gone once there is text', async () => {
    const one = setUp(busy(20), 'Hello.');
    const answer = one.call();
    await one.clock.advanceAsync(1_000);
    expect(one.shown()).toBe('Before.\n\n*The language model is busy. I will try again in 20 s.*');

    await one.clock.advanceAsync(20_000);

    expect((await answer).content).toBe('Hello.');
    expect(one.shown()).toBe('Before.\n\nHello.');
  });

  test('of less is nobody’s business', async () => {
    const one = setUp(busy(3), busy(3), 'Hello.');
    const answer = one.call();
    await one.clock.advanceAsync(4_000);
    expect(one.shown()).toBe('Before.');
    await one.clock.advanceAsync(4_000);
    await answer;
    expect(one.output.calls.filter((call) => call.startsWith('truncate'))).toEqual([]);
  });

  test('is said as well when many short ones are long together', async () => {
    const one = setUp(busy(6), busy(6), 'Hello.');
    const answer = one.call();
    await one.clock.advanceAsync(7_000);
    expect(one.shown()).toContain('6 s');
    await one.clock.advanceAsync(7_000);
    await answer;
    expect(one.shown()).toBe('Before.\n\nHello.');
  });

  test.each(['a failure', 'a cancel'])('%s ends it without a trace of what was said about it', async (how) => {
    const one = setUp(busy(20), problem(400));
    const answer = one.call().catch((error: OracleError) => error.refusal.code);
    await one.clock.advanceAsync(1_000);

    if (how === 'a cancel') one.stop.abort(new OracleError(refusal('RUN_CANCELLED')));
    else await one.clock.advanceAsync(20_000);

    expect(await answer).toBe(how === 'a cancel' ? 'RUN_CANCELLED' : 'MODEL_REFUSED');
    expect(one.shown()).toBe('Before.');
  });
});

test.each([
  Object.assign(new Error('Request was aborted.'), { name: 'AbortError', status: 400 }),
  problem(400, { message: 'operation aborted by user', code: 'abort' }),
])('a provider that speaks of an abort has failed; nobody has cancelled (G9)', async (error) => {
  await expect(setUp(error).call()).rejects.toMatchObject({ refusal: { code: 'MODEL_REFUSED' } });
});

describe('neighbours of one role', () => {
  const messages = [new SystemMessage('s'), new HumanMessage('a'), new HumanMessage('b'), new AIMessage('x'), new AIMessage('y')];
  const texts = (list: readonly BaseMessage[] | undefined) => list?.map((message) => `${message.type}: ${message.text}`);

  test('stay as they were said, unless a provider refuses them: then they are merged from there on (G15)', async () => {
    const one = setUp('ok', problem(400, { message: 'Conversation roles must alternate user/assistant/user/assistant/...' }), 'ok', 'ok');

    await one.call(messages);
    await one.call(messages);
    await one.call(messages);

    const whole = ['system: s', 'human: a', 'human: b', 'ai: x', 'ai: y'];
    const merged = ['system: s', 'human: a\n\nb', 'ai: x\n\ny'];
    expect(one.asked.map(texts)).toEqual([whole, whole, merged, merged]);
  });

  test('another refusal stays one', async () => {
    const one = setUp(problem(400, { message: 'bad request' }));
    await expect(one.call(messages)).rejects.toMatchObject({ refusal: { code: 'MODEL_REFUSED' } });
    expect(one.asked).toHaveLength(1);
  });

  test('calls keep their results', () => {
    const call = { id: 'c', name: 'now', args: {}, type: 'tool_call' as const };
    const list = [
      new HumanMessage('a'),
      new AIMessage('x'),
      new AIMessage({ content: 'y', tool_calls: [call] }),
      new ToolMessage({ tool_call_id: 'c', content: 'noon' }),
      new ToolMessage({ tool_call_id: 'd', content: 'late' }),
      new AIMessage('z'),
      new HumanMessage('b'),
    ];
    const merged = mergeNeighbours(list);
    expect(texts(merged)).toEqual(['human: a', 'ai: x\n\ny', 'tool: noon', 'tool: late', 'ai: z', 'human: b']);
    expect(merged[1]).toMatchObject({ tool_calls: [{ id: 'c' }] });
  });
});
