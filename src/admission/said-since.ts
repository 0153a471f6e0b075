/**
 * Whether somebody went on talking after having been asked to send an unreadable message again: then the old one is not answered beside the new one,
 * should its key come after all (G2). What waits counts as well as what was taken. Cost: three indexed reads, for such messages only.
 */
import { type RoomId, type UserId, unsignedPrincipalId } from '../ids.ts';
import type { InboxRow } from '../inbox/inbox.ts';
import type { Store } from '../store/store.ts';

export type SaidSince = (row: Pick<InboxRow, 'id' | 'roomId'>, sender: UserId, since: number) => boolean;

const MESSAGES = ['m.room.message', 'm.room.encrypted'];
/** Of one person in one room, newest first: who said more since then has said something. */
const RUNS_LOOKED_AT = 20;
const OVERHEARD_LOOKED_AT = 50;

export function createSaidSince({ store }: { store: Store }): SaidSince {
  const { sql } = store;

  function waits(row: Pick<InboxRow, 'id' | 'roomId'>, sender: UserId, since: number): boolean {
    const others = (state: 'ready' | 'parked') =>
      store.read.get(
        sql
          .selectFrom('inbox')
          .select('id')
          .where('state', '=', state)
          .where('room_id', '=', row.roomId)
          .where('sender', '=', sender)
          .where('type', 'in', MESSAGES)
          .where('received_at', '>', since)
          .where('id', '!=', row.id)
          .limit(1),
      );
    return others('ready') !== undefined || others('parked') !== undefined;
  }
  function wasAnswered(room: RoomId, sender: UserId, since: number): boolean {
    const newest = sql
      .selectFrom('runs')
      .select('run_id')
      .where('room_id', '=', room)
      .where('matrix_user_id', '=', sender)
      .orderBy('run_id', 'desc')
      .limit(RUNS_LOOKED_AT);
    const prompts = sql.selectFrom('pending_inputs').select('id').where('run_id', 'in', newest).where('received_at', '>', since);
    return store.read.get(prompts.limit(1)) !== undefined;
  }
  const wasOverheard = (room: RoomId, sender: UserId, since: number): boolean =>
    store.read
      .all(
        sql
          .selectFrom('transcript')
          .select(['speaker', 'at'])
          .where('room_id', '=', room)
          .where('session_id', 'is', null)
          .orderBy('id', 'desc')
          .limit(OVERHEARD_LOOKED_AT),
      )
      .some(({ speaker, at }) => speaker === unsignedPrincipalId(sender) && at > since);

  return (row, sender, since) =>
    waits(row, sender, since) || wasAnswered(row.roomId, sender, since) || wasOverheard(row.roomId, sender, since);
}
