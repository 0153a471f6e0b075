/** The one place that reads the machine's clock; everything else receives a `Clock` (src/time.ts). */
import type { Clock } from './time.ts';

export const systemClock: Clock = {
  // biome-ignore lint/style/noRestrictedGlobals: this is the clock that the rule points to
  now: () => Date.now(),
  monotonic: () => performance.now(),
  after(delayMs, callback) {
    // biome-ignore lint/style/noRestrictedGlobals: this is the clock that the rule points to
    const timer = setTimeout(callback, delayMs);
    return { cancel: () => clearTimeout(timer) };
  },
};
