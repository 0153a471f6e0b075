/**
 * When a refusal is said, where, and how often (DESIGN §5 "Refusal notices"): often enough that nobody waits in vain, seldom enough
 * that two bots cannot feed on each other's notices. What a person has or has not granted is said in their direct chat only; a group learns
 * neither link nor DID nor what exactly is missing. Pure: stamps in, a decision out.
 */
import type { ErrorCode, Refusal } from '../errors.ts';
import type { RoomId, UserId } from '../ids.ts';
import { LIMITS } from '../limits.ts';

export type NoticeDecision =
  /** `stamp` is remembered, so that the same is not said again too soon. */
  | { readonly kind: 'say'; readonly text: string; readonly stamp: string }
  /** The way to authorise the oracle, in this direct room of the person; `lock`: and a 🔒 on the message, which stands in another room. */
  | { readonly kind: 'authorise'; readonly text: string; readonly room: RoomId; readonly lock: boolean; readonly stamp: string }
  /** Said recently: a 🔒 on the message shows that it was seen and refused. */
  | { readonly kind: 'lock'; readonly stamp: string }
  | { readonly kind: 'silent' };

export interface NoticeFacts {
  readonly refusal: Refusal;
  readonly sender: UserId;
  readonly roomId: RoomId;
  readonly direct: boolean;
  /** The message carried a token: its client can sign, so a link for ordinary clients is no help. */
  readonly signed: boolean;
  /** Of this person and the oracle, when the refusal belongs to a group; null when there is none. */
  readonly directRoom: RoomId | null;
  readonly now: number;
  /** Wall clock ms when this stamp was last set; null when never. */
  readonly stampedAt: (stamp: string) => number | null;
}

export const OPEN_A_DIRECT_CHAT = 'I need to know that I may act for you before I answer here. Please open a direct chat with me.';

/** What lacks is a grant that counts: said to who uses an ordinary client. */
const WHY: Partial<Record<ErrorCode, string>> = {
  NO_AUTHORITY: 'I may not answer you yet: you have not authorised me.',
  GRANT_EXPIRED: 'Your authorisation has ended.',
  REVOKED: 'Your authorisation was taken back.',
  EXPIRES_TOO_SOON: 'Your authorisation ends before my answer could be finished.',
};

/** Whether who is refused so has to authorise the oracle first. */
export const needsGrant = ({ code }: Refusal, signed: boolean): boolean => code in WHY && (!signed || code === 'NO_AUTHORITY');

export function decideNotice({ refusal, sender, roomId, direct, signed, directRoom, now, stampedAt }: NoticeFacts): NoticeDecision {
  const recent = (stamp: string, forMs: number): boolean => {
    const at = stampedAt(stamp);
    return at !== null && now - at < forMs;
  };
  if (needsGrant(refusal, signed)) {
    const room = direct ? roomId : directRoom;
    const stamp = room === null ? `authority:${sender}:group` : `authority:${sender}`;
    if (recent(stamp, LIMITS.authorityNoticeRepeatMs)) return { kind: 'lock', stamp };
    if (room === null) return { kind: 'say', text: OPEN_A_DIRECT_CHAT, stamp };
    return { kind: 'authorise', text: WHY[refusal.code] ?? refusal.message, room, lock: !direct, stamp };
  }
  const late = refusal.code === 'TOO_LATE';
  const stamp = late ? `late:${roomId}` : `refusal:${sender}:${roomId}:${refusal.code}`;
  if (recent(stamp, late ? LIMITS.lateNoticePerRoomMs : LIMITS.refusalNoticeRepeatMs)) return { kind: 'silent' };
  return { kind: 'say', text: refusal.message, stamp };
}
