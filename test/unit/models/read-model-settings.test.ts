import { describe, expect, test } from 'vitest';
import { createModels } from '../../../src/models/models.ts';
import { readModelName } from '../../../src/models/read-model-name.ts';
import { readModelSettings } from '../../../src/models/read-model-settings.ts';
import { fakeClock } from '../../fakes/fake-clock.ts';

const MINIMAL = { MODEL_MAIN: 'big', OPENAI_API_KEY: 'sk-1' };
const read = (environment: Record<string, string | undefined>) => {
  const settings = readModelSettings({ ...MINIMAL, ...environment });
  if (!settings.ok) throw new Error(settings.error.map(({ message }) => message).join(' '));
  return settings.value;
};
const problemsOf = (environment: Record<string, string | undefined>): string[] => {
  const settings = readModelSettings({ ...MINIMAL, ...environment });
  return settings.ok ? [] : settings.error.map(({ message }) => message);
};

test('roles are whatever variables name them; what is no role is none', () => {
  const { roles, fallbacks, maxTokens } = read({
    MODEL_SUBAGENT: 'openrouter:anthropic/claude',
    OPENROUTER_API_KEY: 'or-1',
    MODEL_DEEP_THINK: 'ollama:llama3.2:3b',
    MODEL_UTILITY_FALLBACK: 'small, smaller',
    MODEL_MAIN_MAX_TOKENS: '4000',
    MODEL_CONTEXT_TOKENS: '128000',
    MODEL_IDLE_TIMEOUT_S: '60',
    MODELS_SELECTABLE: 'a',
    NOT_A_MODEL: 'x',
  });

  expect(roles).toEqual({ main: 'big', subagent: 'openrouter:anthropic/claude', deep_think: 'ollama:llama3.2:3b' });
  expect(fallbacks).toEqual({ utility: ['small', 'smaller'] });
  expect(maxTokens).toEqual({ main: 4_000 });
});

test('a plugin may write the role as it likes', () => {
  const models = createModels({ clock: fakeClock(), idleTimeoutMs: 1, ...read({ MODEL_DEEP_THINK: 'deep' }) });

  expect(['deep-think', 'deep_think', 'Deep-Think', 'other'].map((role) => models.nameOf(role))).toEqual(['deep', 'deep', 'deep', 'big']);
});

test('only what stands for a provider is one', () => {
  const providers = { ollama: {}, openrouter: {} };

  expect(readModelName('ollama:llama3.2:3b', providers)).toEqual({ provider: 'ollama', model: 'llama3.2:3b' });
  expect(readModelName('llama3.2:3b', providers)).toEqual({ provider: null, model: 'llama3.2:3b' });
  expect(readModelName('constructor:x', providers)).toEqual({ provider: null, model: 'constructor:x' });
  expect(readModelName('plain', providers)).toEqual({ provider: null, model: 'plain' });
});

test('the provider of names without one is LLM_PROVIDER, and its key is not printed (G12)', () => {
  const settings = read({ LLM_PROVIDER: 'openrouter', OPENROUTER_API_KEY: 'or-secret' });

  expect(settings.baseUrl).toBe('https://openrouter.ai/api/v1');
  expect(JSON.stringify(settings)).not.toContain('or-secret');
});

describe('what is wrong is named, all at once and without its value (G12)', () => {
  test.each<[string, Record<string, string | undefined>, string[]]>([
    ['no main model', { MODEL_MAIN: undefined }, ['MODEL_MAIN is not set.']],
    ['a model name with a line break', { MODEL_UTILITY: 'a\nb' }, ['MODEL_UTILITY is no name of a model.']],
    ['too many stand-ins', { MODEL_MAIN_FALLBACK: 'a,b,c,d,e,f' }, ['MODEL_MAIN_FALLBACK is no list of models.']],
    ['tokens that are none', { MODEL_MAIN_MAX_TOKENS: '-1' }, ['MODEL_MAIN_MAX_TOKENS is no number of tokens.']],
    ['an unknown provider', { LLM_PROVIDER: 'nebula' }, ['LLM_PROVIDER is no provider.']],
    [
      'a key that is missing where a model needs it',
      { MODEL_UTILITY: 'openrouter:x' },
      ['OPENROUTER_API_KEY is not set, but openrouter.ai needs one.'],
    ],
    [
      'two things',
      { OPENAI_API_KEY: undefined, MODEL_MAIN_MAX_TOKENS: 'many' },
      ['MODEL_MAIN_MAX_TOKENS is no number of tokens.', 'OPENAI_API_KEY is not set, but api.openai.com needs one.'],
    ],
    ['an address that is none', { OPENAI_BASE_URL: 'file:///etc' }, ['OPENAI_BASE_URL is no address.']],
  ])('%s', (_name, environment, messages) => {
    expect(problemsOf(environment)).toEqual(messages);
  });

  test('control: a provider nobody names needs no key', () => {
    expect(problemsOf({ OPENROUTER_API_KEY: undefined })).toEqual([]);
    expect(problemsOf({ OPENAI_API_KEY: undefined, OPENAI_BASE_URL: 'http://127.0.0.1:1/v1' })).toEqual([]);
  });
});
