/**
 * Takes what the inbox holds and hands it to admission, one row at a time per room and many rooms at once (G3), with a bound on both
 * memory and concurrency whatever the backlog. A row that fails is tried again later and holds back only its own room; after the last
 * attempt it is buried and the person is told (G1: never silently gone). A full disk or a homeserver that is down is not the row's fault
 * and costs it no attempt. Claiming never waits for a run slot, so lateness is judged at once.
 */
import type { RoomId } from '../ids.ts';
import type { Logger } from '../observe/logger.ts';
import { StorageError, type Store } from '../store/store.ts';
import { backOffMs, type Clock, type Timer } from '../time.ts';
import type { Inbox, InboxRow } from './inbox.ts';
import { Unavailable } from './unavailable.ts';

export interface DispatcherOptions {
  readonly inbox: Inbox;
  readonly store: Store;
  readonly clock: Clock;
  readonly logger: Logger;
  /** Handles one row to its end, the finishing write included. A throw means "try again later". */
  readonly handle: (row: InboxRow) => Promise<void>;
  /** In the transaction that buries a row: writes the notice to the person. */
  readonly giveUp: (row: InboxRow) => Promise<void>;
  /** Whether this error says that nobody could have been served: then the row waits as long as that lasts. */
  readonly isOutage?: (error: unknown) => boolean;
  /** Until when the room's rows must wait (an open gap); null when they need not. */
  readonly heldUntil: (room: RoomId) => number | null;
  readonly maxRooms: number;
}
export interface Dispatcher {
  start(): void;
  /** Looks at a room again (a gap closed, a requeue). */
  nudge(room: RoomId): void;
  /** Stops claiming and resolves when the rows in hand are done, or go back because they take too long. */
  stop(): Promise<void>;
}

const MAX_ATTEMPTS = 5;
const RETRY = { baseMs: 1_000, capMs: 60_000 };
const ROOMS_PER_SCAN = 1_000;
/** `Unavailable` may be one room's lasting trouble (we were thrown out): past this age of the row it counts. */
const UNAVAILABLE_WAIT_MS = 60 * 60_000;
const OUTAGE_RETRY_CAP_MS = 30_000;
/** A row that was in hand so often when the process died may be why: such rows are handled one by one, so that no other is given up with it. */
const SUSPECT_AFTER = 2;
/** A homeserver that hangs must not keep the process from ending. */
const STOP_WITHIN_MS = 5_000;

