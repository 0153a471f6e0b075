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
  invited(tx: Tx, room: RoomId, invite: { inviter: UserId; isDirect: boolean; at: number }): void;
  joined(tx: Tx, room: RoomId, at: number): void;
  /** What was said between invite and join has been read. */
  firstRead(tx: Tx, room: RoomId): void;
  left(tx: Tx, room: RoomId): void;
}

export function createKnownRooms({ store }: { store: Store }): KnownRooms {
  const { sql } = store;
  return {
    of: (room) => store.read.get(sql.selectFrom('rooms').selectAll().where('room_id', '=', room)),
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
