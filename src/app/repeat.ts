/**
 * Work that comes again and again, one at a time: the next look begins a pause after the last one ended, a failed one stops nothing, and a look that
 * was under way at the stop begins no further one.
 */
import type { Clock, Timer } from '../time.ts';

export interface RepeatOptions {
  readonly clock: Clock;
  /** From the end of one to the start of the next, and before the first. */
  readonly pauseMs: number;
  readonly onError: (error: unknown) => void;
}

export function repeat(work: (isStopped: () => boolean) => Promise<void>, { clock, pauseMs, onError }: RepeatOptions): { stop(): void } {
  let timer: Timer;
  let stopped = false;
  function schedule(): void {
    if (stopped) return;
    timer = clock.after(pauseMs, () => {
      work(() => stopped)
        .catch(onError)
        .finally(schedule);
    });
  }
  schedule();
  return {
    stop() {
      stopped = true;
      timer.cancel();
    },
  };
}
