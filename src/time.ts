/**
 * Time, chance and waiting are arguments (STYLE §2), so that a test of a 15-minute rule takes no 15 minutes.
 * `now` is wall time and is what gets stored; `monotonic` is what durations and in-process timers use, because wall time jumps.
 */
export interface Clock {
  /** Milliseconds since the epoch. */
  now(): number;
  /** Milliseconds of a clock that never goes back; only differences mean something. */
  monotonic(): number;
  /** Calls back once after `delayMs`; `cancel` is idempotent. */
  after(delayMs: number, callback: () => void): Timer;
}
export interface Timer {
  cancel(): void;
}

/** Waits, or rejects with the signal's reason: every wait has a deadline or a signal. */
export function sleep(clock: Clock, delayMs: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    if (signal?.aborted) return reject(signal.reason);
    const onAbort = () => {
      timer.cancel();
      reject(signal?.reason);
    };
    const timer = clock.after(delayMs, () => {
      signal?.removeEventListener('abort', onAbort);
      resolve();
    });
    signal?.addEventListener('abort', onAbort, { once: true });
  });
}

/** Exponential back-off with a cap: attempt 1 waits `baseMs`. Pure, so that retry plans can be read in tests. */
export const backOffMs = (attempt: number, { baseMs, capMs }: { baseMs: number; capMs: number }): number =>
  Math.min(capMs, baseMs * 2 ** Math.max(0, Math.min(attempt - 1, 30)));
