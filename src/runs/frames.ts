/**
 * The log of one run: contiguous from 1, on disk before anybody sees it (G7). Tokens come faster than the disk can promise them, so text
 * waits up to a few hundredths of a second and goes out as one frame: a crash loses at most that, and the model says it again.
 * Cost: one row per flush, whatever the number of tokens.
 */
import type { Insertable } from 'kysely';
import type { RunId } from '../ids.ts';
import { prepare } from '../store/prepared.ts';
import type { FramesTable } from '../store/schema.ts';
import type { Store, Tx } from '../store/store.ts';
import type { Clock, Timer } from '../time.ts';
import { compactText, type FrameRow, readFrameRow } from './compact-frames.ts';
import type { Runs } from './ledger.ts';
import { EMPTY_FOLD, type FoldedRun, type Frame, type FrameData, type FrameKind, foldFrame, type Run, readFrame } from './run.ts';

/**
 * Commits of text are so far apart; text after a longer pause is committed at once. Shorter than the window in which the model's tokens are
 * collected (models/model-fetch.ts), so that they are written when they are handed up, without a second wait and a timer of its own.
 */
const TEXT_FLUSH_MS = 30;

export class LostLease extends Error {
  override readonly name = 'LostLease';
}

export interface FrameLog {
  text(delta: string): void;
  /** Anything but text: goes out at once, after the text before it. */
  append<K extends FrameKind>(kind: K, data: FrameData[K]): void;
  /** Writes what is pending and resolves when all of it is on disk. */
  flush(): Promise<void>;
  /** Waits for what is being written; what is still to be written goes with `finishInTx`, in its commit instead of one of its own. */
  settle(): Promise<void>;
  /**
   * Inside the terminal transaction: writes the rest plus these last frames; publish them with the returned function after the commit.
   * Settle first: what is on its way to the disk has no number yet.
   */
  finishInTx(
    tx: Tx,
    last: readonly { [K in FrameKind]: { kind: K; data: FrameData[K] } }[FrameKind][],
  ): { folded: FoldedRun; publish: () => void };
  /** No further write; timers stop. */
  close(): void;
}

export interface FrameLogOptions {
  readonly store: Store;
  readonly runs: Runs;
  readonly clock: Clock;
  readonly run: Run;
  readonly folded: FoldedRun;
  /** Frames that were just committed. */
  readonly onCommitted: (frames: readonly Frame[], folded: FoldedRun) => void;
  /** The disk is full, or another process took the run. Nothing further can be shown. */
  readonly onFailure: (error: unknown) => void;
}

export function createFrameLog({ store, runs, clock, run, folded: before, onCommitted, onFailure }: FrameLogOptions): FrameLog {
  type Pending = { kind: FrameKind; data: FrameData[FrameKind] };
  let pending: Pending[] = [];
  let folded = before;
  let seq = before.lastSeq;
  let timer: Timer | null = null;
  let writtenAt = Number.NEGATIVE_INFINITY;
  let writing: Promise<void> = Promise.resolve();
  let closed = false;
  let failed = false;
  let onItsWay = false;
  const insertFrame = prepare((row: Insertable<FramesTable>) => store.sql.insertInto('frames').values(row));

  function insert(tx: Tx, items: readonly Pending[]): Frame[] {
    const at = clock.now();
    // Numbers are taken here, in the order of commits, so that a failed commit leaves no hole.
    const frames = items.map((item, index) => ({ seq: seq + index + 1, at, ...item }) as Frame);
    for (const frame of frames) {
      tx.run(insertFrame({ run_id: run.id, seq: frame.seq, kind: frame.kind, data: JSON.stringify(frame.data), at }));
    }
    return frames;
  }

  function publish(frames: readonly Frame[]): void {
    seq = frames.at(-1)?.seq ?? seq;
    folded = frames.reduce(foldFrame, folded);
    onCommitted(frames, folded);
  }

  async function write(): Promise<void> {
    timer?.cancel();
    timer = null;
    const items = pending;
    pending = [];
    if (items.length === 0 || failed) return;
    writtenAt = clock.monotonic();
    onItsWay = true;
    try {
      const frames = await store.write((tx) => {
        if (!runs.holds(tx, run)) throw new LostLease(`run ${run.id} is no longer ours`);
        return insert(tx, items);
      });
      publish(frames);
    } catch (error) {
      failed = true;
      onFailure(error);
    } finally {
      onItsWay = false;
    }
  }

  /** One commit at a time per run: its frames are numbered in order. */
  function schedule(): void {
    writing = writing.then(write);
  }

  return {
    text(delta) {
      if (delta === '' || closed) return;
      const last = pending.at(-1);
      if (last?.kind === 'text') last.data = { delta: (last.data as FrameData['text']).delta + delta };
      else pending.push({ kind: 'text', data: { delta } });
      if (timer !== null) return;
      const waitMs = writtenAt + TEXT_FLUSH_MS - clock.monotonic();
      if (waitMs > 0) timer = clock.after(waitMs, schedule);
      else schedule();
    },
    append(kind, data) {
      if (closed) return;
      pending.push({ kind, data });
      schedule();
    },
    async flush() {
      schedule();
      await writing;
    },
    async settle() {
      timer?.cancel();
      timer = null;
      await writing;
    },
    finishInTx(tx, last) {
      if (onItsWay) throw new Error('the frame log must be settled before it is finished');
      const items = [...pending, ...last];
      pending = [];
      const frames = insert(tx, items);
      compactText(store, tx, run.id);
      return { folded: frames.reduce(foldFrame, folded), publish: () => publish(frames) };
    },
    close() {
      closed = true;
      timer?.cancel();
    },
  };
}

const PAGE = 1_000;

export interface FrameReader {
  /** Frames after `after`, oldest first, a page at a time. */
  after(run: RunId, after: number): Frame[];
  fold(run: RunId): FoldedRun;
}
export function createFrameReader({ store }: { store: Store }): FrameReader {
  const rowsAfter = (run: RunId, after: number): FrameRow[] =>
    store.read.all(
      store.sql
        .selectFrom('frames')
        .select(['seq', 'kind', 'data', 'at'])
        .where('run_id', '=', run)
        .where('seq', '>', after)
        .orderBy('seq')
        .limit(PAGE),
    );
  return {
    after(run, after) {
      const page: Frame[] = [];
      for (const row of rowsAfter(run, after)) {
        // A row of an ended run may hold many frames, the first of them before `after`.
        for (const frame of readFrameRow(row)) if (frame.seq > after) page.push(frame);
        if (page.length >= PAGE) return page.slice(0, PAGE);
      }
      return page;
    },
    fold(run) {
      let folded = EMPTY_FOLD;
      for (;;) {
        const rows = rowsAfter(run, folded.lastSeq);
        // Read as it stands: text folds to the same however it is cut.
        folded = rows.map(readFrame).reduce(foldFrame, folded);
        if (rows.length < PAGE) return folded;
      }
    },
  };
}
