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
import { decideLastingTrouble, type KeyRoad } from './key-sync.ts';
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
/** A transaction that is sent again comes without keys, so one alone says nothing. */
const KEYLESS = 3;
const NO_KEYS =
  'The homeserver puts no keys into transactions: the registration needs `receive_ephemeral: true` and `org.matrix.msc3202: true`, and Synapse the experimental features `msc2409_to_device_messages_enabled` and `msc3202_transaction_extensions`.';

export function createKeyPush({ device, intake, outgoing, clock, logger }: KeyPushOptions): KeyPush {
  const stopping = new AbortController();
  const { signal } = stopping;
  let timer: Timer | null = null;
  let working: Promise<void> = Promise.resolve();
  let lastKeys: number | null = null;
  let distrustedAt: number | null = null;
  let trouble: string | null = null;
  /** Transactions with encrypted events while none has ever said a word about our device. */
  let keyless = 0;

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
        trouble = null;
      } catch (error) {
        if (signal.aborted) return;
        trouble = decideLastingTrouble(error);
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
      if (read === null) {
        if (lastKeys === null && transaction.events.some(isEncrypted)) keyless += 1;
        return;
      }
      await intake.take(read, null);
      lastKeys = clock.monotonic();
      void flushSoon();
    },
    // There is no asking: what the homeserver had, it has sent, or it never will.
    syncedSince: () => true,
    lastSyncAt: () => lastKeys,
    trouble: () => trouble ?? (lastKeys === null && keyless >= KEYLESS ? NO_KEYS : null),
    async stop() {
      timer?.cancel();
      stopping.abort(new Error('the keys of transactions are taken no longer'));
      await working;
    },
  };
}

const isEncrypted = ({ read }: Transaction['events'][number]): boolean => read.ok && read.value.type === 'm.room.encrypted';
