/**
 * The other road (CRYPTO_TRANSPORT=appservice), for homeservers that refuse `/sync` to application services: keys come in transactions, and are taken before
 * the events of the same transaction. What it cannot do: the homeserver leaves the keys out when it sends a transaction again, and makes none for keys
 * alone while it thinks we are away (research/e2ee.md §5), so a key that arrives during a restart is lost, and a change of somebody's devices may be
 * missed. The second heals: everybody's devices are asked for again at start and every hour.
 */
import type { Logger } from '../../src/observe/logger.ts';
import type { Clock, Timer } from '../../src/time.ts';
import { isMatrixError } from '../matrix-api.ts';
import type { Transaction } from '../wire/read-transaction.ts';
import { CryptoUnavailable } from './crypto-service.ts';
import type { KeyIntake } from './key-intake.ts';
import type { KeyRoad } from './key-sync.ts';
import type { Outgoing } from './outgoing.ts';
import { type KeyDevice, readPushedKeys } from './to-device-batch.ts';

export interface KeyPush extends KeyRoad {
  /** Resolves when what the transaction brought for our device is in the engine. Rejects when it is not on disk: then the transaction must not be acknowledged. */
  receive(transaction: Transaction): Promise<void>;
}
export interface KeyPushOptions {
  readonly device: KeyDevice;
  readonly intake: KeyIntake;
  readonly outgoing: Pick<Outgoing, 'flush'>;
  readonly clock: Clock;
  readonly logger: Logger;
}

/** Requests that failed are tried again. */
const FLUSH_EVERY_MS = 30_000;
const DISTRUST_EVERY_MS = 60 * 60_000;

export function createKeyPush({ device, intake, outgoing, clock, logger }: KeyPushOptions): KeyPush {
  const stopping = new AbortController();
  const { signal } = stopping;
  let timer: Timer | null = null;
  let working: Promise<void> = Promise.resolve();
  let lastKeys: number | null = null;
  let distrustedAt: number | null = null;

  /** One after the other; never rejects. */
  function flushSoon(): Promise<void> {
    working = working.then(async () => {
      if (signal.aborted) return;
      try {
        await intake.resume();
        const isDue = distrustedAt === null || clock.monotonic() - distrustedAt >= DISTRUST_EVERY_MS;
        if (isDue) await intake.distrustLists();
        if (isDue) distrustedAt = clock.monotonic();
        await outgoing.flush(signal);
      } catch (error) {
        if (signal.aborted) return;
        const code = isMatrixError(error) ? error.errcode : error instanceof CryptoUnavailable ? 'CRYPTO_UNAVAILABLE' : 'INTERNAL';
        logger.warn({ code, ...(code === 'INTERNAL' ? { err: error } : {}) }, 'requests about keys could not be sent');
      }
    });
    return working;
  }
  function schedule(): void {
    timer = clock.after(FLUSH_EVERY_MS, () => {
      void flushSoon();
      schedule();
    });
  }

  return {
    start() {
      if (timer === null) schedule();
      return flushSoon();
    },
    async receive(transaction) {
      const read = readPushedKeys(transaction, device);
      if (read === null) return;
      await intake.take(read, null);
      lastKeys = clock.monotonic();
      void flushSoon();
    },
    // There is no asking: what the homeserver had, it has sent, or it never will.
    syncedSince: () => true,
    lastSyncAt: () => lastKeys,
    trouble: () => null,
    async stop() {
      timer?.cancel();
      stopping.abort(new Error('the keys of transactions are taken no longer'));
      await working;
    },
  };
}
