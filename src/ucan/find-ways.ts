/**
 * All ways from a token up to where its proofs end, before anything is looked up or verified, so that the work that follows is bounded by
 * what is counted here: a diamond of ten kilobytes has 2^14 ways (research/ucan.md §3.2 F). Pure but for `lookUp`. Then one way is followed for one
 * right: as far as each link was allowed it, to a link of its owner.
 */
import type { ErrorCode } from '../errors.ts';
import type { Did } from '../ids.ts';
import { LIMITS } from '../limits.ts';
import { err, ok, type Result } from '../result.ts';
import { covers, hasKnownCaveats } from './attenuation.ts';
import type { GatedUcan } from './gate.ts';
import type { UcanCapability } from './read-ucan.ts';

export interface Way {
  /** The token first; never empty. */
  readonly links: readonly GatedUcan[];
  /** `root`: the last link rests on nothing. Else why the way ends there. */
  readonly end: 'root' | 'MISSING_PROOF' | 'BROKEN_CHAIN';
}

/** @returns TOO_MANY_PROOFS past LIMITS.pathsPerToken ways or LIMITS.proofDepth links. */
export function findWays(token: GatedUcan, lookUp: (cid: string) => GatedUcan | undefined): Result<Way[], 'TOO_MANY_PROOFS'> {
  const ways: Way[] = [];
  const walk = (links: readonly GatedUcan[], last: GatedUcan): boolean => {
    if (last.proofs.length === 0) return ways.push({ links, end: 'root' }) <= LIMITS.pathsPerToken;
    if (links.length >= LIMITS.proofDepth) return false;
    return last.proofs.every((cid) => {
      const proof = lookUp(cid);
      if (proof !== undefined && proof.audience === last.issuer) return walk([...links, proof], proof);
      // Compared as text: did:key and did:ixo of one key are two identities (research/ucan.md §3.2 K).
      return ways.push({ links, end: proof === undefined ? 'MISSING_PROOF' : 'BROKEN_CHAIN' }) <= LIMITS.pathsPerToken;
    });
  };
  return walk([token], token) ? ok(ways) : err('TOO_MANY_PROOFS');
}

/**
 * The links from the token to the first one that `owner` issued, each allowing what rests on it. A resource that is a DID belongs to
 * that DID only; of any other, the service that keeps it says who owns it. The token's own claim is given, and is not asked for caveats.
 * @returns NOT_DELEGATED, or why the way ends before.
 */
export function followWay({ links, end }: Way, claim: UcanCapability, owner: Did): Result<readonly GatedUcan[], ErrorCode> {
  if (claim.with.startsWith('did:') && claim.with !== owner) return err('NOT_DELEGATED');
  let claims: readonly UcanCapability[] = [claim];
  for (const [n, link] of links.entries()) {
    if (n > 0) claims = link.capabilities.filter((proof) => hasKnownCaveats(proof) && claims.some((next) => covers(proof, next)));
    if (claims.length === 0) return err('NOT_DELEGATED');
    if (link.issuer === owner) return ok(links.slice(0, n + 1));
  }
  return err(end === 'root' ? 'NOT_DELEGATED' : end);
}
