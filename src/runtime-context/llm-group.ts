/**
 * `rtCtx.llm`: models by role, as the operator set them up. A plugin's calls are calls of its run: they need its authority (G8), stop with it (G9),
 * are counted and charged with it, and hold no secret that the plugin was given (G12).
 */
import { OracleError, refusal } from '../errors.ts';
import type { CallUsage, Models } from '../models/models.ts';
import type { SecretRedactor } from '../secrets/redactor.ts';
import type { RuntimeContext } from './runtime-context.ts';

/** A handler in a loop must not spend a person's credits unseen. */
export const MAX_MODEL_CALLS_PER_CONTEXT = 25;

export interface LlmGroupSources {
  readonly models: Pick<Models, 'get'>;
  readonly redactor: SecretRedactor;
  readonly signal: AbortSignal;
  /** Throws when the turn is over, or the run may no longer ask. */
  readonly requireAuthority: () => void | Promise<void>;
  readonly onUsage: (usage: CallUsage) => void | Promise<void>;
}

export function buildLlmGroup({ models, redactor, signal, requireAuthority, onUsage }: LlmGroupSources): RuntimeContext['llm'] {
  let calls = 0;
  const beforeCall = async (): Promise<void> => {
    signal.throwIfAborted();
    calls += 1;
    if (calls > MAX_MODEL_CALLS_PER_CONTEXT)
      throw new OracleError(refusal('NOT_ALLOWED', { message: `One tool call may ask models ${MAX_MODEL_CALLS_PER_CONTEXT} times.` }));
    await requireAuthority();
  };
  return { get: (role, params = {}) => models.get(role, params, { beforeCall, onUsage, signal, clean: redactor.cleanJson }) };
}
