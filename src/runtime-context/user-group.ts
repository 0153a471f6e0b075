/** `rtCtx.user` and `rtCtx.session`: who speaks and in which conversation, from the run row that the checks of the turn wrote; nothing here is a claim. */
import type { Run } from '../runs/run.ts';
import type { StoredGrant } from '../ucan/grants.ts';
import { buildLocalTime, decideTimeZone } from './local-time.ts';
import type { RuntimeContext, UcanDelegation, UserContextData } from './runtime-context.ts';

export interface UserGroupSources {
  readonly run: Run;
  readonly now: () => number;
  /** Those that count now. */
  readonly actingGrants: () => readonly StoredGrant[];
  readonly isTainted: () => boolean;
  readonly readUserContext?: () => UserContextData;
}

export function buildUserGroup({
  run,
  now,
  actingGrants,
  isTainted,
  readUserContext = () => ({}),
}: UserGroupSources): RuntimeContext['user'] {
  const zone = decideTimeZone(run.hints.timezone, readUserContext());
  return {
    did: run.principalId,
    matrixUserId: run.matrixUserId,
    tier: run.tier,
    get tainted() {
      return isTainted();
    },
    get ucanDelegation() {
      return buildDelegation(actingGrants());
    },
    ...(zone === null ? {} : { timezone: zone }),
    get currentTime() {
      return buildLocalTime(now(), zone ?? 'UTC').iso;
    },
  };
}

/** The newest one, in the encoding that services of this family read: padded base64. */
function buildDelegation(grants: readonly StoredGrant[]): UcanDelegation {
  const [first, ...more] = grants;
  if (first === undefined) return NO_DELEGATION;
  const newest = more.reduce((best, grant) => (grant.storedAt > best.storedAt ? grant : best), first);
  return Object.freeze({
    raw: Buffer.from(newest.car, 'base64url').toString('base64'),
    issuer: newest.path[0]?.issuer ?? newest.did,
    audience: newest.audience,
    expiration: Math.floor(newest.expiresAt / 1_000),
    capabilities: Object.freeze(newest.capabilities.map(({ can, with: resource }) => Object.freeze({ can, with: resource }))),
  });
}
const NO_DELEGATION: UcanDelegation = Object.freeze({ raw: '' });

export const buildSessionGroup = (run: Run): RuntimeContext['session'] => ({
  id: run.sessionId,
  client: run.client,
  requestId: run.requestId,
  roomId: run.roomId,
  direct: run.direct,
});
