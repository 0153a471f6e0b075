/**
 * Erases what runs made of prompts that were taken back (src/runs/erase-run.ts), once they are over: their log, their marks, their share of the
 * conversation, and their turn in the checkpoint file. Who waits for it is a row, so that neither a crash nor a busy file forgets one; a run that
 * the process never hears of again is found at the next start.
 * Cost: one read of a table that is empty nearly always, every two seconds.
 */
import type { OwnerId, RunId, SessionId } from '../ids.ts';
import type { Logger } from '../observe/logger.ts';
import { blankRun } from '../runs/erase-run.ts';
import { TERMINAL } from '../runs/run.ts';
import type { Store } from '../store/store.ts';
import type { Clock } from '../time.ts';
import { repeat } from './repeat.ts';

export interface EraseOptions {
  readonly store: Store;
  readonly clock: Clock;
  readonly logger: Logger;
  /** Removes the turn from the owner's file. Synchronous; throws when the file is busy. */
  readonly eraseCheckpoints: (owner: OwnerId, thread: SessionId) => void;
}
const POLL_MS = 2_000;
const BATCH = 50;

export function eraseTakenBack(options: EraseOptions): { stop(): void } {
  const { clock, logger } = options;
  return repeat(() => eraseDue(options), {
    clock,
    pauseMs: POLL_MS,
    onError: (error) => logger.warn({ err: error }, 'what was taken back could not be erased yet'),
  });
}

/** One look. Rejects when something could not be erased yet; what could was. */
export async function eraseDue({ store, logger, eraseCheckpoints }: EraseOptions): Promise<void> {
  const due = readDue(store);
  let failure: unknown = null;
  let erased = 0;
  for (const { runId, sessionId, owner } of due) {
    try {
      // Nothing may start between the question and the deed; both are synchronous.
      if (owner !== null && sessionId !== null) {
        if (works(store, sessionId)) continue;
        eraseCheckpoints(owner, sessionId);
      }
      await store.write((tx) => {
        blankRun(store, tx, runId);
        tx.run(store.sql.deleteFrom('erasures').where('run_id', '=', runId));
      });
      erased += 1;
    } catch (error) {
      failure ??= error;
    }
  }
  // Emptying the log last, or the words that were just overwritten would still stand in it.
  if (erased > 0) {
    store.dropLog();
    logger.info({ count: erased }, 'what was taken back was erased');
  }
  if (failure !== null) throw failure;
}

function readDue(store: Store): { runId: RunId; sessionId: SessionId | null; owner: OwnerId | null }[] {
  return store.read
    .all(
      store.sql
        .selectFrom('erasures as e')
        .leftJoin('runs as r', 'r.run_id', 'e.run_id')
        .select(['e.run_id', 'r.session_id', 'r.owner', 'r.status'])
        // The run that is to replace it takes over what its tools wrote when it starts (G6).
        .where((eb) =>
          eb.not(
            eb.exists(
              eb
                .selectFrom('runs as n')
                .select('n.run_id')
                .whereRef('n.replaces', '=', 'e.run_id')
                .where('n.status', 'in', ['queued', 'running', 'waiting']),
            ),
          ),
        )
        .orderBy('e.asked_at')
        .limit(BATCH),
    )
    .filter(({ status }) => status === null || TERMINAL.has(status))
    .map(({ run_id, session_id, owner }) => ({ runId: run_id, sessionId: session_id, owner }));
}

/** A later turn of the session is under way: it uses the same thread of the file, and took its place in it already. */
const works = (store: Store, session: SessionId): boolean =>
  store.read.get(
    store.sql.selectFrom('runs').select('run_id').where('session_id', '=', session).where('status', 'in', ['running', 'waiting']).limit(1),
  ) !== undefined;
