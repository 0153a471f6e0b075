/**
 * Who watches a run reads its log, never memory: a viewer that joins late, joins again or reads slowly sees exactly the rest and then the
 * end (G7), whichever process wrote it. All that is told in memory is "look again". Without this a reader would poll, or would be handed
 * frames that a crash takes back. Cost per frame and viewer: two indexed reads.
 */
import type { RunId } from '../ids.ts';
import type { Store } from '../store/store.ts';
import type { Clock } from '../time.ts';
import type { FrameReader } from './frames.ts';
import type { Projection } from './projection.ts';
import { type Frame, type RunStatus, TERMINAL } from './run.ts';

export type RunNews =
  | { readonly kind: 'frames'; readonly frames: readonly Frame[] }
  /** Nothing happened for `idleMs`. */
  | { readonly kind: 'idle' }
  /** The run is over and the log says no more: a run cancelled before it started has no end frame, and a reader may ask past the end. */
  | { readonly kind: 'over'; readonly status: RunStatus };

export interface FollowOptions {
  /** The last frame already seen; 0 from the beginning. */
  readonly after: number;
  readonly idleMs: number;
  /** Ends the following at once, without a last word. */
  readonly signal: AbortSignal;
}
export interface Viewers extends Projection {
  /** Everything after `after`, up to and with the end frame. Reads on only when asked, so a slow reader costs no memory. */
  follow(run: RunId, options: FollowOptions): AsyncGenerator<RunNews, void, undefined>;
  /** How many follow at the moment. */
  count(): number;
}

export function createViewers({ store, frames, clock }: { store: Store; frames: FrameReader; clock: Clock }): Viewers {
  const bells = new Map<RunId, Set<() => void>>();

  const ring = (run: RunId): void => {
    for (const bell of bells.get(run) ?? []) bell();
  };
  function watch(run: RunId, bell: () => void): () => void {
    const watching = bells.get(run) ?? new Set();
    bells.set(run, watching.add(bell));
    return () => {
      watching.delete(bell);
      if (watching.size === 0 && bells.get(run) === watching) bells.delete(run);
    };
  }

  function readEnding(run: RunId): RunStatus | null {
    const row = store.read.get(store.sql.selectFrom('runs').select('status').where('run_id', '=', run));
    return row !== undefined && TERMINAL.has(row.status) ? row.status : null;
  }

  async function* follow(run: RunId, { after, idleMs, signal }: FollowOptions): AsyncGenerator<RunNews, void, undefined> {
    let seq = after;
    // Reads are synchronous and what follows them is the wait: nothing can be committed unseen between the two.
    let rung = false;
    let wake: (() => void) | null = null;
    const bell = (): void => {
      rung = true;
      wake?.();
    };
    const leave = watch(run, bell);
    signal.addEventListener('abort', bell);
    try {
      while (!signal.aborted) {
        rung = false;
        // Asked first: what is over by now has all its frames in the read that follows.
        const ending = readEnding(run);
        const page = frames.after(run, seq);
        const last = page.at(-1);
        if (last !== undefined) {
          seq = last.seq;
          yield { kind: 'frames', frames: page };
          if (last.kind === 'end') return;
          continue;
        }
        if (ending !== null) {
          yield { kind: 'over', status: ending };
          return;
        }
        await new Promise<void>((resolve) => {
          const timer = clock.after(idleMs, resolve);
          wake = () => {
            timer.cancel();
            resolve();
          };
        });
        wake = null;
        if (!rung) yield { kind: 'idle' };
      }
    } finally {
      leave();
      signal.removeEventListener('abort', bell);
    }
  }

  return {
    follow,
    count: () => [...bells.values()].reduce((sum, watching) => sum + watching.size, 0),
    open: (run) => ({
      onFrames: () => ring(run.id),
      // The end frame is published after the commit; nothing may be shown before it.
      onEnd: () => undefined,
      close: () => ring(run.id),
    }),
  };
}
