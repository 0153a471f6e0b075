/**
 * Who watches a run reads its log, never memory: a viewer that joins late, joins again or reads slowly sees exactly the rest and then the
 * end (G7), whichever process wrote it. All that is told in memory is "look again". Without this a reader would poll, or would be handed
 * frames that a crash takes back. Those who stand at the same place and were told at the same time are handed one page that was read once:
 * one indexed read per flush, whether one or two hundred watch.
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

/** What is known of a run as long as somebody watches it. */
interface Watched {
  readonly bells: Set<() => void>;
  /** The newest frame that this process heard of; 0 when it heard of none yet. */
  lastSeq: number;
  /** Since the bell rang last, by where they begin. */
  readonly looks: Map<number, Look>;
}
interface Look {
  readonly page: readonly Frame[];
  /** Asked only when the page is empty. */
  readonly ending: RunStatus | null;
}
/** Those who keep up stand at one place; a few who lag read for themselves. */
const MAX_SHARED_LOOKS = 4;

export function createViewers({ store, frames, clock }: { store: Store; frames: FrameReader; clock: Clock }): Viewers {
  const watched = new Map<RunId, Watched>();

  function ring(run: RunId, lastSeq: number): void {
    const one = watched.get(run);
    if (one === undefined) return;
    one.looks.clear();
    one.lastSeq = Math.max(one.lastSeq, lastSeq);
    for (const bell of one.bells) bell();
  }
  function watch(run: RunId, bell: () => void): { one: Watched; leave: () => void } {
    const one = watched.get(run) ?? { bells: new Set(), lastSeq: 0, looks: new Map() };
    watched.set(run, one);
    one.bells.add(bell);
    return {
      one,
      leave: () => {
        one.bells.delete(bell);
        if (one.bells.size === 0 && watched.get(run) === one) watched.delete(run);
      },
    };
  }

  /** Two who were rung together share what the first of them reads. Who looks for another reason reads anew: others may have written (G18). */
  function look(run: RunId, { looks }: Watched, after: number, isRung: boolean): Look {
    const known = isRung ? looks.get(after) : undefined;
    if (known !== undefined) return known;
    const page = frames.after(run, after);
    const ending = page.length === 0 ? readEnding(run) : null;
    // Over: it may have said its last between the two reads.
    const seen = ending === null ? { page, ending } : { page: frames.after(run, after), ending };
    if (looks.size >= MAX_SHARED_LOOKS) looks.clear();
    looks.set(after, seen);
    return seen;
  }

  function readEnding(run: RunId): RunStatus | null {
    const row = store.read.get(store.sql.selectFrom('runs').select('status').where('run_id', '=', run));
    // Forgotten with its person, who had it stopped.
    if (row === undefined) return 'cancelled';
    return TERMINAL.has(row.status) ? row.status : null;
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
    const { one, leave } = watch(run, bell);
    signal.addEventListener('abort', bell);
    try {
      let wasRung = false;
      while (!signal.aborted) {
        rung = false;
        const { page, ending } = look(run, one, seq, wasRung);
        const last = page.at(-1);
        if (last !== undefined) {
          seq = last.seq;
          yield { kind: 'frames', frames: page };
          if (last.kind === 'end') return;
        } else if (ending !== null) {
          yield { kind: 'over', status: ending };
          return;
        }
        wasRung = rung;
        // More was written while the reader took this page, or the page was not all there is: it ends before the frame last heard of.
        if (rung || (last !== undefined && seq !== one.lastSeq)) continue;
        await new Promise<void>((resolve) => {
          const timer = clock.after(idleMs, resolve);
          wake = () => {
            timer.cancel();
            resolve();
          };
        });
        wake = null;
        wasRung = rung;
        if (!rung) yield { kind: 'idle' };
      }
    } finally {
      leave();
      signal.removeEventListener('abort', bell);
    }
  }

  return {
    follow,
    count: () => [...watched.values()].reduce((sum, { bells }) => sum + bells.size, 0),
    open: (run) => ({
      onFrames: (_frames, { lastSeq }) => ring(run.id, lastSeq),
      // The end frame is published after the commit; nothing may be shown before it.
      onEnd: () => undefined,
      close: () => ring(run.id, 0),
    }),
  };
}
