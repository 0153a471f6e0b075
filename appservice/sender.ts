/**
 * Carries outbox rows to the homeserver until each is confirmed, parked or past its deadline (G4). Lanes go side by side, rows of a lane
 * one after the other, so an answer's edits keep their order and a poisoned row holds back its own lane only, for as long as it is tried. A
 * message that must be tried again holds back newer ones of its thread for a moment, so that answers stand in the order of the questions (G3).
 * When nobody can be served (refused, 502 … 504) all lanes wait together behind one gate, so that an outage costs a few probes
 * and everything goes out at once when it ends. The txn id, asserted with the row's own user and device, makes each retry the same event.
 * What goes into an encrypted room is encrypted at its first attempt (seal-row.ts). Cost: an idle sender has no timer; a row is one request and one
 * commit, and no commit stands before its request but that of a ciphertext.
 */
import { refusal } from '../src/errors.ts';
import { type DeviceId, type EventId, noticeTxnId, parseEventId, type UserId } from '../src/ids.ts';
import { isJsonObject } from '../src/json.ts';
import { LIMITS } from '../src/limits.ts';
import type { Logger } from '../src/observe/logger.ts';
import { LOST_DEVICE, type OutboundEvent, type Outbox, type OutboxRow } from '../src/outbox/outbox.ts';
import { TOO_LARGE_SEALED } from '../src/outbox/park-reason.ts';
import { backOffMs, type Clock, sleep, type Timer } from '../src/time.ts';
import { LIVE_KEY } from './content/build-answer.ts';
import { buildNotice } from './content/build-notice.ts';
import type { Place } from './content/relations.ts';
import { readRunField } from './content/run-field.ts';
import { CryptoUnavailable } from './crypto/crypto-service.ts';
import type { FindSent } from './find-sent.ts';
import { isMatrixError, isOutage, type MatrixConnection, MatrixError } from './matrix-api.ts';
import { planRequest, type SendRequest } from './plan-request.ts';
import { createSealRow, type SealRowOptions } from './seal-row.ts';

export interface SenderOptions {
  readonly outbox: Outbox;
  readonly connection: Pick<MatrixConnection, 'as'>;
  readonly clock: Clock;
  readonly logger: Logger;
  /** Asked at each attempt of an event that can be encrypted: nothing goes in the clear into an encrypted room (G11). */
  readonly encryption?: SealRowOptions['encryption'];
  readonly askedEncrypted?: SealRowOptions['askedEncrypted'];
  /** Without it, what is meant for an encrypted room is given up. */
  readonly seal?: SealRowOptions['seal'];
  /** The event that a row whose device is gone became, if it did. Without it, such a row is sent again. */
  readonly findSent?: FindSent;
  /** The homeserver does not know a device: makes the present one again if it is that. @throws MatrixError */
  readonly restoreDevice?: () => Promise<void>;
  /** Confirmed by the homeserver; called before the commit that says so. `durationMs` is the request alone. */
  readonly onSent?: (row: OutboxRow, eventId: EventId, durationMs: number) => void;
  /** Given up for good. */
  readonly onParked?: (row: OutboxRow, reason: string) => void;
  /** The homeserver stopped serving; once per outage. */
  readonly onOutage?: () => void;
  /** It serves again: time to reconcile. */
  readonly onRecovered?: () => void;
}
type Sent =
  | { readonly kind: 'sent'; readonly eventId: EventId; readonly durationMs: number }
  | { readonly kind: 'unsendable'; readonly reason: string };

export interface Sender {
  start(): void;
  /** Somebody heard from the homeserver: try now instead of at the next probe. */
  nudge(): void;
  inFlight(): number;
  /** Takes no more rows; lets those in flight finish for at most 5 s. */
  stop(): Promise<void>;
}

