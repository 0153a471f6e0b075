/**
 * From what arrived for the key-holding device to the engine, without a gap in which a key is lost: stored first, in one transaction with the position
 * that tells the homeserver to forget it; then the engine; then marked. A process that dies in between begins with what was not marked, and a second time
 * does no harm. Anybody may send such an event, so one that the engine will not take is dropped alone, never with those behind it (G17).
 */

import { LIMITS } from '../../src/limits.ts';
import type { Logger } from '../../src/observe/logger.ts';
import type { ToDeviceBatch, ToDeviceStore } from './crypto-db.ts';
import { CryptoUnavailable } from './crypto-service.ts';
import type { Engine, ReceivedToDevice } from './engine.ts';
import { createLock } from './lock.ts';
import type { ReadBatch } from './to-device-batch.ts';

export interface KeyIntakeOptions {
  readonly store: ToDeviceStore;
  readonly engine: Pick<Engine, 'receive' | 'call'>;
  readonly logger: Logger;
  /** What became of the events, in their order; for verification by to-device. Not waited for: keys must not queue up behind it. */
  readonly onReceived?: (events: readonly ReceivedToDevice[]) => void;
}
export interface KeyIntake {
  /** Resolves when the engine has persisted it. Rejects when it is not on disk, or the engine is closed; then nothing was acknowledged or it waits. */
  take(read: ReadBatch, since: string | null): Promise<void>;
  /** What an earlier process stored and did not get done. */
  resume(): Promise<void>;
  /** Every user whose devices we know is asked for again: changes may have been missed. */
  distrustLists(): Promise<void>;
  /** Signed one-time keys left on the homeserver, as last heard. */
  oneTimeKeys(): number | null;
}

export function createKeyIntake({ store, engine, logger, onReceived }: KeyIntakeOptions): KeyIntake {
  const lock = createLock();
  let oneTimeKeys: number | null = null;

  async function work(): Promise<void> {
    for (const { id, tries, ...batch } of store.pending()) {
      store.begin(id);
      await (tries < MAX_TRIES ? hand(batch) : handSuspect(id, batch));
      store.done(id);
    }
  }

  /** Processes have died with it in hand: each event is taken out before the engine sees it, so that the one they died of is met only once more (G17). */
  async function handSuspect(id: number, { events, ...rest }: ToDeviceBatch): Promise<void> {
    logger.warn({ count: events.length }, 'to-device events that an earlier process died of are handed over one by one');
    await receive({ events: [], ...rest });
    for (const [at, event] of events.entries()) {
      store.keep(id, events.slice(at + 1));
      await handOne(event);
    }
  }

  /** In slices that the engine can take within its limit; the lists with the first, the counts with the last. */
  async function hand({ events, changed, left, oneTimeKeys, unusedFallback }: ToDeviceBatch): Promise<void> {
    const slices = Math.max(1, Math.ceil(events.length / LIMITS.toDeviceEventsAtOnce));
    for (let index = 0; index < slices; index += 1) {
      const isFirst = index === 0;
      const isLast = index === slices - 1;
      await handSlice({
        events: events.slice(index * LIMITS.toDeviceEventsAtOnce, (index + 1) * LIMITS.toDeviceEventsAtOnce),
        changed: isFirst ? changed : [],
        left: isFirst ? left : [],
        oneTimeKeys: isLast ? oneTimeKeys : null,
        unusedFallback: isLast ? unusedFallback : null,
      });
    }
  }

  async function handSlice(slice: ToDeviceBatch): Promise<void> {
    try {
      await receive(slice);
    } catch (error) {
      // Closed, or its store failed: the process is about to end, and the batch waits for the next one.
      if (error instanceof CryptoUnavailable || slice.events.length === 0) throw error;
      const { events, ...rest } = slice;
      await receive({ events: [], ...rest });
      for (const event of events) await handOne(event);
    }
  }
  async function handOne(event: ToDeviceBatch['events'][number]): Promise<void> {
    try {
      await receive({ events: [event], ...NOTHING });
    } catch (error) {
      if (error instanceof CryptoUnavailable) throw error;
      logger.warn({ reason: 'refused_by_engine' }, 'a to-device event cannot be read and was skipped');
    }
  }
  async function receive(batch: ToDeviceBatch): Promise<void> {
    const received = await engine.receive(batch);
    if (received.length > 0) onReceived?.(received);
  }

  const distrustLists = (): Promise<void> => engine.call('markAllTrackedUsersAsDirty', (machine) => machine.markAllTrackedUsersAsDirty());

  return {
    take: ({ batch, skipped, cut }, since) =>
      lock(async () => {
        store.put(batch, since);
        if (skipped > 0) logger.warn({ count: skipped, reason: 'malformed' }, 'to-device events cannot be read and were skipped');
        await work();
        if (cut) await distrustLists();
        oneTimeKeys = batch.oneTimeKeys?.['signed_curve25519'] ?? oneTimeKeys;
      }),
    resume: () => lock(work),
    distrustLists,
    oneTimeKeys: () => oneTimeKeys,
  };
}

/** An ordinary kill may come in the middle of a batch, and then once more. */
const MAX_TRIES = 3;
const NOTHING = { changed: [], left: [], oneTimeKeys: null, unusedFallback: null } as const;
