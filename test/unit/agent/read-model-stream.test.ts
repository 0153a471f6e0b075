import { AIMessageChunk } from '@langchain/core/messages';
import { expect, test } from 'vitest';
import { BAD_ARGUMENTS, readModelStream } from '../../../src/agent/read-model-stream.ts';
import { LIMITS } from '../../../src/limits.ts';

async function* chunksOf(...chunks: ConstructorParameters<typeof AIMessageChunk>[0][]): AsyncGenerator<AIMessageChunk> {
  for (const chunk of chunks) yield new AIMessageChunk(chunk as never);
}
const part = (index: number, more: { id?: string; name?: string; args?: string }) => ({
  content: '',
  tool_call_chunks: [{ type: 'tool_call_chunk' as const, index, ...more }],
});
const read = (chunks: AsyncGenerator<AIMessageChunk>, used: string[] = []) =>
  readModelStream(chunks, { id: 'r.1.1', usedCallIds: new Set(used), onText: () => undefined });

test('pieces of several calls come together by their index', async () => {
  const message = await read(
    chunksOf(part(0, { id: 'a', name: 'f', args: '{"x"' }), part(1, { id: 'b', name: 'g', args: '' }), part(0, { args: ':1}' })),
  );

  expect(message.tool_calls).toEqual([
    { id: 'a', name: 'f', args: { x: 1 }, type: 'tool_call' },
    { id: 'b', name: 'g', args: {}, type: 'tool_call' },
  ]);
});

test('call ids that are missing, used before, doubled or endless are replaced (G6)', async () => {
  const message = await read(
    chunksOf(
      part(0, { name: 'f' }),
      part(1, { id: 'used', name: 'f' }),
      part(2, { id: 'new', name: 'f' }),
      part(3, { id: 'new', name: 'f' }),
      part(4, { id: 'x'.repeat(5_000), name: 'f' }),
    ),
    ['used'],
  );

  const ids = message.tool_calls?.map(({ id }) => id ?? '') ?? [];
  expect(ids.slice(0, 4)).toEqual(['r.1.1.0', 'r.1.1.1', 'new', 'r.1.1.3']);
  expect(ids[4]?.length).toBeLessThan(64);
  expect(new Set(ids).size).toBe(5);
});

test.each([
  ['{"x":', 'not valid JSON'],
  ['[1]', 'not a JSON object'],
  [`{"x":"${'y'.repeat(LIMITS.toolArgumentsBytes)}"}`, 'too large'],
  [`{"x":${'['.repeat(LIMITS.toolArgumentsDepth)}${']'.repeat(LIMITS.toolArgumentsDepth)}}`, 'nested too deeply'],
  [`{"x":${'['.repeat(15_000)}${']'.repeat(15_000)}}`, 'nested too deeply'],
])('arguments that cannot be used say why', async (args, why) => {
  const message = await read(chunksOf(part(0, { id: 'a', name: 'f', args })));

  expect(message.tool_calls?.[0]?.args[BAD_ARGUMENTS]).toContain(why);
});

test('an answer without end is cut (G14)', async () => {
  const piece = 'x'.repeat(100_000);
  let shown = 0;
  const reading = readModelStream(chunksOf(...Array.from({ length: 50 }, () => ({ content: piece }))), {
    id: 'r',
    usedCallIds: new Set(),
    onText: (delta) => {
      shown += delta.length;
    },
  });

  await expect(reading).rejects.toMatchObject({ refusal: { code: 'MODEL_ERROR' } });
  expect(shown).toBe(LIMITS.modelReplyChars);
});
