/**
 * Which stored grants are a person's to see and to take back: those made for their account, and those of every DID that Matrix has shown
 * to be theirs. Somebody else's look the same as none at all, so that nobody learns what others have granted (G13).
 * Cost: one query for each DID of the account, at most 21.
 */
import type { Did, EventId, TokenId, UserId } from '../ids.ts';
import type { Store, Tx } from '../store/store.ts';
import { writeAudit } from '../turn/audit.ts';
import type { Links } from '../turn/links.ts';
import type { SenderTrust } from '../turn/principal.ts';
import type { Grants, StoredGrant } from '../ucan/grants.ts';

export interface OwnGrants {
  /** Not ended and not taken back, newest first. */
  of(user: UserId, now: number): StoredGrant[];
  /** By its whole id, also when it has ended; undefined for an unknown one and for another person's. */
  find(user: UserId, tokenId: TokenId, now: number): StoredGrant | undefined;
  /**
   * With a row in the audit log for each. An account that takes back what made it act for a DID is no longer linked to it either: with the link alone
   * whoever made that grant could go on over HTTP in this person's room. @returns ids of all stored grants that ended by it, those that rested on these included. */
  revoke(tx: Tx, grants: readonly StoredGrant[], by: { user: UserId; eventId: EventId; trust: SenderTrust }, now: number): TokenId[];
}

export interface OwnGrantsOptions {
  readonly store: Store;
  readonly grants: Pick<Grants, 'boundTo' | 'list' | 'byTokenId' | 'revoke'>;
  readonly links: Pick<Links, 'didsOf' | 'forget'>;
}

export function createOwnGrants({ store, grants, links }: OwnGrantsOptions): OwnGrants {
  function didsOf(user: UserId, now: number): Set<Did> {
    const bound = grants.boundTo(user, now);
    return new Set([...links.didsOf(user), ...(bound === undefined ? [] : [bound.did])]);
  }
  return {
    of(user, now) {
      const found = new Map<TokenId, StoredGrant>();
      const lists = [grants.list({ user }, now), ...[...didsOf(user, now)].map((did) => grants.list({ did }, now))];
      for (const grant of lists.flat()) if (grant.revokedAt === null) found.set(grant.tokenId, grant);
      return [...found.values()].sort((a, b) => b.storedAt - a.storedAt || (a.tokenId < b.tokenId ? -1 : 1));
    },
    find(user, tokenId, now) {
      const grant = grants.byTokenId(tokenId);
      return grant !== undefined && (grant.matrixUserId === user || didsOf(user, now).has(grant.did)) ? grant : undefined;
    },
    revoke(tx, list, { user, eventId, trust }, now) {
      const ended = new Set<TokenId>();
      for (const { tokenId, did } of list) {
        for (const id of grants.revoke(tx, { tokenId, by: did }, now)) ended.add(id);
        writeAudit(store, tx, {
          at: now,
          event_id: eventId,
          token_id: tokenId,
          principal_id: did,
          matrix_user_id: user,
          trust,
          capability: 'grant/revoke',
          decision: 'allowed',
        });
      }
      const bound = grants.boundTo(user, now)?.did;
      for (const { did, matrixUserId, activatedAt } of list)
        if (matrixUserId === user && activatedAt !== null && did !== bound) links.forget(tx, { did, userId: user });
      return [...ended];
    },
  };
}
