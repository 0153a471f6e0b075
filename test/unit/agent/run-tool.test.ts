import { describe, expect, test } from 'vitest';
import { z } from 'zod';
import { buildFrameArguments, hashArguments, runTool, type ToolRunOptions } from '../../../src/agent/run-tool.ts';
import { LIMITS } from '../../../src/limits.ts';
import { createLogger } from '../../../src/observe/logger.ts';
import type { AnyTool } from '../../../src/plugin-api/define-tool.ts';
import { buildParameters } from '../../../src/plugin-host/register-tools.ts';
import type { FrameData } from '../../../src/runs/run.ts';
import { fakeClock } from '../../fakes/fake-clock.ts';
import { fakeMarks, fakeRun, tool } from './turn-fixture.ts';

function setUp(definition: AnyTool) {
  const { name, schema } = definition;
  const tools = new Map([[name, { plugin: 'p', definition, parameters: buildParameters(schema) }]]);
  const clock = fakeClock();
  const marks = fakeMarks();
  const stop = new AbortController();
  const frames: FrameData['tool_call'][] = [];
  const options: ToolRunOptions = {
    run: fakeRun(),
    tools,
    marks,
    knownCalls: new Set(),
    clock,
    logger: createLogger({ level: 'silent', format: 'json' }),
    signal: stop.signal,
    sendFrame: (data) => frames.push(data),
    authority: { judge: () => null, actingGrants: () => [] },
    tainted: false,
    audit: async () => undefined,
    mayPay: async () => true,
    pay: async () => undefined,
    buildContext: (_call, _tool, { signal }) => ({ abortSignal: signal }) as never,
  };
  return { options, clock, marks, stop, frames, call: (args = {}) => runTool({ id: 'c', name: definition.name, args }, options) };
}
const settle = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

test('a write tool that does not end is given up, its outcome is unknown, and a late result is still written down (G6)', async () => {
  const late = Promise.withResolvers<string>();
  const { call, clock, marks } = setUp(
    tool({ name: 'slow', description: 'd', schema: z.object({}), effect: 'write', handler: () => late.promise }),
  );
  const running = call();
  await settle();

  clock.advance(LIMITS.toolTimeoutMs);

  expect(await running).toMatchObject({ status: 'error', content: expect.stringContaining('outcome is unknown') });
  expect(marks.rows.get('c')?.state).toBe('started');
  late.resolve('done after all');
  await settle();
  expect(marks.rows.get('c')?.state).toBe('finished');
});

test('a cancel leaves at once, with its reason, and the handler hears of it (G9)', async () => {
  let heard: unknown;
  const { call, stop, clock } = setUp(
    tool({
      name: 'slow',
      description: 'd',
      schema: z.object({}),
      handler: (_args, ctx) =>
        new Promise(() =>
          ctx.abortSignal.addEventListener('abort', () => {
            heard = ctx.abortSignal.reason;
          }),
        ),
    }),
  );
  const running = call();
  running.catch(() => undefined);
  await settle();

  stop.abort('cancelled');

  await expect(running).rejects.toBe('cancelled');
  expect(heard).toBe('cancelled');
  expect(clock.pending()).toBe(0);
});

test('a write handler that threw is written down as it is, so that a resumed run does not call it again (G6)', async () => {
  let ran = 0;
  const { call, marks } = setUp(
    tool({
      name: 'boom',
      description: 'd',
      schema: z.object({}),
      effect: 'write',
      handler: () => {
        ran += 1;
        throw new Error('half way');
      },
    }),
  );
  const first = await call();

  const again = await call();

  expect([first.content, again.content]).toEqual(['The tool failed: half way', 'The tool failed: half way']);
  expect(again.status).toBe('error');
  expect(marks.rows.get('c')?.state).toBe('finished');
  expect(ran).toBe(1);
});

