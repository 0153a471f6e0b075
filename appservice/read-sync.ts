/**
 * What an answer of `/sync` means, as values that a test can read. It is only asked for what a push may have lost, so of a room that was
 * joined meanwhile everything before the own join is left out: that is history, and what the inviter said before it is read elsewhere
 * (DESIGN §2 "Where a room begins"). Pure.
 */
import { parseRoomId, parseUserId, type RoomId, type UserId } from '../src/ids.ts';
import { isJsonObject, type JsonObject, type JsonValue, sha256Base64Url } from '../src/json.ts';

export interface JoinedNews {
  readonly roomId: RoomId;
  /** Oldest first. */
  readonly events: readonly unknown[];
  /** Where the events that were left out end, when some were. */
  readonly gapFrom: string | null;
}
export interface SyncNews {
  readonly nextBatch: string;
  readonly joined: readonly JoinedNews[];
  /** Own membership in rooms that the oracle is out of. */
  readonly left: readonly { readonly roomId: RoomId; readonly events: readonly unknown[] }[];
  readonly invites: readonly { readonly roomId: RoomId; readonly event: JsonObject }[];
}

/**
 * Only the timelines of rooms; the state that `/sync` would add is asked for where it is needed.
 * `asker` is another one in each process: Synapse keeps an answer for two minutes and gives it to whoever asks the same again (its `request_key`
 * holds the text of the filter, 1.163.2), so a new process with an older or an empty database would be told what was true for the last one.
 */
export const buildSyncFilter = (asker: string): string =>
  JSON.stringify({
    presence: { not_types: ['*', asker] },
    account_data: { not_types: ['*'] },
    room: {
      ephemeral: { not_types: ['*'] },
      account_data: { not_types: ['*'] },
      state: { not_types: ['*'], lazy_load_members: true },
      timeline: { limit: 20 },
    },
  });

/** @param since the position asked from; part of the name of an invite that has no event id. */
export function readSync(answer: unknown, { oracle, since }: { oracle: UserId; since: string | null }): SyncNews | null {
  if (!isJsonObject(answer) || typeof answer['next_batch'] !== 'string') return null;
  const rooms = isJsonObject(answer['rooms']) ? answer['rooms'] : {};
  return {
    nextBatch: answer['next_batch'],
    joined: roomsOf(rooms['join']).map(([roomId, room]) => readJoined(roomId, room, oracle)),
    left: roomsOf(rooms['leave']).map(([roomId, room]) => ({
      roomId,
      events: timelineOf(room).events.filter((event) => isOwnMember(event, oracle)),
    })),
    invites: roomsOf(rooms['invite']).flatMap(([roomId, room]) => {
      const event = buildInvite(roomId, room, { oracle, since });
      return event === null ? [] : [{ roomId, event }];
    }),
  };
}

function roomsOf(value: JsonValue | undefined): [RoomId, JsonObject][] {
  if (!isJsonObject(value)) return [];
  return Object.entries(value).flatMap(([id, room]): [RoomId, JsonObject][] => {
    const roomId = parseRoomId(id);
    return roomId.ok && isJsonObject(room) ? [[roomId.value, room]] : [];
  });
}

function timelineOf(room: JsonObject): { events: readonly unknown[]; limited: boolean; prevBatch: string | null } {
  const timeline = isJsonObject(room['timeline']) ? room['timeline'] : {};
  const { events, limited, prev_batch: prevBatch } = timeline;
  return {
    events: Array.isArray(events) ? events : [],
    limited: limited === true,
    prevBatch: typeof prevBatch === 'string' ? prevBatch : null,
  };
}

function readJoined(roomId: RoomId, room: JsonObject, oracle: UserId): JoinedNews {
  const { events, limited, prevBatch } = timelineOf(room);
  const { kept, reachedJoin } = cutAtOwnJoin(events, oracle);
  return { roomId, events: kept, gapFrom: limited && !reachedJoin ? prevBatch : null };
}

/** @param events oldest first. */
export function cutAtOwnJoin(events: readonly unknown[], oracle: UserId): { kept: readonly unknown[]; reachedJoin: boolean } {
  const joinAt = events.findLastIndex(
    (event) => isOwnMember(event, oracle) && contentOf(event)['membership'] === 'join' && !wasJoined(event),
  );
  return joinAt < 0 ? { kept: events, reachedJoin: false } : { kept: events.slice(joinAt), reachedJoin: true };
}

const contentOf = (event: unknown): JsonObject => (isJsonObject(event) && isJsonObject(event['content']) ? event['content'] : {});
const isOwnMember = (event: unknown, oracle: UserId): boolean =>
  isJsonObject(event) && event['type'] === 'm.room.member' && event['state_key'] === oracle;

/** A new name is a join after a join. */
function wasJoined(event: unknown): boolean {
  if (!isJsonObject(event)) return false;
  const unsigned = isJsonObject(event['unsigned']) ? event['unsigned'] : {};
  const previous = unsigned['prev_content'] ?? event['prev_content'];
  return isJsonObject(previous) && previous['membership'] === 'join';
}

/**
 * `/sync` shows an invite as stripped state, without id and time (seen on Synapse 1.163.2). The id we give it is the same when this answer is
 * read again after a crash, and another one for a later invite to the same room. Time 0: the real invite is found in the room after the join.
 */
function buildInvite(roomId: RoomId, room: JsonObject, { oracle, since }: { oracle: UserId; since: string | null }): JsonObject | null {
  const state = isJsonObject(room['invite_state']) ? room['invite_state']['events'] : null;
  const stripped = Array.isArray(state) ? state.filter(isJsonObject) : [];
  const own = stripped.find((event) => isOwnMember(event, oracle) && contentOf(event)['membership'] === 'invite');
  if (own === undefined || !parseUserId(own['sender']).ok) return null;
  const inviteRoomState = stripped.filter((event) => event !== own);
  return {
    event_id:
      typeof own['event_id'] === 'string'
        ? own['event_id']
        : `$invite:${sha256Base64Url(JSON.stringify([roomId, own['sender'] ?? '', since]))}`,
    room_id: roomId,
    type: 'm.room.member',
    state_key: oracle,
    sender: own['sender'] ?? '',
    origin_server_ts: typeof own['origin_server_ts'] === 'number' ? own['origin_server_ts'] : 0,
    content: contentOf(own),
    unsigned: { invite_room_state: inviteRoomState },
  };
}
