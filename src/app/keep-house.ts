/**
 * Forgets what has served its time, so that the database does not grow with the years: event ids, spent tokens, ended grants, nonces, sent events,
 * stamps, and the logs of runs that ended long ago; what they said stays in the conversation. Never what the audit log says was allowed.
 * What becomes free is given back to the file system.
 */
import type { Blobs } from '../blob-store/blobs.ts';
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
  readonly blobs: Pick<Blobs, 'sweep'>;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly retentionMs: number;
  /** Removes checkpoint files that nobody wrote since; returns how many. */
  readonly removeIdleCheckpoints: (before: number) => number;
}
const EVERY_MS = 10 * 60_000;
const BATCH = 5_000;
/** The log of one run may be thousands of rows. */
const RUN_BATCH = 20;
/** Under a megabyte at a time, and no more in one sweep than a busy oracle frees in ten minutes: what is left is used again. */
const RECLAIM_PAGES = 200;
const RECLAIM_STEPS = 100;
/** A nonce is good for a quarter of an hour; what was used or missed is looked at no more. */
const NONCE_IDLE_MS = 24 * 60 * 60_000;
/** A run is over within minutes; a day leaves room for outages. */
const CHECKPOINT_IDLE_MS = 24 * 60 * 60_000;

export function keepHouse({ store, inbox, grants, blobs, clock, logger, retentionMs, removeIdleCheckpoints }: HousekeepingOptions): {
  stop(): void;
} {
  const { sql } = store;
  let auditedUntil = 0;
  if (!store.reclaims)
    logger.info({}, 'the database file does not shrink: it is of an older release and too large to be converted at the start');

  async function sweep(isStopped: () => boolean): Promise<void> {
    const untilDone = (step: () => Promise<number>, batch = BATCH) => repeatUntilDone(step, { batch, isStopped });
    const now = clock.now();
    const old = now - retentionMs;
    // Twice the time: an event is refused as too old before its id is forgotten (G2), whatever its server's clock says.
    let count = await untilDone(() => inbox.prune(old - retentionMs));
    count += await untilDone(() => pruneSpent(store, now));
    count += await grants.sweep(now);
    count += await untilDone(() => blobs.sweep(now));
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
    count += await untilDone(() => store.write((tx) => forgetLogs(tx, old)), RUN_BATCH);
    count += removeIdleCheckpoints(now - CHECKPOINT_IDLE_MS);
    if (count > 0) logger.info({ count }, 'old rows were forgotten');
    await giveBack(isStopped);
  }

  /** Frames and marks of runs that ended before; their prompts stand in the transcript as well. Returns how many runs. */
  function forgetLogs(tx: Tx, old: number): number {
    const due = tx
      .all(
        sql
          .selectFrom('runs')
          .select('run_id')
          .where('ended_at', 'is not', null)
          .where('frames_pruned_at', 'is', null)
          .where('ended_at', '<', old)
          .orderBy('ended_at')
          .limit(RUN_BATCH),
      )
      .map((row) => row.run_id);
    if (due.length === 0) return 0;
    tx.run(sql.deleteFrom('frames').where('run_id', 'in', due));
    tx.run(sql.deleteFrom('tool_marks').where('run_id', 'in', due));
    tx.run(sql.updateTable('pending_inputs').set({ text: '' }).where('run_id', 'in', due));
    tx.run(sql.updateTable('runs').set({ frames_pruned_at: clock.now() }).where('run_id', 'in', due));
    return due.length;
  }

  async function giveBack(isStopped: () => boolean): Promise<void> {
    for (let step = 0; step < RECLAIM_STEPS && !isStopped() && store.reclaim(RECLAIM_PAGES); step += 1) {
      // Whoever waits to write comes first.
      await store.write(() => undefined);
    }
    if (!isStopped()) store.dropLog();
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
async function repeatUntilDone(
  step: () => Promise<number>,
  { batch, isStopped }: { batch: number; isStopped: () => boolean },
): Promise<number> {
  let count = 0;
  for (let gone = batch; gone >= batch && !isStopped(); count += gone) gone = await step();
  return count;
}
