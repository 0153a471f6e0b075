/**
 * Says refusals in rooms through the outbox, in the transaction that ends the inbox row, so that a crash neither loses nor repeats one
 * (G4). The stamp that keeps it from being said again goes in with it and is taken back when the notice could not be sent.
 */

import { type AuthorisePage, describeOffer } from '../commands/authorise-page.ts';
import { type Refusal, refusal as refusalOf } from '../errors.ts';
import { type EventId, type NoticeKind, noticeTxnId, type OutboxTxnId, type RoomId, type UserId } from '../ids.ts';
import type { OutboundEvent, Outbox } from '../outbox/outbox.ts';
import { assertNever } from '../result.ts';
import type { Store, Tx } from '../store/store.ts';
import { decideNotice, type NoticeDecision, needsGrant } from './decide-notice.ts';

export interface NoticeToSay {
  readonly kind: NoticeKind;
  readonly roomId: RoomId;
  /** The message it answers; null when that stands in another room. */
  readonly cause: EventId | null;
  readonly threadRoot: EventId | null;
  readonly text: string;
  readonly refusal: Refusal;
  /** In a direct room, to somebody who has to authorise the oracle first; `url` null when there is no link to give. */
  readonly authorise: { readonly url: string | null } | null;
}
/** How the transport words a notice; pure. */
export interface NoticeWords {
  notice(notice: NoticeToSay): Pick<OutboundEvent, 'eventType' | 'content'>;
  reaction(target: EventId, key: string): Pick<OutboundEvent, 'eventType' | 'content'>;
}

export interface RefusedMessage {
  readonly refusal: Refusal;
  readonly sender: UserId;
  readonly roomId: RoomId;
  readonly direct: boolean;
  /** The message carried a token of its own. */
  readonly signed: boolean;
  /** Where this person and the oracle are alone; asked only for a message in a group. */
  readonly directRoom: RoomId | null;
  readonly cause: EventId;
  readonly threadRoot: EventId | null;
  readonly kind: NoticeKind;
}
export interface Notices {
  /** Decides and writes; call the returned function after the commit. */
  refuse(tx: Tx, refused: RefusedMessage): () => void;
}

export interface NoticesOptions {
  readonly store: Store;
  readonly outbox: Outbox;
  readonly words: NoticeWords;
  readonly page: AuthorisePage;
  readonly now: () => number;
  readonly signal: AbortSignal;
}

export function createNotices({ store, outbox, words, page, now, signal }: NoticesOptions): Notices {
  const { sql } = store;
  const stampedAt = (tx: Tx, key: string): number | null =>
    tx.get(sql.selectFrom('notice_stamps').select('at').where('key', '=', key))?.at ?? null;

  async function takeBackIfUnsent(txnId: OutboxTxnId, stamp: string, at: number): Promise<void> {
    if ((await outbox.settled(txnId, signal)) !== null) return;
    await store.write((tx) => tx.run(sql.deleteFrom('notice_stamps').where('key', '=', stamp).where('at', '=', at)));
  }

  function insert(
    tx: Tx,
    kind: NoticeKind,
    { cause, roomId }: { cause: EventId; roomId: RoomId },
    event: ReturnType<NoticeWords['notice']>,
  ) {
    const txnId = noticeTxnId(kind, cause);
    // A lane of its own for each room: what cannot be sent into one must not hold back the other (G4).
    const lane = `${kind === 'lock' ? 'lock' : 'notice'}.${cause}`;
    outbox.insert(tx, { txnId, lane, roomId, kind: 'notice', ...event }, now());
    return txnId;
  }

  /** @returns the row whose sending the stamp waits for; null when nothing is stamped. */
  function say(tx: Tx, refused: RefusedMessage, decision: Exclude<NoticeDecision, { kind: 'silent' }>, at: number): OutboxTxnId | null {
    const { refusal, sender, roomId, cause, threadRoot, kind, signed, direct } = refused;
    switch (decision.kind) {
      case 'lock':
        insert(tx, kind, refused, words.reaction(cause, '🔒'));
        return null;
      case 'say': {
        const { text } = decision;
        // What exactly somebody lacks is not for a group.
        const said = !direct && needsGrant(refusal, signed) ? refusalOf('NO_AUTHORITY', { message: text }) : refusal;
        return insert(tx, kind, refused, words.notice({ kind, roomId, cause, threadRoot, text, refusal: said, authorise: null }));
      }
      case 'authorise': {
        const { room, lock } = decision;
        if (lock) insert(tx, 'lock', refused, words.reaction(cause, '🔒'));
        const offer = page.offer(tx, { user: sender, room }, at);
        const where = lock ? { cause: null, threadRoot: null } : { cause, threadRoot };
        const text = `${lock ? 'You wrote to me in another room. ' : ''}${decision.text} ${describeOffer(offer)}`;
        const authorise = { url: offer.kind === 'link' ? offer.url : null };
        return insert(tx, kind, { cause, roomId: room }, words.notice({ kind, roomId: room, ...where, text, refusal, authorise }));
      }
      default:
        return assertNever(decision);
    }
  }

  return {
    refuse(tx, refused) {
      const at = now();
      const decision = decideNotice({ ...refused, now: at, stampedAt: (stamp) => stampedAt(tx, stamp) });
      if (decision.kind === 'silent') return () => undefined;
      const txnId = say(tx, refused, decision, at);
      if (txnId === null) return () => outbox.wake();
      const { stamp } = decision;
      tx.run(
        sql
          .insertInto('notice_stamps')
          .values({ key: stamp, at })
          .onConflict((oc) => oc.column('key').doUpdateSet({ at })),
      );
      return () => {
        outbox.wake();
        // At shutdown the wait ends with the signal; the row is then sent, and judged, by the next process.
        takeBackIfUnsent(txnId, stamp, at).catch(() => undefined);
      };
    },
  };
}
