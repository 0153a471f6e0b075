/**
 * What admission and the sender must know of a room, one request for a room that is new to this process and none for one that is known.
 * A wrong "direct" would make the oracle answer what was not said to it, a wrong "not encrypted" would publish what was private (G11):
 * so a failed look-up is a group with unknown encryption, and encryption once seen is never forgotten: it is on disk, and nothing that a homeserver
 * says later takes it back. Whoever gets the keys of an encrypted room is read whole after each change, also in large rooms.
 * Cost: a bounded cache; what it drops is fetched again. One row per encrypted room for good.
 */
import { LRUCache } from 'lru-cache';
import type { RoomDirectory, RoomFacts } from '../src/admission/room-facts.ts';
import { type EventId, parseUserId, type RoomId, type UserId } from '../src/ids.ts';
import type { IncomingEvent } from '../src/inbox/inbox.ts';
import { isJsonObject, type JsonObject } from '../src/json.ts';
import { LIMITS } from '../src/limits.ts';
import type { Logger } from '../src/observe/logger.ts';
import type { RoomStateEvent } from '../src/runtime-context/matrix-access.ts';
import { prepare } from '../src/store/prepared.ts';
import type { Store } from '../src/store/store.ts';
import type { Clock } from '../src/time.ts';
import type { RoomEncryption } from './crypto/crypto-service.ts';
import { isMatrixError, type MatrixApi, MatrixError, matrixPath } from './matrix-api.ts';
import {
  decideNeededLevel,
  decidePowerLevel,
  decideRedactLevel,
  isFederated,
  planReaders,
  type RoomSnapshot,
  readRoomSnapshot,
  readStateEvents,
} from './read-room-state.ts';

export interface Rooms extends RoomDirectory {
  /** Another server is in the room, as far as is known without asking; true when nothing is known. */
  isFederated(room: RoomId): boolean;
  state(room: RoomId): Promise<readonly RoomStateEvent[]>;
  /** Whether both this user and the oracle have joined. @throws MatrixError when nobody can say. */
  areJoined(room: RoomId, user: UserId): Promise<boolean>;
  /** Whether this user is joined and their own level allows this event. @throws MatrixError */
  maySend(room: RoomId, user: UserId, event: { type: string; isState: boolean }): Promise<boolean>;
  /** May plain text go into this room? @throws MatrixError when nobody can say. */
  isEncrypted(room: RoomId): Promise<boolean>;
  /**
   * For the sender: who gets the keys; null when plain text may go into this room, never with `always`. @throws MatrixError when nobody can say.
   */
  encryption(room: RoomId, always?: boolean): Promise<RoomEncryption | null>;
}
export interface RoomsOptions {
  readonly api: MatrixApi;
  readonly store: Store;
  readonly oracle: UserId;
  readonly clock: Clock;
  readonly logger: Logger;
}

/**
 * Before these events wait for their turn in the inbox: a room's rows may be held for a minute, and meanwhile an answer that grows, or a
 * portal's prompt, must not go into a room that is encrypted by now or has a third person in it (G11, G13).
 */
export function forgetChanged(events: readonly IncomingEvent[], rooms: Pick<Rooms, 'forget' | 'sawEncryption'>): void {
  for (const { type, roomId, event } of events) {
    if (event['state_key'] !== undefined && FORGOTTEN_AT_ONCE.has(type)) rooms.forget(roomId);
    // Not asked for again: what the room's state says may be from before it.
    if (event['state_key'] === '' && type === 'm.room.encryption') rooms.sawEncryption(roomId);
  }
}

const FORGOTTEN_AT_ONCE = new Set(['m.room.encryption', 'm.room.member', 'm.room.join_rules', 'm.room.history_visibility']);

const NOBODY: ReadonlySet<UserId> = new Set();
const MAX_ROOMS = 2_000;
const MAX_SENDERS = 5_000;
/** In a room this large members come and go all the time: they are read again only after a while, and it is a group meanwhile. */
const LARGE_ROOM_MEMBERS = 100;
/** Never written: a room may name its own level for our settings, like for any state. */
const SETTINGS_TYPE = 'ixo.oracle.settings';
const MEMBERS_FRESH_MS = 10 * 60_000;
const DIRECT_LIST_FRESH_MS = 10 * 60_000;

