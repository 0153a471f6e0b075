/**
 * The bearer token of older IXO portals: `{ can: '*', with: 'ixo:oracle' }`, self-signed, good for any request until it ends (research/ixo.md §2.2).
 * It says who, and neither what nor where, so whoever sees one can use it: accepted only when the operator asks for it (HTTP_LEGACY_AUTH), only over
 * HTTP, for at most 900 s, and never as `signed` (DESIGN §5 "Over HTTP").
 */
import type { ErrorCode } from '../errors.ts';
import type { Did, TokenId } from '../ids.ts';
import { LIMITS } from '../limits.ts';
import { err, ok, type Result } from '../result.ts';
import type { VerifyGrant } from './chain.ts';
import type { GatedToken } from './gate.ts';

export interface LegacyInvocation {
  readonly did: Did;
  readonly tokenId: TokenId;
  /** Wall clock ms. */
  readonly expiresAt: number;
}

export function isLegacy({ leaf }: GatedToken): boolean {
  const [capability, ...more] = leaf.capabilities;
  return more.length === 0 && capability?.can === '*' && capability.with === 'ixo:oracle' && leaf.proofs.length === 0;
}

/** @returns the codes of `verify`; BAD_AUDIENCE, BAD_CAPABILITY (with caveats), TOKEN_EXPIRED, TOKEN_NOT_YET_VALID, TOKEN_LIVES_TOO_LONG. */
export async function verifyLegacy(
  token: GatedToken,
  { verify, oracleDid, now }: { verify: VerifyGrant; oracleDid: Did; now: number },
): Promise<Result<LegacyInvocation, ErrorCode>> {
  const { audience, capabilities, expiration, notBefore = 0 } = token.leaf;
  const skewMs = LIMITS.clockSkewS * 1_000;
  if (audience !== oracleDid) return err('BAD_AUDIENCE');
  if (Object.keys(capabilities[0]?.nb ?? {}).length > 0) return err('BAD_CAPABILITY');
  if (expiration * 1_000 + skewMs <= now) return err('TOKEN_EXPIRED');
  if (notBefore * 1_000 > now + skewMs) return err('TOKEN_NOT_YET_VALID');
  if (expiration * 1_000 > now + skewMs + LIMITS.legacyInvocationLifetimeS * 1_000) return err('TOKEN_LIVES_TOO_LONG');
  const verified = await verify(token);
  if (!verified.ok) return verified;
  return ok({ did: verified.value.principal, tokenId: verified.value.tokenId, expiresAt: expiration * 1_000 });
}
