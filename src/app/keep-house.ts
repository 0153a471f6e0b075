/**
 * Forgets what has served its time, so that the database does not grow with the years: event ids, spent tokens, ended grants, nonces, sent events,
 * stamps. Never what the audit log says was allowed.
 */
import type { Inbox } from '../inbox/inbox.ts';
import type { Logger } from '../observe/logger.ts';
import type { Store, Tx } from '../store/store.ts';
import type { Clock } from '../time.ts';
import type { Grants } from '../ucan/grants.ts';
import { pruneSpent } from '../ucan/replay.ts';
import { repeat } from './repeat.ts';

export interface HousekeepingOptions {
  readonly store: Store;
  readonly inbox: Inbox;
  readonly grants: Pick<Grants, 'sweep'>;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly retentionMs: number;
  /** Removes checkpoint files that nobody wrote since; returns how many. */
  readonly removeIdleCheckpoints: (before: number) => number;
}
const EVERY_MS = 10 * 60_000;
const BATCH = 5_000;
/** A nonce is good for a quarter of an hour; what was used or missed is looked at no more. */
const NONCE_IDLE_MS = 24 * 60 * 60_000;
/** A run is over within minutes; a day leaves room for outages. */
const CHECKPOINT_IDLE_MS = 24 * 60 * 60_000;

export function keepHouse({ store, inbox, grants, clock, logger, retentionMs, removeIdleCheckpoints }: HousekeepingOptions): {
  stop(): void;
} {
  const { sql } = store;
  let auditedUntil = 0;

  async function sweep(isStopped: () => boolean): Promise<void> {
    const untilDone = (step: () => Promise<number>) => repeatUntilDone(step, isStopped);
    const now = clock.now();
    const old = now - retentionMs;
    // Twice the time: an event is refused as too old before its id is forgotten (G2), whatever its server's clock says.
    let count = await untilDone(() => inbox.prune(old - retentionMs));
    count += await untilDone(() => pruneSpent(store, now));
    count += await grants.sweep(now);
    const nonces = sql
      .selectFrom('authorise_links')
      .select('nonce_hash')
      .where('created_at', '<', now - NONCE_IDLE_MS)
      .limit(BATCH);
    count += await untilDone(() => store.write((tx) => tx.run(sql.deleteFrom('authorise_links').where('nonce_hash', 'in', nonces))));
    await store.write((tx) => {
      tx.run(sql.deleteFrom('notice_stamps').where('at', '<', old));
      tx.run(sql.deleteFrom('rate_counts').where('at', '<', old));
      tx.run(sql.deleteFrom('control').where('done_at', '<', old));
    });
    const sent = sql.selectFrom('outbox').select('seq').where('state', '!=', 'ready').where('created_at', '<', old).limit(BATCH);
    count += await untilDone(() => store.write((tx) => tx.run(sql.deleteFrom('outbox').where('seq', 'in', sent))));
    // What strangers said and asked in vain: anybody can write it, so it must not stay for ever (G14).
    const overheard = sql.selectFrom('transcript').select('id').where('session_id', 'is', null).where('at', '<', old).limit(BATCH);
    count += await untilDone(() => store.write((tx) => tx.run(sql.deleteFrom('transcript').where('id', 'in', overheard))));
    await untilDone(() => store.write((tx) => forgetRefused(tx, old)));
    count += removeIdleCheckpoints(now - CHECKPOINT_IDLE_MS);
    if (count > 0) logger.info({ count }, 'old rows were forgotten');
  }
  /** Ids grow with time, so what was looked through once is not read again; what was allowed stays, and what a run was refused. */
  function forgetRefused(tx: Tx, old: number): number {
    const rows = tx.all(sql.selectFrom('audit').select(['id', 'at']).where('id', '>', auditedUntil).orderBy('id').limit(BATCH));
    const newer = rows.findIndex(({ at }) => at >= old);
    const last = rows.at(newer < 0 ? -1 : newer - 1);
    if (newer === 0 || last === undefined) return 0;
    tx.run(
      sql
        .deleteFrom('audit')
        .where('id', '>', auditedUntil)
        .where('id', '<=', last.id)
        .where('decision', '=', 'refused')
        .where('run_id', 'is', null),
    );
    auditedUntil = last.id;
    return newer < 0 ? rows.length : newer;
  }
  return repeat(sweep, {
    clock,
    pauseMs: EVERY_MS,
    onError: (error) => logger.warn({ err: error }, 'old rows could not be forgotten'),
  });
}

/** In steps that let others write in between; one step a sweep would be slower than what a busy server sends. */
async function repeatUntilDone(step: () => Promise<number>, isStopped: () => boolean): Promise<number> {
  let count = 0;
  for (let gone = BATCH; gone >= BATCH && !isStopped(); count += gone) gone = await step();
  return count;
}
