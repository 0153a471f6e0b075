/**
 * When a refusal is said in the room, and how often (DESIGN §5 "Refusal notices"): often enough that nobody waits in vain, seldom enough
 * that two bots cannot feed on each other's notices. Pure: stamps in, a decision out.
 */
import type { Refusal } from '../errors.ts';
import type { RoomId, UserId } from '../ids.ts';
import { LIMITS } from '../limits.ts';

export type NoticeDecision =
  /** `stamp` is remembered for `forMs`, so that the same is not said again. */
  | { readonly kind: 'say'; readonly text: string; readonly stamp: string }
  /** Said recently: a 🔒 on the message shows that it was seen and refused. */
  | { readonly kind: 'lock'; readonly stamp: string }
  | { readonly kind: 'silent' };

export interface NoticeFacts {
  readonly refusal: Refusal;
  readonly sender: UserId;
  readonly roomId: RoomId;
  readonly direct: boolean;
  readonly now: number;
  /** Wall clock ms when this stamp was last set; null when never. */
  readonly stampedAt: (stamp: string) => number | null;
}

const OPEN_A_DIRECT_CHAT = 'I need to know that I may act for you before I answer here. Please open a direct chat with me.';

export function decideNotice({ refusal, sender, roomId, direct, now, stampedAt }: NoticeFacts): NoticeDecision {
  const recent = (stamp: string, forMs: number): boolean => {
    const at = stampedAt(stamp);
    return at !== null && now - at < forMs;
  };
  if (refusal.code === 'NO_AUTHORITY') {
    const stamp = direct ? `authority:${sender}` : `authority:${sender}:group`;
    if (recent(stamp, LIMITS.authorityNoticeRepeatMs)) return { kind: 'lock', stamp };
    return { kind: 'say', text: direct ? refusal.message : OPEN_A_DIRECT_CHAT, stamp };
  }
  const late = refusal.code === 'TOO_LATE';
  const stamp = late ? `late:${roomId}` : `refusal:${sender}:${roomId}:${refusal.code}`;
  if (recent(stamp, late ? LIMITS.lateNoticePerRoomMs : LIMITS.refusalNoticeRepeatMs)) return { kind: 'silent' };
  return { kind: 'say', text: refusal.message, stamp };
}
