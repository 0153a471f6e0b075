/**
 * A token is good for one prompt. The mark is inserted in the transaction that opens the run, so of twenty concurrent uses exactly one
 * wins, and it is keyed by the hash of the signed payload, because a CAR can be re-encoded at will (research/ucan.md §0.5).
 */
import type { RunId, TokenId } from '../ids.ts';
import type { Store, Tx } from '../store/store.ts';
import type { SpentToken } from '../turn/principal.ts';

/** The same prompt again is a redelivery; any other is a replay. */
export function isSpentOnAnother(store: Store, tx: Tx, tokenId: TokenId, promptId: string): boolean {
  const mark = tx.get(store.sql.selectFrom('replay_marks').select('prompt_id').where('token_id', '=', tokenId));
  return mark !== undefined && mark.prompt_id !== promptId;
}

/** What an HTTP token was spent on: the same body joins its run, another is a conflict. */
export function findSpent(store: Store, tokenId: TokenId): { runId: RunId | null; bodyHash: string | null } | undefined {
  const mark = store.read.get(store.sql.selectFrom('replay_marks').select(['run_id', 'body_hash']).where('token_id', '=', tokenId));
  return mark === undefined ? undefined : { runId: mark.run_id, bodyHash: mark.body_hash };
}

export function spend(store: Store, tx: Tx, token: SpentToken, { promptId, runId }: { promptId: string; runId: RunId | null }): void {
  tx.run(
    store.sql
      .insertInto('replay_marks')
      .values({ token_id: token.tokenId, prompt_id: promptId, run_id: runId, body_hash: token.bodyHash, keep_until: token.keepUntil })
      .onConflict((oc) => oc.column('token_id').doNothing()),
  );
}

const PRUNE_BATCH = 5_000;
export function pruneSpent(store: Store, now: number): Promise<number> {
  return store.write((tx) =>
    tx.run(
      store.sql
        .deleteFrom('replay_marks')
        .where('token_id', 'in', store.sql.selectFrom('replay_marks').select('token_id').where('keep_until', '<', now).limit(PRUNE_BATCH)),
    ),
  );
}
