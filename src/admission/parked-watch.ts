/**
 * Nobody must wait in vain for the answer to a message that the oracle cannot read: a minute after it was set aside, and once keys that were sent
 * before that would have come, its sender is asked to send it again; a day later it ends (DESIGN §2). The asking, the rows that it is about and the
 * stamp that keeps it from being said twice are one transaction (G4), against the rows as they are then: a key that came first leaves nothing to say.
 * No timer runs while nothing is set aside.
 */
import { refusal } from '../errors.ts';
import { type EventId, type MegolmSessionId, parseEventId, parseUserId } from '../ids.ts';
import type { Parked, ParkedGroup, ParkedRow } from '../inbox/parked.ts';
import { isJsonObject, type JsonObject } from '../json.ts';
import { LIMITS } from '../limits.ts';
import type { Logger } from '../observe/logger.ts';
import type { Store } from '../store/store.ts';
import type { Clock, Timer } from '../time.ts';
import type { KnownRooms } from './known-rooms.ts';
import type { Notices } from './notices.ts';

export interface ParkedWatch {
  /** Takes everything up that an earlier process set aside: its keys may have come in its last moment. */
  start(): void;
  /** These keys are on disk: what waits for them is ready again, as soon as the database takes it. */
  keysArrived(sessions: readonly MegolmSessionId[]): void;
  stop(): Promise<void>;
}

export interface ParkedWatchOptions {
  readonly store: Store;
  readonly parked: Parked;
  readonly notices: Notices;
  readonly known: Pick<KnownRooms, 'of'>;
  readonly clock: Clock;
  readonly logger: Logger;
  /** A look for keys that began after this monotonic time is over. */
  readonly keysSyncedSince: (at: number) => boolean;
  readonly observe: (outcome: string, reason: string) => void;
}

/** While keys cannot be looked for, and while the disk fails. */
const AGAIN_MS = 5_000;
const WAKE_AGAIN_MS = 1_000;
/** The wall clock may be put forward meanwhile. */
const LONGEST_SLEEP_MS = 10 * 60_000;
const AT_ONCE = 100;

export function createParkedWatch({
  store,
  parked,
  notices,
  known,
  clock,
  logger,
  keysSyncedSince,
  observe,
}: ParkedWatchOptions): ParkedWatch {
  let timer: Timer | undefined;
  /** Monotonic time of the next look. */
  let wakesAt = Number.POSITIVE_INFINITY;
  let looking: Promise<void> | null = null;
  let waking: Promise<void> | null = null;
  let retry: Timer | undefined;
  const arrived = new Set<MegolmSessionId>();
  let wakeAll = false;
  let running = false;

  /** Parked times are wall clock; what was parked by an earlier process was parked before every look of this one. */
  const monotonicOf = (wallMs: number): number => clock.monotonic() - Math.max(0, clock.now() - wallMs);

  async function look(): Promise<void> {
    const now = clock.now();
    for (const group of parked.untold(AT_ONCE)) {
      const isOver = now - group.since >= LIMITS.parkedEndMs;
      if (now - group.since < LIMITS.parkedTellMs) break;
      if (isOver || keysSyncedSince(monotonicOf(group.since))) await tell(group);
    }
    for (let ended: ParkedRow[] = []; ; ended = []) {
      ended = await store.write((tx) => parked.end(tx, now - LIMITS.parkedEndMs, AT_ONCE));
      for (const { eventId, roomId } of ended) {
        observe('ignored', 'never_readable');
        logger.info({ event_id: eventId, room_id: roomId, reason: 'never_readable' }, 'an encrypted event was given up');
      }
      if (ended.length < AT_ONCE) return;
    }
  }

  async function tell(group: ParkedGroup): Promise<void> {
    const { roomId } = group;
    const sender = parseUserId(group.sender);
    const told = await store.write((tx) => {
      const rows = parked.untoldOf(tx, group, clock.now() - LIMITS.parkedTellMs);
      const newest = rows.at(-1);
      if (newest === undefined || !sender.ok) return null;
      parked.markTold(tx, group, rows, clock.now());
      if (known.of(roomId)?.membership === 'left') return null;
      const said = notices.refuse(tx, {
        refusal: refusal('CANNOT_READ'),
        sender: sender.value,
        roomId,
        direct: known.of(roomId)?.is_direct === 1,
        signed: false,
        directRoom: null,
        cause: newest.eventId,
        threadRoot: threadOf(newest.event),
        kind: 'unreadable',
      });
      return { said, count: rows.length };
    });
    if (told === null) return;
    told.said();
    observe('refused', 'CANNOT_READ');
    logger.info(
      { room_id: roomId, code: 'CANNOT_READ', count: told.count },
      'the sender of unreadable messages was asked to send them again',
    );
  }

  /** Looks once at a time; sleeps until something can be due, or for good. */
  function arm(): void {
    timer?.cancel();
    timer = undefined;
    wakesAt = Number.POSITIVE_INFINITY;
    const oldest = running && looking === null ? parked.oldestSince() : null;
    if (oldest === null) return;
    const untold = parked.untold(1)[0]?.since ?? null;
    const now = clock.now();
    const tellIn = untold === null ? Number.POSITIVE_INFINITY : untold + LIMITS.parkedTellMs - now;
    const next = Math.min(pauseUntil(tellIn), pauseUntil(oldest + LIMITS.parkedEndMs - now), LONGEST_SLEEP_MS);
    wakesAt = clock.monotonic() + next;
    timer = clock.after(next, () => {
      timer = undefined;
      looking = look()
        .catch((error: unknown) => logger.warn({ err: error }, 'parked events could not be looked at'))
        .finally(() => {
          looking = null;
          arm();
        });
    });
  }

  function wake(): void {
    if (!running || waking !== null || (arrived.size === 0 && !wakeAll)) return;
    retry?.cancel();
    const sessions = wakeAll ? ('all' as const) : [...arrived];
    wakeAll = false;
    if (sessions !== 'all') arrived.clear();
    waking = parked
      .wake(sessions)
      .then(
        () => true,
        (error: unknown) => {
          logger.warn({ err: error }, 'events whose key has come could not be taken up; tried again');
          if (sessions === 'all') wakeAll = true;
          else for (const session of sessions) arrived.add(session);
          return false;
        },
      )
      .then((isDone) => {
        waking = null;
        if (isDone) wake();
        else if (running) retry = clock.after(WAKE_AGAIN_MS, wake);
        arm();
      });
  }

  parked.onParked(() => {
    if (wakesAt > clock.monotonic() + LIMITS.parkedTellMs) arm();
  });

  return {
    start() {
      running = true;
      wakeAll = parked.oldestSince() !== null;
      wake();
    },
    keysArrived(sessions) {
      for (const session of sessions) arrived.add(session);
      wake();
    },
    async stop() {
      running = false;
      timer?.cancel();
      retry?.cancel();
      await looking;
      await waking;
    },
  };
}

/** What is overdue could not be done: it is tried again, ever more seldom. */
const pauseUntil = (dueIn: number): number => (dueIn > 0 ? dueIn : Math.max(AGAIN_MS, -dueIn / 2));

/** The relation of an encrypted event stands in the clear. */
function threadOf(event: JsonObject): EventId | null {
  const content = event['content'];
  const relation = isJsonObject(content) ? content['m.relates_to'] : undefined;
  if (!isJsonObject(relation) || relation['rel_type'] !== 'm.thread') return null;
  const root = parseEventId(relation['event_id']);
  return root.ok ? root.value : null;
}
