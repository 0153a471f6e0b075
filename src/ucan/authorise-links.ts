/**
 * The nonce in a link to the authorise page: 128 bits that the oracle sent to one account in its direct room. Whoever brings it back in a signed
 * grant has read that room, which is all that ties a new DID to an account of an ordinary client (DESIGN §5 "Grants from ordinary clients").
 * So it lives for a quarter of an hour, works once, and this table holds only its SHA-256. The notice with the link stands in the outbox as long as other
 * sent events do; by the time a backup with it is stolen, it opens nothing (G12).
 */
import type { RoomId, UserId } from '../ids.ts';
import { sha256Base64Url } from '../json.ts';
import { LIMITS } from '../limits.ts';
import type { Store, Tx } from '../store/store.ts';

export interface AuthoriseLinks {
  /** @returns the nonce for a fresh link; null when this account got one less than LIMITS.authoriseLinkRepeatMs ago. */
  issue(tx: Tx, to: { user: UserId; room: RoomId }, now: number): string | null;
  /** To whom this nonce went, as long as it is neither used nor too old. */
  holder(nonce: string, now: number): { user: UserId; room: RoomId } | undefined;
  /** @returns false when it is unknown, was used, or is too old: of many at once exactly one gets true. */
  use(tx: Tx, nonce: string, now: number): boolean;
}

/** `newNonce` gives at least 128 random bits. */
export function createAuthoriseLinks({ store, newNonce }: { store: Store; newNonce: () => string }): AuthoriseLinks {
  const { sql } = store;
  return {
    issue(tx, { user, room }, now) {
      const recent = tx.get(
        sql
          .selectFrom('authorise_links')
          .select('created_at')
          .where('matrix_user_id', '=', user)
          .where('created_at', '>', now - LIMITS.authoriseLinkRepeatMs)
          .limit(1),
      );
      if (recent !== undefined) return null;
      const nonce = newNonce();
      tx.run(
        sql
          .insertInto('authorise_links')
          .values({ nonce_hash: sha256Base64Url(nonce), matrix_user_id: user, room_id: room, created_at: now, used_at: null }),
      );
      return nonce;
    },
    holder(nonce, now) {
      const row = store.read.get(
        sql
          .selectFrom('authorise_links')
          .select(['matrix_user_id', 'room_id'])
          .where('nonce_hash', '=', sha256Base64Url(nonce))
          .where('used_at', 'is', null)
          .where('created_at', '>', now - LIMITS.authoriseLinkMs),
      );
      return row === undefined ? undefined : { user: row.matrix_user_id, room: row.room_id };
    },
    use: (tx, nonce, now) =>
      tx.run(
        sql
          .updateTable('authorise_links')
          .set({ used_at: now })
          .where('nonce_hash', '=', sha256Base64Url(nonce))
          .where('used_at', 'is', null)
          .where('created_at', '>', now - LIMITS.authoriseLinkMs),
      ) > 0,
  };
}
