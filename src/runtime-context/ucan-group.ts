/**
 * `rtCtx.ucan`: what this run may do for its person at services, read from the acting grants that count at this moment. Everything is asked again
 * at each call: a grant that ended or was taken back during the run gives nothing any more (G8). A run without grants has no capability at
 * all, and below tier `signed` nothing is minted whatever was granted, because there a homeserver alone vouches for who speaks (DESIGN §5).
 */
import { ERRORS, OracleError, refusal } from '../errors.ts';
import type { PrincipalId } from '../ids.ts';
import type { ToolCapability } from '../plugin-api/define-tool.ts';
import type { Tier } from '../turn/principal.ts';
import { covers, type Downstream } from '../ucan/downstream.ts';
import type { StoredGrant } from '../ucan/grants.ts';
import type { RuntimeContext } from './runtime-context.ts';

export interface UcanGroupSources {
  readonly did: PrincipalId;
  readonly tier: Tier;
  /** Those that count now; asked at each use. */
  readonly actingGrants: () => readonly StoredGrant[];
  readonly downstream: Downstream;
  /** Whether the model has read text that its principal did not write. */
  readonly isTainted: () => boolean;
  /** What the tool that asks has declared, and was judged by; absent when it has declared nothing. */
  readonly declared?: ToolCapability | undefined;
}

export function buildUcanGroup({ did, tier, actingGrants, downstream, isTainted, declared }: UcanGroupSources): RuntimeContext['ucan'] {
  /** A tool that says nothing of a service is called in tainted runs as well, and must not act there after all: others may be steering the model. */
  const mayAct = (can: unknown, resource: unknown): boolean =>
    !isTainted() || (declared !== undefined && can === declared.action && resource === declared.resource);
  const hasCapability = (resource: string, action: string): boolean =>
    actingGrants().some(({ capabilities }) => capabilities.some((granted) => covers(granted, { can: action, with: resource })));
  return {
    hasCapability,
    requireCapability(resource, action) {
      if (hasCapability(resource, action)) return;
      const missing = { ability: String(action).slice(0, 200), resource: String(resource).slice(0, 200) };
      throw new OracleError(
        refusal('NEEDS_GRANT', {
          message: `UCAN capability missing: ${missing.ability} on ${missing.resource}. ${ERRORS.NEEDS_GRANT.message}`,
          details: missing,
        }),
      );
    },
    async mintInvocation(target, opts) {
      if (downstream.hasSigningKey() && tier !== 'signed') throw new OracleError(refusal('TIER_TOO_LOW'));
      const [can, resource] = String(target.capability).trim().split(/ +/u);
      if (!mayAct(can, resource)) throw new OracleError(refusal('NEEDS_CONFIRMATION'));
      const minted = await downstream.mint({ grants: actingGrants(), did, target, skipCache: opts?.skipCache });
      if (!minted.ok) throw new OracleError(minted.error);
      return minted.value;
    },
    resolveServiceDid: (serviceUrl) => downstream.resolveServiceDid(serviceUrl),
    hasSigningKey: () => downstream.hasSigningKey(),
    async createInvocationFromDelegation(delegationCar, serviceUrl, capability, options) {
      if (downstream.hasSigningKey() && tier !== 'signed') return { error: ERRORS.TIER_TOO_LOW.message };
      if (downstream.hasSigningKey() && !mayAct(capability?.can, capability?.with)) return { error: ERRORS.NEEDS_CONFIRMATION.message };
      return downstream.fromDelegation({ did, car: delegationCar, serviceUrl, capability, maxTtlSeconds: options?.maxTtlSeconds });
    },
  };
}
