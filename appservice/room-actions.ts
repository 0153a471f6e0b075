/**
 * What admission does to a room: join, decline, mark as read, and read what was said between invite and join, which the homeserver never
 * pushes (research/synapse.md §6): people type "hello" before the oracle is in. Each may be repeated after a crash; what is final
 * (no longer invited, room gone) is a value, everything else throws and the inbox row is tried again.
 */
import type { RoomActions } from '../src/admission/room-facts.ts';
import type { EventId, RoomId, UserId } from '../src/ids.ts';
import type { IncomingEvent } from '../src/inbox/inbox.ts';
import { isJsonObject } from '../src/json.ts';
import { LIMITS } from '../src/limits.ts';
import type { Logger } from '../src/observe/logger.ts';
import type { Clock } from '../src/time.ts';
import { isMatrixError, type MatrixApi, matrixPath } from './matrix-api.ts';
import { logSkipped, type OnSkipped, readIncoming } from './read-incoming.ts';
import type { Rooms } from './rooms.ts';
import { isStateGrant } from './wire/read-authority-event.ts';

export interface OracleRoomActions extends RoomActions {
  /** Best effort. The homeserver drops it after `timeoutMs`; the caller refreshes. */
  typing(room: RoomId, on: boolean, timeoutMs?: number): void;
}
export interface RoomActionsOptions {
  readonly api: MatrixApi;
  readonly rooms: Pick<Rooms, 'forget'>;
  readonly oracle: UserId;
  readonly clock: Clock;
  /** The inbox. */
  readonly receive: (events: IncomingEvent[]) => Promise<unknown>;
  readonly logger: Logger;
  readonly onSkipped?: OnSkipped;
}

const PAGE = 100;
/** Nobody watches a receipt by the millisecond, and a quick answer should not wait behind it on a homeserver with one core. */
const READ_AFTER_MS = 400;
const TYPING_MS = 30_000;
const BEST_EFFORT_TIMEOUT_MS = 10_000;
/** Words of a leave stand in the room for ever. */
const MAX_REASON_CHARS = 500;

export function createRoomActions({ api, rooms, oracle, clock, receive, logger, onSkipped }: RoomActionsOptions): OracleRoomActions {
  const bestEffort = (room: RoomId, what: Promise<unknown>): void => {
    what.catch((error: unknown) => {
      if (!isMatrixError(error)) logger.error({ room_id: room, err: error }, 'a receipt or typing notice failed');
      else logger.debug({ room_id: room, code: error.errcode, status: error.status }, 'a receipt or typing notice failed');
    });
  };

  /** The newest admitted message of a room that waits for its receipt: a burst is one request. */
  const unread = new Map<RoomId, EventId>();
  function sendRead(room: RoomId): void {
    const event = unread.get(room);
    unread.delete(room);
    if (event === undefined) return;
    const path = matrixPath`/_matrix/client/v3/rooms/${room}/receipt/m.read/${event}`;
    bestEffort(room, api.request('POST', path, { body: {}, timeoutMs: BEST_EFFORT_TIMEOUT_MS }));
  }

  async function takeBackfill(room: RoomId, list: readonly unknown[]): Promise<void> {
    const { events: incoming, skipped } = readIncoming(list, { source: 'backfill', roomId: room });
    logSkipped(skipped, { logger, onSkipped });
    if (incoming.length > 0) await receive(incoming);
  }

  return {
    async join(room) {
      try {
        await api.request('POST', matrixPath`/_matrix/client/v3/rooms/${room}/join`, { body: {} });
        rooms.forget(room);
        return 'joined';
      } catch (error) {
        // No longer invited, banned, nobody left in it, or of a version this homeserver does not know.
        if (isMatrixError(error) && isGone(error)) return 'gone';
        throw error;
      }
    },
    async leave(room, reason) {
      try {
        await api.request('POST', matrixPath`/_matrix/client/v3/rooms/${room}/leave`, {
          body: { reason: reason.slice(0, MAX_REASON_CHARS) },
        });
      } catch (error) {
        if (!isMatrixError(error) || !isGone(error)) throw error;
      } finally {
        rooms.forget(room);
      }
    },
    markRead(room, event) {
      const isWaiting = unread.has(room);
      unread.set(room, event);
      if (!isWaiting) clock.after(READ_AFTER_MS, () => sendRead(room));
    },
    typing(room, on, timeoutMs = TYPING_MS) {
      const path = matrixPath`/_matrix/client/v3/rooms/${room}/typing/${oracle}`;
      const body = on ? { typing: true, timeout: timeoutMs } : { typing: false };
      bestEffort(room, api.request('PUT', path, { body, timeoutMs: BEST_EFFORT_TIMEOUT_MS }));
    },
    async readBackToInvite(room) {
      const events: unknown[] = [];
      let from: string | undefined;
      for (let page = 0; page < LIMITS.historyPagesAfterJoin; page += 1) {
        const answer = await api.request<{ chunk?: unknown; end?: unknown }>('GET', matrixPath`/_matrix/client/v3/rooms/${room}/messages`, {
          query: { dir: 'b', limit: PAGE, ...(from === undefined ? {} : { from }) },
        });
        events.push(...(Array.isArray(answer.chunk) ? answer.chunk : []));
        const first = planFirstMessages(events, oracle);
        if (first !== null) {
          await takeBackfill(room, first);
          return true;
        }
        // The beginning of what we may see: with visibility `joined` the invite is not in it, and there is nothing to read.
        if (typeof answer.end !== 'string') return true;
        from = answer.end;
      }
      return false;
    },
    async readStateGrant(room) {
      const state = await api.request<readonly unknown[]>('GET', matrixPath`/_matrix/client/v3/rooms/${room}/state`);
      await takeBackfill(room, Array.isArray(state) ? state.filter(isStateGrant).slice(0, 1) : []);
    },
  };
}

const isGone = (error: { status: number; errcode: string }): boolean =>
  error.errcode !== 'M_UNKNOWN_TOKEN' &&
  error.errcode !== 'NOT_JSON' &&
  (error.status === 403 || error.status === 404 || error.errcode === 'M_INCOMPATIBLE_ROOM_VERSION');

/**
 * Pure. Of a timeline read backwards: what the inviter said after inviting us and before we joined, oldest first; null while the invite is
 * not among it. What came before the invite, and what others said, is history (DESIGN §2 "Where a room begins").
 */
export function planFirstMessages(newestFirst: readonly unknown[], oracle: UserId): unknown[] | null {
  const inviteAt = newestFirst.findIndex((event) => membershipOf(event, oracle) === 'invite');
  if (inviteAt < 0) return null;
  const invite = newestFirst[inviteAt];
  const inviter = isJsonObject(invite) ? invite['sender'] : undefined;
  const sinceInvite = newestFirst.slice(0, inviteAt).toReversed();
  const joinAt = sinceInvite.findIndex((event) => membershipOf(event, oracle) === 'join');
  return sinceInvite
    .slice(0, joinAt < 0 ? undefined : joinAt)
    .filter((event) => isJsonObject(event) && event['sender'] === inviter && event['state_key'] === undefined);
}

function membershipOf(event: unknown, user: UserId): unknown {
  if (!isJsonObject(event) || event['type'] !== 'm.room.member' || event['state_key'] !== user) return undefined;
  return isJsonObject(event['content']) ? event['content']['membership'] : undefined;
}
