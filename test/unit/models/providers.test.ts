import { afterEach, describe, expect, test } from 'vitest';
import { readModelStream } from '../../../src/agent/read-model-stream.ts';
import type { CallUsage } from '../../../src/models/chat-model.ts';
import { createModels, type ModelsOptions } from '../../../src/models/models.ts';
import { readModelError } from '../../../src/models/read-model-error.ts';
import { readModelSettings } from '../../../src/models/read-model-settings.ts';
import { readUsage } from '../../../src/models/usage.ts';
import { systemClock } from '../../../src/system-clock.ts';
import { fakeLogger } from '../../fakes/fake-logger.ts';
import { broken, failing, type ProviderServer, recorded, startProviderServer, streamed, whole } from './provider-server.ts';

const cleanups: (() => Promise<void>)[] = [];
afterEach(async () => {
  for (const cleanup of cleanups.splice(0)) await cleanup();
});

type Answers = Parameters<typeof startProviderServer>;
async function start(...answers: Answers): Promise<ProviderServer> {
  const server = await startProviderServer(...answers);
  cleanups.push(server.close);
  return server;
}
function modelsOf(options: Partial<ModelsOptions> & Pick<ModelsOptions, 'roles'>) {
  const models = createModels({ clock: systemClock, idleTimeoutMs: 5_000, ...options });
  cleanups.push(models.close);
  return models;
}
/** As the agent reads it. */
async function ask(models: ReturnType<typeof modelsOf>, get: Parameters<typeof models.get> = ['main']) {
  const text: string[] = [];
  const chunks = await models.get(...get).stream('Hi');
  const message = await readModelStream(chunks as never, { id: 'm', usedCallIds: new Set(), onText: (delta) => text.push(delta) });
  return { message, text: text.join('') };
}

describe('what each provider streams becomes one answer with its usage', () => {
  const cases = [
    {
      provider: 'openai',
      variable: 'OPENAI_BASE_URL',
      key: 'OPENAI_API_KEY',
      file: 'openai',
      usage: { inputTokens: 24, outputTokens: 58 },
    },
    {
      provider: 'openrouter',
      variable: 'OPENROUTER_BASE_URL',
      key: 'OPENROUTER_API_KEY',
      file: 'openrouter',
      usage: { inputTokens: 1697, outputTokens: 52 },
    },
    { provider: 'ollama', variable: 'OLLAMA_BASE_URL', key: null, file: 'ollama', usage: null },
    {
      provider: 'openai-compatible',
      variable: 'OPENAI_BASE_URL',
      key: 'OPENAI_API_KEY',
      file: 'compatible',
      usage: { inputTokens: 10, outputTokens: 8 },
    },
  ] as const;
  test.each(cases)('$provider', async ({ provider, variable, key, file, usage }) => {
    const server = await start(recorded(file));
    const settings = readModelSettings({
      LLM_PROVIDER: provider,
      MODEL_MAIN: 'some-model',
      [variable]: server.url,
      ...(key === null ? {} : { [key]: 'sk-test' }),
    });
    if (!settings.ok) throw new Error(settings.error.map(({ message }) => message).join());

    const { message, text } = await ask(modelsOf(settings.value));

    expect(text).toBe('Hello there');
    expect(message.response_metadata['finish_reason']).toBe('stop');
    if (usage !== null) expect(readUsage(message.usage_metadata)).toEqual(usage);
    const [asked] = server.asked;
    expect(asked?.path).toBe('/v1/chat/completions');
    expect(asked?.headers.authorization).toBe(`Bearer ${key === null ? 'none' : 'sk-test'}`);
    expect(asked?.body).toMatchObject({ model: 'some-model', stream: true, stream_options: { include_usage: true } });
  });

  test.each([
    ['openai-tool', 'call_1', { inputTokens: 60, outputTokens: 17 }],
    ['ollama-tool', 'call_ejieksiz', { inputTokens: 31, outputTokens: 12 }],
  ])('a tool call of %s', async (file, id, usage) => {
    const server = await start(recorded(file));

    const { message } = await ask(modelsOf({ baseUrl: server.url, roles: { main: 'm' } }));

    expect(message.tool_calls).toEqual([{ id, name: 'look_up', args: { city: 'Bonn' }, type: 'tool_call' }]);
    expect(readUsage(message.usage_metadata)).toEqual(usage);
  });

  test('an error in the stream is an error, and its words stay inside (G12)', async () => {
    const server = await start(recorded('openrouter-error'));

    const failed = await ask(modelsOf({ baseUrl: server.url, roles: { main: 'm' } })).catch((error: unknown) => error);

    expect(readModelError(failed)).toMatchObject({ code: 'MODEL_ERROR' });
    expect(readModelError(failed).message).not.toContain('disconnected');
  });
});

