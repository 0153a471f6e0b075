/**
 * A person's Matrix client, as small as the demo, the end-to-end tests and the bench need it. Content is sent as given,
 * so that whoever signs messages (or forges them, in a test) builds the content and hands it in.
 */
import { randomUUID } from 'node:crypto';
import type { JsonObject, JsonValue } from '../../src/json.ts';
import { type MatrixRequestOptions, matrixRequest } from './matrix-request.ts';
import type { RoomWatch } from './room-watch.ts';
import { createSyncFollower, type InviteSeen, type SyncFollower } from './sync-follower.ts';
import type { UserSession } from './users.ts';

export interface MatrixEvent {
  readonly event_id: string;
  readonly type: string;
  readonly sender: string;
  readonly origin_server_ts: number;
  readonly content: JsonObject;
  readonly state_key?: string;
  readonly unsigned?: JsonObject;
  readonly redacts?: string;
}
export interface MessagesPage {
  readonly chunk: readonly MatrixEvent[];
  readonly start: string;
  /** Missing at the end of the room. */
  readonly end?: string;
}
export interface SyncAnswer {
  readonly next_batch: string;
  readonly to_device?: { readonly events?: readonly JsonObject[] };
  readonly device_lists?: { readonly changed?: readonly string[]; readonly left?: readonly string[] };
  readonly device_one_time_keys_count?: Readonly<Record<string, number>>;
  readonly device_unused_fallback_key_types?: readonly string[];
  readonly rooms?: {
    readonly join?: Record<string, JoinedRoom>;
    readonly leave?: Record<string, JoinedRoom>;
    readonly invite?: Record<string, { readonly invite_state: { readonly events: readonly MatrixEvent[] } }>;
  };
}
export interface JoinedRoom {
  readonly timeline?: { readonly events: readonly MatrixEvent[]; readonly limited?: boolean; readonly prev_batch?: string };
  readonly ephemeral?: { readonly events: readonly { readonly type: string; readonly content: JsonObject }[] };
}

export interface SendOptions {
  /** Default `m.room.message`. */
  readonly type?: string;
  /** Default: random. */
  readonly txnId?: string;
}
export interface MessagesOptions {
  readonly dir: 'b' | 'f';
  readonly from?: string | undefined;
  readonly to?: string | undefined;
  readonly limit?: number;
}
export interface SyncOptions {
  readonly since?: string | undefined;
  readonly timeoutMs?: number;
  readonly filter?: JsonObject;
  readonly signal?: AbortSignal;
}

export interface UserClient extends UserSession {
  readonly baseUrl: string;
  /** Any call that has no method here. */
  request<T = JsonObject>(method: string, path: string, options?: Omit<MatrixRequestOptions, 'accessToken'>): Promise<T>;
  /** `private_chat`, not `trusted_private_chat`: that makes the invited bot a creator of the room whom nobody can kick (room version 12). */
  createDirectRoom(invitee: string): Promise<string>;
  createRoom(options?: JsonObject): Promise<string>;
  invite(roomId: string, userId: string): Promise<void>;
  join(roomIdOrAlias: string): Promise<string>;
  leave(roomId: string): Promise<void>;
  kick(roomId: string, userId: string, reason?: string): Promise<void>;
  /** @returns the event id. */
  send(roomId: string, content: JsonObject, options?: SendOptions): Promise<string>;
  sendText(roomId: string, body: string, options?: SendOptions & { readonly content?: JsonObject }): Promise<string>;
  sendState(roomId: string, type: string, content: JsonObject, stateKey?: string): Promise<string>;
  redact(roomId: string, eventId: string, reason?: string): Promise<string>;
  sync(options?: SyncOptions): Promise<SyncAnswer>;
  messages(roomId: string, options: MessagesOptions): Promise<MessagesPage>;
  /** The whole room as it is stored, oldest first. */
  history(roomId: string): Promise<MatrixEvent[]>;
  getEvent(roomId: string, eventId: string): Promise<MatrixEvent>;
  /** Newest first. */
  relations(roomId: string, eventId: string, relType?: string): Promise<readonly MatrixEvent[]>;
  state<T = JsonObject>(roomId: string, type: string, stateKey?: string): Promise<T>;
  members(roomId: string): Promise<Record<string, 'join' | 'invite' | 'leave' | 'ban' | 'knock'>>;
  joinedRooms(): Promise<readonly string[]>;
  setDisplayName(name: string): Promise<void>;
  typing(roomId: string, typing: boolean, timeoutMs?: number): Promise<void>;
  /** Follows a room by long poll from now on, with the newest events that are already there. All watches of a client share one `/sync`. */
  watchRoom(roomId: string): Promise<RoomWatch>;
  /** The next (or a pending) invite to this user that fits; needs no watch. */
  waitForInvite(predicate?: (invite: InviteSeen) => boolean, timeoutMs?: number): Promise<InviteSeen>;
  /** Ends the long poll; waiting watches reject. */
  close(): void;
}

/** What makes a client one that encrypts (encrypted-client.ts). */
export interface Cipher {
  /** Keys and news of devices, before the events of the same answer are read. */
  receive(answer: SyncAnswer): Promise<void>;
  /** The event in the clear; null when it cannot be read (yet). Events that are not encrypted come back as they are. */
  open(event: MatrixEvent, roomId: string): Promise<MatrixEvent | null>;
  /** What to send in place of this; itself in a room that is not encrypted. */
  seal(roomId: string, event: { readonly type: string; readonly content: JsonObject }): Promise<{ type: string; content: JsonObject }>;
}