const MAX_IN_FLIGHT = 16;
/** Beside them. */
const MAX_SEALING = 64;
/** Rows looked at per round, when some of them wait for others. */
const MAX_LOOKED_AT = 200;
/** While the gate is closed, this many lanes are tried per probe: one that always fails must not keep it shut. */
const PROBES = 4;
const STOP_WITHIN_MS = 5_000;
/** Rows of another process that wait for their time are found by looking; only while rows wait. */
const POLL_MS = 1_000;
/** Of two edits in one millisecond the greater event id wins, not the later (research/synapse.md §7): for homeservers that take no `ts`. */
const EDIT_SPACING_MS = 2;
/** Past it the poll finds them. */
const MAX_RETRIES_KNOWN = 1_000;
/** So long newer messages of a thread wait for one that has to be tried again: a hiccup, not a poisoned row (G4). */
const ORDER_PATIENCE_MS = 20_000;
const ROW_BACK_OFF = { baseMs: 1_000, capMs: 60_000 };
/** The engine opens, or a key server answers again: nothing but that is waited for, and asking costs the homeserver nothing. */
const CRYPTO_BACK_OFF = { baseMs: 500, capMs: 5_000 };
/** A homeserver on the same machine restarts in seconds; a refused connection costs nothing. */
const PROBE_BACK_OFF = { baseMs: 500, capMs: 5_000 };

/** What to do about a failed attempt. */
export type FailurePlan = { readonly kind: 'retry'; readonly delayMs: number; readonly outage: boolean } | { readonly kind: 'park' };

export function decideFailure(error: MatrixError, { attempts, outageAttempts }: { attempts: number; outageAttempts: number }): FailurePlan {
  if (isOutage(error)) return { kind: 'retry', delayMs: backOffMs(outageAttempts + 1, PROBE_BACK_OFF), outage: true };
  const delayMs = backOffMs(attempts + 1, ROW_BACK_OFF);
  if (error.status === 429) return { kind: 'retry', delayMs: error.retryAfterMs ?? delayMs, outage: false };
  // An account or device that a start makes again: worth waiting for.
  if (error.errcode === 'M_UNKNOWN_DEVICE') return { kind: 'retry', delayMs, outage: false };
  // A redirect or a proxy's page instead of an answer says nothing about the row.
  const said = error.status >= 400 && error.status < 500 && error.errcode !== 'NOT_JSON';
  return said ? { kind: 'park' } : { kind: 'retry', delayMs, outage: false };
}

