/**
 * From a stored event to what admission decides on. Read again at the claim, not when it arrived: a newer release may understand an event
 * that waited for it, and the inbox keeps what the homeserver sent. Pure.
 */
import type { InboxItem, MessageItem, OwnRun } from '../src/admission/inbox-item.ts';
import type { TokenId, UserId } from '../src/ids.ts';
import { isJsonObject, type JsonObject } from '../src/json.ts';
import { err, ok, type Result } from '../src/result.ts';
import { readRunField } from './content/run-field.ts';
import type { EventProblem, EventProblemReason, MemberEvent, MessageEvent, RoomEvent } from './wire/event.ts';
import {
  GRANT_TYPE,
  REVOKE_TYPE,
  readGrantContent,
  readRevokeContent,
  readStateGrantContent,
  STATE_GRANT_KEY,
  STATE_GRANT_TYPE,
} from './wire/read-authority-event.ts';
import { readRoomEvent } from './wire/read-event.ts';

export function readInboxItem(event: JsonObject, oracle: UserId): Result<InboxItem, EventProblem> {
  const read = readRoomEvent(event);
  if (!read.ok) return read;
  const authority = readAuthority(read.value, oracle);
  if (authority === null) return ok(decideItem(read.value, event, oracle));
  if (authority.ok) return authority;
  const { eventId, roomId, type } = read.value;
  return err({ reason: authority.error, eventId, roomId, type });
}

/** Null: the event is none about grants. */
function readAuthority(event: RoomEvent, oracle: UserId): Result<InboxItem, EventProblemReason> | null {
  const base = baseOf(event);
  if (event.stateKey !== undefined) {
    if (event.type !== STATE_GRANT_TYPE || event.stateKey !== STATE_GRANT_KEY) return null;
    const state = readStateGrantContent(event.content);
    return state.ok ? ok({ ...base, kind: 'state_grant', ...state.value }) : state;
  }
  // Taken away since (its content is empty): not broken, and nothing to act on. Our own are echoes.
  if (event.redacted || event.sender === oracle) return null;
  if (event.type === GRANT_TYPE) {
    const grant = readGrantContent(event.content);
    return grant.ok ? ok({ ...base, kind: 'grant', ...grant.value }) : grant;
  }
  if (event.type !== REVOKE_TYPE) return null;
  const revoke = readRevokeContent(event.content);
  return revoke.ok ? ok({ ...base, kind: 'revoke', tokenId: revoke.value.tokenId as TokenId }) : revoke;
}

/** State whose change makes the known facts of a room old. */
const FACT_STATE = new Set(['m.room.power_levels', 'm.room.name', 'm.room.create', 'm.room.join_rules', 'm.room.history_visibility']);

function decideItem(event: RoomEvent, json: JsonObject, oracle: UserId): InboxItem {
  const base = baseOf(event);
  if (event.kind === 'member') return { ...base, ...decideMember(event, oracle) };
  if (event.kind === 'encryption') return { ...base, kind: 'room_changed' };
  if (event.stateKey !== undefined) {
    return FACT_STATE.has(event.type) ? { ...base, kind: 'room_changed' } : { ...base, kind: 'other', type: event.type };
  }
  if (event.sender === oracle) return { ...base, kind: 'own', run: readOwnRun(event.content) };
  if (event.kind === 'redaction') return { ...base, kind: 'redaction', target: event.redacts };
  if (event.kind === 'reaction') return { ...base, kind: 'reaction', target: event.target, key: event.key };
  if (event.kind === 'encrypted') return { ...base, kind: 'encrypted', thread: event.relation.thread?.root ?? null };
  if (isVerification(event, oracle)) return { ...base, kind: 'verification', event: json };
  return event.kind === 'message' ? { ...base, ...decideMessage(event) } : { ...base, kind: 'other', type: event.type };
}

/** Of the device's own word for it there is nothing yet: admission adds what decryption says. */
const baseOf = ({ eventId, roomId, sender, originServerTs }: RoomEvent) => ({
  ...{ eventId, roomId, sender, sentAt: originServerTs },
  trust: 'clear' as const,
});

/** A request names whom it is for (spec v1.19 "Key verification framework"); the steps after it name the request. */
function isVerification(event: RoomEvent, oracle: UserId): boolean {
  if (event.kind === 'message') return event.msgtype === 'm.key.verification.request' && event.content['to'] === oracle;
  return event.kind === 'other' && event.type.startsWith('m.key.verification.');
}

type Part<Kind extends InboxItem['kind']> = DistributiveOmit<
  Extract<InboxItem, { kind: Kind }>,
  'eventId' | 'roomId' | 'sender' | 'sentAt' | 'trust'
>;
type DistributiveOmit<T, Keys extends PropertyKey> = T extends unknown ? Omit<T, Keys> : never;

function decideMember(
  { target, membership, previous, isDirect }: MemberEvent,
  oracle: UserId,
): Part<'invite' | 'own_membership' | 'room_changed'> {
  if (target !== oracle) return { kind: 'room_changed' };
  if (membership === 'invite') return { kind: 'invite', isDirect };
  // A join after a join is a new name or picture: nothing that deserves a greeting.
  if (membership === 'knock' || (membership === 'join' && previous === 'join')) return { kind: 'room_changed' };
  return { kind: 'own_membership', membership };
}

function decideMessage(event: MessageEvent): Part<'message' | 'edit'> {
  const { relation, content } = event;
  if (relation.replace !== undefined)
    return { kind: 'edit', target: relation.replace.target, text: relation.replace.newBody.body, content };
  return {
    kind: 'message',
    msgtype: event.msgtype,
    ...decideText(event),
    thread: relation.thread?.root ?? null,
    inReplyTo: relation.inReplyTo ?? null,
    mentions: event.mentions === undefined ? null : [...event.mentions.userIds],
    content,
    eventType: event.type,
  };
}

function readOwnRun(content: JsonObject): OwnRun | null {
  const field = readRunField(content);
  if (!field.ok || field.value === undefined) return null;
  const { runId, prompts, status, part } = field.value;
  return { runId, prompts, status, part };
}

const FILES = new Set(['m.file', 'm.image', 'm.audio', 'm.video']);
const MAX_NAME_CHARS = 200;

/**
 * A file is told in one line, by which a tool may read it. What is said with it is a prompt: its caption (`body`, when `filename` is there and differs:
 * spec v1.19 "Media captions").
 */
function decideText({ msgtype, body, content, eventId }: MessageEvent): Pick<MessageItem, 'text' | 'wordless'> {
  if (!FILES.has(msgtype)) return { text: body, wordless: false };
  const { filename, info } = content;
  const hasCaption = typeof filename === 'string' && filename !== body && body.trim() !== '';
  const name = oneLine(typeof filename === 'string' ? filename : body) || 'unnamed';
  const { mimetype, size }: JsonObject = isJsonObject(info) ? info : {};
  const kind =
    typeof mimetype === 'string' && /^[\w.+-]+\/[\w.+-]+$/u.test(mimetype) ? mimetype.slice(0, MAX_NAME_CHARS) : msgtype.slice(2);
  const bytes = typeof size === 'number' && Number.isSafeInteger(size) && size >= 0 ? `${size} bytes` : 'size unknown';
  const line = `[file ${name} (${kind}, ${bytes}), event ${eventId}]`;
  return hasCaption ? { text: `${body}\n${line}`, wordless: false } : { text: line, wordless: true };
}

const oneLine = (text: string): string =>
  text
    .slice(0, MAX_NAME_CHARS)
    .replace(/[\p{C}\p{Z}[\]]+/gu, ' ')
    .trim()
    .toWellFormed();
