/**
 * The life of a process that serves: start, wait for a signal, drain, end. Apart from `start` because its corners (a signal while starting, a
 * second signal, a drain that hangs) are what an operator meets at the worst moment, and a test can walk through them here without a process.
 */
import type { Clock } from '../../time.ts';

export interface Running {
  /** Rejects when it cannot become useful: the homeserver does not know us, say. Never waited for longer than the first signal. */
  readonly ready: Promise<void>;
  /** Stops claiming, lets runs reach a checkpoint, closes what is open. */
  stop(): Promise<void>;
}
export interface SignalSource {
  on(signal: 'SIGTERM' | 'SIGINT', listener: () => void): unknown;
  off(signal: 'SIGTERM' | 'SIGINT', listener: () => void): unknown;
}
export interface RunUntilSignalOptions {
  readonly start: () => Promise<Running>;
  readonly clock: Clock;
  readonly signals: SignalSource;
  /** Ends the process at once. */
  readonly exit: (code: number) => void;
}

/** What `stop` gets before the process ends anyway: its own 10 s for the runs, and a little to close. */
export const STOP_LIMIT_MS = 12_000;
/** Ctrl-C reaches npm and us, and npm passes it on: what comes so soon after the first is the first again. */
const SAME_SIGNAL_MS = 1_000;
/** What a shell shows for a process that a signal ended. */
const EXIT_BY_SIGINT = 130;

export async function runUntilSignal({ start, clock, signals, exit }: RunUntilSignalOptions): Promise<void> {
  let askedAt: number | null = null;
  let wake = () => {};
  const asked = new Promise<void>((resolve) => {
    wake = resolve;
  });
  const onSignal = () => {
    const now = clock.monotonic();
    if (askedAt !== null && now - askedAt >= SAME_SIGNAL_MS) exit(EXIT_BY_SIGINT);
    askedAt ??= now;
    wake();
  };
  signals.on('SIGTERM', onSignal);
  signals.on('SIGINT', onSignal);
  try {
    const running = await start();
    try {
      await Promise.race([asked, running.ready.then(() => asked)]);
    } finally {
      const limit = clock.after(STOP_LIMIT_MS, () => exit(1));
      await running.stop();
      limit.cancel();
    }
  } finally {
    signals.off('SIGTERM', onSignal);
    signals.off('SIGINT', onSignal);
  }
}
