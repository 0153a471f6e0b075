/**
 * Over HTTP there is no homeserver that says who sent: method, path, session and body are bound by the signature, and sender and room are
 * only claims. Whoever has an own DID could otherwise speak in anybody's room; so the claims must equal a link that was proven from
 * Matrix before (DESIGN §5 "Over HTTP"). Pure, in two steps: bind, look the DID's link up, then `checkLink`.
 */
import type { ErrorCode } from '../errors.ts';
import { type Did, parseRoomId, parseSessionId, parseUserId, type RoomId, type SessionId, type TokenId, type UserId } from '../ids.ts';
import type { JsonObject } from '../json.ts';
import { LIMITS } from '../limits.ts';
import { err, ok, type Result } from '../result.ts';
import { MESSAGE_ABILITY, READ_ABILITY } from './abilities.ts';
import { checkWindow } from './bind-event.ts';
import type { VerifiedInvocation } from './chain.ts';
import { hasEnoughNonce, readOwnCapability } from './own-capability.ts';

export interface RequestFacts {
  /** Upper case. */
  readonly method: string;
  /** As it stands in the request line, without the query. */
  readonly path: string;
  /** base64url SHA-256 of the raw body; of no bytes when there is none. */
  readonly bodySha256: string;
  /** The session that the path names. */
  readonly sessionId?: SessionId | undefined;
}

export interface RequestBinding {
  readonly oracleDid: Did;
  /** Milliseconds since the epoch. */
  readonly now: number;
}

interface BoundTo {
  readonly principal: Did;
  readonly tokenId: TokenId;
  /** Milliseconds since the epoch. */
  readonly expiresAt: number;
}
/** `read`: reusable until it expires. `write`: single use, and its token id is the idempotency key. */
export type BoundRequest =
  | (BoundTo & { readonly kind: 'read'; readonly claims: RequestClaims })
  | (BoundTo & { readonly kind: 'write'; readonly claims: WriteClaims });

/** Who the signer says to be in Matrix: true only after `checkLink`. */
export interface RequestClaims {
  readonly sender?: UserId;
  readonly room?: RoomId;
}
export interface WriteClaims extends RequestClaims {
  readonly sender: UserId;
  readonly type: string;
  readonly hash: string;
  /** Milliseconds since the epoch. */
  readonly ts: number;
  readonly thread?: SessionId;
}

/** What Matrix proved about a DID: an account, and the direct room with it once there is one. */
export interface ProvenLink {
  readonly userId: UserId;
  readonly directRoom?: RoomId | undefined;
}

const READ_METHODS = new Set(['GET', 'HEAD']);

/** @returns the codes of `bindToEvent`, without WRONG_ROOM, WRONG_SENDER, WRONG_EDIT and BAD_CONTENT; WRONG_CONTENT is about the body here. */
export function bindToRequest(ucan: VerifiedInvocation, request: RequestFacts, binding: RequestBinding): Result<BoundRequest, ErrorCode> {
  if (ucan.audience !== binding.oracleDid) return err('BAD_AUDIENCE');
  return READ_METHODS.has(request.method) ? bindRead(ucan, binding) : bindWrite(ucan, request, binding);
}

function bindRead(ucan: VerifiedInvocation, { now }: RequestBinding): Result<BoundRequest, ErrorCode> {
  const capability = readOwnCapability(ucan, READ_ABILITY);
  if (!capability.ok) return capability;
  const claims = readClaims(capability.value.nb, READ_CLAIMS);
  if (claims === undefined) return err('BAD_CAPABILITY');
  // Signed now at the latest, give or take the skew: a read token says nothing about its own time.
  const window = checkWindow(ucan, now + LIMITS.clockSkewS * 1000, now);
  if (!window.ok) return window;
  return ok({ kind: 'read', ...boundTo(ucan), claims });
}

function bindWrite(ucan: VerifiedInvocation, request: RequestFacts, { now }: RequestBinding): Result<BoundRequest, ErrorCode> {
  const capability = readOwnCapability(ucan, MESSAGE_ABILITY);
  if (!capability.ok) return capability;
  const claims = readWriteClaims(capability.value.nb);
  if (claims === undefined) return err('BAD_CAPABILITY');
  if (!hasEnoughNonce(ucan.nonce)) return err('WEAK_NONCE');
  if (claims.type !== `${request.method} ${request.path}`) return err('WRONG_TYPE');
  if (claims.thread !== request.sessionId) return err('WRONG_THREAD');
  if (claims.hash !== request.bodySha256) return err('WRONG_CONTENT');
  const window = checkWindow(ucan, claims.ts, now);
  if (!window.ok) return window;
  return ok({ kind: 'write', ...boundTo(ucan), claims });
}

/**
 * The proven link if the claims do not contradict it. A write names its direct room as soon as one is recorded; before, only a request
 * without `room` passes, and the caller may use it for nothing but opening that room.
 * @returns NOT_LINKED; the same for "no link" and "another's", so that nobody can ask who is linked.
 */
export function checkLink(bound: BoundRequest, link: ProvenLink | undefined): Result<ProvenLink, 'NOT_LINKED'> {
  const { sender, room } = bound.claims;
  if (link === undefined || (sender !== undefined && sender !== link.userId)) return err('NOT_LINKED');
  const mayOmitRoom = bound.kind === 'read' || link.directRoom === undefined;
  if (room === undefined ? !mayOmitRoom : room !== link.directRoom) return err('NOT_LINKED');
  return ok(link);
}

const boundTo = (ucan: VerifiedInvocation): BoundTo => ({
  principal: ucan.principal,
  tokenId: ucan.tokenId,
  expiresAt: ucan.expiration * 1000,
});

const READ_CLAIMS = new Set(['sender', 'room']);
const WRITE_CLAIMS = new Set(['sender', 'room', 'type', 'hash', 'ts', 'thread']);

function readClaims(nb: JsonObject, known: ReadonlySet<string>): RequestClaims | undefined {
  if (!Object.keys(nb).every((key) => known.has(key))) return undefined;
  const sender = Object.hasOwn(nb, 'sender') ? parseUserId(nb['sender']) : undefined;
  const room = Object.hasOwn(nb, 'room') ? parseRoomId(nb['room']) : undefined;
  if (sender?.ok === false || room?.ok === false) return undefined;
  return { ...(sender === undefined ? {} : { sender: sender.value }), ...(room === undefined ? {} : { room: room.value }) };
}

function readWriteClaims(nb: JsonObject): WriteClaims | undefined {
  const who = readClaims(nb, WRITE_CLAIMS);
  const { type, hash, ts } = nb;
  if (who?.sender === undefined || typeof type !== 'string' || typeof hash !== 'string' || typeof ts !== 'number') return undefined;
  const thread = Object.hasOwn(nb, 'thread') ? parseSessionId(nb['thread']) : undefined;
  if (thread?.ok === false) return undefined;
  return { ...who, sender: who.sender, type, hash, ts, ...(thread === undefined ? {} : { thread: thread.value }) };
}
