/**
 * Stored grants: what people allowed the oracle (`acting`) or a key of their client (`session`) to do, until it ends or is taken back.
 * Every row was verified before it came here. Expiry and revocation are asked again at each use, never remembered as a verdict (G8).
 */
import type { Did, TokenId, UserId } from '../ids.ts';
import type { Store, Tx } from '../store/store.ts';
import type { GrantRef, VerifiedGrant } from './chain.ts';
import type { GatedToken } from './gate.ts';
import type { UcanCapability } from './read-ucan.ts';

/** `event`: ixo.oracle.grant; `dlg`: beside an invocation; `proof`: inside an invocation; `http`: POST /delegation; `header`: x-ucan-delegation;
 * `page`: the authorise page; `state`: ixo.room.state / ucan_delegation. */
export type GrantSource = 'event' | 'dlg' | 'proof' | 'http' | 'header' | 'page' | 'state';
export type GrantKind = 'acting' | 'session';

export interface StoredGrant {
  readonly tokenId: TokenId;
  readonly cid: string;
  readonly kind: GrantKind;
  /** Whose rights are granted. */
  readonly did: Did;
  readonly audience: Did;
  readonly capabilities: readonly UcanCapability[];
  /** This token first. */
  readonly path: readonly GrantRef[];
  /** Canonical CAR, unpadded base64url. Secret-like: never logged. */
  readonly car: string;
  /** Wall clock ms; the earliest end of its chain. */
  readonly expiresAt: number;
  readonly source: GrantSource;
  readonly storedAt: number;
  readonly matrixUserId: UserId | null;
  readonly shownAt: number | null;
  readonly activatedAt: number | null;
  readonly revokedAt: number | null;
}

export interface Grants {
  /** Idempotent by token id. @returns false when it was there already, or the DID has LIMITS.grantsPerDid active ones (the oldest session grant gives way first). */
  store(
    tx: Tx,
    grant: { verified: VerifiedGrant; kind: GrantKind; car: string; source: GrantSource; matrixUserId: UserId | null },
    now: number,
  ): boolean;
  /** For chains: the token behind a CID, whatever its state; expiry and revocation are judged by the chain. */
  findToken(cid: string): GatedToken | undefined;
  byTokenId(tokenId: TokenId): StoredGrant | undefined;
  /** Acting grants of this DID to this oracle that count now: not ended, not revoked, chain included. Those made on the page count once they are active. */
  actingOf(did: Did, now: number): StoredGrant[];
  /** The active grant that makes this account sender-bound, newest first; undefined when there is none. */
  boundTo(user: UserId, now: number): StoredGrant | undefined;
  /** Made on the page for this account and not yet confirmed. */
  pendingOf(user: UserId, now: number): StoredGrant | undefined;
  markShown(tx: Tx, tokenId: TokenId, now: number): void;
  /** @returns false unless it was shown, is unrevoked and not ended. */
  activate(tx: Tx, tokenId: TokenId, now: number): boolean;
  /** All of a DID, or of an account, that have not ended; newest first. */
  list(whose: { did: Did } | { user: UserId }, now: number): StoredGrant[];
  /** Monotonic. Marks the token, and every stored grant whose chain rests on it. @returns token ids of stored grants that ended by it. */
  revoke(tx: Tx, { tokenId, by }: { tokenId: TokenId; by: Did }, now: number): TokenId[];
  /** Whether one of `issuers` (of this token or above it) took it back. */
  isRevoked(token: { tokenId: TokenId; cid: string }, issuers: readonly Did[]): boolean;
  /** Removes what ended more than a day ago; returns how many. */
  sweep(now: number): Promise<number>;
}
