/**
 * Room events as the rest of the program knows them: ids are branded, the fields we decide on are typed, everything else stays in `content` as it
 * came, because signatures and hashes are made over the bytes the sender chose. A kind exists only for what somebody here acts on.
 */
import type { EventId, RoomId, UserId } from '../../src/ids.ts';
import type { JsonObject } from '../../src/json.ts';

interface EventBase {
  readonly eventId: EventId;
  readonly roomId: RoomId;
  readonly sender: UserId;
  readonly type: string;
  readonly stateKey?: string;
  /** Clock of the sender's homeserver: may be an hour off. */
  readonly originServerTs: number;
  /** Milliseconds between the event and this copy of it, as our homeserver saw it. */
  readonly ageMs?: number;
  /** True when the content was taken away since (`unsigned.redacted_because`). */
  readonly redacted: boolean;
  readonly content: JsonObject;
}

/** `m.mentions`. Present and malformed counts as present and empty: legacy forms of a mention are read only when it is absent. */
export interface Mentions {
  readonly userIds: ReadonlySet<UserId>;
  readonly room: boolean;
}

export interface MessageBody {
  readonly msgtype: string;
  readonly body: string;
  readonly formattedBody?: string;
  readonly mentions?: Mentions;
}

export interface Relation {
  /** Root of the thread the message is in. */
  readonly thread?: { readonly root: EventId };
  /** The message it replies to; for a thread only when the reply is real, not a fallback. */
  readonly inReplyTo?: EventId;
  /** The message it edits, and what it becomes. */
  readonly replace?: { readonly target: EventId; readonly newContent: JsonObject; readonly newBody: MessageBody };
  /** Any other relation, by its name. */
  readonly other?: { readonly relType: string; readonly target?: EventId };
}

export interface MessageEvent extends EventBase, MessageBody {
  readonly kind: 'message';
  readonly relation: Relation;
}

export type Membership = 'invite' | 'join' | 'leave' | 'ban' | 'knock';

/** State of a room that an invited user may see before joining. */
export interface StrippedState {
  readonly type: string;
  readonly stateKey: string;
  readonly sender?: UserId;
  readonly content: JsonObject;
}

export interface MemberEvent extends EventBase {
  readonly kind: 'member';
  readonly target: UserId;
  readonly membership: Membership;
  readonly previous?: Membership;
  readonly isDirect: boolean;
  readonly displayName?: string;
  readonly reason?: string;
  /** Only with an invite. */
  readonly inviteState: readonly StrippedState[];
}

export interface RedactionEvent extends EventBase {
  readonly kind: 'redaction';
  readonly redacts: EventId;
  readonly reason?: string;
}

export interface ReactionEvent extends EventBase {
  readonly kind: 'reaction';
  readonly target: EventId;
  readonly key: string;
}

/** `m.room.encryption`. Any such state means encrypted, also one whose algorithm we cannot read (G11). */
export interface EncryptionEvent extends EventBase {
  readonly kind: 'encryption';
  readonly algorithm?: string;
}

export interface EncryptedEvent extends EventBase {
  readonly kind: 'encrypted';
  readonly algorithm?: string;
  readonly relation: Relation;
}

/** A message, reaction or redaction whose content was taken away: there is nothing left to act on. */
export interface RedactedEvent extends EventBase {
  readonly kind: 'redacted';
  readonly redacted: true;
}

/** Everything else, state and custom events included. */
export interface OtherEvent extends EventBase {
  readonly kind: 'other';
}

export type RoomEvent =
  | MessageEvent
  | MemberEvent
  | RedactionEvent
  | ReactionEvent
  | EncryptionEvent
  | EncryptedEvent
  | RedactedEvent
  | OtherEvent;

export type EventProblemReason =
  | 'not_an_object'
  | 'too_large'
  | 'too_deep'
  | 'bad_event_id'
  | 'bad_room_id'
  | 'bad_sender'
  | 'bad_type'
  | 'bad_state_key'
  | 'bad_timestamp'
  | 'bad_content'
  | 'bad_body'
  | 'bad_relation'
  | 'bad_edit'
  | 'bad_member'
  | 'bad_redaction'
  | 'bad_grant'
  | 'bad_revoke'
  | 'bad_state_grant';

/** Why an event is skipped, for one log line (G17): ids where they could be read, never content (G12). */
export interface EventProblem {
  readonly reason: EventProblemReason;
  readonly eventId?: EventId;
  readonly roomId?: RoomId;
  readonly type?: string;
}
