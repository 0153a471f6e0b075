/** A viewer that writes down what it is shown, and checks what every viewer relies on: numbers without a hole, nothing after the end (G7). */
import type { Projection } from '../../src/runs/projection.ts';
import { EMPTY_FOLD, type FoldedRun, type Frame, foldFrame, type Run } from '../../src/runs/run.ts';

export interface Recording {
  readonly run: Run;
  readonly frames: Frame[];
  /** What the frames of this view fold to, from what it was opened with. */
  folded: FoldedRun;
  ended: FoldedRun | null;
  closed: boolean;
  /** What this viewer was shown against the rules; a test expects none. */
  readonly problems: string[];
}
export interface RecordingProjection extends Projection {
  readonly views: Recording[];
}

export function recordingProjection(): RecordingProjection {
  const views: Recording[] = [];
  return {
    views,
    open(run, folded) {
      const view: Recording = { run, frames: [], folded: run.attempt > 1 ? folded : EMPTY_FOLD, ended: null, closed: false, problems: [] };
      views.push(view);
      return {
        onFrames(frames, now) {
          for (const frame of frames) {
            if (frame.seq !== view.folded.lastSeq + 1) view.problems.push(`frame ${frame.seq} after ${view.folded.lastSeq}`);
            if (view.folded.end !== null) view.problems.push('a frame after the end');
            view.frames.push(frame);
            view.folded = foldFrame(view.folded, frame);
          }
          if (JSON.stringify(now) !== JSON.stringify(view.folded)) view.problems.push('the fold handed over is not the fold of the frames');
        },
        onEnd(_tx, last) {
          view.ended = last;
        },
        close() {
          view.closed = true;
        },
      };
    },
  };
}
