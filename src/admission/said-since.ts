/**
 * Whether somebody went on talking after having been asked to send an unreadable message again: then the old one is not answered beside the new one,
 * should its key come after all (G2). What waits counts as well as what was taken. Cost: a few indexed reads, for such messages only.
 */
import { sql as raw, type SqlBool } from 'kysely';
import { type EventId, type RoomId, type UserId, unsignedPrincipalId } from '../ids.ts';
import type { InboxRow } from '../inbox/inbox.ts';
import type { Store } from '../store/store.ts';

export type SaidSince = (row: Pick<InboxRow, 'id' | 'roomId'>, sender: UserId, since: number) => boolean;

/** Whoever corrects the old message wants that answered; the relation stands in the clear, also of what is encrypted. */
const IS_NO_EDIT = raw<SqlBool>`json_extract(event, '$.content."m.relates_to".rel_type') is not 'm.replace'`;
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
          .where(IS_NO_EDIT)
          .limit(1),
      );
    return others('ready') !== undefined || others('parked') !== undefined;
  }
  /** When it came, not when it was answered: what came before the asking may have been taken up just now, beside the row in question. */
  const cameSince = (events: readonly (string | null)[], since: number): boolean =>
    events.length > 0 &&
    store.read.get(
      sql
        .selectFrom('seen')
        .select('event_id')
        .where('event_id', 'in', events as EventId[])
        .where('seen_at', '>', since)
        .limit(1),
    ) !== undefined;

  function wasAnswered(room: RoomId, sender: UserId, since: number): boolean {
    const newest = sql
      .selectFrom('runs')
      .select('run_id')
      .where('room_id', '=', room)
      .where('matrix_user_id', '=', sender)
      .orderBy('run_id', 'desc')
      .limit(RUNS_LOOKED_AT);
    const prompts = sql.selectFrom('pending_inputs').select('prompt_id').where('run_id', 'in', newest).where('received_at', '>', since);
    return cameSince(
      store.read.all(prompts).map(({ prompt_id: id }) => id),
      since,
    );
  }
  function wasOverheard(room: RoomId, sender: UserId, since: number): boolean {
    const talk = sql
      .selectFrom('transcript')
      .select(['speaker', 'event_id'])
      .where('room_id', '=', room)
      .where('session_id', 'is', null)
      .orderBy('id', 'desc')
      .limit(OVERHEARD_LOOKED_AT);
    const own = store.read.all(talk).filter(({ speaker }) => speaker === unsignedPrincipalId(sender));
    return cameSince(
      own.map(({ event_id: id }) => id),
      since,
    );
  }

  return (row, sender, since) =>
    waits(row, sender, since) || wasAnswered(row.roomId, sender, since) || wasOverheard(row.roomId, sender, since);
}
