/**
 * Who speaks, and how sure we are (DESIGN §1 "principal", §5 "Tiers"). Every later decision (tools, minting, sessions) reads this value;
 * nothing else in a turn may say who the user is.
 */
import type { Did, PrincipalId, TokenId, UserId } from '../ids.ts';
import type { GrantRef } from '../ucan/chain.ts';

/**
 * `signed`: the message carries an invocation bound to it. `sender-bound`: an active grant names this account.
 * `listed`: UNSIGNED_USERS names it; the homeserver's word is all there is.
 */
export type Tier = 'signed' | 'sender-bound' | 'listed';

/** Highest first is `signed`: nothing but a signature is worth more than the homeserver's word. */
const RANKS: Readonly<Record<Tier, number>> = { signed: 2, 'sender-bound': 1, listed: 0 };
export const isBelow = (tier: Tier, other: Tier): boolean => RANKS[tier] < RANKS[other];

/** The grants that a message, and later its run, rests on: frozen when the turn opens, judged again as long as it runs (G8). */
export interface RestsOn {
  /** Nearest first. Empty when the principal signed himself, and for listed accounts. */
  readonly path: readonly GrantRef[];
  /** Wall clock ms at which the first of them ends; null without grants. */
  readonly until: number | null;
}
export const NO_GRANTS: RestsOn = { path: [], until: null };

/**
 * What is known of the device that a message came from. `clear`: the message was not encrypted, so only the homeserver's word is there.
 * `unverified`: encrypted by a device that its owner did not sign. `cross-signed`: by one that the owner's identity signed.
 */
export type SenderTrust = 'clear' | 'unverified' | 'cross-signed';

export interface Principal {
  readonly id: PrincipalId;
  /** Null for unsigned users. */
  readonly did: Did | null;
  readonly matrixUserId: UserId;
  readonly tier: Tier;
  readonly grants: RestsOn;
  /** Of the device that the message came from; null over HTTP, where a token says who speaks. */
  readonly trust: SenderTrust | null;
}

/** What `open` must write for a signed prompt: the token is spent in the same transaction that starts its run. */
export interface SpentToken {
  readonly tokenId: TokenId;
  /** Wall clock ms: until then the mark must be kept (expiry + skew + lateness). */
  readonly keepUntil: number;
  /** Over HTTP: base64url SHA-256 of the body; the same token with another body is a conflict. */
  readonly bodyHash: string | null;
}
