/** How refusals and greetings are worded in Matrix: the one place where the runtime's notices meet the transport's event contents. */
import { buildDelegationRequired, buildHello, buildNotice, buildReaction, buildReceipt } from '../../appservice/content/build-notice.ts';
import type { Place } from '../../appservice/content/relations.ts';
import type { ReceiptWords } from '../admission/admit-authority.ts';
import type { NoticeWords } from '../admission/notices.ts';
import type { CommandWords } from '../commands/commands.ts';
import { type Did, type EventId, noticeTxnId, type RoomId, type UserId } from '../ids.ts';
import type { Outbox } from '../outbox/outbox.ts';
import type { Tx } from '../store/store.ts';

export type RoomWords = NoticeWords & CommandWords & ReceiptWords;

export function createRoomWords({ oracleDid, oracleEntityDid }: { oracleDid: Did; oracleEntityDid: Did | undefined }): RoomWords {
  return {
    notice(notice) {
      const { text, refusal, authorise } = notice;
      const said = { error: refusal, ...placeOf(notice) };
      const content =
        authorise === null
          ? buildNotice({ text, ...said })
          : buildDelegationRequired({
              oracleDid,
              ...(oracleEntityDid === undefined ? {} : { oracleEntityDid }),
              ...(authorise.url === null ? {} : { url: authorise.url }),
              body: text,
              ...said,
            });
      return { eventType: 'm.room.message', content };
    },
    reaction: (target, key) => ({ eventType: 'm.reaction', content: buildReaction({ target, key }) }),
    reply(reply) {
      const { text, link, refusal } = reply;
      const more = { ...(link === null ? {} : { link }), ...(refusal === null ? {} : { error: refusal }) };
      return { eventType: 'm.room.message', content: buildNotice({ text, ...more, ...placeOf(reply) }) };
    },
    receipt: (receipt) => ({ eventType: 'ixo.oracle.grant_receipt', content: buildReceipt(receipt) }),
  };
}

function placeOf({ threadRoot, cause }: { readonly threadRoot: EventId | null; readonly cause: EventId | null }): Place {
  if (cause === null) return {};
  return threadRoot === null ? { replyTo: cause } : { thread: { root: threadRoot, latest: cause } };
}

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
