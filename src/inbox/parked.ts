/**
 * Encrypted events whose key is not here. Keys arrive on another connection, so a message that overtakes its key is normal: for a moment it keeps
 * its place at the head of its room (G3), then it stands aside and the room goes on. What stands aside is a row like any other (G1): it is ready
 * again when its key comes, at its old place, and after every start, because a key may have come while nobody listened.
 * Cost: one commit for a message that has to wait; nothing for any other.
 */
import { sql as raw, type Selectable, type SqlBool } from 'kysely';
import type { EventId, MegolmSessionId, RoomId } from '../ids.ts';
import type { JsonObject } from '../json.ts';
import { LIMITS } from '../limits.ts';
import type { InboxTable } from '../store/schema.ts';
import type { Store, Tx } from '../store/store.ts';
import type { Clock } from '../time.ts';
import type { Inbox, InboxRow } from './inbox.ts';

/** Whose messages in which room wait for keys. The session is the sender's claim, so nobody is put into a group with anybody. */
export interface ParkedGroup {
  readonly roomId: RoomId;
  readonly sender: string;
  /** Of the oldest row of which its sender was not told. */
  readonly since: number;
}
export interface ParkedRow {
  readonly id: number;
  readonly eventId: EventId;
  readonly roomId: RoomId;
  readonly event: JsonObject;
  readonly session: MegolmSessionId;
}

export interface Parked {
  /** Puts the row off until then, or until its key comes. It stays first in its room, and the claim does not count. */
  awaitKey(row: InboxRow, session: MegolmSessionId, until: number): Promise<void>;
  /** Sets the row aside. @returns false, and changes nothing, when too many of this sender wait in this room already. */
  park(row: InboxRow, session: MegolmSessionId): Promise<boolean>;
  /** Sets an edit aside with the parked message that it edits, of the same sender, to follow it. @returns false when there is none, or too many wait. */
  parkBehind(row: InboxRow, target: EventId): Promise<boolean>;
  /** Makes ready what waits for these keys, or everything that was set aside, and announces its rooms. */
  wake(sessions: readonly MegolmSessionId[] | 'all'): Promise<void>;
  /** Groups with a session of which the sender was not told, oldest first. */
  untold(limit: number): ParkedGroup[];
  /** What was not told of this group, in order: all of a session of which something was parked by then. */
  untoldOf(tx: Tx, group: ParkedGroup, parkedBy: number): ParkedRow[];
  /** The sender was asked to send these again. Of their sessions nothing more is said. */
  markTold(tx: Tx, group: ParkedGroup, rows: readonly ParkedRow[], at: number): void;
  /** Ends what was parked before that time. @returns what it was. */
  end(tx: Tx, before: number, limit: number): ParkedRow[];
  oldestSince(): number | null;
  /** Called after something was set aside. */
  onParked(listener: () => void): void;
}

/** Word for word the condition of the partial index. */
const IS_PARKED = raw<SqlBool>`state = 'parked'`;
/** SQLite takes a few ten thousand parameters; a share of keys may be larger. */
const SESSIONS_AT_ONCE = 500;
/** Says that the sender was asked to send again what was encrypted so; kept as long as any stamp. */
const stampOf = (room: RoomId, sender: string, session: MegolmSessionId): string => `unreadable:${room}:${sender}:${session}`;
const IS_UNTOLD = raw<SqlBool>`(told_at is null and not exists (
  select 1 from notice_stamps where key = 'unreadable:' || room_id || ':' || sender || ':' || megolm_session))`;

