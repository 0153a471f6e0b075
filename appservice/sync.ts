/**
 * Finds what the homeserver failed to push (G1): Synapse drops its queue when it stops, and nobody sends those events again
 * (research/synapse.md §0). Syncs as a second device that never holds keys, at start, after an outage of either side and every minute; what it
 * finds goes through the same inbox, which knows most of it already. A restart between two rounds is noticed by the connections that it closes,
 * if any was kept (20 s after the last request); otherwise the next round finds what it lost. Cost with nothing new: one request of some 6 ms.
 */
import type { RoomId, UserId } from '../src/ids.ts';
import { type IncomingEvent, isOwnMessage } from '../src/inbox/inbox.ts';
import type { Gap, ReconcileStore, RoomNews } from '../src/inbox/reconcile-store.ts';
import { isJsonObject } from '../src/json.ts';
import { LIMITS } from '../src/limits.ts';
import type { Logger } from '../src/observe/logger.ts';
import { StorageError, type Tx } from '../src/store/store.ts';
import { backOffMs, type Clock, type Timer } from '../src/time.ts';
import { CryptoUnavailable } from './crypto/crypto-service.ts';
import type { Orphans } from './interrupt-orphans.ts';
import { isMatrixError, type MatrixApi, matrixPath } from './matrix-api.ts';
import type { OpenOwn } from './open-event.ts';
import { logSkipped, type OnSkipped, readIncoming } from './read-incoming.ts';
import { buildSyncFilter, cutAtOwnJoin, readSync, type SyncNews } from './read-sync.ts';

export interface ReconcilerOptions {
  /** As the sync device: `/sync` with a position deletes that device's to-device messages on the server. */
  readonly api: MatrixApi;
  readonly store: ReconcileStore;
  readonly orphans: Orphans;
  readonly oracle: UserId;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly intervalMs: number;
  /** Unlike any other process's; a few characters. */
  readonly newId: () => string;
  /** Without it, encrypted answers of another database are not recognised. */
  readonly openOwn?: OpenOwn;
  readonly onSkipped?: OnSkipped;
  /** What was read, before it is stored: what changes a room counts at once, not when its row has its turn (`forgetChanged`). */
  readonly onRead?: (events: readonly IncomingEvent[]) => void;
  /** How many events a round looked through; for the metric. */
  readonly onFound?: (count: number) => void;
  /** The room's rows need wait no longer. */
  readonly onGapClosed?: (room: RoomId) => void;
}
export type ReconcileOutcome =
  | { readonly ok: true; readonly found: number; readonly gaps: number }
  | { readonly ok: false; readonly reason: string };

export interface Reconciler {
  /** Starts the rounds; resolves with the first one, which begins at once. */
  start(): Promise<ReconcileOutcome>;
  /** A round now; when one is running, another one after it. Never rejects. */
  run(): Promise<ReconcileOutcome>;
  /** Somebody heard from the homeserver: a round now, if the last one failed. Called for every transaction, so it is cheap. */
  nudge(): void;
  /** The homeserver closed connections: it may have restarted and forgotten what it had not pushed, so a round soon. Cheap to call. */
  suspect(): void;
  /** Wall clock ms until which newer rows of the room wait for an older stretch; null when they need not. For the dispatcher. */
  heldUntil(room: RoomId): number | null;
  stop(): Promise<void>;
}

const PAGE = 100;
const GAPS_AT_ONCE = 4;
const RETRY_BASE_MS = 1_000;
/** A proxy that closes kept connections by itself must not keep us busy: each time in vain, the next suspicion waits twice as long. */
const SUSPECT_BASE_MS = 1_000;
/** The first sync of an account in many rooms is slow. */
const SYNC_TIMEOUT_MS = 120_000;

