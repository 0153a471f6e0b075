/**
 * The road on which keys arrive: a long poll of `/sync` as the device that holds them, with no room in it. Application service transactions are no such
 * road: the homeserver drops their to-device part on every retry, and one lost key makes every further message of its session unreadable
 * (research/e2ee.md §5). Nobody else may sync this device: a position given to the homeserver deletes there what came before it. So a position is used
 * only once what came with it is on disk (key-intake.ts). Cost with nothing new: one open request.
 */
import type { Logger } from '../../src/observe/logger.ts';
import { StorageError } from '../../src/store/store.ts';
import { backOffMs, type Clock, sleep } from '../../src/time.ts';
import { isMatrixError, isOutage, type MatrixApi, MatrixError } from '../matrix-api.ts';
import type { ToDeviceStore } from './crypto-db.ts';
import { CryptoUnavailable } from './crypto-service.ts';
import type { KeyIntake } from './key-intake.ts';
import type { Outgoing } from './outgoing.ts';
import { readKeySync } from './to-device-batch.ts';

/** How keys reach us, whichever way; key-push.ts is the other. */
export interface KeyRoad {
  /** Resolves after the first look for keys, whether or not it succeeded; the road then keeps itself up. Never rejects. */
  start(): Promise<void>;
  /** A look that began after this monotonic time has completed and is in the engine. */
  syncedSince(at: number): boolean;
  /** Monotonic ms of the last completed look. */
  lastSyncAt(): number | null;
  /** A sentence for an operator; null when keys arrive. */
  trouble(): string | null;
  stop(): Promise<void>;
}

export interface KeySyncOptions {
  /** As the key-holding device. */
  readonly api: MatrixApi;
  readonly store: Pick<ToDeviceStore, 'since'>;
  readonly intake: KeyIntake;
  readonly outgoing: Pick<Outgoing, 'flush'>;
  readonly clock: Clock;
  readonly logger: Logger;
  /** Unlike any other process's; a few characters. */
  readonly newId: () => string;
}

const POLL_MS = 30_000;
/** What a request may take beyond the time that the homeserver was asked to wait. */
const ANSWER_WITHIN_MS = 30_000;
const RETRY = { baseMs: 1_000, capMs: 60_000 };
/** A homeserver that answers at once with nothing must not be asked a thousand times a second. */
const IDLE_GAP_MS = 1_000;

export function createKeySync(options: KeySyncOptions): KeyRoad {
  const { api, intake, outgoing, clock, logger } = options;
  const filter = buildKeyFilter(options.newId());
  const stopping = new AbortController();
  const { signal } = stopping;
  let since: string | null = null;
  let failures = 0;
  let hasWorked = false;
  let trouble: string | null = null;
  let lastBegan: number | null = null;
  let lastDone: number | null = null;
  let running: Promise<void> | null = null;
  let flushing: Promise<void> = Promise.resolve();

  async function loop(): Promise<void> {
    while (!signal.aborted) {
      const pauseMs = await round();
      if (pauseMs > 0) await sleep(clock, pauseMs, signal).catch(() => undefined);
    }
  }

  /** @returns how long to wait before the next. Never rejects. */
  async function round(): Promise<number> {
    const began = clock.monotonic();
    // The first look, and the first after a failure, is not to wait: whoever starts or is in trouble wants to know.
    const timeoutMs = lastDone === null || failures > 0 ? 0 : POLL_MS;
    try {
      await intake.resume();
      const isEmpty = await poll(timeoutMs);
      succeed(began);
      flushSoon();
      return isEmpty && timeoutMs > 0 && clock.monotonic() - began < IDLE_GAP_MS ? IDLE_GAP_MS : 0;
    } catch (error) {
      if (signal.aborted) return 0;
      fail(error);
      return Math.max(backOffMs(failures, RETRY), isMatrixError(error) ? (error.retryAfterMs ?? 0) : 0);
    }
  }

  async function poll(timeoutMs: number): Promise<boolean> {
    const query = { timeout: timeoutMs, set_presence: 'offline', filter, ...(since === null ? {} : { since }) };
    const answer = await ask(query, timeoutMs + ANSWER_WITHIN_MS);
    const read = readKeySync(answer);
    if (!read.ok) throw new MatrixError({ errcode: 'NOT_JSON', status: 200, retryAfterMs: null, certain: false });
    await intake.take(read.value, read.value.nextBatch);
    since = read.value.nextBatch;
    const { events, changed, left } = read.value.batch;
    return events.length + changed.length + left.length === 0;
  }

  async function ask(query: Record<string, string | number>, timeoutMs: number): Promise<object> {
    try {
      return await api.request('GET', '/_matrix/client/v3/sync', { query, timeoutMs, signal });
    } catch (error) {
      // A position of another database of this homeserver: begin again, and ask for everybody's devices again.
      if (since === null || !isMatrixError(error) || error.status !== 400 || error.errcode === UNKNOWN_DEVICE) throw error;
      logger.warn({ code: error.errcode, status: error.status }, 'the homeserver does not know the position of the keys; beginning again');
      since = null;
      await intake.distrustLists();
      throw error;
    }
  }

  function succeed(began: number): void {
    if (trouble !== null) logger.info({}, 'keys arrive again');
    failures = 0;
    hasWorked = true;
    trouble = null;
    lastBegan = began;
    lastDone = clock.monotonic();
  }
  function fail(error: unknown): void {
    failures += 1;
    const before = trouble;
    trouble = decideSyncTrouble(error, { failures, hasWorked }) ?? trouble;
    const { code, status } = readFailure(error);
    const fields = { code, attempt: failures, ...(isMatrixError(error) ? { status } : { err: error }) };
    if (trouble !== null && trouble !== before) {
      // A homeserver that is away comes back by itself, and everything else waits for it as well.
      const level = isMatrixError(error) && isAway(error) ? 'warn' : 'error';
      logger[level]({ ...fields, reason: trouble }, 'keys of encrypted rooms do not arrive');
    } else logger.warn(fields, 'keys could not be asked for and are tried again');
  }

  /** Beside the poll: what the engine wants sent (new one-time keys, changed devices) may hang on another server, and keys go on arriving. */
  function flushSoon(): void {
    flushing = flushing.then(async () => {
      try {
        if (!signal.aborted) await outgoing.flush(signal);
      } catch (error) {
        if (signal.aborted) return;
        // Nothing is lost: it waits in the engine, and the next round tries again.
        logger.warn(
          { code: readFailure(error).code, err: isMatrixError(error) ? undefined : error },
          'requests about keys could not be sent',
        );
      }
    });
  }

  return {
    start() {
      if (running !== null) return Promise.resolve();
      since = options.store.since();
      const first = round();
      running = first.then(async (pauseMs) => {
        if (pauseMs > 0) await sleep(clock, pauseMs, signal).catch(() => undefined);
        await loop();
      });
      return first.then(() => undefined);
    },
    syncedSince: (at) => lastBegan !== null && lastBegan > at,
    lastSyncAt: () => lastDone,
    trouble: () => trouble,
    async stop() {
      stopping.abort(new Error('the poll of keys stops'));
      await running;
      await flushing;
    },
  };
}

