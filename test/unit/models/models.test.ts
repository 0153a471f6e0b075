import { inspect } from 'node:util';
import { expect, test } from 'vitest';
import { createModels } from '../../../src/models/models.ts';
import { addUsage, readUsage } from '../../../src/models/usage.ts';
import { fakeClock } from '../../fakes/fake-clock.ts';

const models = createModels({
  clock: fakeClock(),
  apiKey: 'k',
  roles: { main: 'big', utility: 'small' },
  selectable: ['big', 'other'],
  idleTimeoutMs: 1,
});

test('a role without an own model gets the main one, and names of the prototype are no roles', () => {
  expect(['main', 'utility', 'subagent', 'constructor'].map((role) => models.nameOf(role))).toEqual(['big', 'small', 'big', 'big']);
});

test('the same role gives the same instance, parameters give one of their own', () => {
  expect(models.get('main')).toBe(models.get('subagent'));
  expect(models.get('main', { temperature: 0 })).not.toBe(models.get('main'));
});

test("the library's retries stay off and streaming stays as the library has it, whatever is asked", () => {
  const model = models.get('main', { maxRetries: 9, streaming: true }) as unknown as {
    streaming: boolean;
    disableStreaming: boolean;
    caller: { maxRetries: number };
  };

  expect([model.streaming, model.disableStreaming, model.caller.maxRetries]).toEqual([false, false, 0]);
});

test('what is asked beside the known parameters changes nothing that the operator has decided', () => {
  const limited = createModels({ clock: fakeClock(), apiKey: 'k', roles: { main: 'big' }, maxTokens: { main: 10 }, idleTimeoutMs: 1 });
  const modelKwargs = { model: 'dear', max_tokens: 9_999, max_completion_tokens: 9_999, messages: [], reasoning_effort: 'low' };
  const model = limited.get('main', { modelKwargs }) as unknown as { invocationParams(options: object): object };

  const { model: name, max_tokens, max_completion_tokens, messages, reasoning_effort } = model.invocationParams({}) as typeof modelKwargs;

  expect({ name, max_tokens, max_completion_tokens, messages, reasoning_effort }).toEqual({
    ...{ name: 'big', max_tokens: 10, max_completion_tokens: undefined, messages: undefined },
    reasoning_effort: 'low',
  });
});

test('a model that is printed shows no key (G12)', () => {
  const keyed = createModels({ clock: fakeClock(), apiKey: 'sk-the-operators', roles: { main: 'big' }, idleTimeoutMs: 1 });

  expect(inspect({ model: keyed.get('main') }, { depth: 10 })).toBe('{ model: ChatModel { big } }');
  expect(JSON.stringify(keyed.get('main'))).not.toContain('sk-the-operators');
});

test('the list names the default once', () => {
  expect(models.listModels()).toEqual([
    { id: 'big', isDefault: true },
    { id: 'other', isDefault: false },
  ]);
});

test('usage is added up, and nothing is made up', () => {
  expect(readUsage(undefined)).toBeNull();
  expect(readUsage({ input_tokens: 1, output_tokens: -1 })).toBeNull();
  expect(addUsage(undefined, null)).toBeUndefined();
  expect(addUsage({ inputTokens: 1, outputTokens: 2 }, readUsage({ input_tokens: 3, output_tokens: 4 }))).toEqual({
    inputTokens: 4,
    outputTokens: 6,
  });
});
