import { expect, test } from 'vitest';
import type { CallHooks } from '../../../src/models/models.ts';
import { MAX_MODEL_CALLS_PER_CONTEXT } from '../../../src/runtime-context/llm-group.ts';
import { createRedactor } from '../../../src/secrets/redactor.ts';
import { buildContext, refusedWith } from './context-fixture.ts';

/** What the host ties a plugin's model to. */
function hooksOf(more: Parameters<typeof buildContext>[0] = {}) {
  const asked: { role: string; params: unknown; hooks: CallHooks }[] = [];
  const built = buildContext({
    ...more,
    models: {
      get: (role, params, hooks) => {
        asked.push({ role, params, hooks: hooks ?? {} });
        return {} as never;
      },
    },
  });
  built.context.llm.get('utility', { temperature: 0 });
  const [first] = asked;
  if (first === undefined) throw new Error('no model was asked for');
  return { ...built, ...first };
}

test('a role and its parameters pass; what is asked is tied to the run', () => {
  const { role, params, hooks } = hooksOf();

  expect([role, params]).toEqual(['utility', { temperature: 0 }]);
  expect(Object.keys(hooks).sort()).toEqual(['beforeCall', 'clean', 'onUsage', 'signal']);
});

test('each call needs the authority of the run (G8)', async () => {
  const { hooks } = hooksOf({
    requireAuthority: () => {
      throw new Error('revoked');
    },
  });

  await expect(hooks.beforeCall?.()).rejects.toThrow('revoked');
});

test('a model that was kept after the turn answers no more', async () => {
  const { hooks, end } = hooksOf();
  await hooks.beforeCall?.();
  end();

  await expect(hooks.beforeCall?.()).rejects.toEqual(refusedWith('STALE_CONTEXT'));
});

test('a run that was stopped asks nothing more (G9)', async () => {
  const stop = new AbortController();
  const { hooks } = hooksOf({ signal: stop.signal });
  stop.abort(new Error('cancelled'));

  await expect(hooks.beforeCall?.()).rejects.toThrow('cancelled');
  expect(hooks.signal).toBe(stop.signal);
});

test('a handler in a loop comes to an end (G14)', async () => {
  const { hooks } = hooksOf();
  for (let at = 0; at < MAX_MODEL_CALLS_PER_CONTEXT; at += 1) await hooks.beforeCall?.();

  await expect(hooks.beforeCall?.()).rejects.toEqual(refusedWith('NOT_ALLOWED'));
});

test('usage is told to the run, and secrets are masked in what is asked (G12)', () => {
  const seen: unknown[] = [];
  const { hooks } = hooksOf({ onUsage: (usage) => void seen.push(usage), redactor: createRedactor(['top-secret-value']) });

  void hooks.onUsage?.({ model: 'm', inputTokens: 1, outputTokens: 2, estimated: false });

  expect(seen).toHaveLength(1);
  expect(hooks.clean?.([{ content: 'x top-secret-value' }])).toEqual([{ content: 'x [secret]' }]);
});