export function createDispatcher(options: DispatcherOptions): Dispatcher {
  const { inbox, store, clock, logger, handle, giveUp, heldUntil, maxRooms } = options;
  const waiting = new Set<RoomId>();
  const active = new Map<RoomId, Promise<void>>();
  const timers = new Map<RoomId, Timer>();
  /** Claims that ended with a full disk, by row: they were counted and must not be. A row leaves with its last attempt. */
  const forgiven = new Map<number, number>();
  /** Rows in hand. */
  const inHand = new Map<RoomId, InboxRow>();
  let suspects: Promise<unknown> = Promise.resolve();
  let probing: Promise<boolean> | null = null;
  let running = false;

  function pump(): void {
    for (const room of waiting) {
      if (!running || active.size >= maxRooms) return;
      if (active.has(room)) continue;
      waiting.delete(room);
      // Marked active before it runs: what it does at once may announce the same room.
      const work = Promise.resolve()
        .then(() => drain(room))
        .catch((error: unknown) => {
          logger.error({ room_id: room, err: error }, "a room's events could not be read");
          wakeAt(room, clock.now() + RETRY.baseMs);
        })
        .finally(() => {
          active.delete(room);
          pump();
        });
      active.set(room, work);
    }
  }

  async function drain(room: RoomId): Promise<void> {
    while (running) {
      // Nothing is claimed while its end could not be written: its effects on the homeserver would be repeated for nothing.
      if (!store.writable() && !(await probe())) return wakeAt(room, clock.now() + RETRY.baseMs);
      const held = heldUntil(room);
      if (held !== null && held > clock.now()) return wakeAt(room, held);
      const claim = inbox.claim(room);
      if (claim.kind === 'empty') return;
      if (claim.kind === 'later') return wakeAt(room, claim.at);
      const { row, count } = claim;
      const isSuspect = count !== null && row.attempt > SUSPECT_AFTER;
      if (!(await (isSuspect ? alone(() => take(row, count)) : take(row, count)))) return;
    }
  }

  function alone(work: () => Promise<boolean>): Promise<boolean> {
    const turn = suspects.then(work);
    suspects = turn.catch(() => undefined);
    return turn;
  }

  /** @returns false when the room must pause. */
  async function take(row: InboxRow, count: (() => Promise<void>) | null): Promise<boolean> {
    if (!running) return false;
    if (count !== null) {
      try {
        await count();
      } catch (error) {
        if (!(error instanceof StorageError)) throw error;
        wakeAt(row.roomId, clock.now() + RETRY.baseMs);
        return false;
      }
    }
    inHand.set(row.roomId, row);
    try {
      return await process(row);
    } finally {
      inHand.delete(row.roomId);
    }
  }

  function probe(): Promise<boolean> {
    probing ??= store.probe().finally(() => {
      probing = null;
    });
    return probing;
  }

  const attemptsOf = (row: InboxRow): number => row.attempt - (forgiven.get(row.id) ?? 0);

  /** @returns false when the room must pause. */
  async function process(row: InboxRow): Promise<boolean> {
    try {
      // More claims than ends: the process died with this row in hand each time. It must not die of it for ever.
      if (attemptsOf(row) > MAX_ATTEMPTS) await bury(row);
      else await handle(row);
      forgiven.delete(row.id);
      return true;
    } catch (error) {
      return await recover(row, error);
    }
  }

  async function bury(row: InboxRow, error?: unknown): Promise<void> {
    logger.error({ ...fieldsOf(row), code: 'GAVE_UP', ...(error === undefined ? {} : { err: error }) }, 'an event was given up');
    await giveUp(row);
  }

  const fieldsOf = (row: InboxRow) => ({ event_id: row.eventId, room_id: row.roomId, attempt: row.attempt });

  async function recover(row: InboxRow, error: unknown): Promise<boolean> {
    const attempt = attemptsOf(row);
    const waited = clock.now() - row.receivedAt;
    const isWaiting = options.isOutage?.(error) === true || (error instanceof Unavailable && waited < UNAVAILABLE_WAIT_MS);
    const delay = isWaiting ? Math.min(OUTAGE_RETRY_CAP_MS, Math.max(RETRY.baseMs, Math.ceil(waited / 2))) : backOffMs(attempt, RETRY);
    try {
      if (error instanceof StorageError) {
        forgiven.set(row.id, (forgiven.get(row.id) ?? 0) + 1);
        logger.error({ ...fieldsOf(row), err: error }, 'an event waits: the database cannot be written');
        wakeAt(row.roomId, clock.now() + RETRY.baseMs);
        return false;
      }
      if (isWaiting) {
        logger.warn({ ...fieldsOf(row), err: error }, 'an event waits for the homeserver');
        await inbox.retry(row, clock.now() + delay, nameOf(error), row.attempt - 1);
      } else if (attempt >= MAX_ATTEMPTS) {
        await bury(row, error);
        forgiven.delete(row.id);
        return true;
      } else {
        logger.warn({ ...fieldsOf(row), err: error }, 'an event failed and is tried again');
        await inbox.retry(row, clock.now() + delay, nameOf(error));
      }
    } catch (second) {
      logger.error({ ...fieldsOf(row), err: second }, 'an event waits: its failure could not be recorded');
    }
    wakeAt(row.roomId, clock.now() + delay);
    return false;
  }

  function wakeAt(room: RoomId, at: number): void {
    if (!running) return;
    timers.get(room)?.cancel();
    timers.set(
      room,
      clock.after(Math.max(0, at - clock.now()), () => {
        timers.delete(room);
        dispatcher.nudge(room);
      }),
    );
  }

  const dispatcher: Dispatcher = {
    start() {
      running = true;
      inbox.onArrival((rooms) => {
        for (const room of rooms) waiting.add(room);
        pump();
      });
      for (let after: RoomId | undefined; ; ) {
        const rooms = inbox.waitingRooms(ROOMS_PER_SCAN, after);
        for (const room of rooms) waiting.add(room);
        after = rooms.at(-1);
        if (rooms.length < ROOMS_PER_SCAN) break;
      }
      pump();
    },
    nudge(room) {
      waiting.add(room);
      pump();
    },
    async stop() {
      running = false;
      for (const timer of timers.values()) timer.cancel();
      timers.clear();
      let timer: Timer | undefined;
      const timeUp = new Promise<void>((resolve) => {
        timer = clock.after(STOP_WITHIN_MS, resolve);
      });
      await Promise.race([Promise.all(active.values()), timeUp]);
      timer?.cancel();
      // It was not their fault: the next start takes them without counting this claim.
      await Promise.all(
        [...inHand.values()].map((row) => inbox.retry(row, clock.now(), 'STOPPED', row.attempt - 1).catch(() => undefined)),
      );
      if (store.writable()) logger.info({ count: waiting.size }, 'the dispatcher stopped');
    },
  };
  return dispatcher;
}

const nameOf = (error: unknown): string => (error instanceof Error ? error.name : 'unknown');
