/**
 * What reconciliation keeps: how far `/sync` was read, and the stretches it left out. Position and events are written in one transaction,
 * so a crash between them can neither skip an event nor lose the place (G1). An older stretch is put before what waits in its room, so that
 * a person's messages are answered in the order they were written, unless the newer ones were answered meanwhile.
 */
import type { RoomId, UserId } from '../ids.ts';
import type { Store, Tx } from '../store/store.ts';
import type { Clock } from '../time.ts';
import type { Inbox, IncomingEvent } from './inbox.ts';

export interface Gap {
  readonly id: number;
  readonly roomId: RoomId;
  /** Read backwards from here … */
  readonly from: string;
  /** … to here. */
  readonly to: string | null;
  readonly openedAt: number;
  readonly pages: number;
}
/** What one answer of `/sync` means for one room. */
export interface RoomNews {
  readonly roomId: RoomId;
  readonly events: readonly IncomingEvent[];
  /** Set when the answer left older events out. */
  readonly gap: { readonly from: string; readonly to: string | null } | null;
  /** The oracle is in it. */
  readonly joined: boolean;
}

export interface ReconcileStore {
  position(): string | null;
  /** Forgets the position: the homeserver does not know it any more. */
  reset(): Promise<void>;
  /** Events, gaps and the new position, in one transaction. `also` writes what belongs to it. */
  take(news: { rooms: readonly RoomNews[]; nextBatch: string; also: (tx: Tx) => void }): Promise<void>;
  gaps(): Gap[];
  /** One page of a gap with its cursor; `from` null closes it. */
  takePage(gap: Gap, page: { events: readonly IncomingEvent[]; from: string | null; also: (tx: Tx) => void }): Promise<void>;
  /** Whether an invite that was seen at `seenAt` is known, waiting, or was accepted since. A room we were in before may invite again. */
  knowsInvite(room: RoomId, seenAt: number): boolean;
}

export interface ReconcileStoreOptions {
  readonly store: Store;
  readonly inbox: Pick<Inbox, 'receiveInTx' | 'announce'>;
  readonly clock: Clock;
  readonly oracle: UserId;
}

const POSITION = 'sync.next_batch';

export function createReconcileStore({ store, inbox, clock, oracle }: ReconcileStoreOptions): ReconcileStore {
  const { sql } = store;

  function savePosition(tx: Tx, value: string): void {
    tx.run(
      sql
        .insertInto('meta')
        .values({ key: POSITION, value })
        .onConflict((oc) => oc.column('key').doUpdateSet({ value })),
    );
  }
  /** A room that we are in and do not know: joined by hand, or by a database that is gone. It has no cursor; its history is no prompt. */
  function rememberRoom(tx: Tx, room: RoomId): void {
    tx.run(
      sql
        .insertInto('rooms')
        .values({ room_id: room, membership: 'joined', inviter: null, is_direct: 0, invited_at: null, joined_at: clock.now() })
        .onConflict((oc) => oc.column('room_id').doNothing()),
    );
  }
  /** Numbers below everything that waits in the room. Rows that were known before are not touched. */
  function putFirst(tx: Tx, room: RoomId, events: readonly IncomingEvent[]): void {
    const ids = events.map(({ eventId }) => eventId);
    if (ids.length === 0) return;
    const waiting = sql.selectFrom('inbox').where('room_id', '=', room).where('state', '=', 'ready');
    const first = tx.get(waiting.select((eb) => eb.fn.min('ord').as('ord')).where('event_id', 'not in', ids))?.ord;
    if (first == null) return;
    const rows = tx.all(waiting.select('id').where('event_id', 'in', ids).orderBy('ord').orderBy('id'));
    for (const [index, row] of rows.entries()) {
      tx.run(
        sql
          .updateTable('inbox')
          .set({ ord: first - rows.length + index })
          .where('id', '=', row.id),
      );
    }
  }

  return {
    position: () => store.read.get(sql.selectFrom('meta').select('value').where('key', '=', POSITION))?.value ?? null,
    reset: () => store.write((tx) => void tx.run(sql.deleteFrom('meta').where('key', '=', POSITION))),
    async take({ rooms, nextBatch, also }) {
      const arrived = await store.write((tx) => {
        for (const { roomId, gap, joined } of rooms) {
          if (joined) rememberRoom(tx, roomId);
          if (gap === null) continue;
          tx.run(sql.insertInto('gaps').values({ room_id: roomId, from_token: gap.from, to_token: gap.to, opened_at: clock.now() }));
        }
        const written = inbox.receiveInTx(
          tx,
          rooms.flatMap(({ events }) => events),
        );
        also(tx);
        savePosition(tx, nextBatch);
        return written;
      });
      inbox.announce(arrived);
    },
    gaps: () =>
      store.read.all(sql.selectFrom('gaps').selectAll().orderBy('id')).map((row) => ({
        id: row.id,
        roomId: row.room_id,
        from: row.from_token,
        to: row.to_token,
        openedAt: row.opened_at,
        pages: row.pages,
      })),
    async takePage(gap, { events, from, also }) {
      const arrived = await store.write((tx) => {
        const ids = events.map(({ eventId }) => eventId);
        // What was here before keeps its place, so it must be told from what this page brings.
        const known = new Set(
          ids.length === 0
            ? []
            : tx.all(sql.selectFrom('inbox').select('event_id').where('event_id', 'in', ids)).map((row) => row.event_id),
        );
        const written = inbox.receiveInTx(tx, events);
        putFirst(
          tx,
          gap.roomId,
          events.filter(({ eventId }) => !known.has(eventId)),
        );
        also(tx);
        if (from === null) tx.run(sql.deleteFrom('gaps').where('id', '=', gap.id));
        else
          tx.run(
            sql
              .updateTable('gaps')
              .set({ from_token: from, pages: gap.pages + 1 })
              .where('id', '=', gap.id),
          );
        return written;
      });
      inbox.announce(arrived);
    },
    knowsInvite(room, seenAt) {
      const row = store.read.get(sql.selectFrom('rooms').select(['membership', 'joined_at']).where('room_id', '=', room));
      if (row?.membership === 'invited' || (row?.membership === 'joined' && (row.joined_at ?? 0) >= seenAt)) return true;
      const waiting = sql
        .selectFrom('inbox')
        .select('event')
        .where('room_id', '=', room)
        .where('type', '=', 'm.room.member')
        .where('sender', '!=', oracle);
      return store.read.get(waiting.limit(1)) !== undefined;
    },
  };
}