export function createSender(options: SenderOptions): Sender {
  const { outbox, connection, clock, logger } = options;
  const busy = new Map<string, Promise<void>>();
  const abort = new AbortController();
  const { seal } = options;
  const sealRow = createSealRow({
    outbox,
    logger,
    encryption: options.encryption,
    askedEncrypted: options.askedEncrypted,
    seal: seal === undefined ? undefined : (...event) => besideOthers(() => seal(...event)),
    signal: abort.signal,
  });
  let running = false;
  let outageAttempts = 0;
  /** Rows in hand that are being encrypted: they wait for each other and for servers that hold keys, and must hold up no other room meanwhile. */
  let sealing = 0;
  /** Monotonic; before it nothing is tried. */
  let gateOpensAt = 0;
  let timer: Timer | null = null;
  /** Monotonic times at which a failed row may go again. */
  const retriesAt = new Set<number>();
  /** By place in a room: a message that was sent in vain, and the monotonic time until which newer ones wait for it. */
  const behind = new Map<string, { readonly seq: number; readonly until: number }>();
  /** By lane: where the message in hand stands, and whether its request has left. */
  const sending = new Map<string, { readonly place: string; readonly seq: number; left: boolean }>();
  /** A message waits for an older one of its place that has not left yet. */
  let heldBack = false;

  function pump(): void {
    if (!running) return;
    timer?.cancel();
    timer = null;
    const wait = gateOpensAt - clock.monotonic();
    if (wait > 0) {
      wakeIn(wait);
      return;
    }
    const limit = (outageAttempts > 0 ? PROBES : MAX_IN_FLIGHT) + Math.min(sealing, MAX_SEALING) - busy.size;
    if (limit > 0) {
      let free = limit;
      // Behind a message that others must not overtake may stand many, and behind those somebody else's.
      const someWait = behind.size > 0 || [...sending.values()].some(({ left }) => !left);
      for (const row of outbox.due(clock.now(), { limit: someWait ? MAX_LOOKED_AT : limit, busy: new Set(busy.keys()) })) {
        if (free === 0) break;
        const place = placeOf(row);
        if (place !== null && mustWait(place, row.seq)) continue;
        free -= 1;
        if (place !== null) sending.set(row.lane, { place, seq: row.seq, left: false });
        const work = carry(row).then(
          () => done(row.lane),
          (error: unknown) => {
            // The database could not be written: the row is still there, and the same txn id makes sending it again harmless.
            logger.error({ txn_id: row.txn_id, room_id: row.room_id, err: error }, 'an outbox row could not be finished');
            gateOpensAt = clock.monotonic() + POLL_MS;
            done(row.lane);
          },
        );
        busy.set(row.lane, work);
      }
    }
    scheduleNext();
  }
  function mustWait(place: string, seq: number): boolean {
    const first = behind.get(place);
    if (first !== undefined) return first.seq < seq && first.until > clock.monotonic();
    const older = [...sending.values()].filter((other) => other.place === place && other.seq < seq);
    // While nobody knows whether the homeserver is back, messages of one place are not sent side by side.
    if (outageAttempts > 0) return older.length > 0;
    // What is still being looked at or encrypted would be overtaken.
    const isOvertaking = older.some(({ left }) => !left);
    heldBack ||= isOvertaking;
    return isOvertaking;
  }
  function leave({ lane }: OutboxRow): void {
    const own = sending.get(lane);
    if (own !== undefined) own.left = true;
    if (!heldBack) return;
    heldBack = false;
    pump();
  }
  /** Kept until the row is settled: one that goes on failing is not waited for anew. */
  function holdPlace({ lane, seq }: OutboxRow): void {
    const place = sending.get(lane)?.place;
    if (place === undefined || (behind.get(place)?.seq ?? Number.POSITIVE_INFINITY) <= seq) return;
    const until = clock.monotonic() + ORDER_PATIENCE_MS;
    behind.set(place, { seq, until });
    retriesAt.add(until);
  }
  function freePlace({ lane, seq }: OutboxRow): void {
    const place = sending.get(lane)?.place;
    if (place !== undefined && behind.get(place)?.seq === seq) behind.delete(place);
  }

  /** Retries are known to the millisecond; rows of an earlier process are looked for, and only while nothing else will wake us. */
  function scheduleNext(): void {
    const now = clock.monotonic();
    for (const at of retriesAt) if (at <= now) retriesAt.delete(at);
    const poll = busy.size === 0 && outbox.nextDueAt() !== null ? POLL_MS : Number.POSITIVE_INFINITY;
    const next = Math.min(poll, ...[...retriesAt].map((at) => at - now));
    if (Number.isFinite(next)) wakeIn(next);
  }
  function wakeIn(delayMs: number): void {
    timer?.cancel();
    timer = clock.after(delayMs, pump);
  }
  function done(lane: string): void {
    busy.delete(lane);
    sending.delete(lane);
    pump();
  }

  async function carry(row: OutboxRow): Promise<void> {
    if (row.deadline_at <= clock.now()) return park(row, 'deadline');
    try {
      const sent = row.device_id === LOST_DEVICE ? await settleLost(row) : await attempt(row);
      if (sent.kind === 'unsendable')
        return await park(row, sent.reason, sent.reason === TOO_LARGE_SEALED ? planParkedNotice(row, { status: 413 }) : null);
      recovered();
      options.onSent?.(row, sent.eventId, sent.durationMs);
      await outbox.markSent(row, sent.eventId, clock.now());
      freePlace(row);
      if (sent.durationMs < EDIT_SPACING_MS) await sleep(clock, EDIT_SPACING_MS);
    } catch (error) {
      if (error instanceof CryptoUnavailable)
        return await retry(row, { delayMs: backOffMs(row.attempts + 1, CRYPTO_BACK_OFF), reason: error.message });
      if (!isMatrixError(error)) throw error;
      // A stop is not the row's fault.
      if (error.errcode === 'ABORTED') return;
      await failed(row, error);
    }
  }

  /** Its device is gone, and the homeserver no longer knows what it took from it: what is in the room must not come a second time (G4). */
  async function settleLost(row: OutboxRow): Promise<Sent> {
    const startedAt = clock.monotonic();
    const found = row.state_key === null ? await options.findSent?.(row) : null;
    if (found !== undefined && found !== null) {
      logger.info({ txn_id: row.txn_id, room_id: row.room_id }, 'an event of a lost device was found in its room');
      return { kind: 'sent', eventId: found, durationMs: clock.monotonic() - startedAt };
    }
    return attempt(await outbox.adopt(row));
  }

  async function attempt(row: OutboxRow): Promise<Sent> {
    const edits = row.edits_txn === null ? null : outbox.eventIdOf(row.edits_txn);
    const plan = planRequest(row, edits);
    if (plan.kind === 'unsendable') return plan;
    const ready = await sealRow(row, plan);
    if (ready.kind === 'unsendable') return ready;
    const request = planRequest(ready.row, edits);
    if (request.kind === 'unsendable') return request;
    const sent = put(ready.row, request);
    leave(row);
    return sent;
  }

  async function besideOthers<T>(work: () => Promise<T>): Promise<T> {
    sealing += 1;
    pump();
    try {
      return await work();
    } finally {
      sealing -= 1;
    }
  }

  async function put(row: OutboxRow, { path, body, ts }: SendRequest): Promise<Sent> {
    const api = connection.as({ userId: row.sender as UserId, deviceId: row.device_id as DeviceId });
    const startedAt = clock.monotonic();
    const answer = await api.request<{ event_id?: unknown }>('PUT', path, {
      ...(ts === undefined ? {} : { query: { ts } }),
      body,
      timeoutMs: LIMITS.outboxAttemptTimeoutMs,
      signal: abort.signal,
    });
    const eventId = parseEventId(answer.event_id);
    if (!eventId.ok) throw new MatrixError({ errcode: 'NOT_JSON', status: 200, retryAfterMs: null, certain: false });
    return { kind: 'sent', eventId: eventId.value, durationMs: clock.monotonic() - startedAt };
  }

  async function failed(row: OutboxRow, error: MatrixError): Promise<void> {
    const reason = `${error.errcode} ${error.status}`;
    // Told for the first time: it is mended now, and what was tried before does not count.
    const isNews = error.errcode === 'M_UNKNOWN_DEVICE' && row.device_id !== LOST_DEVICE;
    const plan = decideFailure(error, { attempts: isNews ? 0 : row.attempts, outageAttempts });
    if (plan.kind === 'park') return park(row, reason, planParkedNotice(row, error));
    if (error.errcode === 'M_UNKNOWN_DEVICE') await restoreDevice(row.device_id as DeviceId);
    if (plan.outage) closeGate(error, plan.delayMs);
    else recovered();
    // A refused connection says nothing about the row: the gate alone holds it back, so that a sign of life frees it at once.
    await retry(row, { delayMs: error.status === 0 && plan.outage ? 0 : plan.delayMs, reason });
  }

  async function retry(row: OutboxRow, { delayMs, reason }: { delayMs: number; reason: string }): Promise<void> {
    holdPlace(row);
    logger.debug({ txn_id: row.txn_id, room_id: row.room_id, attempt: row.attempts + 1, reason }, 'a send is retried');
    await outbox.retryAt(row, Math.min(clock.now() + delayMs, row.deadline_at), reason);
    if (delayMs > 0 && retriesAt.size < MAX_RETRIES_KNOWN) retriesAt.add(clock.monotonic() + delayMs);
  }

  async function restoreDevice(device: DeviceId): Promise<void> {
    const count = await outbox.loseDevice(device);
    logger.warn({ count }, 'the homeserver does not know the device of an event; what was sent from it is looked for');
    try {
      await options.restoreDevice?.();
    } catch (error) {
      if (!isMatrixError(error)) throw error;
      // The row comes again, and with it this.
      logger.warn({ code: error.errcode, status: error.status }, 'the device could not be made again');
    }
  }

  async function park(row: OutboxRow, reason: string, notice: OutboundEvent | null = null): Promise<void> {
    recoveredBy(reason);
    logger.warn(
      {
        txn_id: row.txn_id,
        room_id: row.room_id,
        type: row.event_type,
        reason,
        attempt: row.attempts + 1,
        ...(row.run_id === null ? {} : { run_id: row.run_id }),
      },
      'an event could not be sent and was parked',
    );
    await outbox.park(row, reason, { notice, now: clock.now() });
    freePlace(row);
    options.onParked?.(row, reason);
  }

  function closeGate(error: MatrixError, delayMs: number): void {
    // Sixteen rows that fail together are one failed probe.
    if (clock.monotonic() < gateOpensAt) return;
    outageAttempts += 1;
    gateOpensAt = clock.monotonic() + delayMs;
    if (outageAttempts > 1) return;
    logger.warn({ code: error.errcode, status: error.status }, 'the homeserver serves nobody; sending waits');
    options.onOutage?.();
  }
  function recovered(): void {
    if (outageAttempts === 0) return;
    outageAttempts = 0;
    gateOpensAt = 0;
    logger.info({}, 'the homeserver serves again');
    options.onRecovered?.();
  }
  /** A refusal is an answer too; a deadline or a damaged row is not. */
  const recoveredBy = (reason: string): void => {
    if (/^M_/u.test(reason)) recovered();
  };

  outbox.onWake(pump);
  return {
    start() {
      running = true;
      pump();
    },
    nudge() {
      if (outageAttempts === 0) return;
      gateOpensAt = 0;
      pump();
    },
    inFlight: () => busy.size,
    async stop() {
      running = false;
      timer?.cancel();
      const giveUp = clock.after(STOP_WITHIN_MS, () => abort.abort(new Error('the sender stops')));
      await Promise.all(busy.values());
      giveUp.cancel();
    },
  };
}

