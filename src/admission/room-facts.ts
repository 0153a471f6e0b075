/**
 * What admission must know of a room, gathered by the transport when a row is claimed, never while receiving (DESIGN §2).
 * A failed look-up is a group: then the oracle only speaks when spoken to.
 */
import type { EventId, RoomId, UserId } from '../ids.ts';

export interface RoomFacts {
  readonly roomId: RoomId;
  readonly kind: 'direct' | 'group';
  /** `unknown` means "do not send" (G11). */
  readonly encryption: 'none' | 'encrypted' | 'unknown';
  /** Members of more than one server: edits are rarer there. */
  readonly federated: boolean;
  /** The oracle is joined. */
  readonly joined: boolean;
  /** Joined or invited, the oracle among them; empty when nobody can say. */
  readonly people: { has(user: UserId): boolean };
  readonly displayName: string | null;
  /** origin_server_ts of the invite; null when unknown. */
  readonly admissionCursor: number | null;
}

export interface RoomDirectory {
  /** Cached; fetches on a miss. Never rejects: a failed look-up answers a group with unknown encryption. */
  facts(room: RoomId): Promise<RoomFacts>;
  /** Something in the room changed: the next `facts` fetches again. */
  forget(room: RoomId): void;
  /** Encryption of this room was seen, wherever: from now on it is encrypted, whatever its state says (G11). */
  sawEncryption(room: RoomId): void;
  /** Power level of a member by the room's own rules (creators of v12 rooms are infinite). */
  powerLevel(room: RoomId, user: UserId): Promise<number>;
  /** Whether this user may take back what others wrote (G9). Throws when nobody can say. */
  mayRedact(room: RoomId, user: UserId): Promise<boolean>;
  /** Whether this user may change settings of the room: the level of its state. Throws when nobody can say. */
  maySetState(room: RoomId, user: UserId): Promise<boolean>;
  /** Sender of an event, to know whether a reply is to the oracle; null when it may not be read. Throws when nobody can say. */
  senderOf(room: RoomId, event: EventId): Promise<UserId | null>;
}

/** Effects of admission on the homeserver. Each throws `OracleError` or a transport error; the dispatcher retries. */
export interface RoomActions {
  join(room: RoomId): Promise<'joined' | 'gone'>;
  /** Leaves or declines; the words stand in the membership event, never in a message. */
  leave(room: RoomId, reason: string): Promise<void>;
  /** Best effort. */
  markRead(room: RoomId, event: EventId): void;
  /** Reads what was said between invite and join into the inbox; true when it reached the invite. */
  readBackToInvite(room: RoomId): Promise<boolean>;
  /** Reads the grant that an older client left in the state of a direct room into the inbox, when there is one. */
  readStateGrant(room: RoomId): Promise<void>;
}
