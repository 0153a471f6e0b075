/**
 * Who speaks, and how sure we are (DESIGN §1 "principal", §5 "Tiers"). Every later decision (tools, minting, sessions) reads this value;
 * nothing else in a turn may say who the user is.
 */
import type { Did, PrincipalId, TokenId, UserId } from '../ids.ts';

/**
 * `signed`: the message carries an invocation bound to it. `sender-bound`: an active grant names this account (authority issue).
 * `listed`: UNSIGNED_USERS names it; the homeserver's word is all there is.
 */
export type Tier = 'signed' | 'sender-bound' | 'listed';

export interface Principal {
  readonly id: PrincipalId;
  /** Null for unsigned users. */
  readonly did: Did | null;
  readonly matrixUserId: UserId;
  readonly tier: Tier;
}

/** What `open` must write for a signed prompt: the token is spent in the same transaction that starts its run. */
export interface SpentToken {
  readonly tokenId: TokenId;
  /** Wall clock ms: until then the mark must be kept (expiry + skew + lateness). */
  readonly keepUntil: number;
  /** Over HTTP: base64url SHA-256 of the body; the same token with another body is a conflict. */
  readonly bodyHash: string | null;
}
