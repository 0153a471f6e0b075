/**
 * Whether somebody whose tier is proven may use the oracle as its operator has it now (DESIGN §5 "Who may use the oracle at all"). Asked for each
 * message, and again before an operator has an old one answered after all: who was let out since is not let in through that.
 * Cost: nothing but with ACCESS=granted, then a read per DID.
 */
import { type AccessRules, decideAccess, isListed, isTrustedServer } from '../admission/access.ts';
import type { ErrorCode } from '../errors.ts';
import type { UseGrants } from '../ucan/use-grants.ts';
import type { Links } from './links.ts';
import type { Principal } from './principal.ts';

/** The refusal; null lets him in. */
export type JudgeAccess = (speaker: Pick<Principal, 'did' | 'matrixUserId' | 'tier'>) => ErrorCode | null;

export interface JudgeAccessOptions {
  readonly rules: AccessRules;
  readonly useGrants: UseGrants;
  readonly links: Pick<Links, 'didsOf'>;
}

export function createJudgeAccess({ rules, useGrants, links }: JudgeAccessOptions): JudgeAccess {
  return ({ did, matrixUserId: user, tier }) => {
    /** Another server could say of any of its accounts that it wrote this, so there only the DID itself counts. */
    const isGranted = (): boolean =>
      (did !== null && useGrants.has(did)) || (isTrustedServer(user, rules) && links.didsOf(user).some((linked) => useGrants.has(linked)));
    if (tier === 'listed' && !isListed(user, rules)) return 'NO_AUTHORITY';
    return decideAccess({ user, tier, isGranted }, rules);
  };
}