const C = '/_matrix/client/v3';
const SYNC_GRACE_MS = 30_000;

export function createUserClient(session: UserSession & { readonly baseUrl: string }, cipher?: Cipher): UserClient {
  const { baseUrl, userId, accessToken, deviceId } = session;
  let follower: SyncFollower | undefined;
  const request = <T = JsonObject>(method: string, path: string, options: Omit<MatrixRequestOptions, 'accessToken'> = {}): Promise<T> =>
    matrixRequest<T>(baseUrl, method, path, { ...options, accessToken });
  const room = (roomId: string) => `${C}/rooms/${encodeURIComponent(roomId)}`;
  const done = async (call: Promise<unknown>): Promise<void> => void (await call);
  const eventId = async (call: Promise<{ event_id: string }>): Promise<string> => (await call).event_id;
  const roomId = async (call: Promise<{ room_id: string }>): Promise<string> => (await call).room_id;

  const client: UserClient = {
    baseUrl,
    userId,
    accessToken,
    deviceId,
    request,
    // As Element makes them: both may set the topic.
    createDirectRoom: (invitee) => client.createRoom({ preset: 'trusted_private_chat', is_direct: true, invite: [invitee] }),
    createRoom: (options = {}) => roomId(request('POST', `${C}/createRoom`, { body: options })),
    invite: (id, invitee) => done(request('POST', `${room(id)}/invite`, { body: { user_id: invitee } })),
    join: (id) => roomId(request('POST', `${C}/join/${encodeURIComponent(id)}`, { body: {} })),
    leave: (id) => done(request('POST', `${room(id)}/leave`, { body: {} })),
    kick: (id, user, reason) =>
      done(request('POST', `${room(id)}/kick`, { body: { user_id: user, ...(reason === undefined ? {} : { reason }) } })),
    async send(id, content, { type = 'm.room.message', txnId = randomUUID() } = {}) {
      const sent = (await cipher?.seal(id, { type, content })) ?? { type, content };
      return eventId(
        request('PUT', `${room(id)}/send/${encodeURIComponent(sent.type)}/${encodeURIComponent(txnId)}`, { body: sent.content }),
      );
    },
    sendText: (id, body, { content = {}, ...options } = {}) => client.send(id, { msgtype: 'm.text', body, ...content }, options),
    sendState: (id, type, content, stateKey = '') =>
      eventId(request('PUT', `${room(id)}/state/${encodeURIComponent(type)}/${encodeURIComponent(stateKey)}`, { body: content })),
    redact: (id, target, reason) =>
      eventId(
        request('PUT', `${room(id)}/redact/${encodeURIComponent(target)}/${randomUUID()}`, {
          body: reason === undefined ? {} : { reason },
        }),
      ),
    sync({ since, timeoutMs = 0, filter, signal } = {}) {
      const query = {
        since,
        timeout: timeoutMs,
        set_presence: 'offline',
        filter: filter === undefined ? undefined : JSON.stringify(filter),
      };
      return request<SyncAnswer>('GET', `${C}/sync`, { query, timeoutMs: timeoutMs + SYNC_GRACE_MS, signal });
    },
    messages: (id, { dir, from, to, limit = 100 }) =>
      request<MessagesPage>('GET', `${room(id)}/messages`, { query: { dir, from, to, limit } }),
    async history(id) {
      const events: MatrixEvent[] = [];
      for (let from: string | undefined, more = true; more; ) {
        const page: MessagesPage = await client.messages(id, { dir: 'b', from, limit: 500 });
        events.push(...page.chunk);
        from = page.end;
        more = from !== undefined;
      }
      return events.reverse();
    },
    getEvent: (id, event) => request<MatrixEvent>('GET', `${room(id)}/event/${encodeURIComponent(event)}`),
    async relations(id, event, relType = 'm.replace') {
      const path = `/_matrix/client/v1/rooms/${encodeURIComponent(id)}/relations/${encodeURIComponent(event)}/${encodeURIComponent(relType)}`;
      return (await request<{ chunk: MatrixEvent[] }>('GET', path, { query: { limit: 500 } })).chunk;
    },
    state: (id, type, stateKey = '') => request('GET', `${room(id)}/state/${encodeURIComponent(type)}/${encodeURIComponent(stateKey)}`),
    async members(id) {
      const { chunk } = await request<{ chunk: MatrixEvent[] }>('GET', `${room(id)}/members`);
      return Object.fromEntries(chunk.map((event) => [event.state_key ?? '', event.content['membership'] as 'join']));
    },
    async joinedRooms() {
      return (await request<{ joined_rooms: string[] }>('GET', `${C}/joined_rooms`)).joined_rooms;
    },
    setDisplayName: (name) =>
      done(request('PUT', `${C}/profile/${encodeURIComponent(userId)}/displayname`, { body: { displayname: name } })),
    typing: (id, typing, timeoutMs = 10_000) => {
      const body: Record<string, JsonValue> = typing ? { typing, timeout: timeoutMs } : { typing };
      return done(request('PUT', `${room(id)}/typing/${encodeURIComponent(userId)}`, { body }));
    },
    watchRoom(id) {
      follower ??= createSyncFollower(client, cipher);
      return follower.watch(id);
    },
    waitForInvite(predicate = () => true, timeoutMs) {
      follower ??= createSyncFollower(client, cipher);
      return follower.waitForInvite(predicate, timeoutMs);
    },
    close() {
      follower?.close();
      follower = undefined;
    },
  };
  return client;
}