/** `asker`: Synapse gives an answer of the last two minutes to whoever asks the same again; see buildSyncFilter in read-sync.ts. */
export const buildKeyFilter = (asker: string): string =>
  JSON.stringify({
    room: { rooms: [] },
    presence: { not_types: ['*', asker] },
    account_data: { not_types: ['*'] },
  });

const UNKNOWN_DEVICE = 'M_UNKNOWN_DEVICE';
/** A homeserver that starts, or a moment's overload, is nobody's trouble. */
const PATIENCE = 3;

export interface SyncHistory {
  /** In a row, this one included. */
  readonly failures: number;
  /** A poll of this process succeeded. */
  readonly hasWorked: boolean;
}

/** What an operator must know; null while it may pass by itself. Pure. */
export function decideSyncTrouble(error: unknown, { failures, hasWorked }: SyncHistory): string | null {
  const lasting = decideLastingTrouble(error);
  if (lasting !== null) return lasting;
  if (!isMatrixError(error))
    return failures < PATIENCE ? null : 'Keys that arrive cannot be stored: is the disk of DATA_DIR full or read-only?';
  const { errcode, status } = error;
  if (!hasWorked && isRefusal(error, failures))
    return 'The homeserver refuses /sync to application services: set CRYPTO_TRANSPORT=appservice (see `matrix-oracle doctor` for what that needs).';
  if (failures < PATIENCE) return null;
  if (isAway(error)) return 'The homeserver cannot be reached, so no keys arrive.';
  return `The homeserver fails to hand out keys (${errcode}, HTTP ${status}).`;
}

/** What no waiting repairs, whichever request met it; null otherwise. Pure. */
export function decideLastingTrouble(error: unknown): string | null {
  if (error instanceof CryptoUnavailable) return 'The cryptographic engine is closed; the process must be restarted.';
  const errcode = isMatrixError(error) ? error.errcode : null;
  if (isMatrixError(error) && isTokenRefused(error))
    return 'The homeserver does not accept the as_token: is it the one of the registration file that the homeserver has loaded?';
  if (errcode === UNKNOWN_DEVICE)
    return 'The device that holds the keys was deleted on the homeserver: stop the oracle and run `matrix-oracle crypto new-device`.';
  return null;
}

/** Nobody is there, or only a proxy. */
const isAway = (error: MatrixError): boolean => (error.status === 0 || isOutage(error)) && !isTokenRefused(error);
const isTokenRefused = ({ errcode }: MatrixError): boolean => errcode === 'M_UNKNOWN_TOKEN' || errcode === 'M_MISSING_TOKEN';

/** Synapse answers 500 to an account that may not sync; others say so. */
const isRefusal = ({ status, errcode }: MatrixError, failures: number): boolean =>
  status === 404 ||
  status === 405 ||
  status === 501 ||
  (status === 403 && errcode !== 'NOT_JSON') ||
  (status === 500 && failures >= PATIENCE);

function readFailure(error: unknown): { code: string; status: number } {
  if (isMatrixError(error)) return { code: error.errcode, status: error.status };
  if (error instanceof CryptoUnavailable) return { code: 'CRYPTO_UNAVAILABLE', status: 0 };
  return { code: error instanceof StorageError ? 'STORAGE_UNAVAILABLE' : 'INTERNAL', status: 0 };
}
