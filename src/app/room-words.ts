/** How refusals and greetings are worded in Matrix: the one place where the runtime's notices meet the transport's event contents. */
import { buildDelegationRequired, buildHello, buildNotice, buildReaction } from '../../appservice/content/build-notice.ts';
import type { Place } from '../../appservice/content/relations.ts';
import type { NoticeToSay, NoticeWords } from '../admission/notices.ts';
import { type Did, noticeTxnId, type RoomId, type UserId } from '../ids.ts';
import type { Outbox } from '../outbox/outbox.ts';
import type { Tx } from '../store/store.ts';

const ASK_THE_OPERATOR = ' There is no page yet where you could authorise me.';

export function createNoticeWords({ oracleDid, oracleEntityDid }: { oracleDid: Did; oracleEntityDid: Did | undefined }): NoticeWords {
  return {
    notice(notice) {
      const place = placeOf(notice);
      const { refusal } = notice;
      const content =
        refusal.code === 'NO_AUTHORITY' && notice.direct
          ? buildDelegationRequired({
              oracleDid,
              ...(oracleEntityDid === undefined ? {} : { oracleEntityDid }),
              body: notice.text + ASK_THE_OPERATOR,
              error: refusal,
              ...place,
            })
          : buildNotice({ text: notice.text, error: refusal, ...place });
      return { eventType: 'm.room.message', content };
    },
    reaction: (target, key) => ({ eventType: 'm.reaction', content: buildReaction({ target, key }) }),
  };
}

const placeOf = ({ threadRoot, cause }: NoticeToSay): Place =>
  threadRoot === null ? { replyTo: cause } : { thread: { root: threadRoot, latest: cause } };

/** Once per room for good: the txn id is the room's (G4). */
export function createGreeting({
  outbox,
  name,
  userId,
  now,
}: {
  outbox: Outbox;
  name: string;
  userId: UserId;
  now: () => number;
}): (tx: Tx, room: RoomId) => () => void {
  return (tx, room) => {
    const content = buildHello({ kind: 'group', name, userId });
    outbox.insert(
      tx,
      { txnId: noticeTxnId('hello', room), lane: `hello.${room}`, roomId: room, kind: 'notice', eventType: 'm.room.message', content },
      now(),
    );
    return () => outbox.wake();
  };
}
