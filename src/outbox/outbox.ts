/**
 * What must go out and is not confirmed. A row is written in the transaction of its cause, with a txn id derived from that cause, so a
 * crash or a lost reply can neither forget nor double it (G4). The transport's sender (appservice/sender.ts) takes rows from here; the
 * id is idempotent per device on the homeserver, so each row remembers who sends it and with which device (research/synapse.md §4).
 * Cost: one insert and one update per event.
 */
import { type Insertable, sql as raw, type Selectable, type SqlBool } from 'kysely';
import { type DeviceId, type EventId, type OutboxTxnId, parseEventId, type RoomId, type RunId, type UserId } from '../ids.ts';
import { isJsonObject, type JsonObject } from '../json.ts';
import { LIMITS } from '../limits.ts';
import { prepare } from '../store/prepared.ts';
import type { OutboxTable } from '../store/schema.ts';
import type { Store, Tx } from '../store/store.ts';

export type OutboxRow = Selectable<OutboxTable>;

export interface OutboundEvent {
  readonly txnId: OutboxTxnId;
  /** Rows of one lane go out one after the other. */
  readonly lane: string;
  readonly roomId: RoomId;
  readonly kind: OutboxTable['kind'];
  readonly eventType: string;
  readonly stateKey?: string;
  readonly content: JsonObject;
  readonly runId?: RunId;
  readonly part?: number;
  /** Set on an edit: the txn id of the event it replaces. `content` then has no `m.relates_to`. */
  readonly editsTxn?: OutboxTxnId;
  /** An edit of what another database sent: the `origin_server_ts` it must be later than. */
  readonly after?: number;
}

export interface Outbox {
  /** Adds the row in the caller's transaction. The same txn id again changes nothing (same cause, same event). Call `wake` after the commit. */
  insert(tx: Tx, event: OutboundEvent, now: number): void;
  /** Tells the sender that rows may be due. */
  wake(): void;
  onWake(listener: () => void): void;
  /** Drops edits of this message that are not confirmed: the newer one behind them says more. Contents never change, so a retry sends the same bytes. */
  dropSuperseded(tx: Tx, editsTxn: OutboxTxnId): void;
  /** Rows of a run in order: how a resumed run finds the messages it already sent. */
  ofRun(tx: Tx, run: RunId): OutboxRow[];
  /** The first due row of each lane, oldest lane first, without lanes in `busy`. */
  due(now: number, { limit, busy }: { limit: number; busy: ReadonlySet<string> }): OutboxRow[];
  /** When the next row becomes due; null when nothing waits. */
  nextDueAt(): number | null;
  /**
   * Keeps what the row was encrypted to; resolves when it is on disk. From then on these bytes are sent, however often: another ciphertext of the
   * same text would be another event to whoever got both (G4). @returns the row as it is then.
   */
  seal(row: OutboxRow, ciphertext: JsonObject): Promise<OutboxRow>;
  markSent(row: OutboxRow, eventId: EventId, now: number): Promise<void>;
  retryAt(row: OutboxRow, at: number, error: string): Promise<void>;
  /** Given up: parked rows are shown by doctor and metrics, and edits of a parked event are dropped with it. `notice` says so in the room. */
  park(row: OutboxRow, error: string, more?: { notice: OutboundEvent | null; now: number }): Promise<void>;
  /**
   * The homeserver forgot this device, and with it which transactions of it became events: each row of it that is not confirmed is looked for
   * in its room before it is sent again (G4). @returns how many.
   */
  loseDevice(device: DeviceId): Promise<number>;
  /** It is not in the room: from now on the present device sends it. @returns the row as it is then. */
  adopt(row: OutboxRow): Promise<OutboxRow>;
  /** Some row is confirmed to be this event. */
  isConfirmed(event: EventId): boolean;
  eventIdOf(txnId: OutboxTxnId): EventId | null;
  /** Resolves with the event id once sent, null once parked or dropped. */
  settled(txnId: OutboxTxnId, signal: AbortSignal): Promise<EventId | null>;
  depth(): number;
  /** Rows that were given up. */
  parked(): number;
}

/** Word for word the condition of the partial indexes: with a bound value each look would read every event ever sent (G16). */
const isReady = (table: 'o' | 'p' | 'outbox') => raw<SqlBool>`${raw.ref(`${table}.state`)} = 'ready'`;

/** Longest pause that a homeserver may ask for (appservice/client.ts) or a retry waits. */
const MAX_DELAY_MS = 10 * 60_000;

