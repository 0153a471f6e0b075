/** `hooks.resolveModel`: another model for a call of the main role, under the runtime's own client, so that it is charged, timed and replaced like any. */
import type { Models } from '../models/models.ts';
import type { OracleHooks } from './plugin-options.ts';

export function buildResolvedModels(models: Models, resolve: NonNullable<OracleHooks['resolveModel']>): Models {
  return {
    ...models,
    get(role, params, hooks) {
      const model = role === 'main' ? resolve({ role: 'main', model: params?.model ?? models.nameOf('main') }) : null;
      return model === null ? models.get(role, params, hooks) : models.get(role, { ...params, model }, hooks);
    },
  };
}