describe('usage', () => {
  test('is estimated, and says so, when a provider reports none', async () => {
    const server = await start(recorded('ollama'));
    const seen: CallUsage[] = [];
    const models = modelsOf({ baseUrl: server.url, roles: { main: 'm' } });

    const chunks = [];
    for await (const chunk of await models.get('main', {}, { onUsage: (usage) => void seen.push(usage) }).stream('Hi')) chunks.push(chunk);

    const last = chunks.at(-1);
    expect(readUsage(last?.usage_metadata, last?.response_metadata)).toEqual({ inputTokens: 8, outputTokens: 3, estimated: true });
    expect(seen).toEqual([{ model: 'm', inputTokens: 8, outputTokens: 3, estimated: true }]);
  });

  test('is told once for a whole answer as well', async () => {
    const completion = {
      id: 'x',
      object: 'chat.completion',
      choices: [{ index: 0, message: { role: 'assistant', content: 'yes' }, finish_reason: 'stop' }],
    };
    const server = await start(
      whole({ ...completion, usage: { prompt_tokens: 5, completion_tokens: 1, total_tokens: 6 } }),
      whole(completion),
    );
    const seen: CallUsage[] = [];
    const model = modelsOf({ baseUrl: server.url, roles: { main: 'm' } }).get('main', {}, { onUsage: (usage) => void seen.push(usage) });

    await model.invoke('Hi');
    await model.invoke('Hi');

    expect(seen.map(({ estimated }) => estimated)).toEqual([false, true]);
    expect(seen[0]).toMatchObject({ inputTokens: 5, outputTokens: 1 });
  });

  test('of an answer that broke off is told by what was said until then', async () => {
    const server = await start(broken('four words of text'));
    const seen: CallUsage[] = [];
    const models = modelsOf({ baseUrl: server.url, roles: { main: 'm' } });

    await expect(ask(models, ['main', {}, { onUsage: (usage) => void seen.push(usage) }])).rejects.toThrow();

    expect(seen).toEqual([{ model: 'm', inputTokens: expect.any(Number), outputTokens: 5, estimated: true }]);
  });

  test('of a call that was never answered is none', async () => {
    const server = await start(failing(500));
    const seen: CallUsage[] = [];

    await expect(
      ask(modelsOf({ baseUrl: server.url, roles: { main: 'm' } }), ['main', {}, { onUsage: (usage) => void seen.push(usage) }]),
    ).rejects.toThrow();

    expect(seen).toEqual([]);
  });
});

