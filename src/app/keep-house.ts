/** Forgets what has served its time, so that the database does not grow with the years: event ids, spent tokens, sent events, stamps. */
import type { Inbox } from '../inbox/inbox.ts';
import type { Logger } from '../observe/logger.ts';
import type { Store } from '../store/store.ts';
import type { Clock, Timer } from '../time.ts';
import { pruneSpent } from '../ucan/replay.ts';

export interface HousekeepingOptions {
  readonly store: Store;
  readonly inbox: Inbox;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly retentionMs: number;
}
const EVERY_MS = 10 * 60_000;
const BATCH = 5_000;

export function keepHouse({ store, inbox, clock, logger, retentionMs }: HousekeepingOptions): { stop(): void } {
  const { sql } = store;
  let timer: Timer;
  let stopped = false;

  async function sweep(): Promise<void> {
    const now = clock.now();
    const old = now - retentionMs;
    // Twice the time: an event is refused as too old before its id is forgotten (G2), whatever its server's clock says.
    const ids = await inbox.prune(old - retentionMs);
    const tokens = await pruneSpent(store, now);
    const sent = await store.write((tx) => {
      tx.run(sql.deleteFrom('notice_stamps').where('at', '<', old));
      tx.run(sql.deleteFrom('rate_counts').where('at', '<', old));
      tx.run(sql.deleteFrom('control').where('done_at', '<', old));
      return tx.run(
        sql
          .deleteFrom('outbox')
          .where(
            'seq',
            'in',
            sql.selectFrom('outbox').select('seq').where('state', '!=', 'ready').where('created_at', '<', old).limit(BATCH),
          ),
      );
    });
    if (ids + tokens + sent > 0) logger.info({ count: ids + tokens + sent }, 'old rows were forgotten');
  }
  function schedule(): void {
    // A look that was under way when we stopped must not begin the next one.
    if (stopped) return;
    timer = clock.after(EVERY_MS, () => {
      sweep()
        .catch((error: unknown) => logger.warn({ err: error }, 'old rows could not be forgotten'))
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
