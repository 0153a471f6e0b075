/**
 * What admission sees of an event: already parsed, bounded and free of Matrix wire detail. The transport maps events to it
 * (appservice/wire), so the runtime decides on plain values and every rule can be tested without a homeserver.
 */
import type { EventId, RoomId, TokenId, UserId } from '../ids.ts';
import type { JsonObject } from '../json.ts';
import type { SenderTrust } from '../turn/principal.ts';

interface ItemBase {
  readonly eventId: EventId;
  readonly roomId: RoomId;
  readonly sender: UserId;
  /** origin_server_ts; a claim of the sender's server, may be off. */
  readonly sentAt: number;
  /** `clear` as it is read; admission puts in what decryption said. */
  readonly trust: SenderTrust;
}
export interface MessageItem extends ItemBase {
  readonly kind: 'message';
  readonly msgtype: string;
  readonly text: string;
  /** A file without a word: no prompt, but context for what is said about it. */
  readonly wordless: boolean;
  /** Root of the thread it stands in. */
  readonly thread: EventId | null;
  readonly inReplyTo: EventId | null;
  /** `m.mentions.user_ids`; null when the field is absent, so that legacy forms count. */
  readonly mentions: readonly UserId[] | null;
  /** Whole content: the signature covers it. */
  readonly content: JsonObject;
  readonly eventType: string;
}
export type InboxItem =
  | MessageItem
  | (ItemBase & { readonly kind: 'edit'; readonly target: EventId; readonly text: string; readonly content: JsonObject })
  | (ItemBase & { readonly kind: 'invite'; readonly isDirect: boolean })
  /** The oracle's own membership: joined, left or banned. */
  | (ItemBase & { readonly kind: 'own_membership'; readonly membership: 'join' | 'leave' | 'ban' })
  /** Somebody else's membership, or another state event that room facts depend on. */
  | (ItemBase & { readonly kind: 'room_changed' })
  /** The oracle's own event come back; `prompts` names what it answers. */
  | (ItemBase & { readonly kind: 'own'; readonly run: OwnRun | null })
  /** Not decrypted yet; the thread stands in the clear part. */
  | (ItemBase & { readonly kind: 'encrypted'; readonly thread: EventId | null })
  /** A step of an emoji verification with the oracle; `event` is what the sender encrypted, or sent in the clear. */
  | (ItemBase & { readonly kind: 'verification'; readonly event: JsonObject })
  | (ItemBase & { readonly kind: 'redaction'; readonly target: EventId })
  | (ItemBase & { readonly kind: 'reaction'; readonly target: EventId; readonly key: string })
  /** `ixo.oracle.grant`: a delegation for the oracle or for a key of the sender's client, as one CAR. */
  | (ItemBase & { readonly kind: 'grant'; readonly dlg: string })
  /** `ixo.oracle.revoke`. */
  | (ItemBase & { readonly kind: 'revoke'; readonly tokenId: TokenId })
  /** `ixo.room.state` / `ucan_delegation` of an older client; `data` null: it was taken back. */
  | (ItemBase & { readonly kind: 'state_grant'; readonly data: string | null })
  | (ItemBase & { readonly kind: 'other'; readonly type: string });

export interface OwnRun {
  readonly runId: string;
  readonly prompts: readonly EventId[];
  readonly status: string;
  readonly part: number;
}
