import { expect, test } from 'vitest';
import { buildResolvedModels } from '../../../src/app/build-resolved-models.ts';
import type { Models } from '../../../src/models/models.ts';

function start(resolve: (asked: { role: 'main'; model: string }) => string | null) {
  const asked: unknown[][] = [];
  const models: Models = {
    get: (...call) => {
      asked.push(call);
      return {} as never;
    },
    nameOf: (role) => `model of ${role}`,
    listModels: () => [],
    close: async () => undefined,
  };
  return { asked, models: buildResolvedModels(models, resolve) };
}
const hooks = { onUsage: () => undefined };

test('the hook names the model of the main role, and the call keeps everything that meters it', () => {
  const { asked, models } = start(({ model }) => `instead of ${model}`);

  models.get('main', { temperature: 0 }, hooks);
  models.get('main', { model: 'asked for' }, hooks);

  expect(asked).toEqual([
    ['main', { temperature: 0, model: 'instead of model of main' }, hooks],
    ['main', { model: 'instead of asked for' }, hooks],
  ]);
});

test('with null, and for every other role, it is as configured', () => {
  const { asked, models } = start(() => null);
  const never = start(() => {
    throw new Error('asked for another role');
  });

  models.get('main', undefined, hooks);
  never.models.get('utility', { temperature: 0 }, hooks);

  expect([asked, never.asked]).toEqual([[['main', undefined, hooks]], [['utility', { temperature: 0 }, hooks]]]);
});
