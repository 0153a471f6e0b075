/**
 * Every id that arrives from outside is hostile text until its `parse` function has looked at shape and size (G14).
 * Inside, the brand says so: a room id cannot be passed where a session id is meant. Compound ids are built and read here only.
 */
import { decodeTime, monotonicFactory } from 'ulid';
import { err, ok, type Result } from './result.ts';

declare const brand: unique symbol;
type Brand<Name extends string> = string & { readonly [brand]: { readonly [K in Name]: true } };

export type EventId = Brand<'EventId'>;
export type RoomId = Brand<'RoomId'>;
export type UserId = Brand<'UserId'>;
export type DeviceId = Brand<'DeviceId'>;
/** A DID (`did:key:…`, `did:ixo:…`), or `matrix:u/name:server` for a user who signs nothing (DESIGN §1 "principal"). */
export type PrincipalId = Brand<'PrincipalId'>;
export type Did = PrincipalId & Brand<'Did'>;
/** Root event id of a conversation = LangGraph `thread_id`. */
export type SessionId = EventId & Brand<'SessionId'>;
export type RunId = Brand<'RunId'>;
/** SHA-256 of the signed payload of a UCAN, base64url: stable under re-encoding, so it keys replay and revocation (DESIGN §5). */
export type TokenId = Brand<'TokenId'>;
/** Transaction id of an outbound event; derived from its cause and unique in the whole application service (G4). */
export type OutboxTxnId = Brand<'OutboxTxnId'>;
/** Of one sender's Megolm session: whoever holds its key reads what was encrypted with it from an index on. */
export type MegolmSessionId = Brand<'MegolmSessionId'>;
/** Owner of state and checkpoints: the principal in a direct room, the room in a group. */
export type OwnerId = PrincipalId | RoomId;

/** Matrix limits every id to 255 bytes (spec v1.19, appendices, "Common identifier format"). */
const MAX_ID_BYTES = 255;

function hasIdShape(text: string, sigil: string): boolean {
  // Half a surrogate pair has no UTF-8 form: the database would store another id, and a URL cannot be made of it.
  return (
    text.length > 1 &&
    text.startsWith(sigil) &&
    text.isWellFormed() &&
    Buffer.byteLength(text) <= MAX_ID_BYTES &&
    !/[\s\u0000-\u001f\u007f]/u.test(text)
  );
}

export const parseEventId = (text: unknown): Result<EventId, 'BAD_EVENT_ID'> =>
  typeof text === 'string' && hasIdShape(text, '$') ? ok(text as EventId) : err('BAD_EVENT_ID');

/** Room version 12 ids carry no server name: never read one out of a room id (research/synapse.md §14). */
export const parseRoomId = (text: unknown): Result<RoomId, 'BAD_ROOM_ID'> =>
  typeof text === 'string' && hasIdShape(text, '!') ? ok(text as RoomId) : err('BAD_ROOM_ID');

export const parseUserId = (text: unknown): Result<UserId, 'BAD_USER_ID'> =>
  typeof text === 'string' && hasIdShape(text, '@') && /^@[^:]*:[^:].*$/su.test(text) ? ok(text as UserId) : err('BAD_USER_ID');

/** Server name of a Matrix user id, lower-cased: server names compare without case. */
export const serverOf = (user: UserId): string => user.slice(user.indexOf(':') + 1).toLowerCase();
export const localpartOf = (user: UserId): string => user.slice(1, user.indexOf(':'));

const DID = /^did:[a-z0-9]{1,32}:[A-Za-z0-9._:%-]{1,200}$/u;
export const parseDid = (text: unknown): Result<Did, 'BAD_DID'> =>
  typeof text === 'string' && DID.test(text) ? ok(text as Did) : err('BAD_DID');

/** Principal of a user who signs nothing: the Matrix URI of the account (MSC2312 `matrix:u/…`). */
export const unsignedPrincipalId = (user: UserId): PrincipalId => `matrix:u/${user.slice(1)}` as PrincipalId;

const RUN_ID = /^[0-9A-HJKMNP-TV-Z]{26}$/u;
export const parseRunId = (text: unknown): Result<RunId, 'BAD_RUN_ID'> =>
  typeof text === 'string' && RUN_ID.test(text) ? ok(text as RunId) : err('BAD_RUN_ID');
/**
 * Run ids are ULIDs: sortable by creation, also within one millisecond and when the wall clock steps back. One source per process.
 * The argument is wall clock ms. `last` is the newest id of an earlier process: a run that waits since then is still answered first (G3).
 */
export function createRunIds(last?: RunId): (now: number) => RunId {
  const next = monotonicFactory();
  if (last !== undefined) next(decodeTime(last) + 1);
  return (now) => next(now) as RunId;
}

/** Crockford's base 32, as in a ULID; its first ten digits are the time. */
const RUN_DIGITS = '0123456789ABCDEFGHJKMNPQRSTVWXYZ';
const TIME_DIGITS = 10;
/** The id right behind this one, before every other; null when its millisecond is full. It may be taken already. */
export function nextRunId(id: RunId): RunId | null {
  for (let at = id.length - 1; at >= TIME_DIGITS; at -= 1) {
    const value = RUN_DIGITS.indexOf(id.charAt(at));
    if (value < RUN_DIGITS.length - 1) return `${id.slice(0, at)}${RUN_DIGITS.charAt(value + 1)}${'0'.repeat(id.length - 1 - at)}` as RunId;
  }
  return null;
}

export const parseSessionId = (text: unknown): Result<SessionId, 'BAD_SESSION_ID'> => {
  const parsed = parseEventId(text);
  return parsed.ok ? ok(parsed.value as SessionId) : err('BAD_SESSION_ID');
};
/** The one door from "this event starts a conversation" to its session id. */
export const sessionIdOf = (root: EventId): SessionId => root as SessionId;

/** `answer.<runId>.<seq>`: the same cause always gives the same id, so a retry is not a second message (G4). */
export const answerTxnId = (run: RunId, seq: number): OutboxTxnId => `answer.${run}.${seq}` as OutboxTxnId;
/** `<kind>.<event id>`: one notice of a kind per cause. */
export const noticeTxnId = (kind: NoticeKind, cause: EventId | RoomId | string): OutboxTxnId => `${kind}.${cause}` as OutboxTxnId;
/** Of a message of an emoji verification: `verify.<id of the engine's request>`. */
export const verifyTxnId = (request: string): OutboxTxnId => noticeTxnId('verify', request);
/** The engine's request behind it; null when the row is none of a verification. */
export const readVerifyTxnId = (txnId: string): string | null => (txnId.startsWith('verify.') ? txnId.slice('verify.'.length) : null);
export type NoticeKind =
  | 'refusal'
  | 'parked'
  | 'unreadable'
  | 'late'
  | 'hello'
  | 'gave-up'
  | 'mirror'
  | 'session'
  | 'interrupted'
  | 'tool'
  | 'command'
  | 'receipt'
  | 'lock'
  | 'verify'
  | 'emoji';