export function createReconciler(options: ReconcilerOptions): Reconciler {
  const { api, store, orphans, oracle, clock, logger, intervalMs, onSkipped, onGapClosed } = options;
  const filter = buildSyncFilter(options.newId());
  const stopping = new AbortController();
  const held = new Map<RoomId, number>();
  let started = false;
  let timer: Timer | null = null;
  let running: Promise<ReconcileOutcome> | null = null;
  let again: Promise<ReconcileOutcome> | null = null;
  let failures = 0;
  /** Rounds after a suspicion that found nothing. */
  let vain = 0;
  let suspected: Timer | null = null;
  refreshHeld();

  function refreshHeld(): void {
    held.clear();
    for (const { roomId, openedAt } of store.gaps())
      held.set(roomId, Math.min(held.get(roomId) ?? Number.POSITIVE_INFINITY, openedAt + LIMITS.gapWaitMs));
  }

  function run(): Promise<ReconcileOutcome> {
    if (running === null) {
      running = round().finally(() => {
        running = null;
        schedule();
      });
      return running;
    }
    again ??= running.then(() => {
      again = null;
      return run();
    });
    return again;
  }
  function schedule(): void {
    timer?.cancel();
    if (!started || stopping.signal.aborted) return;
    const delay = failures === 0 ? intervalMs : backOffMs(failures, { baseMs: RETRY_BASE_MS, capMs: intervalMs });
    timer = clock.after(delay, () => void run());
  }

  async function round(): Promise<ReconcileOutcome> {
    const startedAt = clock.monotonic();
    try {
      stopping.signal.throwIfAborted();
      const found = await catchUp();
      if (found > 0) options.onFound?.(found);
      const gaps = await closeGaps();
      failures = 0;
      if (found > 0 || gaps > 0)
        logger.info({ count: found, duration_ms: Math.round(clock.monotonic() - startedAt) }, 'reconciliation looked through new events');
      return { ok: true, found, gaps };
    } catch (error) {
      if (stopping.signal.aborted) return { ok: false, reason: 'stopped' };
      failures += 1;
      const code = codeOf(error);
      const fields = { code, attempt: failures, ...(isMatrixError(error) ? { status: error.status } : { err: error }) };
      if (code === 'INTERNAL') logger.error(fields, 'reconciliation failed');
      else logger.warn(fields, 'reconciliation failed and is tried again');
      return { ok: false, reason: code };
    }
  }

  /** @returns how many events were looked through. */
  async function catchUp(): Promise<number> {
    const since = store.position();
    const askedAt = clock.now();
    const news = await sync(since);
    if (news === null) return 0;
    const invites = news.invites.filter(({ roomId }) => !store.knowsInvite(roomId, askedAt));
    const rooms: RoomNews[] = [];
    for (const { roomId, events, gapFrom } of news.joined) {
      const gap = gapFrom === null || since === null ? null : { from: gapFrom, to: since };
      rooms.push({ roomId, events: await read(events, roomId), gap, joined: true });
    }
    for (const { roomId, events } of news.left) rooms.push({ roomId, events: await read(events, roomId), gap: null, joined: false });
    for (const { roomId, event } of invites) rooms.push({ roomId, events: await read([event], roomId), gap: null, joined: false });
    // The first sync ever records the position and takes invites: what stands in the rooms is history. Own answers among it are still
    // looked at, because they name the prompts that a lost database does not know to be answered.
    const taken =
      since === null ? rooms.map((room) => ({ ...room, events: room.joined ? room.events.filter(isOwn) : room.events })) : rooms;
    const all = taken.flatMap(({ events }) => events);
    // Held before the rows are there: whoever hears of them at the commit would else take the newer ones before the gap's (G3).
    const gapped = taken.filter(({ gap }) => gap !== null);
    for (const { roomId } of gapped) held.set(roomId, Math.min(held.get(roomId) ?? Number.POSITIVE_INFINITY, askedAt + LIMITS.gapWaitMs));
    try {
      await writeWithOrphans(all, (also) => store.take({ rooms: taken, nextBatch: news.nextBatch, askedAt, also }));
    } finally {
      if (gapped.length > 0) refreshHeld();
    }
    return all.length;
  }
  async function writeWithOrphans(events: readonly IncomingEvent[], write: (also: (tx: Tx) => void) => Promise<void>): Promise<void> {
    const plan = await orphans.plan(events);
    let edits = 0;
    await write((tx) => {
      edits = plan(tx);
    });
    if (edits > 0) orphans.announce();
  }
  const isOwn = (event: IncomingEvent): boolean => isOwnMessage(event, oracle);

  async function sync(since: string | null): Promise<SyncNews | null> {
    const query = { timeout: 0, set_presence: 'offline', filter, ...(since === null ? {} : { since }) };
    try {
      const answer = await api.request('GET', '/_matrix/client/v3/sync', { query, timeoutMs: SYNC_TIMEOUT_MS, signal: stopping.signal });
      return readSync(answer, { oracle, since });
    } catch (error) {
      // A position of another database of this homeserver: begin again, as a new installation would.
      if (since === null || !isMatrixError(error) || error.status !== 400) throw error;
      logger.warn({ code: error.errcode, status: error.status }, 'the homeserver does not know the sync position; beginning again');
      await store.reset();
      return sync(null);
    }
  }

  async function closeGaps(): Promise<number> {
    const gaps = store.gaps();
    const queue = gaps.values();
    const failures: unknown[] = [];
    // One room that cannot be read must neither keep the others from being read nor let two rounds read them at once.
    const work = async () => {
      for (const gap of queue) await closeGap(gap).catch((error: unknown) => void failures.push(error));
    };
    await Promise.all(Array.from({ length: Math.min(GAPS_AT_ONCE, gaps.length) }, work));
    if (failures.length > 0) throw failures[0];
    return gaps.length;
  }

  async function closeGap(first: Gap): Promise<void> {
    let gap: Gap = first;
    for (;;) {
      const page = await readPage(gap);
      const tooLong = gap.pages + 1 >= LIMITS.gapPages && page.from !== null;
      if (tooLong)
        logger.error({ room_id: gap.roomId, count: gap.pages * PAGE }, 'a gap was longer than the limit; older events in it were not read');
      const from = tooLong ? null : page.from;
      await writeWithOrphans(page.events, (also) => store.takePage(gap, { events: page.events, from, also }));
      if (from === null) break;
      gap = { ...gap, from, pages: gap.pages + 1 };
    }
    refreshHeld();
    onGapClosed?.(gap.roomId);
  }

  async function readPage(gap: Gap): Promise<{ events: IncomingEvent[]; from: string | null }> {
    const query = { dir: 'b', limit: PAGE, from: gap.from, ...(gap.to === null ? {} : { to: gap.to }) };
    try {
      const path = matrixPath`/_matrix/client/v3/rooms/${gap.roomId}/messages`;
      const answer: unknown = await api.request('GET', path, { query, signal: stopping.signal });
      const chunk = isJsonObject(answer) && Array.isArray(answer['chunk']) ? answer['chunk'] : [];
      const end = isJsonObject(answer) && typeof answer['end'] === 'string' ? answer['end'] : null;
      const { kept, reachedJoin } = cutAtOwnJoin(chunk.toReversed(), oracle);
      // With `to`, Synapse still names an end on the last page and then answers an empty one.
      const done = reachedJoin || chunk.length === 0 || end === gap.from;
      return { events: await read(kept, gap.roomId), from: done ? null : end };
    } catch (error) {
      // Out of the room meanwhile: there is nobody to answer.
      if (isMatrixError(error) && (error.status === 403 || error.status === 404)) return { events: [], from: null };
      throw error;
    }
  }

  async function read(list: readonly unknown[], roomId: RoomId): Promise<IncomingEvent[]> {
    const { events, skipped } = readIncoming(list, { source: 'sync', roomId });
    logSkipped(skipped, { logger, onSkipped });
    options.onRead?.(events);
    const { openOwn } = options;
    if (openOwn === undefined) return events;
    const opened: IncomingEvent[] = [];
    for (const event of events) opened.push(await openOwn(event));
    return opened;
  }

  function suspect(): void {
    if (!started || suspected !== null || stopping.signal.aborted) return;
    // A moment for a restart to begin: a homeserver that is about to go answers a last time.
    suspected = clock.after(backOffMs(vain + 1, { baseMs: SUSPECT_BASE_MS, capMs: Math.max(SUSPECT_BASE_MS, intervalMs) }), () => {
      suspected = null;
      void run().then((outcome) => {
        vain = outcome.ok && outcome.found === 0 ? vain + 1 : 0;
      });
    });
  }

  return {
    suspect,
    start() {
      started = true;
      return run();
    },
    run,
    nudge() {
      if (failures > 0 && running === null && started) void run();
    },
    heldUntil(room) {
      const until = held.get(room);
      // Further away than any gap is waited for: the wall clock was put back since.
      return until === undefined || until - clock.now() > LIMITS.gapWaitMs ? null : until;
    },
    async stop() {
      started = false;
      timer?.cancel();
      suspected?.cancel();
      stopping.abort(new Error('reconciliation stops'));
      await running;
      await again;
    },
  };
}

function codeOf(error: unknown): string {
  if (isMatrixError(error)) return error.errcode;
  if (error instanceof StorageError) return 'STORAGE_UNAVAILABLE';
  return error instanceof CryptoUnavailable ? 'CRYPTO_UNAVAILABLE' : 'INTERNAL';
}