/** In place of the device of a row whose device the homeserver forgot. */
export const LOST_DEVICE = '' as DeviceId;

export interface OutboxIdentity {
  readonly sender: UserId;
  readonly deviceId: DeviceId;
}

export function createOutbox({ store, identity }: { store: Store; identity: OutboxIdentity }): Outbox {
  const { sql } = store;
  const wakeListeners: (() => void)[] = [];
  const settledListeners = new Map<OutboxTxnId, Set<(event: EventId | null) => void>>();

  function settle(txnId: OutboxTxnId, event: EventId | null): void {
    const waiting = settledListeners.get(txnId);
    settledListeners.delete(txnId);
    for (const done of waiting ?? []) done(event);
  }

  function countOf(state: OutboxRow['state']): number {
    const count = sql.selectFrom('outbox').select((eb) => eb.fn.countAll<number>().as('count'));
    return store.read.get(count.where('state', '=', state))?.count ?? 0;
  }

  const insertRow = prepare((row: Insertable<OutboxTable>) =>
    sql
      .insertInto('outbox')
      .values(row)
      .onConflict((oc) => oc.column('txn_id').doNothing()),
  );
  const selectHeads = prepare(({ now, latest, count }: { now: number; latest: number; count: number }) =>
    sql
      .selectFrom('outbox as o')
      .selectAll('o')
      .where(isReady('o'))
      .where((eb) =>
        eb.not(
          eb.exists(
            eb
              .selectFrom('outbox as p')
              .select('p.seq')
              .where(isReady('p'))
              .whereRef('p.lane', '=', 'o.lane')
              .whereRef('p.seq', '<', 'o.seq'),
          ),
        ),
      )
      // Further away than any retry is set: the wall clock was put back since, and nobody must wait for it to catch up.
      .where((eb) => eb.or([eb('o.not_before', '<=', now), eb('o.not_before', '>', latest)]))
      .orderBy('o.seq')
      .limit(count),
  );

  const selectOrigin = prepare(({ txnId }: { txnId: OutboxTxnId }) =>
    sql.selectFrom('outbox').select(['thread_root']).where('txn_id', '=', txnId),
  );
  const selectLastEdit = prepare(({ txnId }: { txnId: OutboxTxnId }) =>
    sql
      .selectFrom('outbox')
      .select((eb) => eb.fn.max('created_at').as('at'))
      .where('edits_txn', '=', txnId),
  );

  /**
   * Of several edits the one with the greatest `origin_server_ts` counts, wherever it stands in the timeline (research/synapse.md §7), and the
   * sender sends this time as theirs: a clock put back, two in one millisecond, or one that the homeserver takes late cannot win over the last.
   */
  function timeOf(tx: Tx, { editsTxn, after = Number.NEGATIVE_INFINITY }: OutboundEvent, now: number): number {
    const last = editsTxn === undefined ? null : tx.get(selectLastEdit({ txnId: editsTxn }))?.at;
    return Math.max(now, after + 1, (last ?? Number.NEGATIVE_INFINITY) + 1);
  }
  const threadOf = (tx: Tx, { content, editsTxn }: OutboundEvent): EventId | null =>
    editsTxn === undefined ? readThreadRoot(content) : (tx.get(selectOrigin({ txnId: editsTxn }))?.thread_root ?? null);

  const outbox: Outbox = {
    insert(tx, event, now) {
      const row: Insertable<OutboxTable> = {
        txn_id: event.txnId,
        lane: event.lane,
        room_id: event.roomId,
        sender: identity.sender,
        device_id: identity.deviceId,
        kind: event.kind,
        run_id: event.runId ?? null,
        part: event.part ?? null,
        event_type: event.eventType,
        state_key: event.stateKey ?? null,
        content: JSON.stringify(event.content),
        edits_txn: event.editsTxn ?? null,
        event_id: null,
        deadline_at: now + LIMITS.outboxDeadlineMs,
        created_at: timeOf(tx, event, now),
        sent_at: null,
        error: null,
        thread_root: threadOf(tx, event),
      };
      tx.run(insertRow(row));
    },
    wake: () => {
      for (const listener of wakeListeners) listener();
    },
    onWake: (listener) => void wakeListeners.push(listener),
    dropSuperseded(tx, editsTxn) {
      tx.run(
        sql
          .updateTable('outbox')
          .set({ state: 'dropped', error: 'superseded' })
          .where('edits_txn', '=', editsTxn)
          .where('state', '=', 'ready'),
      );
    },
    ofRun: (tx, run) => tx.all(sql.selectFrom('outbox').selectAll().where('run_id', '=', run).orderBy('seq')),
    due(now, { limit, busy }) {
      // The head of each lane: a row that waits for its retry holds back its own lane only.
      const heads = store.read.all(selectHeads({ now, latest: now + MAX_DELAY_MS, count: limit + busy.size }));
      return heads.filter((row) => !busy.has(row.lane)).slice(0, limit);
    },
    nextDueAt: () =>
      store.read.get(sql.selectFrom('outbox').select('not_before').where(isReady('outbox')).orderBy('not_before').limit(1))?.not_before ??
      null,
    async seal(row, ciphertext) {
      const sealed = JSON.stringify(ciphertext);
      await store.write((tx) => {
        tx.run(sql.updateTable('outbox').set({ sealed }).where('seq', '=', row.seq));
      });
      return { ...row, sealed };
    },
    markSent: async (row, eventId, now) => {
      await store.write((tx) => {
        tx.run(
          sql
            .updateTable('outbox')
            .set({ state: 'sent', event_id: eventId, sent_at: now, error: null, sealed: null })
            .where('seq', '=', row.seq),
        );
      });
      settle(row.txn_id, eventId);
    },
    retryAt: (row, at, error) =>
      store.write((tx) => {
        tx.run(
          sql
            .updateTable('outbox')
            .set({ not_before: at, attempts: row.attempts + 1, error })
            .where('seq', '=', row.seq),
        );
      }),
    park: async (row, error, more) => {
      const dropped = await store.write((tx) => {
        tx.run(sql.updateTable('outbox').set({ state: 'parked', error }).where('seq', '=', row.seq));
        const edits = tx.all(sql.selectFrom('outbox').select('txn_id').where('edits_txn', '=', row.txn_id).where('state', '=', 'ready'));
        tx.run(
          sql
            .updateTable('outbox')
            .set({ state: 'dropped', error: 'the edited event was not sent' })
            .where('edits_txn', '=', row.txn_id)
            .where('state', '=', 'ready'),
        );
        if (more !== undefined && more.notice !== null) outbox.insert(tx, more.notice, more.now);
        return edits.map((edit) => edit.txn_id);
      });
      for (const txnId of [row.txn_id, ...dropped]) settle(txnId, null);
    },
    loseDevice: (device) =>
      store.write((tx) => {
        const rows = tx.all(sql.selectFrom('outbox').select('seq').where(isReady('outbox')).where('device_id', '=', device));
        tx.run(sql.updateTable('outbox').set({ device_id: LOST_DEVICE }).where(isReady('outbox')).where('device_id', '=', device));
        return rows.length;
      }),
    adopt: async (row) => {
      const { deviceId } = identity;
      await store.write((tx) => {
        tx.run(sql.updateTable('outbox').set({ device_id: deviceId }).where('seq', '=', row.seq));
      });
      return { ...row, device_id: deviceId };
    },
    isConfirmed: (event) => store.read.get(sql.selectFrom('outbox').select('seq').where('event_id', '=', event).limit(1)) !== undefined,
    eventIdOf: (txnId) => store.read.get(sql.selectFrom('outbox').select('event_id').where('txn_id', '=', txnId))?.event_id ?? null,
    settled(txnId, signal) {
      const row = store.read.get(sql.selectFrom('outbox').select(['state', 'event_id']).where('txn_id', '=', txnId));
      if (row !== undefined && row.state !== 'ready') return Promise.resolve(row.event_id);
      return new Promise((resolve, reject) => {
        if (signal.aborted) return reject(signal.reason);
        const waiting = settledListeners.get(txnId) ?? new Set();
        settledListeners.set(txnId, waiting);
        const done = (event: EventId | null) => {
          signal.removeEventListener('abort', onAbort);
          resolve(event);
        };
        const onAbort = () => {
          waiting.delete(done);
          if (waiting.size === 0 && settledListeners.get(txnId) === waiting) settledListeners.delete(txnId);
          reject(signal.reason);
        };
        signal.addEventListener('abort', onAbort, { once: true });
        waiting.add(done);
      });
    },
    depth: () => countOf('ready'),
    parked: () => countOf('parked'),
  };
  return outbox;
}

/** Pure: the thread that a message stands in. */
function readThreadRoot(content: JsonObject): EventId | null {
  const relation = content['m.relates_to'];
  if (!isJsonObject(relation) || relation['rel_type'] !== 'm.thread') return null;
  const root = parseEventId(relation['event_id']);
  return root.ok ? root.value : null;
}
