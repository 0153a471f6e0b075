/**
 * `rtCtx.ucan`: what this run may do, read from its grants. A run without grants has no capability at all: the question is answered, not
 * skipped, so a plugin that asks first is refused today for the same reason as later (DESIGN §5).
 */
import { NotAvailableError, OracleError, refusal } from '../errors.ts';
import type { RuntimeContext } from './runtime-context.ts';

/** One ability of a verified grant. */
export interface GrantedCapability {
  readonly resource: string;
  readonly action: string;
}

export function buildUcanGroup({ granted }: { granted: readonly GrantedCapability[] }): RuntimeContext['ucan'] {
  const hasCapability = (resource: string, action: string): boolean =>
    granted.some((capability) => capability.resource === resource && capability.action === action);
  const missing = (name: string) => async (): Promise<never> => {
    throw new NotAvailableError(`ucan.${name}`);
  };
  return {
    hasCapability,
    requireCapability(resource, action) {
      if (hasCapability(resource, action)) return;
      throw new OracleError(
        refusal('BAD_CAPABILITY', {
          message: 'You have not granted me what this needs.',
          details: { resource: resource.slice(0, 200), action: action.slice(0, 200) },
        }),
      );
    },
    mintInvocation: missing('mintInvocation'),
    resolveServiceDid: missing('resolveServiceDid'),
    hasSigningKey: () => false,
    createInvocationFromDelegation: missing('createInvocationFromDelegation'),
  };
}
