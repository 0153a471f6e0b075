/**
 * A hook that never answers must not hold up a start, a turn or a stop for ever. Its late answer is dropped; what it holds on to is its own.
 * A hook that never gives the thread back is beyond this: plugins run in our process (docs/plugins.md).
 */
import { type Clock, sleep } from '../time.ts';

export class HookTimeout extends Error {
  override readonly name = 'HookTimeout';
}

/** @throws HookTimeout, or what the work throws. */
export async function withinTime<T>(clock: Clock, limitMs: number, work: () => T | Promise<T>): Promise<T> {
  const waiting = new AbortController();
  const timeUp = sleep(clock, limitMs, waiting.signal).then(() => {
    throw new HookTimeout(`it took longer than ${limitMs} ms`);
  });
  try {
    return await Promise.race([(async () => work())(), timeUp]);
  } finally {
    waiting.abort();
  }
}
