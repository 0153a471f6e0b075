/**
 * One session = one conversation = one LangGraph thread; its owner never changes (G13). Found or made inside `open`, so that two prompts
 * at once cannot make two. A room whose kind changed has another owner for the same thread, and so gets a session of its own.
 */
import type { Selectable } from 'kysely';
import type { Conversation } from '../admission/decide-admission.ts';
import { type EventId, type OwnerId, type PrincipalId, type RoomId, type SessionId, sessionIdOf } from '../ids.ts';
import { sha256Base64Url } from '../json.ts';
import { err, ok, type Result } from '../result.ts';
import type { SessionsTable } from '../store/schema.ts';
import type { Store, Tx } from '../store/store.ts';

export type Session = Selectable<SessionsTable>;

/** In a direct room the person owns the conversation, in a group the room does. */
export const ownerOf = (principal: PrincipalId, room: RoomId, direct: boolean): OwnerId => (direct ? principal : room);

export interface SessionQuery {
  readonly roomId: RoomId;
  readonly owner: OwnerId;
  readonly direct: boolean;
  readonly conversation: Conversation;
  /** Id of the event that would start the session. */
  readonly startedBy: EventId;
}

export interface Sessions {
  /** @returns NOT_YOUR_SESSION when the thread in a direct room is another principal's. */
  findOrCreate(tx: Tx, query: SessionQuery, now: number): Result<Session, 'NOT_YOUR_SESSION'>;
  /** The same without making one; undefined when the message would start it. */
  find(tx: Tx, query: SessionQuery): Result<Session | undefined, 'NOT_YOUR_SESSION'>;
  create(
    tx: Tx,
    session: { id: SessionId; roomId: RoomId; owner: OwnerId; kind: Session['kind']; threadRoot: EventId | null; title: string | null },
    now: number,
  ): Session;
  byId(tx: Tx, id: SessionId): Session | undefined;
  touch(tx: Tx, id: SessionId, now: number): void;
}

/**
 * Anybody can name anybody's event as the root of a thread in his own room, before we work on that event. Its session then has this id,
 * which has the shape of an event id and is nobody's: a taken name must not keep a person from being answered.
 */
const ownNameOf = (room: RoomId, startedBy: EventId): EventId => `$${sha256Base64Url(`${room} ${startedBy}`)}` as EventId;

export function createSessions({ store }: { store: Store }): Sessions {
  const { sql } = store;
  const select = () => sql.selectFrom('sessions').selectAll();

  const sessions: Sessions = {
    find(tx, { roomId, owner, direct, conversation }) {
      if (conversation.kind === 'rolling') {
        return ok(
          tx.get(
            select().where('room_id', '=', roomId).where('owner', '=', owner).where('kind', '=', 'rolling').where('retired_at', 'is', null),
          ),
        );
      }
      const { root } = conversation;
      const inThread = tx.all(
        select()
          .where('room_id', '=', roomId)
          .where((eb) => eb.or([eb('session_id', '=', sessionIdOf(root)), eb('thread_root', '=', root)]))
          .orderBy('created_at', 'desc'),
      );
      const own = inThread.find((session) => session.owner === owner);
      if (own === undefined && direct && inThread.some((session) => session.owner !== roomId)) return err('NOT_YOUR_SESSION');
      return ok(own);
    },
    findOrCreate(tx, query, now) {
      const found = sessions.find(tx, query);
      if (!found.ok) return found;
      if (found.value !== undefined) {
        sessions.touch(tx, found.value.session_id, now);
        return ok(found.value);
      }
      const { conversation, startedBy } = query;
      const root = conversation.kind === 'thread' ? conversation.root : null;
      // The thread's own id, unless another owner has it (the room's kind changed): then the message that opened this session names it.
      const isFree = (event: EventId): boolean => sessions.byId(tx, sessionIdOf(event)) === undefined;
      const id = sessionIdOf([root ?? startedBy, startedBy].find(isFree) ?? ownNameOf(query.roomId, startedBy));
      return ok(
        sessions.create(tx, { id, roomId: query.roomId, owner: query.owner, kind: conversation.kind, threadRoot: root, title: null }, now),
      );
    },
    create(tx, { id, roomId, owner, kind, threadRoot, title }, now) {
      const row: Session = {
        session_id: id,
        room_id: roomId,
        owner,
        kind,
        thread_root: threadRoot,
        title,
        created_at: now,
        last_at: now,
        retired_at: null,
      };
      tx.run(sql.insertInto('sessions').values(row));
      return row;
    },
    byId: (tx, id) => tx.get(select().where('session_id', '=', id)),
    touch(tx, id, now) {
      tx.run(sql.updateTable('sessions').set({ last_at: now }).where('session_id', '=', id));
    },
  };
  return sessions;
}
