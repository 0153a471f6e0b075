/**
 * What reconciliation keeps: how far `/sync` was read, and the stretches it left out. Position and events are written in one transaction,
 * so a crash between them can neither skip an event nor lose the place (G1). An older stretch is put before the newer rows that wait in its
 * room, so that a person's messages are answered in the order they were written, unless the newer ones were answered meanwhile (G3).
 */
import type { EventId, RoomId, UserId } from '../ids.ts';
import { isJsonObject, type JsonObject } from '../json.ts';
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
  /** Events, gaps and the new position, in one transaction. What arrived since `askedAt` is newer; `also` writes what belongs to it. */
  take(news: { rooms: readonly RoomNews[]; nextBatch: string; askedAt: number; also: (tx: Tx) => void }): Promise<void>;
  gaps(): Gap[];
  /** One page of a gap with its cursor; `from` null closes it. */
  takePage(gap: Gap, page: { events: readonly IncomingEvent[]; from: string | null; also: (tx: Tx) => void }): Promise<void>;
  /** Whether an invite that was seen at `seenAt` waits here, or was accepted since. A room we were in before may invite again. */
  knowsInvite(room: RoomId, seenAt: number): boolean;
}

export interface ReconcileStoreOptions {
  readonly store: Store;
  readonly inbox: Pick<Inbox, 'receiveInTx' | 'announce'>;
  readonly clock: Clock;
  readonly oracle: UserId;
}

const POSITION = 'sync.next_batch';

const isInviteOf = ({ state_key: target, content }: JsonObject, user: UserId): boolean =>
  target === user && isJsonObject(content) && content['membership'] === 'invite';

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
  /** What came before the gap was found, and is newer than it: from now on it counts as found with it. How late it is does not change. */
  function countAsNewer(tx: Tx, ids: readonly EventId[], now: number): void {
    if (ids.length === 0) return;
    tx.run(
      sql
        .updateTable('inbox')
        .set((eb) => ({ age_ms: eb('age_ms', '+', eb(eb.val(now), '-', eb.ref('received_at'))), received_at: now }))
        .where('event_id', 'in', ids)
        .where('received_at', '<', now),
    );
  }
  /**
   * Puts what waits of a page, known or new, in the page's order: behind what is older, before what is newer (it came after we asked).
   * The older rows move down, so that the numbers of what will still arrive are not touched.
   */
  function putInOrder(tx: Tx, gap: Pick<Gap, 'roomId' | 'openedAt'>, ids: readonly EventId[]): void {
    if (ids.length === 0) return;
    const waiting = sql.selectFrom('inbox').where('room_id', '=', gap.roomId).where('state', '=', 'ready');
    const place = new Map(ids.map((id, index) => [id, index]));
    const page = tx
      .all(waiting.select(['id', 'event_id', 'ord']).where('event_id', 'in', ids))
      .toSorted((a, b) => (place.get(a.event_id) ?? 0) - (place.get(b.event_id) ?? 0));
    if (page.length === 0) return;
    const newer = tx.get(
      waiting
        .select((eb) => eb.fn.min('ord').as('ord'))
        .where('event_id', 'not in', ids)
        .where('received_at', '>=', gap.openedAt),
    )?.ord;
    const end = newer ?? Math.max(...page.map((row) => row.ord)) + 1;
    tx.run(
      sql
        .updateTable('inbox')
        .set((eb) => ({ ord: eb('ord', '-', page.length) }))
        .where('room_id', '=', gap.roomId)
        .where('event_id', 'not in', ids)
        .where('received_at', '<', gap.openedAt),
    );
    for (const [index, row] of page.entries()) {
      tx.run(
        sql
          .updateTable('inbox')
          .set({ ord: end - page.length + index })
          .where('id', '=', row.id),
      );
    }
  }

  return {
    position: () => store.read.get(sql.selectFrom('meta').select('value').where('key', '=', POSITION))?.value ?? null,
    reset: () => store.write((tx) => void tx.run(sql.deleteFrom('meta').where('key', '=', POSITION))),
    async take({ rooms, nextBatch, askedAt, also }) {
      const arrived = await store.write((tx) => {
        for (const { roomId, gap, joined } of rooms) {
          if (joined) rememberRoom(tx, roomId);
          if (gap === null) continue;
          tx.run(sql.insertInto('gaps').values({ room_id: roomId, from_token: gap.from, to_token: gap.to, opened_at: askedAt }));
        }
        const written = inbox.receiveInTx(
          tx,
          rooms.flatMap(({ events }) => events),
        );
        for (const { roomId, events, gap } of rooms) {
          const ids = events.map(({ eventId }) => eventId);
          putInOrder(tx, { roomId, openedAt: askedAt }, ids);
          if (gap !== null) countAsNewer(tx, ids, askedAt);
        }
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
        const written = inbox.receiveInTx(tx, events);
        putInOrder(tx, gap, ids);
        // For the next page, which is older, all of this one is newer.
        countAsNewer(tx, ids, gap.openedAt);
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
      if (row?.membership === 'joined' && (row.joined_at ?? 0) >= seenAt) return true;
      // What the table calls invited may be an invite that was given up: only a row that will still be handled counts, and a new invite
      // is never shown twice.
      const waiting = sql
        .selectFrom('inbox')
        .select('event')
        .where('room_id', '=', room)
        .where('type', '=', 'm.room.member')
        .where('state', '=', 'ready')
        .where('sender', '!=', oracle);
      return store.read.all(waiting).some(({ event }) => isInviteOf(JSON.parse(event) as JsonObject, oracle));
    },
  };
}
