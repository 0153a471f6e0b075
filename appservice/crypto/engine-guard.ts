/**
 * The engine fails in three ways that no promise tells of: a panic inside an asynchronous call leaves it pending for ever and surfaces as an uncaught
 * error, a store that cannot commit never answers, and a bug may just hang. Each ends the process, once, with a reason; everybody who waits is told.
 */
import type { Clock } from '../../src/time.ts';
import { CryptoUnavailable } from './crypto-service.ts';

export interface Guard {
  /** @param limitMs where 30 s are not enough. @throws CryptoUnavailable once the engine is gone. */
  call<T>(name: string, work: () => T | Promise<T>, limitMs?: number): Promise<T>;
  fail(reason: string): void;
  /** From now on every call is refused. */
  close(): void;
}

export interface GuardOptions {
  readonly clock: Clock;
  readonly onFatal: (reason: string) => void;
}

/** Signing, encrypting and storing take milliseconds; opening a large store takes seconds. */
const CALL_LIMIT_MS = 30_000;
const PANIC = 'the cryptographic engine panicked';

export function createGuard({ clock, onFatal }: GuardOptions): Guard {
  let ended: string | null = null;
  const waiting = new Set<(reason: unknown) => void>();

  function end(reason: string): void {
    ended = reason;
    process.off('uncaughtExceptionMonitor', onUncaught);
    for (const reject of waiting) reject(new CryptoUnavailable(reason));
    waiting.clear();
  }
  function fail(reason: string): void {
    if (ended !== null) return;
    end(reason);
    onFatal(reason);
  }
  // Only looks: what an uncaught error does to the process is not decided here.
  const onUncaught = (error: unknown): void => {
    if (isPanic(error)) fail(PANIC);
  };
  process.on('uncaughtExceptionMonitor', onUncaught);

  return {
    async call(name, work, limitMs = CALL_LIMIT_MS) {
      if (ended !== null) throw new CryptoUnavailable(ended);
      const { promise, resolve, reject } = Promise.withResolvers<Awaited<ReturnType<typeof work>>>();
      waiting.add(reject);
      const timer = clock.after(limitMs, () => fail(`the cryptographic engine did not finish "${name}" in time`));
      try {
        Promise.resolve(work()).then(resolve, reject);
        return await promise;
      } catch (error) {
        if (!isPanic(error)) throw error;
        waiting.delete(reject);
        fail(PANIC);
        throw new CryptoUnavailable(PANIC, { cause: error });
      } finally {
        timer.cancel();
        waiting.delete(reject);
      }
    },
    fail,
    close: () => {
      if (ended === null) end('the cryptographic engine is closed');
    },
  };
}

const isPanic = (error: unknown): boolean => error instanceof Error && error.name === 'RuntimeError';
