/**
 * The homeserver has its 200 long before the answer exists, so what is not written here first dies with the process (G1). An event id is
 * remembered from the moment it arrives, so the same event in another transaction, in `/sync` or after a restart is dropped at the door (G2).
 * A row is claimed by a lease, never by a `running` state: a dead process must leave its rows free to take (G5, G18).
 * Cost: one insert, one claim and one delete per event; the oracle's own messages come back as events too and cost one read.
 */
import type { Insertable } from 'kysely';
import { type EventId, parseEventId, type RoomId, type UserId } from '../ids.ts';
import type { JsonObject } from '../json.ts';
import { prepare } from '../store/prepared.ts';
import type { InboxTable } from '../store/schema.ts';
import type { Store, Tx } from '../store/store.ts';
import type { Clock } from '../time.ts';

export interface IncomingEvent {
  readonly eventId: EventId;
  readonly roomId: RoomId;
  readonly sender: string;
  readonly type: string;
  readonly event: JsonObject;
  /** `unsigned.age`: how long the homeserver had it, in ms. */
  readonly ageMs: number | null;
  readonly source: InboxTable['source'];
}

export interface InboxRow {
  readonly id: number;
  readonly eventId: EventId;
  readonly roomId: RoomId;
  readonly event: JsonObject;
  readonly source: InboxTable['source'];
  readonly receivedAt: number;
  readonly ageMs: number | null;
  /** Claims so far, this one included. */
  readonly attempt: number;
  /** It was in hand before, whether or not that counted as an attempt. */
  readonly again: boolean;
  /** When its key was missed first (src/inbox/parked.ts); null when it never was. */
  readonly parkedAt: number | null;
  /** When its sender was asked to send it again. */
  readonly toldAt: number | null;
}
export interface Inbox {
  /** Stores the events in one transaction; resolves when they are on disk. Rejects with `StorageError`: then answer no 200. */
  receive(events: readonly IncomingEvent[]): Promise<void>;
  /** The same inside a caller's transaction (reconciliation stores its cursor with the rows). Call `announce` with the result after the commit. */
  receiveInTx(tx: Tx, events: readonly IncomingEvent[]): ReadonlySet<RoomId>;
  announce(rooms: ReadonlySet<RoomId>): void;
  onArrival(listener: (rooms: ReadonlySet<RoomId>) => void): void;
  /** Rooms that have rows, in no order; for the start and after an outage. */
  waitingRooms(limit: number, after?: RoomId): RoomId[];
  /**
   * Claims the room's first row if it is due. The lease is written behind the caller: whatever the row causes commits after it. A row that an
   * earlier process left may be what ended it: then `count` writes the claim, and must be waited for before the row is touched.
   */
  claim(
    room: RoomId,
  ): { kind: 'row'; row: InboxRow; count: (() => Promise<void>) | null } | { kind: 'later'; at: number } | { kind: 'empty' };
  /** In the transaction that carries the row's effect: never answered-but-pending, never done-but-unsent. */
  finish(tx: Tx, row: InboxRow): void;
  /** `attempts` below the row's own says that this claim does not count: it was not the row's fault. */
  retry(row: InboxRow, at: number, error: string, attempts?: number): Promise<void>;
  bury(tx: Tx, row: InboxRow, error: string): void;
  /** Prompts that an own event names as answered: drops their rows and remembers them. */
  markAnswered(tx: Tx, prompts: readonly EventId[]): void;
  requeue(tx: Tx, id: number): boolean;
  /** Forgets event ids older than `before`. Bounded per call; returns how many went. */
  prune(before: number): Promise<number>;
  depth(): { rows: number; oldestReceivedAt: number | null; dead: number; parked: number };
}

/** A claim that is not finished by then belongs to a process that died; longer than any admission may take. */
const LEASE_MS = 120_000;
const PRUNE_BATCH = 5_000;
/** Longest time for which a row is put off. */
const MAX_DELAY_MS = 60_000;

export interface InboxOptions {
  readonly store: Store;
  readonly clock: Clock;
  /** The oracle's own account: its messages come back and are no input. */
  readonly oracle: UserId;
  readonly fence: number;
}

