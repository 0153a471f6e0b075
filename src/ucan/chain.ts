/**
 * From "has the form of a token" to "the owner of this right said so": signatures of every link, alignment, attenuation, time and revocation
 * of the grants, up to the root issuer (DESIGN §5 "Chain"). Everything after this file reads a `VerifiedInvocation` or a `VerifiedGrant`, which only
 * this file makes (G8). Work is bounded by counts: signatures, resolver calls, paths (src/limits.ts).
 */
import type { ErrorCode } from '../errors.ts';
import type { Did, TokenId } from '../ids.ts';
import type { Result } from '../result.ts';
import type { ResolveKeys } from './did/resolve-keys.ts';
import type { GatedToken, GatedUcan } from './gate.ts';

/** One grant of a verified path, as runs keep it frozen. */
export interface GrantRef {
  readonly tokenId: TokenId;
  /** Hex. */
  readonly cid: string;
  readonly issuer: Did;
  readonly audience: Did;
  /** Wall clock ms. */
  readonly expiresAt: number;
}

declare const verified: unique symbol;

export interface VerifiedInvocation extends GatedUcan {
  readonly [verified]: 'invocation';
  /** Root issuer of the authority: the only DID the capability's `with` may name. */
  readonly principal: Did;
  /** The grants it rests on, nearest first; empty when the principal signed himself. */
  readonly grants: readonly GrantRef[];
  /** Earliest end of those in wall clock ms; null without grants: then the run is bounded by its deadline only. */
  readonly grantsUntil: number | null;
  /** Grants of the path that came inside the token, as tokens of their own, so that `open` can store them. */
  readonly carried: readonly VerifiedGrant[];
}

export interface VerifiedGrant extends GatedUcan {
  readonly [verified]: 'grant';
  /** Root issuer of all its capabilities. */
  readonly principal: Did;
  /** This token first, then what it rests on. */
  readonly path: readonly GrantRef[];
  readonly expiresAt: number;
  /** Canonical CAR, unpadded base64url. */
  readonly car: string;
}

export interface ChainPorts {
  /** A stored grant by the hex of its CID. */
  readonly findToken: (cid: string) => GatedToken | undefined;
  readonly keysOf: ResolveKeys;
  readonly isRevoked: (token: { tokenId: TokenId; cid: string }, issuers: readonly Did[]) => boolean;
  /** Wall clock ms. */
  readonly now: () => number;
}

/** Grants in `beside` (the `dlg` of the event) count as proofs by CID, too. The invocation's own window is not judged here but where it is bound. */
export type VerifyInvocation = (token: GatedToken, beside?: readonly GatedToken[]) => Promise<Result<VerifiedInvocation, ErrorCode>>;
export type VerifyGrant = (token: GatedToken) => Promise<Result<VerifiedGrant, ErrorCode>>;

export interface Verifier {
  readonly invocation: VerifyInvocation;
  readonly grant: VerifyGrant;
}
