/**
 * The door for room events, from transactions, /sync and /messages alike. A homeserver checks signatures, not shapes: `content` may be null,
 * `body` a number, an id 60 kB long, and one such event must not cost the others in its transaction (G17). Every refusal has a reason; nothing
 * throws, whatever the JSON (property test). Shapes: research of Synapse 1.163.2 (test/fixtures/synapse-1.163.2.json), spec v1.19.
 */
import { z } from 'zod';
import { type EventId, parseEventId, parseRoomId, parseUserId, type RoomId, type UserId } from '../../src/ids.ts';
import { isJsonObject, type JsonObject, type JsonValue } from '../../src/json.ts';
import { LIMITS } from '../../src/limits.ts';
import { err, ok, type Result } from '../../src/result.ts';
import type {
  EventProblem,
  EventProblemReason,
  MemberEvent,
  Membership,
  Mentions,
  MessageBody,
  Relation,
  RoomEvent,
  StrippedState,
} from './event.ts';
import { decideJsonBounds } from './measure-json.ts';

/** Deepest nesting that canonical JSON here accepts too (src/json.ts); real events have some six levels. */
const MAX_DEPTH = 64;
/** Spec v1.19, "Size limits": type and state key. */
const MAX_NAME_BYTES = 255;
const MAX_STRIPPED_STATE = 100;
const MAX_REASON_CHARS = 1_000;

export interface ReadOptions {
  /** For /sync, whose timeline events do not name their room. An event that names another one is refused. */
  readonly roomId?: RoomId;
}

const object = z.custom<JsonObject>(isJsonObject);
const name = z.string().refine((text) => Buffer.byteLength(text) <= MAX_NAME_BYTES);

const Envelope = z.object({
  type: name.min(1),
  state_key: name.optional(),
  origin_server_ts: z.number().int().min(0).max(Number.MAX_SAFE_INTEGER),
  content: object,
});
const FIELD_REASONS: Readonly<Record<string, EventProblemReason>> = {
  type: 'bad_type',
  state_key: 'bad_state_key',
  origin_server_ts: 'bad_timestamp',
  content: 'bad_content',
};

type Base = Omit<Extract<RoomEvent, { kind: 'other' }>, 'kind'>;
type Read = Result<RoomEvent, EventProblemReason>;

export function readRoomEvent(json: unknown, { roomId }: ReadOptions = {}): Result<RoomEvent, EventProblem> {
  if (!isJsonObject(json)) return err({ reason: 'not_an_object' });
  const eventId = parseEventId(json['event_id']);
  const room = parseRoomId(json['room_id'] ?? roomId);
  const type = json['type'];
  const problem = (reason: EventProblemReason): Result<never, EventProblem> =>
    err({
      reason,
      ...(eventId.ok ? { eventId: eventId.value } : {}),
      ...(room.ok ? { roomId: room.value } : {}),
      ...(name.safeParse(type).success ? { type: String(type) } : {}),
    });

  const bounds = decideJsonBounds(json, { maxBytes: LIMITS.eventBytes, maxDepth: MAX_DEPTH });
  if (bounds !== 'fits') return problem(bounds);
  if (!eventId.ok) return problem('bad_event_id');
  if (!room.ok || (roomId !== undefined && room.value !== roomId)) return problem('bad_room_id');
  const sender = parseUserId(json['sender']);
  if (!sender.ok) return problem('bad_sender');
  const envelope = Envelope.safeParse(json);
  if (!envelope.success) return problem(FIELD_REASONS[String(envelope.error.issues[0]?.path[0])] ?? 'bad_content');

  const unsigned = isJsonObject(json['unsigned']) ? json['unsigned'] : {};
  const ageMs = readAge(unsigned['age']) ?? readAge(json['age']);
  const read = readKind(
    {
      eventId: eventId.value,
      roomId: room.value,
      sender: sender.value,
      type: envelope.data.type,
      ...(envelope.data.state_key === undefined ? {} : { stateKey: envelope.data.state_key }),
      originServerTs: envelope.data.origin_server_ts,
      ...(ageMs === undefined ? {} : { ageMs }),
      redacted: isJsonObject(unsigned['redacted_because']),
      // Not the copy a schema makes: hashes are taken over what came.
      content: json['content'] as JsonObject,
    },
    { json, unsigned },
  );
  return read.ok ? read : problem(read.error);
}

