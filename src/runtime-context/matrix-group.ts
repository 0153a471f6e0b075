/**
 * `rtCtx.matrix`: three scoped methods, no client. The oracle may be in more rooms and hold more power than the user does, so a turn may only do what
 * this user could do there (no confused deputy, DESIGN §5): the run's own room, and rooms that both have joined. Writing into another room is an
 * effect that its people did not ask for: never in a tainted run. The txn id names run, call and count: a call that is repeated after a crash
 * is the same event (G4, G6).
 */
import { z } from 'zod';
import { OracleError, refusal } from '../errors.ts';
import { type EventId, noticeTxnId, type OutboxTxnId, parseEventId, parseRoomId, type RoomId, type RunId } from '../ids.ts';
import { canonicalJson, isJsonObject, type JsonObject, jsonBytes, sha256Base64Url } from '../json.ts';
import { LIMITS } from '../limits.ts';
import type { Run } from '../runs/run.ts';
import type { SecretRedactor } from '../secrets/redactor.ts';
import type { MatrixAccess, RoomStateEvent } from './matrix-access.ts';
import type { RuntimeContext } from './runtime-context.ts';

/** As an answer: encryption makes it a third larger, and homeservers accept 64 KiB for an event. */
const MAX_CONTENT_BYTES = LIMITS.partEventBytes;
const MAX_TOPIC_CHARS = 10_000;
const MAX_POSTS_PER_CALL = 20;
/** Of a snapshot: large rooms have tens of thousands of members. */
const MAX_STATE_EVENTS = 2_000;
const MAX_STATE_BYTES = 1024 * 1024;
const MAX_EVENT_BYTES = 256 * 1024;

const message = z.looseObject({ msgtype: z.string().min(1).max(64), body: z.string() });
const topic = z.looseObject({ topic: z.string().max(MAX_TOPIC_CHARS) });
/** What a tool may send besides plain messages; state events name their only possible key. */
const ALLOWED: Readonly<Record<string, { readonly isState: boolean; readonly content: z.ZodType }>> = {
  'm.room.message': { isState: false, content: message },
  'm.room.topic': { isState: true, content: topic },
};
const envelope = z.strictObject({ type: z.string(), state_key: z.literal('').optional(), content: z.unknown() });

export interface RoomEvent {
  readonly type: string;
  readonly isState: boolean;
  readonly content: JsonObject;
}

const badContent = (why: string): OracleError =>
  new OracleError(refusal('BAD_REQUEST', { message: `This cannot be posted to a room: ${why}.` }));

/** Message content, or an envelope `{ type, state_key?, content }`, as an event that may be sent. Throws `BAD_REQUEST` with the reason. */
export function readRoomEvent(content: unknown): RoomEvent {
  if (!isJsonObject(content)) throw badContent('it is not an object');
  const isEnvelope = typeof content['type'] === 'string' && Object.hasOwn(content, 'content');
  const parsed = isEnvelope ? envelope.safeParse(content) : null;
  if (parsed !== null && !parsed.success) throw badContent('only type, state_key and content are known, and state_key must be empty');
  const type = parsed?.data.type ?? 'm.room.message';
  const allowed = Object.hasOwn(ALLOWED, type) ? ALLOWED[type] : undefined;
  if (allowed === undefined) throw badContent(`events of type ${type.slice(0, 80)} are not allowed`);
  if (allowed.isState !== (parsed?.data.state_key !== undefined))
    throw badContent(allowed.isState ? 'state_key is missing' : 'it is no state event');
  const inner = parsed === null ? content : parsed.data.content;
  if (!isJsonObject(inner) || !allowed.content.safeParse(inner).success) throw badContent(`the content does not fit ${type}`);
  const canonical = canonicalJson(inner);
  if (!canonical.ok) throw badContent('it holds floats or is nested too deeply');
  if (Buffer.byteLength(canonical.value) > MAX_CONTENT_BYTES) throw badContent('it is too large');
  if (Object.keys(inner).some((key) => key.startsWith('ixo.oracle.') || key === 'm.relates_to'))
    throw badContent('it uses a key of the oracle itself');
  return { type, isState: allowed.isState, content: allowed.isState ? inner : withoutRoomMention(inner) };
}

/** The oracle may have the power to notify everybody where the user has not: without `m.mentions` a mere "@room" in the text would do it. */
function withoutRoomMention(content: JsonObject): JsonObject {
  const { 'm.mentions': mentions = {} } = content;
  if (!isJsonObject(mentions) || (mentions['room'] ?? false) !== false) throw badContent('it mentions the whole room');
  return { ...content, 'm.mentions': mentions };
}

/** A provider chooses the call id: hashed unless it is short and plain. */
export const toolTxnId = (run: RunId, toolCallId: string, count: number): OutboxTxnId =>
  noticeTxnId('tool', `${run}.${/^[\w-]{1,64}$/u.test(toolCallId) ? toolCallId : sha256Base64Url(toolCallId)}.${count}`);