interface Known {
  readonly snapshot: RoomSnapshot;
  /** When its members were read, which in a large room may be before the rest. */
  readonly readAt: number;
  readonly isWhole: boolean;
}

export function createRooms({ api, store, oracle, clock, logger }: RoomsOptions): Rooms {
  const known = new LRUCache<RoomId, Known>({
    max: MAX_ROOMS,
    maxSize: LIMITS.roomMembersKept,
    sizeCalculation: ({ snapshot }) => 1 + snapshot.members.size,
  });
  const stale = new Set<RoomId>();
  const encrypted = new LRUCache<RoomId, true>({ max: MAX_ROOMS * 10 });
  /** Seen, and not on disk yet. */
  const unsaved = new Set<RoomId>();
  const invites = new LRUCache<EventId, boolean>({ max: MAX_ROOMS });
  const senders = new LRUCache<string, UserId>({ max: MAX_SENDERS });
  const reading = new Map<RoomId, Promise<Known>>();
  let directList: { rooms: ReadonlySet<string>; readAt: number } | null = null;

  const selectEncrypted = prepare(({ room }: { room: RoomId }) =>
    store.sql.selectFrom('encrypted_rooms').select('room_id').where('room_id', '=', room),
  );
  function isMarked(room: RoomId): boolean {
    if (encrypted.has(room) || unsaved.has(room)) return true;
    const marked = store.read.get(selectEncrypted({ room })) !== undefined;
    if (marked) encrypted.set(room, true);
    return marked;
  }
  function sawEncryption(room: RoomId): void {
    if (!unsaved.has(room) && isMarked(room)) return;
    unsaved.add(room);
    const insert = store.sql.insertInto('encrypted_rooms').values({ room_id: room, seen_at: clock.now() });
    store
      .write((tx) => void tx.run(insert.onConflict((oc) => oc.doNothing())))
      .then(
        () => {
          encrypted.set(room, true);
          unsaved.delete(room);
        },
        // Tried again at the next look; until then this process knows it.
        (error: unknown) => logger.error({ room_id: room, err: error }, 'that a room is encrypted could not be written down'),
      );
  }

  async function snapshotOf(room: RoomId): Promise<RoomSnapshot> {
    return (await knownOf(room)).snapshot;
  }
  function knownOf(room: RoomId): Promise<Known> | Known {
    const again = () => knownOf(room);
    const present = known.get(room);
    if (present !== undefined && !stale.has(room)) return present;
    const running = reading.get(room);
    // What changed meanwhile is not in a look that began before.
    if (running !== undefined) return stale.has(room) ? running.then(again, again) : running;
    // Removed first: a change that arrives while we read makes it stale again.
    stale.delete(room);
    const read = fetchSnapshot(room, present).then(
      (snapshot) => {
        const isWhole = present === undefined || snapshot.members !== present.snapshot.members;
        const fresh = { snapshot, readAt: isWhole ? clock.monotonic() : present.readAt, isWhole };
        known.set(room, fresh);
        if (snapshot.encrypted) sawEncryption(room);
        reading.delete(room);
        return fresh;
      },
      (error: unknown) => {
        reading.delete(room);
        known.delete(room);
        throw error;
      },
    );
    reading.set(room, read);
    return read;
  }
  /** With members as they are since the last change: a key goes to nobody who has left (large rooms are read in part otherwise). */
  async function wholeSnapshotOf(room: RoomId): Promise<RoomSnapshot> {
    for (;;) {
      if (stale.has(room) || known.get(room)?.isWhole === false) known.delete(room);
      const { snapshot, isWhole } = await knownOf(room);
      if (isWhole) return snapshot;
    }
  }

  async function fetchSnapshot(room: RoomId, present: Known | undefined): Promise<RoomSnapshot> {
    const isLarge = present !== undefined && present.snapshot.members.size > LARGE_ROOM_MEMBERS;
    if (!isLarge || clock.monotonic() - present.readAt > MEMBERS_FRESH_MS) return readRoomSnapshot(await fetchState(room), oracle);
    const types = ['m.room.encryption', 'm.room.power_levels', 'm.room.name'];
    const contents = await Promise.all(types.map((type) => fetchStateContent(room, type)));
    const fresh = readRoomSnapshot(
      types.flatMap((type, index) => (contents[index] == null ? [] : [{ type, state_key: '', content: contents[index] }])),
      oracle,
    );
    const { members, power, invite, open, historyVisibility } = present.snapshot;
    return { ...fresh, members, invite, open, historyVisibility, power: { ...power, levels: fresh.power.levels } };
  }

  async function fetchState(room: RoomId): Promise<readonly unknown[]> {
    const answer = await api.request<readonly unknown[]>('GET', matrixPath`/_matrix/client/v3/rooms/${room}/state`);
    // No room is without its beginning: an answer without it is a proxy's or half a one, and says nothing about encryption (G11).
    const isWhole = Array.isArray(answer) && answer.some((event) => isJsonObject(event) && event['type'] === 'm.room.create');
    if (!isWhole) throw new MatrixError({ errcode: 'NOT_JSON', status: 200, retryAfterMs: null, certain: false });
    return answer;
  }
  async function fetchStateContent(room: RoomId, type: string): Promise<JsonObject | null> {
    try {
      return await api.request<JsonObject>('GET', matrixPath`/_matrix/client/v3/rooms/${room}/state/${type}/`);
    } catch (error) {
      if (isMatrixError(error) && error.errcode === 'M_NOT_FOUND') return null;
      throw error;
    }
  }

  /** What the invite said: asked of the room when no row remembers it (a lost database). */
  async function wasInvitedDirect(room: RoomId, { invite }: RoomSnapshot): Promise<boolean> {
    if (invite === null) return false;
    if ('isDirect' in invite) return invite.isDirect;
    const cached = invites.get(invite.eventId);
    if (cached !== undefined) return cached;
    const isDirect = await fetchInvite(room, invite.eventId);
    invites.set(invite.eventId, isDirect);
    return isDirect;
  }
  async function fetchInvite(room: RoomId, id: EventId): Promise<boolean> {
    try {
      const { content } = await api.request<JsonObject>('GET', matrixPath`/_matrix/client/v3/rooms/${room}/event/${id}`);
      return isJsonObject(content) && content['membership'] === 'invite' && content['is_direct'] === true;
    } catch (error) {
      if (isMatrixError(error) && error.status === 404) return false;
      throw error;
    }
  }

  /** The oracle's own `m.direct`, which an operator may have set. */
  async function isListedDirect(room: RoomId): Promise<boolean> {
    if (directList === null || clock.monotonic() - directList.readAt > DIRECT_LIST_FRESH_MS) {
      directList = { rooms: await fetchDirectList(), readAt: clock.monotonic() };
    }
    return directList.rooms.has(room);
  }
  async function fetchDirectList(): Promise<ReadonlySet<string>> {
    try {
      const list = await api.request<JsonObject>('GET', matrixPath`/_matrix/client/v3/user/${oracle}/account_data/m.direct`);
      return new Set(Object.values(list).flatMap((rooms) => (Array.isArray(rooms) ? rooms.filter((id) => typeof id === 'string') : [])));
    } catch (error) {
      if (isMatrixError(error) && error.status === 404) return new Set();
      throw error;
    }
  }

  async function gather(room: RoomId): Promise<RoomFacts> {
    const row = store.read.get(store.sql.selectFrom('rooms').select(['is_direct', 'invited_at']).where('room_id', '=', room));
    const snapshot = await snapshotOf(room);
    // What is said there is for one person: links to the authorise page, that person's grants, the answers to it.
    const isPrivate = snapshot.members.size <= 2 && !snapshot.open;
    const isDirect = isPrivate && (row?.is_direct === 1 || (await wasInvitedDirect(room, snapshot)) || (await isListedDirect(room)));
    return {
      roomId: room,
      kind: isDirect ? 'direct' : 'group',
      encryption: snapshot.encrypted || isMarked(room) ? 'encrypted' : 'none',
      federated: isFederated(snapshot.members, oracle),
      joined: snapshot.members.get(oracle)?.membership === 'join',
      people: snapshot.members,
      displayName: snapshot.name ?? (isDirect ? otherName(snapshot, oracle) : null),
      admissionCursor: row?.invited_at ?? null,
    };
  }

  async function isEncryptedRoom(room: RoomId): Promise<boolean> {
    if (isMarked(room)) return true;
    const snapshot = await snapshotOf(room);
    // Asked again: the answer may be from before the event that was pushed meanwhile.
    return snapshot.encrypted || isMarked(room);
  }

  return {
    isFederated: (room) => {
      const present = known.get(room);
      return present === undefined || isFederated(present.snapshot.members, oracle);
    },
    async facts(room) {
      try {
        return await gather(room);
      } catch (error) {
        if (!isMatrixError(error)) throw error;
        logger.warn({ room_id: room, code: error.errcode, status: error.status }, 'a room could not be looked up; it counts as a group');
        const encryption = isMarked(room) ? 'encrypted' : 'unknown';
        return {
          roomId: room,
          kind: 'group',
          encryption,
          federated: true,
          joined: false,
          people: NOBODY,
          displayName: null,
          admissionCursor: null,
        };
      }
    },
    forget(room) {
      if (known.has(room) || reading.has(room)) stale.add(room);
    },
    async powerLevel(room, user) {
      return decidePowerLevel((await snapshotOf(room)).power, user);
    },
    async mayRedact(room, user) {
      const { power, members } = await snapshotOf(room);
      return members.get(user)?.membership === 'join' && decidePowerLevel(power, user) >= decideRedactLevel(power);
    },
    async maySetState(room, user) {
      const { power, members } = await snapshotOf(room);
      const needed = decideNeededLevel(power, { type: SETTINGS_TYPE, isState: true });
      return members.get(user)?.membership === 'join' && decidePowerLevel(power, user) >= needed;
    },
    async maySend(room, user, event) {
      const { power, members } = await snapshotOf(room);
      return members.get(user)?.membership === 'join' && decidePowerLevel(power, user) >= decideNeededLevel(power, event);
    },
    isEncrypted: isEncryptedRoom,
    async encryption(room, always = false) {
      if (!always && !(await isEncryptedRoom(room))) return null;
      const { rotation, historyVisibility, members } = await wholeSnapshotOf(room);
      // Thrown out, and its state can still be read: nothing can be sent, so nobody gets a key. The homeserver would say the same of the event.
      if (members.get(oracle)?.membership !== 'join')
        throw new MatrixError({ errcode: 'M_FORBIDDEN', status: 403, retryAfterMs: null, certain: true });
      return {
        roomId: room,
        readers: planReaders({ members, historyVisibility }),
        historyVisibility,
        rotationPeriodMs: rotation.periodMs,
        rotationPeriodMessages: rotation.messages,
      };
    },
    sawEncryption,
    async areJoined(room, user) {
      try {
        const { members } = await snapshotOf(room);
        return [oracle, user].every((one) => members.get(one)?.membership === 'join');
      } catch (error) {
        if (isMatrixError(error) && (error.status === 403 || error.status === 404)) return false;
        throw error;
      }
    },
    state: async (room) => readStateEvents(await fetchState(room)),
    async senderOf(room, event: EventId) {
      const cached = senders.get(`${room} ${event}`);
      if (cached !== undefined) return cached;
      try {
        const found = await api.request<JsonObject>('GET', matrixPath`/_matrix/client/v3/rooms/${room}/event/${event}`);
        const sender = parseUserId(found['sender']);
        if (sender.ok) senders.set(`${room} ${event}`, sender.value);
        return sender.ok ? sender.value : null;
      } catch (error) {
        // Only what it says itself: a look-up that failed would make a reply to the oracle look like small talk (G1).
        if (isMatrixError(error) && (error.status === 403 || error.status === 404)) return null;
        throw error;
      }
    },
  };
}

function otherName({ members }: RoomSnapshot, oracle: UserId): string | null {
  for (const [user, { displayName }] of members) if (user !== oracle) return displayName;
  return null;
}
