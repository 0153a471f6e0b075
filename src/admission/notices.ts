/**
 * Says refusals in rooms through the outbox, in the transaction that ends the inbox row, so that a crash neither loses nor repeats one
 * (G4). The stamp that keeps it from being said again goes in with it and is taken back when the notice could not be sent.
 */

import type { Refusal } from '../errors.ts';
import { type EventId, type NoticeKind, noticeTxnId, type OutboxTxnId, type RoomId, type UserId } from '../ids.ts';
import type { OutboundEvent, Outbox } from '../outbox/outbox.ts';
import type { Store, Tx } from '../store/store.ts';
import { decideNotice } from './decide-notice.ts';

export interface NoticeToSay {
  readonly kind: NoticeKind;
  readonly roomId: RoomId;
  /** The message it answers. */
  readonly cause: EventId;
  readonly threadRoot: EventId | null;
  /** In a group everybody reads it: no link, no DID. */
  readonly direct: boolean;
  readonly text: string;
  readonly refusal: Refusal;
}
/** How the transport words a notice; pure. */
export interface NoticeWords {
  notice(notice: NoticeToSay): Pick<OutboundEvent, 'eventType' | 'content'>;
  reaction(target: EventId, key: string): Pick<OutboundEvent, 'eventType' | 'content'>;
}

export interface Notices {
  /** Decides and writes; call the returned function after the commit. */
  refuse(
    tx: Tx,
    refused: {
      refusal: Refusal;
      sender: UserId;
      roomId: RoomId;
      direct: boolean;
      cause: EventId;
      threadRoot: EventId | null;
      kind: NoticeKind;
    },
  ): () => void;
}

export function createNotices({
  store,
  outbox,
  words,
  now,
  signal,
}: {
  store: Store;
  outbox: Outbox;
  words: NoticeWords;
  now: () => number;
  signal: AbortSignal;
}): Notices {
  const { sql } = store;
  const stampedAt = (tx: Tx, key: string): number | null =>
    tx.get(sql.selectFrom('notice_stamps').select('at').where('key', '=', key))?.at ?? null;

  async function takeBackIfUnsent(txnId: OutboxTxnId, stamp: string, at: number): Promise<void> {
    if ((await outbox.settled(txnId, signal)) !== null) return;
    await store.write((tx) => tx.run(sql.deleteFrom('notice_stamps').where('key', '=', stamp).where('at', '=', at)));
  }

  return {
    refuse(tx, { refusal, sender, roomId, direct, cause, threadRoot, kind }) {
      const at = now();
      const decision = decideNotice({ refusal, sender, roomId, direct, now: at, stampedAt: (stamp) => stampedAt(tx, stamp) });
      if (decision.kind === 'silent') return () => undefined;
      const txnId = noticeTxnId(kind, cause);
      const event =
        decision.kind === 'lock'
          ? words.reaction(cause, '🔒')
          : words.notice({ kind, roomId, cause, threadRoot, direct, text: decision.text, refusal });
      outbox.insert(tx, { txnId, lane: `notice.${cause}`, roomId, kind: 'notice', ...event }, at);
      if (decision.kind === 'lock') return () => outbox.wake();
      tx.run(
        sql
          .insertInto('notice_stamps')
          .values({ key: decision.stamp, at })
          .onConflict((oc) => oc.column('key').doUpdateSet({ at })),
      );
      return () => {
        outbox.wake();
        // At shutdown the wait ends with the signal; the row is then sent, and judged, by the next process.
        takeBackIfUnsent(txnId, decision.stamp, at).catch(() => undefined);
      };
    },
  };
}