export interface PostOptions {
  readonly run: Run;
  readonly access: MatrixAccess;
  readonly signal: AbortSignal;
  /** Absent outside a tool call. */
  readonly call?: { readonly id: string; readonly mayWriteExternally: boolean };
}
/** Sends what its user could send there, into the run's own room unless another is named. `content` is asked for once that is known. */
export type Post = (event: Pick<RoomEvent, 'type' | 'isState'>, content: () => Promise<JsonObject>, room?: RoomId) => Promise<EventId>;

/** One per context: messages and files of a call are counted together, so that no two have the same txn id. */
export function buildPost({ run, access, signal, call }: PostOptions): Post {
  let posts = 0;
  return async ({ type, isState }, content, room = run.roomId) => {
    if (call === undefined || !call.mayWriteExternally)
      throw notAllowed("Only a tool with effect 'write' and reach 'external' may post to a room.");
    if (run.tier !== 'signed') throw new OracleError(refusal('TIER_TOO_LOW'));
    if (!(await access.mayUserSend(run.matrixUserId, room, { type, isState })))
      throw notAllowed('Your own power level in this room does not allow this.');
    posts += 1;
    if (posts > MAX_POSTS_PER_CALL) throw notAllowed('One tool call may not post so many events.');
    const txnId = toolTxnId(run.id, call.id, posts);
    const event = { roomId: room, runId: run.id, txnId, eventType: type, content: await content() };
    return access.send({ ...event, ...(isState ? { stateKey: '' } : {}) }, signal);
  };
}

export interface MatrixGroupOptions {
  readonly run: Run;
  readonly access: MatrixAccess;
  readonly post: Post;
  readonly isTainted: () => boolean;
  /** Whoever is in a room may have written what is read there. */
  readonly readsForeign: () => void;
  readonly redactor: Pick<SecretRedactor, 'holds'>;
}

export function buildMatrixGroup(options: MatrixGroupOptions): RuntimeContext['matrix'] {
  const { run, access, post, isTainted, readsForeign, redactor } = options;

  /** Asked at each use: people leave. */
  async function requireRoom(id: string): Promise<RoomId> {
    if (id === run.roomId) return run.roomId;
    const room = parseRoomId(id);
    if (room.ok && (await access.areJoined(run.matrixUserId, room.value))) return room.value;
    throw notAllowed('A turn may only use rooms that its user and the oracle have both joined.');
  }

  /** The oracle may have been in the room for longer than the user: only what everybody who joins may read. */
  async function requireReadable(room: RoomId): Promise<void> {
    if (room === run.roomId) return;
    const rule = (await access.roomState(room)).find(({ type }) => type === 'm.room.history_visibility');
    // Without the event it is `shared` (spec v1.19, client-server API, "Room History Visibility").
    const visibility = rule?.content['history_visibility'] ?? 'shared';
    if (visibility !== 'shared' && visibility !== 'world_readable')
      throw notAllowed('This room shows its history to nobody who came later, so its events are not read for you.');
  }

  return {
    async postToRoom(roomId, content) {
      const room = await requireRoom(roomId);
      if (room !== run.roomId && isTainted()) throw new OracleError(refusal('NEEDS_CONFIRMATION'));
      const event = readRoomEvent(content);
      if (redactor.holds(JSON.stringify(event.content))) throw badContent('it holds a secret');
      return post(event, async () => event.content, room);
    },
    async getRoomState(roomId) {
      const room = await requireRoom(roomId);
      readsForeign();
      const state = await access.roomState(room);
      const events = planSnapshot(state);
      return { roomId: room, events, ...(events.length < state.length ? { truncated: true } : {}) };
    },
    async getEventById(roomId, eventId) {
      const room = await requireRoom(roomId);
      const parsed = parseEventId(eventId);
      if (!parsed.ok) throw new OracleError(refusal('BAD_REQUEST', { message: 'This is no event id.' }));
      await requireReadable(room);
      readsForeign();
      const event = await access.event(room, parsed.value);
      if (jsonBytes(event) > MAX_EVENT_BYTES) throw notAllowed('This event is too large.');
      return event;
    },
  };
}

/** What fits, members last: there may be more of them than of everything else. Pure. */
export function planSnapshot(state: readonly RoomStateEvent[]): readonly RoomStateEvent[] {
  const isMember = ({ type }: RoomStateEvent): boolean => type === 'm.room.member';
  const ordered = [...state.filter((event) => !isMember(event)), ...state.filter(isMember)].slice(0, MAX_STATE_EVENTS);
  let bytes = 0;
  const end = ordered.findIndex((event) => {
    bytes += jsonBytes(event);
    return bytes > MAX_STATE_BYTES;
  });
  return end < 0 ? ordered : ordered.slice(0, end);
}

const notAllowed = (message: string): OracleError => new OracleError(refusal('NOT_ALLOWED', { message }));
