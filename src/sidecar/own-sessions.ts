/**
 * The sessions a caller may see: his own, in his direct room, not taken off the list. Everything else does not exist for him, so that
 * nobody can ask which ids are somebody's (G13).
 */
import { type Refusal, refusal } from '../errors.ts';
import { type Did, parseSessionId, type RoomId, type SessionId } from '../ids.ts';
import { err, ok, type Result } from '../result.ts';
import type { Session } from '../sessions/sessions.ts';
import type { Store, Tx } from '../store/store.ts';
import type { SidecarDeps } from './deps.ts';
import type { Caller } from './identify.ts';

/** A session id as the path gives it. What cannot be one is as unknown as one that is nobody's. */
export function readSessionId(text: string): Result<SessionId, Refusal> {
  const parsed = parseSessionId(text);
  return parsed.ok ? parsed : err(refusal('NOT_FOUND'));
}

export function findOwnSession(caller: Caller, id: SessionId, { sessions, store }: SidecarDeps): Result<Session, Refusal> {
  const session = sessions.byId(store.read, id);
  return session !== undefined && session.owner === caller.did && session.room_id === caller.room && session.retired_at === null
    ? ok(session)
    : err(refusal('NOT_FOUND'));
}

export function listOwnSessions(
  store: Store,
  { did, room }: { did: Did; room: RoomId },
  { limit, offset }: { limit: number; offset: number },
): { sessions: Session[]; total: number } {
  const own = store.sql.selectFrom('sessions').where('owner', '=', did).where('room_id', '=', room).where('retired_at', 'is', null);
  const total = store.read.get(own.select((eb) => eb.fn.countAll<number>().as('count')))?.count ?? 0;
  return { sessions: store.read.all(own.selectAll().orderBy('last_at', 'desc').limit(limit).offset(offset)), total };
}

/** Off the list. What was said stays in the room and in the transcript; a later message in the room starts another rolling session. */
export function retireSession(store: Store, tx: Tx, id: SessionId, now: number): void {
  tx.run(store.sql.updateTable('sessions').set({ retired_at: now }).where('session_id', '=', id).where('retired_at', 'is', null));
}
