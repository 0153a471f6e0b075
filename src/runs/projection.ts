/**
 * A projection shows a run to somebody: the Matrix message is one, SSE another. It hears of frames only after they are on disk (G7), and
 * it may add its last word to the run's terminal transaction, so that a run is never "done but unsent" (G4, G10).
 */
import type { Tx } from '../store/store.ts';
import type { FoldedRun, Frame, Run } from './run.ts';

export interface RunView {
  /** Frames that were just committed, and what all of them fold to. Synchronous and cheap. */
  onFrames(frames: readonly Frame[], folded: FoldedRun): void;
  /** Inside the terminal transaction: writes the final outbox rows. `folded` includes the error and end frames. */
  onEnd(tx: Tx, folded: FoldedRun): void;
  /** After the terminal transaction, or after a suspend: stop timers, wake the outbox. */
  close(): void;
}
export interface Projection {
  /** A run starts or goes on. `folded` is what earlier attempts left (`EMPTY_FOLD` on the first). */
  open(run: Run, folded: FoldedRun): RunView;
}