export function createParked({ store, clock, inbox }: { store: Store; clock: Clock; inbox: Pick<Inbox, 'announce'> }): Parked {
  const { sql } = store;
  const listeners: (() => void)[] = [];
  /** Heads of rooms that were put off for a key: to find them without looking through what is ready. Forgotten ones are due in a moment anyway. */
  const heads = new Map<RoomId, MegolmSessionId>();
  const parkedRows = () => sql.selectFrom('inbox').where(IS_PARKED);
  const columns = ['id', 'event_id', 'room_id', 'event', 'megolm_session'] as const;

  /** Of the row's sender in its room. */
  const parkedBySenderOf = (row: InboxRow) =>
    parkedRows()
      .where('room_id', '=', row.roomId)
      .where('sender', '=', sql.selectFrom('inbox').select('sender').where('id', '=', row.id));
  function isFull(tx: Tx, row: InboxRow): boolean {
    const count = tx.get(parkedBySenderOf(row).select((eb) => eb.fn.countAll<number>().as('count')))?.count ?? 0;
    return count >= LIMITS.parkedPerSenderAndRoom;
  }
  function setAside(tx: Tx, row: InboxRow, session: MegolmSessionId): true {
    tx.run(
      sql
        .updateTable('inbox')
        .set((eb) => ({
          state: 'parked' as const,
          megolm_session: session,
          parked_at: eb.fn.coalesce('parked_at', eb.val(clock.now())),
          not_before: 0,
          lease_until: 0,
          attempts: row.attempt - 1,
        }))
        .where('id', '=', row.id),
    );
    return true;
  }
  function parked(row: InboxRow): true {
    heads.delete(row.roomId);
    for (const listener of listeners) listener();
    return true;
  }

  function wakeParked(tx: Tx, sessions: readonly MegolmSessionId[] | 'all'): RoomId[] {
    const fits = sessions === 'all' ? parkedRows() : parkedRows().where('megolm_session', 'in', sessions);
    const rows = tx.all(fits.select(['id', 'room_id']));
    for (const { id } of rows) tx.run(sql.updateTable('inbox').set({ state: 'ready' }).where('id', '=', id));
    return rows.map(({ room_id }) => room_id);
  }
  function wakeHeads(tx: Tx, sessions: ReadonlySet<MegolmSessionId>): RoomId[] {
    const rooms = [...heads].filter(([, session]) => sessions.has(session)).map(([room]) => room);
    for (const room of rooms) {
      const session = heads.get(room) ?? null;
      const row = sql.updateTable('inbox').set({ not_before: 0 }).where('room_id', '=', room).where('state', '=', 'ready');
      tx.run(row.where('megolm_session', '=', session));
    }
    return rooms;
  }

  return {
    async awaitKey(row, session, until) {
      // Known before it is on disk: a key that comes in between finds it, and what it writes comes after this.
      heads.set(row.roomId, session);
      const change = { megolm_session: session, not_before: until, lease_until: 0, attempts: row.attempt - 1 };
      await store.write((tx) => void tx.run(sql.updateTable('inbox').set(change).where('id', '=', row.id)));
    },
    async park(row, session) {
      const isParked = await store.write((tx) => !isFull(tx, row) && setAside(tx, row, session));
      return isParked && parked(row);
    },
    async parkBehind(row, target) {
      const isParked = await store.write((tx) => {
        const edited = parkedBySenderOf(row).where('event_id', '=', target);
        const session = tx.get(edited.select('megolm_session'))?.megolm_session ?? null;
        return session !== null && !isFull(tx, row) && setAside(tx, row, session);
      });
      return isParked && parked(row);
    },
    async wake(sessions) {
      const lists = sessions === 'all' ? (['all'] as const) : chunksOf(sessions, SESSIONS_AT_ONCE);
      for (const list of lists) {
        const rooms = await store.write((tx) => [...wakeParked(tx, list), ...(list === 'all' ? [] : wakeHeads(tx, new Set(list)))]);
        for (const room of rooms) {
          const session = heads.get(room);
          if (session !== undefined && list !== 'all' && list.includes(session)) heads.delete(room);
        }
        inbox.announce(new Set(rooms));
      }
    },
    untold: (limit) =>
      store.read
        .all(
          parkedRows()
            .where(IS_UNTOLD)
            .select((eb) => ['room_id', 'sender', eb.fn.min('parked_at').as('since')])
            .groupBy(['room_id', 'sender'])
            .orderBy('since')
            .limit(limit),
        )
        .map((row) => ({ roomId: row.room_id, sender: row.sender, since: row.since ?? 0 })),
    untoldOf(tx, { roomId, sender }, parkedBy) {
      const ofGroup = parkedRows().where('room_id', '=', roomId).where('sender', '=', sender).where(IS_UNTOLD);
      const rows = tx.all(
        ofGroup
          .select([...columns, 'parked_at'])
          .orderBy('ord')
          .orderBy('id'),
      );
      const due = new Set(rows.filter(({ parked_at: at }) => (at ?? 0) <= parkedBy).map((row) => row.megolm_session));
      return rows.filter((row) => due.has(row.megolm_session)).map(readRow);
    },
    markTold(tx, { roomId, sender }, rows, at) {
      for (const { id } of rows) tx.run(sql.updateTable('inbox').set({ told_at: at }).where('id', '=', id));
      for (const session of new Set(rows.map((row) => row.session))) {
        tx.run(
          sql
            .insertInto('notice_stamps')
            .values({ key: stampOf(roomId, sender, session), at })
            .onConflict((oc) => oc.column('key').doUpdateSet({ at })),
        );
      }
    },
    end(tx, before, limit) {
      const rows = tx.all(parkedRows().select(columns).where('parked_at', '<=', before).orderBy('parked_at').limit(limit));
      for (const { id } of rows) tx.run(sql.deleteFrom('inbox').where('id', '=', id));
      return rows.map(readRow);
    },
    oldestSince: () => store.read.get(parkedRows().select((eb) => eb.fn.min('parked_at').as('at')))?.at ?? null,
    onParked: (listener) => void listeners.push(listener),
  };
}

type Columns = Pick<Selectable<InboxTable>, 'id' | 'event_id' | 'room_id' | 'event' | 'megolm_session'>;
const readRow = (row: Columns): ParkedRow => ({
  id: row.id,
  eventId: row.event_id,
  roomId: row.room_id,
  event: JSON.parse(row.event) as JsonObject,
  session: row.megolm_session ?? ('' as MegolmSessionId),
});

function chunksOf<T>(list: readonly T[], size: number): T[][] {
  const chunks: T[][] = [];
  for (let at = 0; at < list.length; at += size) chunks.push(list.slice(at, at + size));
  return chunks;
}
