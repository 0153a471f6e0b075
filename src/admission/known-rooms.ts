/**
 * What the oracle itself remembers of its rooms: who invited it, whether as a direct chat, and when. The invite is where a room begins
 * (DESIGN §2): what is older is history, never a prompt, also for a process that starts years later.
 */
import type { Selectable } from 'kysely';
import type { RoomId, UserId } from '../ids.ts';
import type { RoomsTable } from '../store/schema.ts';
import type { Store, Tx } from '../store/store.ts';

export type KnownRoom = Selectable<RoomsTable>;

export interface KnownRooms {
  of(room: RoomId): KnownRoom | undefined;
  /** Rooms that may be the direct chat of this person and the oracle, newest first; the room itself says whether it still is. */
  maybeDirectWith(user: UserId): RoomId[];
  invited(tx: Tx, room: RoomId, invite: { inviter: UserId; isDirect: boolean; at: number }): void;
  joined(tx: Tx, room: RoomId, at: number): void;
  /** What was said between invite and join has been read. */
  firstRead(tx: Tx, room: RoomId): void;
  left(tx: Tx, room: RoomId): void;
}

/** Each may cost a look at the room. */
const MAX_CANDIDATES = 3;

export function createKnownRooms({ store }: { store: Store }): KnownRooms {
  const { sql } = store;
  return {
    of: (room) => store.read.get(sql.selectFrom('rooms').selectAll().where('room_id', '=', room)),
    maybeDirectWith(user) {
      const invites = sql.selectFrom('rooms').select(['room_id', 'joined_at as at']).where('inviter', '=', user).where('is_direct', '=', 1);
      const proven = sql
        .selectFrom('links')
        .innerJoin('rooms', 'rooms.room_id', 'links.room_id')
        .select(['rooms.room_id', 'links.proven_at as at'])
        .where('links.matrix_user_id', '=', user);
      const rows = [invites, proven].flatMap((query) =>
        store.read.all(query.where('rooms.membership', '=', 'joined').orderBy('at', 'desc').limit(MAX_CANDIDATES)),
      );
      return [...new Set(rows.sort((a, b) => (b.at ?? 0) - (a.at ?? 0)).map(({ room_id }) => room_id))].slice(0, MAX_CANDIDATES);
    },
    invited(tx, room, { inviter, isDirect, at }) {
      const fresh = {
        membership: 'invited' as const,
        inviter,
        is_direct: isDirect ? 1 : 0,
        invited_at: at,
        joined_at: null,
        first_read: 0,
      };
      tx.run(
        sql
          .insertInto('rooms')
          .values({ room_id: room, ...fresh })
          .onConflict((oc) => oc.column('room_id').doUpdateSet(fresh)),
      );
    },
    joined(tx, room, at) {
      tx.run(
        sql
          .insertInto('rooms')
          .values({ room_id: room, membership: 'joined', inviter: null, is_direct: 0, invited_at: null, joined_at: at })
          .onConflict((oc) => oc.column('room_id').doUpdateSet({ membership: 'joined', joined_at: at })),
      );
    },
    firstRead(tx, room) {
      tx.run(sql.updateTable('rooms').set({ first_read: 1 }).where('room_id', '=', room));
    },
    left(tx, room) {
      tx.run(sql.updateTable('rooms').set({ membership: 'left' }).where('room_id', '=', room));
    },
  };
}
