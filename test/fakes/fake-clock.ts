/**
 * A clock that moves only when a test says so: rules about minutes are tested in microseconds, and nothing depends on how busy the machine is.
 * Timers fire in the order of their due time, those due together in the order they were set, and each sees its own due time as `now`:
 * as with the real clock, only exact. `advance` is synchronous; code with promises between its timers needs `advanceAsync`.
 */
import { setImmediate as nextTask } from 'node:timers/promises';
import type { Clock } from '../../src/time.ts';

export interface FakeClock extends Clock {
  /** Moves both times forward and fires what falls due, also timers set by callbacks on the way. */
  advance(ms: number): void;
  /** The same, letting promises settle before the first, between and after the timers. */
  advanceAsync(ms: number): Promise<void>;
  /** Moves wall time only, either way: what an NTP correction does. No timer fires. */
  jump(ms: number): void;
  /** Timers that are set and neither fired nor cancelled: a test that ends with 0 leaked none. */
  pending(): number;
}

/** 2026-01-01T00:00:00Z: a plausible default, so that a forgotten unit (seconds for milliseconds) shows. */
export const FAKE_START_MS = 1_767_225_600_000;

interface Entry {
  readonly due: number;
  readonly callback: () => void;
}

export function fakeClock(startMs: number = FAKE_START_MS): FakeClock {
  let elapsed = 0;
  let offset = startMs;
  const entries = new Set<Entry>();

  const nextDue = (until: number): Entry | undefined => {
    let next: Entry | undefined;
    for (const entry of entries) if (entry.due <= until && (next === undefined || entry.due < next.due)) next = entry;
    return next;
  };
  const fire = (entry: Entry): void => {
    entries.delete(entry);
    elapsed = Math.max(elapsed, entry.due);
    entry.callback();
  };
  const checked = (ms: number): number => {
    if (!Number.isFinite(ms) || ms < 0) throw new RangeError(`a clock cannot advance by ${ms}`);
    return elapsed + ms;
  };

  return {
    now: () => offset + elapsed,
    monotonic: () => elapsed,
    after(delayMs, callback) {
      // Node treats a delay that is no number, or below 1, as 1 ms; firing at the same instant is stricter and finds loops.
      const entry: Entry = { due: elapsed + Math.max(0, Number.isFinite(delayMs) ? delayMs : 0), callback };
      entries.add(entry);
      return { cancel: () => void entries.delete(entry) };
    },
    advance(ms) {
      const until = checked(ms);
      for (let entry = nextDue(until); entry !== undefined; entry = nextDue(until)) fire(entry);
      elapsed = until;
    },
    async advanceAsync(ms) {
      const until = checked(ms);
      await nextTask();
      for (let entry = nextDue(until); entry !== undefined; entry = nextDue(until)) {
        fire(entry);
        await nextTask();
      }
      elapsed = Math.max(elapsed, until);
      await nextTask();
    },
    jump(ms) {
      offset += ms;
    },
    pending: () => entries.size,
  };
}
