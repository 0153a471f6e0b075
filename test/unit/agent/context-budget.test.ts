import { AIMessage, HumanMessage, ToolMessage } from '@langchain/core/messages';
import { afterEach, describe, expect, test } from 'vitest';
import { buildContextBudget, countChars, cutResult, planRoom } from '../../../src/agent/context-budget.ts';
import { textReply, toolCallsReply } from '../../../synapse-dev/model/reply.ts';
import { echo, plugin } from './recording-plugin.ts';
import { type Bench, fakeRun, resultsOf, sentWith, startBench } from './turn-fixture.ts';

let bench: Bench | undefined;
afterEach(async () => {
  await bench?.close();
  bench = undefined;
});

describe('planRoom', () => {
  const window = [
    new HumanMessage('a'.repeat(60)),
    new AIMessage({ content: '', tool_calls: [{ id: 'c', name: 'look', args: {} }] }),
    new ToolMessage({ tool_call_id: 'c', content: 'b'.repeat(60) }),
    new AIMessage('done'),
    new HumanMessage('newest'),
  ];
  const all = countChars(window);

  test('leaves a conversation that fits as it is', () => {
    expect(planRoom(window, { otherChars: 100, fullChars: all + 100 })).toBe(window);
  });

  test('lets its oldest part go, from one human message to the next, so that no result loses its call', () => {
    expect(planRoom(window, { otherChars: 100, fullChars: all + 99 })).toEqual(window.slice(4));
  });

  test('lets all of it go before the turn', () => {
    expect(planRoom(window, { otherChars: 100, fullChars: 100 })).toEqual([]);
  });

  test('says when the turn alone is too much', () => {
    expect(planRoom([], { otherChars: 101, fullChars: 100 })).toBeNull();
  });
});

test.each([
  [99, false],
  [100, false],
  [101, true],
])('a result of %i characters where 100 may be is cut: %s', (chars, isCut) => {
  const cut = cutResult('x'.repeat(chars), 100);

  expect(cut.length).toBeLessThanOrEqual(Math.max(chars, 100));
  expect(cut.includes('[cut')).toBe(isCut);
});

test('a result has 12 % of the context at most, and is full at 95 %', () => {
  expect(buildContextBudget(1_000)).toMatchObject({ resultChars: 480, fullChars: 3_800 });
});

const long = plugin('long', {
  getTools: () => [{ ...echo('long'), handler: () => 'x'.repeat(15_000) }],
});
/** Tokens; the prompt of the test's plugins has some 300. */
const SMALL = 2_000;

test('one result does not push the conversation out, and the model is told that it was cut', async () => {
  bench = await startBench({ plugins: [long], options: { contextTokens: SMALL } });
  bench.server.enqueue(toolCallsReply({ name: 'long', args: {} }), textReply('ok'));

  const { outcome } = await bench.execute();

  expect(outcome).toMatchObject({ kind: 'completed' });
  expect(resultsOf(outcome)[0]?.length).toBe(960);
  expect(sentWith(bench, 2).messages.at(-1)).toContain('[cut: 15000 characters');
});

test('a turn that fills the context is refused by us, with a code of its own', async () => {
  bench = await startBench({ plugins: [long], options: { contextTokens: SMALL } });
  bench.server.respond((request) => toolCallsReply({ name: 'long', args: { text: String(request.messages.length) } }));

  const { outcome } = await bench.execute();

  expect(outcome).toMatchObject({ kind: 'failed', refusal: { code: 'CONTEXT_FULL', retryable: false } });
  for (const { body } of bench.server.requests) expect(JSON.stringify(body).length).toBeLessThan(SMALL * 4 * 1.2);
});

test('the conversation gives way before the turn is refused', async () => {
  bench = await startBench({ plugins: [long], options: { contextTokens: SMALL } });
  for (let at = 1; at <= 40; at += 1) {
    const role = at % 2 === 1 ? ('human' as const) : ('ai' as const);
    bench.transcript.push({
      ...{ id: at, runId: null, eventId: null, role, speaker: at % 2 === 1 ? 'did:key:zAlice' : 'oracle', text: `${at} `.padEnd(200, 'y') },
      ...{ message: null, at, tier: 'signed', tainted: false },
    });
  }
  const calls = ['a', 'b', 'c', 'd'].map((text) => toolCallsReply({ name: 'long', args: { text } }));
  bench.server.enqueue(...calls, textReply('ok'));

  const { outcome } = await bench.execute({ run: fakeRun({ text: 'now' }) });

  const conversation = [1, 2, 3, 4, 5].map(
    (number) => sentWith(bench as Bench, number).messages.filter((text) => text.includes('yyy')).length,
  );
  expect(outcome).toMatchObject({ kind: 'completed', text: 'ok' });
  expect(conversation[0]).toBeGreaterThan(conversation[4] ?? 0);
  expect(conversation[4]).toBeGreaterThan(0);
  expect(sentWith(bench, 5).messages[0]).toMatch(/^user: \d+ y/u);
});
