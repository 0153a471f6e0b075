/**
 * From a stored event to what admission decides on. Read again at the claim, not when it arrived: a newer release may understand an event
 * that waited for it, and the inbox keeps what the homeserver sent. Pure.
 */
import type { InboxItem, OwnRun } from '../src/admission/inbox-item.ts';
import type { TokenId, UserId } from '../src/ids.ts';
import type { JsonObject } from '../src/json.ts';
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
  if (authority === null) return ok(decideItem(read.value, oracle));
  if (authority.ok) return authority;
  const { eventId, roomId, type } = read.value;
  return err({ reason: authority.error, eventId, roomId, type });
}

/** Null: the event is none about grants. */
function readAuthority(event: RoomEvent, oracle: UserId): Result<InboxItem, EventProblemReason> | null {
  const base = { eventId: event.eventId, roomId: event.roomId, sender: event.sender, sentAt: event.originServerTs };
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

function decideItem(event: RoomEvent, oracle: UserId): InboxItem {
  const base = { eventId: event.eventId, roomId: event.roomId, sender: event.sender, sentAt: event.originServerTs };
  if (event.kind === 'member') return { ...base, ...decideMember(event, oracle) };
  if (event.kind === 'encryption') return { ...base, kind: 'room_changed', encrypted: true };
  if (event.stateKey !== undefined) {
    return FACT_STATE.has(event.type) ? { ...base, kind: 'room_changed', encrypted: false } : { ...base, kind: 'other', type: event.type };
  }
  if (event.sender === oracle) return { ...base, kind: 'own', run: readOwnRun(event.content) };
  if (event.kind === 'redaction') return { ...base, kind: 'redaction', target: event.redacts };
  if (event.kind === 'reaction') return { ...base, kind: 'reaction', target: event.target, key: event.key };
  return event.kind === 'message' ? { ...base, ...decideMessage(event) } : { ...base, kind: 'other', type: event.type };
}

type Part<Kind extends InboxItem['kind']> = DistributiveOmit<
  Extract<InboxItem, { kind: Kind }>,
  'eventId' | 'roomId' | 'sender' | 'sentAt'
>;
type DistributiveOmit<T, Keys extends PropertyKey> = T extends unknown ? Omit<T, Keys> : never;

function decideMember(
  { target, membership, previous, isDirect, encrypted }: MemberEvent,
  oracle: UserId,
): Part<'invite' | 'own_membership' | 'room_changed'> {
  if (target !== oracle) return { kind: 'room_changed', encrypted: false };
  if (membership === 'invite') return { kind: 'invite', isDirect, encrypted };
  // A join after a join is a new name or picture: nothing that deserves a greeting.
  if (membership === 'knock' || (membership === 'join' && previous === 'join')) return { kind: 'room_changed', encrypted: false };
  return { kind: 'own_membership', membership };
}

function decideMessage(event: MessageEvent): Part<'message' | 'edit'> {
  const { relation, content } = event;
  if (relation.replace !== undefined)
    return { kind: 'edit', target: relation.replace.target, text: relation.replace.newBody.body, content };
  return {
    kind: 'message',
    msgtype: event.msgtype,
    text: event.body,
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
