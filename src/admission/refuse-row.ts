/**
 * A refusal writes its audit row, maybe its notice, and nothing else, in the transaction that ends the inbox row (DESIGN §2): the same for
 * messages and for grants. For somebody who is known from a group only by what he lacks there, the direct chat is looked up first.
 */
import type { NoticeKind, RoomId, UserId } from '../ids.ts';
import type { Inbox, InboxRow } from '../inbox/inbox.ts';
import type { JsonObject } from '../json.ts';
import type { Store } from '../store/store.ts';
import { writeAudit } from '../turn/audit.ts';
import type { SenderTrust } from '../turn/principal.ts';
import type { Refused } from '../turn/turn.ts';
import { UCAN_KEY } from '../ucan/content-hash.ts';
import { needsGrant } from './decide-notice.ts';
import type { EndRow } from './end-row.ts';
import type { MessageItem } from './inbox-item.ts';
import type { KnownRooms } from './known-rooms.ts';
import type { Notices, RefusedMessage } from './notices.ts';
import type { RoomDirectory } from './room-facts.ts';

export interface RefuseRowOptions {
  readonly store: Store;
  readonly inbox: Inbox;
  readonly rooms: RoomDirectory;
  readonly known: KnownRooms;
  readonly notices: Notices;
  readonly now: () => number;
}
/** What a refusal must know of the event: a grant stands in no thread and carries no token beside itself. */
export interface RefusedItem {
  readonly sender: UserId;
  readonly thread: MessageItem['thread'];
  readonly content: JsonObject;
  readonly trust: SenderTrust;
}
export type RefuseRow = (
  row: InboxRow,
  item: RefusedItem,
  direct: boolean,
  why: Refused & { capability: string; kind?: NoticeKind },
) => Promise<void>;

/** Whether the event carries a token of its own, good or bad. */
export const isSigned = (content: JsonObject): boolean => Object.hasOwn(content, UCAN_KEY);

export function createRefuseRow({ store, inbox, rooms, known, notices, now }: RefuseRowOptions, end: EndRow): RefuseRow {
  async function directRoomOf(user: UserId): Promise<RoomId | null> {
    for (const room of known.maybeDirectWith(user)) {
      const facts = await rooms.facts(room);
      if (facts.kind === 'direct' && facts.joined && facts.encryption !== 'unknown' && facts.people.has(user)) return room;
    }
    return null;
  }

  return async (row, { sender, thread, content, trust }, direct, { refusal, principal, capability, kind = 'refusal' }) => {
    end.note(row, 'refused', refusal.code);
    const signed = isSigned(content);
    const directRoom = !direct && needsGrant(refusal, signed) ? await directRoomOf(sender) : null;
    const said = await store.write((tx) => {
      writeAudit(store, tx, {
        at: now(),
        event_id: row.eventId,
        principal_id: principal?.id ?? null,
        matrix_user_id: sender,
        tier: principal?.tier ?? null,
        trust,
        capability,
        decision: 'refused',
        code: refusal.code,
      });
      inbox.finish(tx, row);
      const refused: RefusedMessage = {
        refusal,
        sender,
        roomId: row.roomId,
        direct,
        signed,
        directRoom,
        cause: row.eventId,
        threadRoot: thread,
        kind,
      };
      return notices.refuse(tx, refused);
    });
    said();
  };
}