/** Where a message gets its place when it is sent: the room, or a thread of it. Null for what has none: an edit, state, what a tool sends. */
function placeOf(row: OutboxRow): string | null {
  if (row.edits_txn !== null || row.state_key !== null || row.kind === 'tool') return null;
  return `${row.room_id} ${row.thread_root ?? ''}`;
}

/** The homeserver speaks of the room or of us, not of the event: a notice would be refused as well, or nobody is there to read it. */
const NOT_ABOUT_THE_EVENT = new Set([401, 403, 404, 429]);

/**
 * Pure: what is said when an answer was refused for good, once per run; null where nothing can or need be said. A version on the way is not
 * missed: the last one follows it.
 */
export function planParkedNotice(row: OutboxRow, error: Pick<MatrixError, 'status'>): OutboundEvent | null {
  if (row.kind !== 'answer' || row.run_id === null || NOT_ABOUT_THE_EVENT.has(error.status)) return null;
  const content: unknown = JSON.parse(row.content);
  if (!isJsonObject(content) || (row.edits_txn !== null && Object.hasOwn(content, LIVE_KEY))) return null;
  const { status, code, message, retryable } = refusal('ANSWER_REFUSED');
  const field = readRunField(content);
  const prompt = field.ok ? field.value?.prompts.at(-1) : undefined;
  const place: Place =
    row.thread_root === null
      ? prompt === undefined
        ? {}
        : { replyTo: prompt }
      : { thread: { root: row.thread_root, ...(prompt === undefined ? {} : { latest: prompt }) } };
  return {
    txnId: noticeTxnId('parked', row.run_id),
    lane: row.lane,
    roomId: row.room_id,
    kind: 'notice',
    eventType: 'm.room.message',
    runId: row.run_id,
    content: buildNotice({ error: { status, code, message, retryable, runId: row.run_id }, ...place }),
  };
}
