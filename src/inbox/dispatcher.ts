/**
 * Takes what the inbox holds and hands it to admission, one row at a time per room and many rooms at once (G3), with a bound on both
 * memory and concurrency whatever the backlog. A row that fails is tried again later and holds back only its own room; after the last
 * attempt it is buried and the person is told (G1: never silently gone). Claiming never waits for a run slot, so lateness is judged at once.
 */
import type { RoomId } from '../ids.ts';
import type { Logger } from '../observe/logger.ts';
import { StorageError, type Store } from '../store/store.ts';
import { backOffMs, type Clock, type Timer } from '../time.ts';
import type { Inbox, InboxRow } from './inbox.ts';

export interface DispatcherOptions {
  readonly inbox: Inbox;
  readonly store: Store;
  readonly clock: Clock;
  readonly logger: Logger;
  /** Handles one row to its end, the finishing write included. A throw means "try again later". */
  readonly handle: (row: InboxRow) => Promise<void>;
  /** In the transaction that buries a row: writes the notice to the person. */
  readonly giveUp: (row: InboxRow) => Promise<void>;
  /** Until when the room's rows must wait (an open gap); null when they need not. */
  readonly heldUntil: (room: RoomId) => number | null;
  readonly maxRooms: number;
}
export interface Dispatcher {
  start(): void;
  /** Looks at a room again (a gap closed, a requeue). */
  nudge(room: RoomId): void;
  /** Stops claiming and resolves when the rows in hand are done. */
  stop(): Promise<void>;
}

const MAX_ATTEMPTS = 5;
const RETRY = { baseMs: 1_000, capMs: 60_000 };
const ROOMS_PER_SCAN = 1_000;

export function createDispatcher(options: DispatcherOptions): Dispatcher {
  const { inbox, store, clock, logger, handle, giveUp, heldUntil, maxRooms } = options;
  const waiting = new Set<RoomId>();
  const active = new Map<RoomId, Promise<void>>();
  const timers = new Map<RoomId, Timer>();
  let running = false;

  function pump(): void {
    for (const room of waiting) {
      if (!running || active.size >= maxRooms) return;
      if (active.has(room)) continue;
      waiting.delete(room);
      const work = drain(room).finally(() => {
        active.delete(room);
        pump();
      });
      active.set(room, work);
    }
  }

  async function drain(room: RoomId): Promise<void> {
    while (running) {
      const held = heldUntil(room);
      if (held !== null && held > clock.now()) return wakeAt(room, held);
      const claim = inbox.claim(room);
      if (claim.kind === 'empty') return;
      if (claim.kind === 'later') return wakeAt(room, claim.at);
      if (!(await process(claim.row))) return;
    }
  }

  /** @returns false when the room must pause. */
  async function process(row: InboxRow): Promise<boolean> {
    try {
      await handle(row);
      return true;
    } catch (error) {
      return await recover(row, error);
    }
  }

  async function recover(row: InboxRow, error: unknown): Promise<boolean> {
    const fields = { event_id: row.eventId, room_id: row.roomId, attempt: row.attempt, err: error };
    const delay = backOffMs(row.attempt, RETRY);
    try {
      if (error instanceof StorageError) {
        // Not the row's fault, so it costs no attempt towards burial; the lease has not been written either.
        logger.error(fields, 'an event waits: the database cannot be written');
        wakeAt(row.roomId, clock.now() + delay);
        return false;
      }
      if (row.attempt >= MAX_ATTEMPTS) {
        logger.error({ ...fields, code: 'GAVE_UP' }, 'an event was given up');
        await giveUp(row);
        return true;
      }
      logger.warn(fields, 'an event failed and is tried again');
      await inbox.retry(row, clock.now() + delay, error instanceof Error ? error.name : 'unknown');
    } catch (second) {
      logger.error({ ...fields, err: second }, 'an event waits: its failure could not be recorded');
    }
    wakeAt(row.roomId, clock.now() + delay);
    return false;
  }

  function wakeAt(room: RoomId, at: number): void {
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
      await Promise.all(active.values());
      if (store.writable()) logger.info({ count: waiting.size }, 'the dispatcher stopped');
    },
  };
  return dispatcher;
}
