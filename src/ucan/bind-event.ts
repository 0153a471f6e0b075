/**
 * A valid token proves who signed, not that the event around it is the one that was meant: any member can copy it into another room,
 * thread, text or moment. Here every fact of the event is compared with what was signed (DESIGN §5 "Binding"; research/ucan.md §3.4),
 * so that a copy is worth nothing (G8). Pure; single use and the DID's right to this account are the caller's next questions.
 */
import type { ErrorCode } from '../errors.ts';
import { type Did, type EventId, parseEventId, parseRoomId, parseUserId, type RoomId, type TokenId, type UserId } from '../ids.ts';
import type { JsonObject } from '../json.ts';
import { LIMITS } from '../limits.ts';
import { err, ok, type Result } from '../result.ts';
import { MESSAGE_ABILITY } from './abilities.ts';
import type { VerifiedInvocation } from './chain.ts';
import { contentHash } from './content-hash.ts';
import { hasEnoughNonce, readOwnCapability } from './own-capability.ts';

export interface EventFacts {
  readonly roomId: RoomId;
  readonly sender: UserId;
  readonly type: string;
  readonly content: JsonObject;
  /** Milliseconds since the epoch, as the homeserver says. */
  readonly originServerTs: number;
  readonly threadRoot?: EventId | undefined;
  /** The event this one replaces (`m.replace`). */
  readonly editsTarget?: EventId | undefined;
}

export interface EventBinding {
  readonly oracleDid: Did;
  /** Milliseconds since the epoch. */
  readonly now: number;
  /** Up to this age the token's window is judged at `originServerTs`, so that an outage of ours expires nobody's message. */
  readonly maxLatenessMs: number;
}

/** What the signer said about the event. */
export interface EventClaims {
  readonly room: RoomId;
  readonly sender: UserId;
  readonly type: string;
  readonly hash: string;
  /** Milliseconds since the epoch. */
  readonly ts: number;
  readonly thread?: EventId;
  readonly edits?: EventId;
}

export interface BoundInvocation {
  readonly principal: Did;
  readonly tokenId: TokenId;
  /** Milliseconds since the epoch; a replay mark lives at least until then plus skew and lateness. */
  readonly expiresAt: number;
  readonly nb: EventClaims;
}

/**
 * @returns BAD_AUDIENCE, BAD_CAPABILITY (not exactly one, or nb with a missing, wrong or unknown key), BAD_ISSUER (`with` is not the
 * principal), WEAK_NONCE, WRONG_ROOM, WRONG_SENDER, WRONG_TYPE, WRONG_THREAD, WRONG_EDIT, BAD_CONTENT, WRONG_CONTENT, WRONG_TIME,
 * TOKEN_LIVES_TOO_LONG, TOKEN_EXPIRED, TOKEN_NOT_YET_VALID.
 */
export function bindToEvent(ucan: VerifiedInvocation, event: EventFacts, binding: EventBinding): Result<BoundInvocation, ErrorCode> {
  if (ucan.audience !== binding.oracleDid) return err('BAD_AUDIENCE');
  const capability = readOwnCapability(ucan, MESSAGE_ABILITY);
  if (!capability.ok) return capability;
  const nb = readEventClaims(capability.value.nb);
  if (nb === undefined) return err('BAD_CAPABILITY');
  if (!hasEnoughNonce(ucan.nonce)) return err('WEAK_NONCE');

  if (nb.room !== event.roomId) return err('WRONG_ROOM');
  if (nb.sender !== event.sender) return err('WRONG_SENDER');
  if (nb.type !== event.type) return err('WRONG_TYPE');
  if (nb.thread !== event.threadRoot) return err('WRONG_THREAD');
  if (nb.edits !== event.editsTarget) return err('WRONG_EDIT');
  const hash = contentHash(event.content);
  if (!hash.ok) return hash;
  if (nb.hash !== hash.value) return err('WRONG_CONTENT');

  const skewMs = LIMITS.clockSkewS * 1000;
  if (Math.abs(nb.ts - event.originServerTs) > skewMs) return err('WRONG_TIME');
  const window = checkWindow(ucan, nb.ts, timeOfJudgement(event.originServerTs, binding));
  if (!window.ok) return window;
  return ok({ principal: ucan.principal, tokenId: ucan.tokenId, expiresAt: ucan.expiration * 1000, nb });
}

/** The event's own time while it is believable: not later than now (beyond skew), not older than the operator allows. */
function timeOfJudgement(originServerTs: number, { now, maxLatenessMs }: EventBinding): number {
  const delay = now - originServerTs;
  return delay <= maxLatenessMs && delay >= -LIMITS.clockSkewS * 1000 ? originServerTs : now;
}

/** The window of an invocation signed at `ts`, judged at `at` (both ms) with skew. Shared with the HTTP binding. */
export function checkWindow(ucan: VerifiedInvocation, ts: number, at: number): Result<true, ErrorCode> {
  const skewMs = LIMITS.clockSkewS * 1000;
  if (ucan.expiration * 1000 > ts + LIMITS.invocationLifetimeS * 1000) return err('TOKEN_LIVES_TOO_LONG');
  if (ucan.expiration * 1000 + skewMs <= at) return err('TOKEN_EXPIRED');
  if (ts > at + skewMs || (ucan.notBefore ?? 0) * 1000 > at + skewMs) return err('TOKEN_NOT_YET_VALID');
  return ok(true);
}

const CLAIMS = new Set(['room', 'sender', 'type', 'hash', 'ts', 'thread', 'edits']);

function readEventClaims(nb: JsonObject): EventClaims | undefined {
  if (!Object.keys(nb).every((key) => CLAIMS.has(key))) return undefined;
  const { type, hash, ts } = nb;
  if (typeof type !== 'string' || typeof hash !== 'string' || typeof ts !== 'number') return undefined;
  const room = parseRoomId(nb['room']);
  const sender = parseUserId(nb['sender']);
  if (!room.ok || !sender.ok) return undefined;
  const claims = { room: room.value, sender: sender.value, type, hash, ts };
  const thread = Object.hasOwn(nb, 'thread') ? parseEventId(nb['thread']) : undefined;
  const edits = Object.hasOwn(nb, 'edits') ? parseEventId(nb['edits']) : undefined;
  if (thread?.ok === false || edits?.ok === false) return undefined;
  return { ...claims, ...(thread === undefined ? {} : { thread: thread.value }), ...(edits === undefined ? {} : { edits: edits.value }) };
}