/** Homeservers copy the age from each other, so it may be anything; negative means "clocks differ", which is now. */
function readAge(age: unknown): number | undefined {
  if (typeof age !== 'number') return undefined;
  const clamped = Math.max(0, Math.trunc(age));
  return Number.isSafeInteger(clamped) ? clamped : undefined;
}

interface Outer {
  readonly json: JsonObject;
  readonly unsigned: JsonObject;
}

function readKind(base: Base, outer: Outer): Read {
  if (base.stateKey !== undefined) {
    if (base.type === 'm.room.member') return readMember(base, outer);
    if (base.type === 'm.room.encryption' && base.stateKey === '') return ok(readEncryption(base));
    return ok({ ...base, kind: 'other' });
  }
  const known =
    base.type === 'm.room.message' || base.type === 'm.room.redaction' || base.type === 'm.reaction' || base.type === 'm.room.encrypted';
  if (known && base.redacted) return ok({ ...base, kind: 'redacted', redacted: true });
  switch (base.type) {
    case 'm.room.message':
      return readMessage(base);
    case 'm.room.redaction':
      return readRedaction(base, outer);
    case 'm.reaction':
      return readReaction(base);
    case 'm.room.encrypted':
      return readEncrypted(base);
    case 'm.room.member':
      return err('bad_state_key');
    default:
      return ok({ ...base, kind: 'other' });
  }
}

const MessageContent = z.object({ msgtype: name.min(1), body: z.string() });

function readBody(content: JsonObject): MessageBody | undefined {
  const parsed = MessageContent.safeParse(content);
  if (!parsed.success) return undefined;
  const { msgtype, body } = parsed.data;
  const html = content['format'] === 'org.matrix.custom.html' ? content['formatted_body'] : undefined;
  const mentions = readMentions(content);
  return {
    msgtype,
    body,
    ...(typeof html === 'string' ? { formattedBody: html } : {}),
    ...(mentions === undefined ? {} : { mentions }),
  };
}

function readMentions(content: JsonObject): Mentions | undefined {
  if (!Object.hasOwn(content, 'm.mentions')) return undefined;
  const value = content['m.mentions'];
  const field = isJsonObject(value) ? value : {};
  const listed = field['user_ids'];
  const userIds = new Set<UserId>();
  for (const id of Array.isArray(listed) ? listed : []) {
    const user = parseUserId(id);
    if (user.ok) userIds.add(user.value);
  }
  return { userIds, room: field['room'] === true };
}

function readMessage(base: Base): Read {
  const body = readBody(base.content);
  if (body === undefined) return err('bad_body');
  const relation = readRelation(base.content);
  return relation.ok ? ok({ ...base, ...body, kind: 'message', relation: relation.value }) : relation;
}

const ReplyTarget = z.object({ event_id: z.string() });

function readRelation(content: JsonObject): Result<Relation, 'bad_relation' | 'bad_edit'> {
  const value = content['m.relates_to'];
  if (value === undefined) return ok({});
  if (!isJsonObject(value)) return err('bad_relation');
  const reply = readReply(value['m.in_reply_to']);
  if (!reply.ok) return reply;
  const inReplyTo = reply.value === undefined ? {} : { inReplyTo: reply.value };
  const relType = value['rel_type'];
  if (relType === undefined) return ok(inReplyTo);
  if (typeof relType !== 'string') return err('bad_relation');
  const target = parseEventId(value['event_id']);
  if (relType === 'm.thread') {
    if (!target.ok) return err('bad_relation');
    return ok({ thread: { root: target.value }, ...(value['is_falling_back'] === true ? {} : inReplyTo) });
  }
  if (relType === 'm.replace') return target.ok ? readEdit(content, target.value) : err('bad_edit');
  return ok({ other: { relType: relType.slice(0, MAX_NAME_BYTES), ...(target.ok ? { target: target.value } : {}) }, ...inReplyTo });
}

function readReply(value: JsonValue | undefined): Result<EventId | undefined, 'bad_relation'> {
  if (value === undefined || value === null) return ok(undefined);
  const parsed = ReplyTarget.safeParse(value);
  const target = parseEventId(parsed.success ? parsed.data.event_id : undefined);
  return target.ok ? target : err('bad_relation');
}

/** Encrypted edits have their new content inside; there is nothing to read yet. */
function readEdit(content: JsonObject, target: EventId): Result<Relation, 'bad_edit'> {
  const newContent = content['m.new_content'];
  const newBody = isJsonObject(newContent) ? readBody(newContent) : undefined;
  return isJsonObject(newContent) && newBody !== undefined ? ok({ replace: { target, newContent, newBody } }) : err('bad_edit');
}

