/**
 * A DID↔MXID link says that this account spoke under this DID in Matrix: an event by the account carried a statement signed by the DID
 * (DESIGN §5 "Over HTTP"). HTTP requests only claim an account; without the link anybody could speak in anybody's room.
 */
import { type Did, parseDid, type RoomId, type UserId } from '../ids.ts';
import type { Store, Tx } from '../store/store.ts';
import type { ProvenLink } from '../ucan/bind-request.ts';

/** An account may sign with as many keys as it likes; who is asked about it looks at the newest only (G14). */
const LINKED_DIDS = 20;

export interface Links {
  /** The link of this DID, with this account when one is claimed; the newest one otherwise. */
  of(did: Did, claimed?: UserId): ProvenLink | undefined;
  /** The DIDs under which this account spoke, newest first; at most LINKED_DIDS. */
  didsOf(user: UserId): Did[];
  /** Recorded by any verified signed message; `room` only when it is a direct room. */
  prove(tx: Tx, link: { did: Did; userId: UserId; directRoom: RoomId | null }, now: number): void;
  /** The account took back what it had confirmed. Whoever holds its key as well proves the link anew with the next signed message. */
  forget(tx: Tx, link: { did: Did; userId: UserId }): void;
  /** The account stands for nobody any more. @returns how many links it had. */
  forgetAll(tx: Tx, userId: UserId): number;
}

export function createLinks({ store }: { store: Store }): Links {
  const { sql } = store;
  return {
    of(did, claimed) {
      let query = sql
        .selectFrom('links')
        .select(['matrix_user_id', 'room_id'])
        .where('did', '=', did)
        .orderBy('proven_at', 'desc')
        .limit(1);
      if (claimed !== undefined) query = query.where('matrix_user_id', '=', claimed);
      const row = store.read.get(query);
      return row === undefined ? undefined : { userId: row.matrix_user_id, directRoom: row.room_id ?? undefined };
    },
    didsOf: (user) =>
      store.read
        .all(
          sql
            .selectFrom('links')
            .select('did')
            .where('matrix_user_id', '=', user)
            .orderBy('proven_at', 'desc')
            .orderBy('did')
            .limit(LINKED_DIDS),
        )
        .map(({ did }) => parseDid(did))
        .flatMap((did) => (did.ok ? [did.value] : [])),
    prove(tx, { did, userId, directRoom }, now) {
      tx.run(
        sql
          .insertInto('links')
          .values({ did, matrix_user_id: userId, room_id: directRoom, proven_at: now })
          .onConflict((oc) =>
            oc.columns(['did', 'matrix_user_id']).doUpdateSet((eb) => ({
              // A message in a group proves the account and must not forget the direct room.
              room_id: eb.fn.coalesce(eb.ref('excluded.room_id'), eb.ref('links.room_id')),
              proven_at: now,
            })),
          ),
      );
    },
    forget(tx, { did, userId }) {
      tx.run(sql.deleteFrom('links').where('did', '=', did).where('matrix_user_id', '=', userId));
    },
    forgetAll: (tx, userId) => tx.run(sql.deleteFrom('links').where('matrix_user_id', '=', userId)),
  };
}