export function createInbox({ store, clock, oracle, fence }: InboxOptions): Inbox {
  const { sql } = store;
  const listeners: ((rooms: ReadonlySet<RoomId>) => void)[] = [];
  const lastLeft = store.read.get(sql.selectFrom('inbox').select((eb) => eb.fn.max('id').as('max')))?.max ?? 0;
  let nextOrd = (store.read.get(sql.selectFrom('inbox').select((eb) => eb.fn.max('ord').as('max')))?.max ?? 0) + 1;

  const insertRow = prepare((row: Insertable<InboxTable>) =>
    sql
      .insertInto('inbox')
      .values(row)
      .onConflict((oc) => oc.column('event_id').doNothing()),
  );
  const selectSeen = prepare(({ eventId }: { eventId: EventId }) =>
    sql.selectFrom('seen').select('event_id').where('event_id', '=', eventId),
  );

  function isKnown(tx: Tx, eventId: EventId): boolean {
    return tx.get(selectSeen({ eventId })) !== undefined;
  }
  function remember(tx: Tx, eventId: EventId, at: number): boolean {
    return (
      tx.run(
        sql
          .insertInto('seen')
          .values({ event_id: eventId, seen_at: at })
          .onConflict((oc) => oc.column('event_id').doNothing()),
      ) > 0
    );
  }

  /** Prompts that this own message answers, when its run is not ours: the sign of a lost or restored database. */
  function promptsOfUnknownRun(tx: Tx, event: IncomingEvent): EventId[] {
    const { runId, prompts } = readOwnRun(event.event);
    if (runId === null || prompts.length === 0) return [];
    const known =
      tx.get(
        sql
          .selectFrom('runs')
          .select('run_id')
          .where('run_id', '=', runId as never),
      ) !== undefined;
    return known ? [] : prompts;
  }

  /** Rows that belong before what waits in the room get numbers below it, in their own order. */
  function firstOrd(tx: Tx, room: RoomId, count: number): number {
    const first = tx.get(
      sql
        .selectFrom('inbox')
        .select((eb) => eb.fn.min('ord').as('min'))
        .where('room_id', '=', room)
        .where('state', '=', 'ready'),
    )?.min;
    return (first ?? nextOrd) - count;
  }

  const inbox: Inbox = {
    async receive(events) {
      const news = events.filter(
        (event) =>
          !isKnown(store.read, event.eventId) && (!isOwnMessage(event, oracle) || promptsOfUnknownRun(store.read, event).length > 0),
      );
      if (news.length === 0) return;
      inbox.announce(await store.write((tx) => inbox.receiveInTx(tx, news)));
    },
    receiveInTx(tx, events) {
      const now = clock.now();
      const rooms = new Set<RoomId>();
      const lookedBack = new Map<RoomId, number>();
      for (const event of events) if (event.source === 'backfill') lookedBack.set(event.roomId, (lookedBack.get(event.roomId) ?? 0) + 1);
      const backOrd = new Map([...lookedBack].map(([room, count]) => [room, firstOrd(tx, room, count)]));
      for (const event of events) {
        if (isOwnMessage(event, oracle)) {
          inbox.markAnswered(tx, promptsOfUnknownRun(tx, event));
          continue;
        }
        if (!remember(tx, event.eventId, now)) continue;
        let ord = nextOrd;
        if (event.source === 'backfill') {
          ord = backOrd.get(event.roomId) ?? nextOrd;
          backOrd.set(event.roomId, ord + 1);
        } else nextOrd++;
        const row = {
          ord,
          event_id: event.eventId,
          room_id: event.roomId,
          sender: event.sender,
          type: event.type,
          source: event.source,
          event: JSON.stringify(event.event),
          received_at: now,
          age_ms: event.ageMs,
          error: null,
        };
        // A dead row outlives what `seen` remembers: its event must not fail the transaction it comes back in.
        const added = tx.run(insertRow(row));
        if (added > 0) rooms.add(event.roomId);
      }
      return rooms;
    },
    announce(rooms) {
      if (rooms.size > 0) for (const listener of listeners) listener(rooms);
    },
    onArrival: (listener) => void listeners.push(listener),
    waitingRooms(limit, after) {
      let query = sql.selectFrom('inbox').select('room_id').distinct().where('state', '=', 'ready').orderBy('room_id').limit(limit);
      if (after !== undefined) query = query.where('room_id', '>', after);
      return store.read.all(query).map((row) => row.room_id);
    },
    claim(room) {
      const now = clock.now();
      const row = store.read.get(
        sql.selectFrom('inbox').selectAll().where('room_id', '=', room).where('state', '=', 'ready').orderBy('ord').orderBy('id').limit(1),
      );
      if (row === undefined) return { kind: 'empty' };
      // Further away than any retry is set: the wall clock was put back since, and the room must not wait for it to catch up.
      if (row.not_before > now && row.not_before - now <= MAX_DELAY_MS) return { kind: 'later', at: row.not_before };
      // A lease of this very process is not looked at: one loop per room claims one row at a time. Another process's is, until it ends.
      if (row.fence > fence && row.lease_until > now) return { kind: 'later', at: row.lease_until };
      const count = (): Promise<void> =>
        store.write((tx) => {
          tx.run(
            sql
              .updateTable('inbox')
              .set({ attempts: row.attempts + 1, lease_until: clock.now() + LEASE_MS, fence })
              .where('id', '=', row.id),
          );
        });
      const wasLeft = row.id <= lastLeft;
      // If the disk is full, what the row causes fails on its own write and is retried; the claim itself has no other reader.
      if (!wasLeft) count().catch(() => undefined);
      return {
        kind: 'row',
        count: wasLeft ? count : null,
        row: {
          id: row.id,
          eventId: row.event_id,
          roomId: row.room_id,
          event: JSON.parse(row.event) as JsonObject,
          source: row.source,
          receivedAt: row.received_at,
          ageMs: row.age_ms,
          attempt: row.attempts + 1,
          again: row.attempts > 0 || row.not_before > 0 || row.megolm_session !== null,
          parkedAt: row.parked_at,
          toldAt: row.told_at,
        },
      };
    },
    finish(tx, row) {
      tx.run(sql.deleteFrom('inbox').where('id', '=', row.id));
    },
    retry: (row, at, error, attempts = row.attempt) =>
      store.write((tx) => {
        tx.run(sql.updateTable('inbox').set({ not_before: at, lease_until: 0, error, attempts }).where('id', '=', row.id));
      }),
    bury(tx, row, error) {
      tx.run(sql.updateTable('inbox').set({ state: 'dead', lease_until: 0, error }).where('id', '=', row.id));
    },
    markAnswered(tx, prompts) {
      const now = clock.now();
      for (const prompt of prompts) {
        remember(tx, prompt, now);
        tx.run(sql.deleteFrom('inbox').where('event_id', '=', prompt));
      }
    },
    requeue: (tx, id) =>
      tx.run(
        sql
          .updateTable('inbox')
          // As if it came now: whoever asks for it again does not want to read that it is too late.
          .set({
            state: 'ready',
            attempts: 0,
            not_before: 0,
            error: null,
            received_at: clock.now(),
            age_ms: 0,
            parked_at: null,
            told_at: null,
          })
          .where('id', '=', id)
          .where('state', '=', 'dead'),
      ) > 0,
    prune: (before) =>
      store.write((tx) =>
        tx.run(
          sql
            .deleteFrom('seen')
            .where('event_id', 'in', sql.selectFrom('seen').select('event_id').where('seen_at', '<', before).limit(PRUNE_BATCH)),
        ),
      ),
    depth() {
      const row = store.read.get(
        sql
          .selectFrom('inbox')
          .select((eb) => [eb.fn.countAll<number>().as('rows'), eb.fn.min('received_at').as('oldest')])
          .where('state', '=', 'ready'),
      );
      const countOf = (state: 'dead' | 'parked'): number =>
        store.read.get(
          sql
            .selectFrom('inbox')
            .select((eb) => eb.fn.countAll<number>().as('rows'))
            .where('state', '=', state),
        )?.rows ?? 0;
      return { rows: row?.rows ?? 0, oldestReceivedAt: row?.oldest ?? null, dead: countOf('dead'), parked: countOf('parked') };
    },
  };
  return inbox;
}

/** Own state events (joins, leaves) are input; own messages, edits and reactions are echoes. */
export function isOwnMessage(event: IncomingEvent, oracle: UserId): boolean {
  return event.sender === oracle && event.event['state_key'] === undefined;
}

/** `ixo.oracle.run` of an own message or of its edit. Own events are written by an earlier self, yet read as hostile as any (G14). */
export function readOwnRun(event: JsonObject): { runId: string | null; prompts: EventId[] } {
  const content = event['content'];
  const run = typeof content === 'object' && content !== null && !Array.isArray(content) ? content['ixo.oracle.run'] : undefined;
  if (typeof run !== 'object' || run === null || Array.isArray(run)) return { runId: null, prompts: [] };
  const prompts = Array.isArray(run['prompts']) ? run['prompts'].slice(0, 100) : [];
  return {
    runId: typeof run['run_id'] === 'string' ? run['run_id'] : null,
    prompts: prompts.flatMap((prompt) => {
      const parsed = parseEventId(prompt);
      return parsed.ok ? [parsed.value] : [];
    }),
  };
}