const MEMBERSHIPS = ['invite', 'join', 'leave', 'ban', 'knock'] as const satisfies readonly Membership[];
const MembershipContent = z.object({ membership: z.enum(MEMBERSHIPS) });

const membershipOf = (content: unknown): Membership | undefined => {
  const parsed = MembershipContent.safeParse(content);
  return parsed.success ? parsed.data.membership : undefined;
};

function readMember(base: Base, { json, unsigned }: Outer): Read {
  const target = parseUserId(base.stateKey);
  if (!target.ok) return err('bad_state_key');
  const membership = membershipOf(base.content);
  if (membership === undefined) return err('bad_member');
  const previous = membershipOf(unsigned['prev_content'] ?? json['prev_content']);
  const { displayname, reason } = base.content;
  const stripped = unsigned['invite_room_state'] ?? json['invite_room_state'];
  const inviteState = membership === 'invite' ? readStripped(stripped) : [];
  const member: MemberEvent = {
    ...base,
    kind: 'member',
    target: target.value,
    membership,
    ...(previous === undefined ? {} : { previous }),
    isDirect: base.content['is_direct'] === true,
    ...(typeof displayname === 'string' ? { displayName: displayname.slice(0, MAX_REASON_CHARS) } : {}),
    ...(typeof reason === 'string' ? { reason: reason.slice(0, MAX_REASON_CHARS) } : {}),
    inviteState,
  };
  return ok(member);
}

const Stripped = z.object({ type: name.min(1), state_key: name, content: object });

/** A helping copy made by the inviter's server: what cannot be read is left out. */
function readStripped(value: unknown): StrippedState[] {
  if (!Array.isArray(value)) return [];
  const states: StrippedState[] = [];
  for (const entry of value) {
    if (states.length >= MAX_STRIPPED_STATE) break;
    const parsed = Stripped.safeParse(entry);
    if (!parsed.success) continue;
    const { type, state_key: stateKey, content } = parsed.data;
    const sender = parseUserId(isJsonObject(entry) ? entry['sender'] : undefined);
    states.push({ type, stateKey, content, ...(sender.ok ? { sender: sender.value } : {}) });
  }
  return states;
}

/** Room version 11 moved `redacts` into the content; Synapse sends both, older rooms have the outer one only. */
function readRedaction(base: Base, { json }: Outer): Read {
  const redacts = parseEventId(base.content['redacts'] ?? json['redacts']);
  if (!redacts.ok) return err('bad_redaction');
  const reason = base.content['reason'];
  return ok({
    ...base,
    kind: 'redaction',
    redacts: redacts.value,
    ...(typeof reason === 'string' ? { reason: reason.slice(0, MAX_REASON_CHARS) } : {}),
  });
}

const ReactionContent = z.object({
  'm.relates_to': z.object({ rel_type: z.literal('m.annotation'), event_id: z.string(), key: z.string().min(1) }),
});

function readReaction(base: Base): Read {
  const parsed = ReactionContent.safeParse(base.content);
  if (!parsed.success) return err('bad_relation');
  const { event_id: eventId, key } = parsed.data['m.relates_to'];
  const target = parseEventId(eventId);
  return target.ok ? ok({ ...base, kind: 'reaction', target: target.value, key }) : err('bad_relation');
}

const readEncryption = (base: Base): RoomEvent => ({ ...base, kind: 'encryption', ...algorithmOf(base.content) });

function readEncrypted(base: Base): Read {
  const value = base.content['m.relates_to'];
  // The relation of an encrypted edit is in the clear, its new content is not: after decryption the event is read again.
  const isEdit = isJsonObject(value) && value['rel_type'] === 'm.replace' && !isJsonObject(base.content['m.new_content']);
  const relation = isEdit ? readEncryptedEdit(value) : readRelation(base.content);
  return relation.ok ? ok({ ...base, kind: 'encrypted', ...algorithmOf(base.content), relation: relation.value }) : relation;
}

function readEncryptedEdit(value: JsonObject): Result<Relation, 'bad_edit'> {
  const target = parseEventId(value['event_id']);
  return target.ok ? ok({ other: { relType: 'm.replace', target: target.value } }) : err('bad_edit');
}

const algorithmOf = ({ algorithm }: JsonObject): { algorithm?: string } =>
  typeof algorithm === 'string' && algorithm.length <= MAX_NAME_BYTES ? { algorithm } : {};