describe('stand-ins of a role', () => {
  async function setUp(first: Answers[number], more: Partial<ModelsOptions> = {}) {
    const [one, two] = [await start(first), await start(recorded('openai'))];
    const logger = fakeLogger();
    const models = modelsOf({
      baseUrl: one.url,
      apiKey: 'first',
      providers: { other: { baseUrl: two.url, apiKey: 'second' } },
      roles: { main: 'big' },
      fallbacks: { main: ['other:small'] },
      logger,
      ...more,
    });
    return { one, two, models, logger };
  }

  test.each([
    ['fails', failing(500)],
    ['knows no such model', failing(404)],
    ['takes no key', failing(401)],
    ['is overloaded', failing(429)],
    ['breaks off before its first word', streamed('')],
    ['says an error before its first word', recorded('openrouter-error')],
  ])('are asked, at their provider and under their name, when the first %s', async (_name, answer) => {
    const { two, models, logger } = await setUp(answer);

    const { text } = await ask(models);

    expect(text).toBe('Hello there');
    expect(two.asked).toHaveLength(1);
    expect(two.asked[0]?.body['model']).toBe('small');
    expect(two.asked[0]?.headers.authorization).toBe('Bearer second');
    expect(logger.said('warn')).toEqual(['a model failed before its answer; another one is asked']);
    expect(logger.lines[0]).toMatchObject({ model: 'big', reason: 'other:small' });
  });

  test('are never asked after text was forwarded', async () => {
    const { two, models } = await setUp(broken('Half an'));

    await expect(ask(models)).rejects.toThrow();

    expect(two.asked).toHaveLength(0);
  });

  test.each([
    ['refuses the request itself', failing(400)],
    ['finds it too large', failing(413)],
  ])('are not asked when the first %s', async (_name, answer) => {
    const { two, models } = await setUp(answer);

    await expect(ask(models)).rejects.toThrow();

    expect(two.asked).toHaveLength(0);
  });

  test('are not asked when the run was stopped (G9)', async () => {
    const stop = new AbortController();
    const { one, two, models } = await setUp(() => stop.abort(new Error('stopped')));

    await expect(ask(models, ['main', {}, { signal: stop.signal }])).rejects.toThrow();

    expect([one.asked.length, two.asked.length]).toEqual([1, 0]);
  });

  test('answer whole calls as well, and usage names who answered', async () => {
    const { two, models } = await setUp(failing(503));
    two.answers = [whole({ choices: [{ index: 0, message: { role: 'assistant', content: 'ok' }, finish_reason: 'stop' }] })];
    const seen: CallUsage[] = [];

    const answer = await models.get('main', {}, { onUsage: (usage) => void seen.push(usage) }).invoke('Hi');

    expect(answer.text).toBe('ok');
    expect(seen).toMatchObject([{ model: 'other:small' }]);
  });

  test('that fail too leave the last error', async () => {
    const { two, models } = await setUp(failing(500));
    two.answers = [failing(429)];

    const failed = await ask(models).catch((error: unknown) => error);

    expect(readModelError(failed).code).toBe('MODEL_RATE_LIMITED');
  });
});

describe('hooks of a run', () => {
  test('stay when tools are bound', async () => {
    const server = await start(recorded('openai-tool'));
    const seen: CallUsage[] = [];
    const model = modelsOf({ baseUrl: server.url, roles: { main: 'm' } }).get('main', {}, { onUsage: (usage) => void seen.push(usage) });
    const tool = { type: 'function', function: { name: 'look_up', description: 'd', parameters: { type: 'object', properties: {} } } };

    for await (const _ of (await model.bindTools?.([tool])?.stream('Hi')) ?? []);

    expect(seen).toEqual([{ model: 'm', inputTokens: 60, outputTokens: 17, estimated: false }]);
    expect(server.asked[0]?.body['tools']).toHaveLength(1);
  });

  test('a call that may not be made is not made (G8)', async () => {
    const server = await start(recorded('openai'));
    const models = modelsOf({ baseUrl: server.url, roles: { main: 'm' } });
    const refuse = () => {
      throw new Error('no authority');
    };

    await expect(ask(models, ['main', {}, { beforeCall: refuse }])).rejects.toThrow('no authority');

    expect(server.asked).toHaveLength(0);
  });

  test('what must not leave the run is masked in the request (G12)', async () => {
    const server = await start(recorded('openai'));
    const models = modelsOf({ baseUrl: server.url, roles: { main: 'm' } });
    const clean = <T>(value: T): T => JSON.parse(JSON.stringify(value).replaceAll('s3cret-value', '[secret]'));

    await models
      .get('main', {}, { clean })
      .stream('the key is s3cret-value')
      .then(async (chunks) => {
        for await (const _ of chunks);
      });

    expect(JSON.stringify(server.asked)).not.toContain('s3cret-value');
    expect(server.asked[0]?.body['messages']).toEqual([{ role: 'user', content: 'the key is [secret]' }]);
  });
});

test('the most tokens of a role cannot be raised by who asks', async () => {
  const server = await start(recorded('openai'));
  const models = modelsOf({ baseUrl: server.url, roles: { main: 'm' }, maxTokens: { main: 100 } });

  for (const params of [{}, { maxTokens: 50 }, { maxTokens: 5_000 }, { maxTokens: -1 }]) await ask(models, ['main', params]);

  expect(server.asked.map(({ body }) => body['max_tokens'])).toEqual([100, 50, 100, 100]);
});
