/**
 * How every path of admission ends: the inbox row goes in the transaction that carries its effect, and the outcome is logged and counted with its
 * reason (G1, G17). Shared by the paths for messages, for rooms and for changed or withdrawn prompts.
 */
import type { RoomId } from '../ids.ts';
import type { Inbox, InboxRow } from '../inbox/inbox.ts';
import { Unavailable } from '../inbox/unavailable.ts';
import type { Logger } from '../observe/logger.ts';
import type { Store, Tx } from '../store/store.ts';
import type { IgnoreReason } from './decide-admission.ts';
import type { KnownRooms } from './known-rooms.ts';
import type { RoomDirectory, RoomFacts } from './room-facts.ts';

export interface EndRowOptions {
  readonly store: Store;
  readonly inbox: Inbox;
  readonly rooms: RoomDirectory;
  readonly known: KnownRooms;
  readonly logger: Logger;
  readonly observe: (outcome: string, reason: string) => void;
}
export interface EndRow {
  /** Logs and counts what became of the event. */
  note(row: InboxRow, outcome: string, reason: string): void;
  /** Ends the row with what belongs to it. */
  finish(row: InboxRow, change?: (tx: Tx) => void): Promise<void>;
  ignore(row: InboxRow, reason: IgnoreReason): Promise<void>;
  /**
   * A room that we are in and that cannot be looked up is not "a group that we are not in": a message would be dropped without a word each
   * time the homeserver restarts (G1), and a greeting would go out although nobody knows whether the room is encrypted (G11).
   */
  factsOf(room: RoomId): Promise<RoomFacts>;
}

export function createEndRow({ store, inbox, rooms, known, logger, observe }: EndRowOptions): EndRow {
  const end: EndRow = {
    note(row, outcome, reason) {
      observe(outcome, reason);
      logger.debug({ event_id: row.eventId, room_id: row.roomId, reason, type: outcome }, 'an event was admitted or ignored');
    },
    async finish(row, change = () => undefined) {
      await store.write((tx) => {
        change(tx);
        inbox.finish(tx, row);
      });
    },
    async ignore(row, reason) {
      end.note(row, 'ignored', reason);
      await end.finish(row);
    },
    async factsOf(room) {
      const facts = await rooms.facts(room);
      if (facts.encryption === 'unknown' && known.of(room)?.membership !== 'left') throw new Unavailable('the room cannot be looked up');
      return facts;
    },
  };
  return end;
}