describe('bounds (G14)', () => {
  test.each([
    [LIMITS.toolResultChars, LIMITS.toolResultChars],
    [LIMITS.toolResultChars + 1, LIMITS.toolResultChars],
    [10_000_000, LIMITS.toolResultChars],
  ])('a result of %i characters reaches the model with at most %i', async (length, most) => {
    const { call, frames } = setUp(tool({ name: 'big', description: 'd', schema: z.object({}), handler: () => 'x'.repeat(length) }));

    expect((await call()).content.length).toBeLessThanOrEqual(most);
    expect(frames.at(-1)?.output?.length).toBeLessThanOrEqual(2_000);
  });

  test('frames show arguments without secrets and not without end (G12)', () => {
    expect(buildFrameArguments({ apiKey: 'k', nested: { access_token: 't', city: 'Bonn' } })).toEqual({
      apiKey: '[secret]',
      nested: { access_token: '[secret]', city: 'Bonn' },
    });
    expect(JSON.stringify(buildFrameArguments({ text: 'x'.repeat(100_000) })).length).toBeLessThan(2_100);
  });
});

test('the hash of arguments does not depend on the order of keys, floats included (G6)', () => {
  expect(hashArguments({ a: 1, b: { c: 2, d: 3 } })).toBe(hashArguments({ b: { d: 3, c: 2 }, a: 1 }));
  expect(hashArguments({ a: 1.5, b: { c: 2, d: 3 } })).toBe(hashArguments({ b: { d: 3, c: 2 }, a: 1.5 }));
  expect(hashArguments({ a: 1.5 })).not.toBe(hashArguments({ a: 1.6 }));
});

test('a value that is no text is shown to the model as JSON, and nothing as "Done."', async () => {
  expect((await setUp(tool({ name: 'a', description: 'd', schema: z.object({}), handler: () => ({ n: 1 }) })).call()).content).toBe(
    '{"n":1}',
  );
  expect((await setUp(tool({ name: 'a', description: 'd', schema: z.object({}), handler: () => undefined })).call()).content).toBe('Done.');
});

test('what was given in secret is masked in the result, its frame and its mark (G12)', async () => {
  const { options, frames, marks } = setUp(
    tool({ name: 'leak', description: 'd', schema: z.object({}), effect: 'write', handler: () => 'the key is s3cret-value' }),
  );

  const result = await runTool(
    { id: 'c', name: 'leak', args: {} },
    { ...options, clean: (text) => text.replaceAll('s3cret-value', '[secret]') },
  );

  expect(result.content).toBe('the key is [secret]');
  expect(JSON.stringify([frames, marks.rows.get('c')])).not.toContain('s3cret-value');
});

describe('a tool with a price', () => {
  const priced = (handler: () => unknown) =>
    tool({ name: 'render', description: 'd', schema: z.object({}), effect: 'write', billing: { credits: 7 }, handler });
  function paying(definition: AnyTool, { may = true } = {}) {
    const world = setUp(definition);
    const paid: number[] = [];
    const options = { ...world.options, mayPay: async () => may, pay: async (credits: number) => void paid.push(credits) };
    return { ...world, paid, call: () => runTool({ id: 'c', name: definition.name, args: {} }, options) };
  }

  test('costs what it costs when it has worked, and once, however often it is asked for (G6)', async () => {
    const { call, paid } = paying(priced(() => 'done'));

    await call();
    await call();

    expect(paid).toEqual([7]);
  });

  test('costs nothing when it failed', async () => {
    const { call, paid } = paying(
      priced(() => {
        throw new Error('no');
      }),
    );

    await call();

    expect(paid).toEqual([]);
  });

  test('is not called when nothing is left (402)', async () => {
    let calls = 0;
    const { call } = paying(
      priced(() => {
        calls += 1;
      }),
      { may: false },
    );

    await expect(call()).rejects.toMatchObject({ refusal: { code: 'OUT_OF_CREDITS' } });
    expect(calls).toBe(0);
  });
});
