/**
 * A homeserver in memory, never kinder than Synapse 1.163.2 as research measured it: sends are deduplicated in a cache that knows neither user
 * nor device until a restart, then per room, user, device and txn id; a device without its user is a 500; events past 64 KiB, floats and
 * relations to unknown events are refused; edits are bundled only with an event of their own type, so a clear one and an encrypted one never are;
 * `/sync` refuses the sender and works for any other user of the namespace; files are given only to who is authenticated. It pushes nothing by
 * itself: a test says which events a push carries, and which are lost.
 */
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import {
  type MatrixApi,
  type MatrixConnection,
  MatrixError,
  type MatrixIdentity,
  type MatrixRequest,
} from '../../appservice/matrix-api.ts';
import { canonicalJson, isJsonObject, type JsonObject } from '../../src/json.ts';
import type { Clock } from '../../src/time.ts';

export interface FakeEvent {
  event_id: string;
  room_id: string;
  sender: string;
  type: string;
  state_key?: string;
  origin_server_ts: number;
  content: JsonObject;
  unsigned: JsonObject;
}
export interface FakeRequest {
  readonly method: string;
  readonly path: string;
  readonly query: Readonly<Record<string, string>>;
  /** JSON, or a Buffer for any other content type. */
  readonly body: unknown;
  readonly contentType?: string;
  readonly token: string | null;
}
export interface FakeAnswer {
  readonly status: number;
  /** JSON, or a Buffer: a file. */
  readonly body: unknown;
}
export interface FakeFile {
  readonly bytes: Buffer;
  readonly contentType: string;
  readonly fileName: string | null;
}
/** What happens to a request instead of, or after, its ordinary handling. */
export type Trouble =
  | { readonly kind: 'answer'; readonly status: number; readonly body: unknown }
  /** Handled, but the answer is lost. */
  | { readonly kind: 'lose_answer' }
  /** Handled never; the caller waits. */
  | { readonly kind: 'hang' }
  /** No trouble this time. */
  | { readonly kind: 'pass' };

interface Room {
  readonly id: string;
  readonly events: { event: FakeEvent; position: number }[];
  readonly state: Map<string, FakeEvent>;
  readonly version: string;
}
export interface CreateRoomOptions {
  readonly creator: string;
  readonly invite?: readonly string[];
  readonly direct?: boolean;
  readonly version?: string;
  readonly encrypted?: boolean;
  readonly additionalCreators?: readonly string[];
}

export interface FakeHomeserver {
  readonly serverName: string;
  /** Every request it saw, in order. */
  readonly requests: FakeRequest[];
  connection(): MatrixConnection;
  /** The same over HTTP, for the real client. */
  listen(): Promise<{ baseUrl: string; close(): Promise<void> }>;
  handle(request: FakeRequest): FakeAnswer;
  createRoom(options: CreateRoomOptions): string;
  /** A client's own doing, unlimited by rules. */
  invite(room: string, sender: string, target: string, content?: JsonObject): FakeEvent;
  join(room: string, user: string): FakeEvent;
  leave(room: string, user: string): FakeEvent;
  say(room: string, sender: string, text: string, more?: JsonObject): FakeEvent;
  /** A message-like event of any type: an encrypted one, a reaction. */
  send(room: string, sender: string, type: string, content: JsonObject): FakeEvent;
  redact(room: string, sender: string, target: string): FakeEvent;
  setState(room: string, sender: string, type: string, content: JsonObject, stateKey?: string): FakeEvent;
  /** A hostile or damaged homeserver: the event is in the timeline, and the state is answered as if it were not. */
  hideState(room: string, type: string, stateKey?: string): void;
  timeline(room: string): FakeEvent[];
  /** What the media repository holds, by its `mxc:` address; a test may put there what it likes. */
  readonly media: Map<string, FakeFile>;
  /** The event as a push carries it. */
  pushed(event: FakeEvent): JsonObject;
  /** For requests whose path matches, in order. */
  trouble(path: RegExp, ...troubles: Trouble[]): void;
  /** Refuses connections until `start`; the response cache is gone afterwards, as after a restart. */
  stop(): void;
  start(): void;
}

const AS_TOKEN = 'as-token';
const SENDER = '_oracle_as';
const MAX_EVENT_BYTES = 65_536;
const MAX_UPLOAD_BYTES = 50 * 1024 * 1024;

export function createFakeHomeserver({ clock, serverName = 'oracle.local' }: { clock: Clock; serverName?: string }): FakeHomeserver {
  const users = new Map<string, { displayname: string; devices: Set<string> }>();
  const rooms = new Map<string, Room>();
  const responseCache = new Map<string, FakeAnswer>();
  const sentByDevice = new Map<string, string>();
  const media = new Map<string, FakeFile>();
  const troubles: { path: RegExp; list: Trouble[] }[] = [];
  const requests: FakeRequest[] = [];
  let position = 1;
  let nextId = 1;
  let up = true;
  const namespace = new RegExp(`^@oracle(_.*)?:${serverName.replaceAll('.', '[.]')}$`, 'u');

  const fail = (status: number, errcode: string, more: JsonObject = {}): FakeAnswer => ({
    status,
    body: { errcode, error: errcode, ...more },
  });
  const done = (body: unknown = {}): FakeAnswer => ({ status: 200, body });

  function add(room: Room, event: Omit<FakeEvent, 'event_id' | 'room_id' | 'origin_server_ts' | 'unsigned'>, ts = clock.now()): FakeEvent {
    const full: FakeEvent = { event_id: `$event${nextId++}`, room_id: room.id, origin_server_ts: ts, unsigned: {}, ...event };
    if (full.state_key !== undefined) {
      const before = room.state.get(`${full.type}|${full.state_key}`);
      if (before !== undefined) full.unsigned = { prev_content: before.content, replaces_state: before.event_id };
      room.state.set(`${full.type}|${full.state_key}`, full);
    }
    room.events.push({ event: full, position: position++ });
    return full;
  }
  const roomOf = (id: string): Room => {
    const room = rooms.get(id);
    if (room === undefined) throw new Error(`no room ${id}`);
    return room;
  };
  const membership = (room: Room, user: string) => room.state.get(`m.room.member|${user}`)?.content['membership'];
  const shown = (event: FakeEvent, more: JsonObject = {}): JsonObject => ({
    ...structuredClone(event),
    unsigned: { ...structuredClone(event.unsigned), age: Math.max(0, clock.now() - event.origin_server_ts), ...more },
  });
  /** The original with its latest edit: greatest time, then greatest id. */
  function bundled(room: Room, event: FakeEvent): JsonObject {
    const edits = room.events
      .map((entry) => entry.event)
      .filter(
        ({ content, sender, type }) =>
          sender === event.sender &&
          type === event.type &&
          isJsonObject(content['m.relates_to']) &&
          content['m.relates_to']['rel_type'] === 'm.replace' &&
          content['m.relates_to']['event_id'] === event.event_id,
      )
      .toSorted((a, b) => b.origin_server_ts - a.origin_server_ts || (b.event_id > a.event_id ? 1 : -1));
    return shown(event, edits[0] === undefined ? {} : { 'm.relations': { 'm.replace': shown(edits[0]) } });
  }

  function checkContent(room: Room, content: unknown, sender: string, type: string): FakeAnswer | null {
    if (!isJsonObject(content)) return fail(400, 'M_NOT_JSON');
    if (!canonicalJson(content).ok) return fail(400, 'M_BAD_JSON');
    if (type === 'm.room.message' && typeof content['body'] !== 'string') return fail(400, 'M_UNKNOWN');
    const envelope = {
      content,
      sender,
      type,
      room_id: room.id,
      event_id: `$${'x'.repeat(43)}`,
      hashes: 'x'.repeat(60),
      signatures: 'x'.repeat(150),
      prev_events: ['x'.repeat(44)],
      auth_events: ['x'.repeat(132)],
    };
    if (Buffer.byteLength(JSON.stringify(envelope)) > MAX_EVENT_BYTES) return fail(413, 'M_TOO_LARGE');
    const relation = content['m.relates_to'];
    if (isJsonObject(relation) && typeof relation['rel_type'] === 'string') {
      const target = relation['event_id'];
      if (!room.events.some(({ event }) => event.event_id === target))
        return fail(400, 'M_UNKNOWN', { error: "Can't send relation to unknown event" });
    }
    return null;
  }

  function route(request: FakeRequest): FakeAnswer {
    if (request.token !== AS_TOKEN) return fail(401, request.token === null ? 'M_MISSING_TOKEN' : 'M_UNKNOWN_TOKEN');
    const { user_id: asserted, device_id: device } = request.query;
    if (device !== undefined && asserted === undefined) return fail(500, 'M_UNKNOWN');
    const user = asserted ?? `@${SENDER}:${serverName}`;
    const isRegister = request.path === '/_matrix/client/v3/register';
    if (asserted !== undefined && !isRegister) {
      if (!namespace.test(asserted) && asserted !== `@${SENDER}:${serverName}`) return fail(403, 'M_FORBIDDEN');
      if (!users.has(asserted)) return fail(403, 'M_FORBIDDEN');
      if (device !== undefined && users.get(asserted)?.devices.has(device) !== true) return fail(400, 'M_UNKNOWN_DEVICE');
    }
    const parts = request.path.split('/').slice(1).map(decodeURIComponent);
    const at = (index: number) => parts[index] ?? '';
    if (at(0) === '_matrix' && at(1) === 'media' && at(3) === 'upload') return upload(request);
    if (at(0) !== '_matrix' || at(1) !== 'client') return fail(404, 'M_UNRECOGNIZED');
    if (at(2) === 'v1' && at(3) === 'media' && at(4) === 'download')
      return media.has(`mxc://${at(5)}/${at(6)}`) ? done(media.get(`mxc://${at(5)}/${at(6)}`)?.bytes) : fail(404, 'M_NOT_FOUND');
    const body = isJsonObject(request.body) ? request.body : {};

    if (at(3) === 'register') {
      const id = `@${String(body['username'])}:${serverName}`;
      if (!namespace.test(id) && body['username'] !== SENDER) return fail(400, 'M_EXCLUSIVE');
      if (body['inhibit_login'] !== true) return fail(400, 'M_APPSERVICE_LOGIN_UNSUPPORTED');
      if (users.has(id)) return fail(400, 'M_USER_IN_USE');
      users.set(id, { displayname: String(body['username']), devices: new Set() });
      return done({ user_id: id });
    }
    if (at(3) === 'account' && at(4) === 'whoami') return done({ user_id: user, ...(device === undefined ? {} : { device_id: device }) });
    if (at(3) === 'profile' && at(5) === 'displayname') {
      const profile = users.get(at(4));
      if (profile === undefined) return fail(404, 'M_NOT_FOUND');
      if (request.method === 'PUT') profile.displayname = String(body['displayname']);
      return done(request.method === 'PUT' ? {} : { displayname: profile.displayname });
    }
    if (at(3) === 'devices') {
      const devices = users.get(user)?.devices;
      if (request.method === 'GET') return devices?.has(at(4)) === true ? done({ device_id: at(4) }) : fail(404, 'M_NOT_FOUND');
      if (request.method === 'DELETE') {
        devices?.delete(at(4));
        // Its transactions go with it.
        for (const key of sentByDevice.keys()) if (key.includes(` ${user} ${at(4)} `)) sentByDevice.delete(key);
      } else devices?.add(at(4));
      return done();
    }
    if (at(3) === 'appservice' && at(5) === 'ping') return at(4) === 'matrix-oracle' ? done({ duration_ms: 1 }) : fail(403, 'M_FORBIDDEN');
    if (at(3) === 'user' && at(5) === 'account_data') return fail(404, 'M_NOT_FOUND');
    if (at(3) === 'sync') return user.startsWith(`@${SENDER}:`) ? fail(500, 'M_UNKNOWN') : sync(user, request.query['since']);
    if (at(3) === 'createRoom') return done({ room_id: createFor(user, body) });
    if (at(3) === 'joined_rooms')
      return done({ joined_rooms: [...rooms.values()].filter((room) => membership(room, user) === 'join').map(({ id }) => id) });
    if (at(3) === 'rooms') return inRoom(request, { user, device, at, body });
    return fail(404, 'M_UNRECOGNIZED');
  }

  function upload({ body, contentType = 'application/octet-stream', query }: FakeRequest): FakeAnswer {
    const bytes = Buffer.isBuffer(body) ? body : Buffer.from(JSON.stringify(body ?? ''));
    if (bytes.length > MAX_UPLOAD_BYTES) return fail(413, 'M_TOO_LARGE');
    const uri = `mxc://${serverName}/file${nextId++}`;
    media.set(uri, { bytes, contentType, fileName: query['filename'] ?? null });
    return done({ content_uri: uri });
  }

  function createFor(creator: string, body: JsonObject): string {
    const room: Room = { id: `!room${nextId++}`, events: [], state: new Map(), version: '12' };
    rooms.set(room.id, room);
    const state = (type: string, state_key: string, content: JsonObject) => add(room, { type, state_key, sender: creator, content });
    state('m.room.create', '', { room_version: '12', ...(isJsonObject(body['creation_content']) ? body['creation_content'] : {}) });
    state('m.room.member', creator, { membership: 'join', displayname: users.get(creator)?.displayname ?? creator });
    state('m.room.power_levels', '', { users: {}, state_default: 50, users_default: 0 });
    for (const target of Array.isArray(body['invite']) ? body['invite'] : [])
      state('m.room.member', String(target), { membership: 'invite', ...(body['is_direct'] === true ? { is_direct: true } : {}) });
    return room.id;
  }

  function inRoom(
    request: FakeRequest,
    { user, device, at, body }: { user: string; device: string | undefined; at: (index: number) => string; body: JsonObject },
  ): FakeAnswer {
    const room = rooms.get(at(4));
    const action = at(5);
    if (room === undefined) return fail(action === 'join' ? 404 : 403, action === 'join' ? 'M_NOT_FOUND' : 'M_FORBIDDEN');
    if (action === 'join') {
      if (membership(room, user) === 'join') return done({ room_id: room.id });
      if (membership(room, user) !== 'invite') return fail(403, 'M_FORBIDDEN');
      add(room, {
        type: 'm.room.member',
        state_key: user,
        sender: user,
        content: { membership: 'join', displayname: users.get(user)?.displayname ?? user },
      });
      return done({ room_id: room.id });
    }
    if (action === 'invite') {
      add(room, { type: 'm.room.member', state_key: String(body['user_id']), sender: user, content: { membership: 'invite' } });
      return done();
    }
    if (action === 'leave') {
      if (membership(room, user) === undefined || membership(room, user) === 'leave') return fail(403, 'M_FORBIDDEN');
      add(room, { type: 'm.room.member', state_key: user, sender: user, content: { membership: 'leave', ...body } });
      return done();
    }
    if (membership(room, user) !== 'join') return fail(403, 'M_FORBIDDEN');
    if (action === 'send') return send(room, { request, user, device, type: at(6), txnId: at(7) });
    if (action === 'state' && request.method === 'PUT') {
      const refused = checkContent(room, request.body, user, at(6));
      if (refused !== null) return refused;
      return done({ event_id: add(room, { type: at(6), state_key: at(7), sender: user, content: body }).event_id });
    }
    if (action === 'state' && at(6) === '') return done([...room.state.values()].map((event) => shown(event)));
    if (action === 'state') {
      const event = room.state.get(`${at(6)}|${at(7)}`);
      return event === undefined ? fail(404, 'M_NOT_FOUND') : done(event.content);
    }
    if (action === 'event') {
      const found = room.events.find(({ event }) => event.event_id === at(6));
      return found === undefined ? fail(404, 'M_NOT_FOUND') : done(bundled(room, found.event));
    }
    if (action === 'messages') return messages(room, request.query);
    if (action === 'receipt' || action === 'typing') return done();
    return fail(404, 'M_UNRECOGNIZED');
  }

  function send(
    room: Room,
    { request, user, device, type, txnId }: { request: FakeRequest; user: string; device: string | undefined; type: string; txnId: string },
  ): FakeAnswer {
    const cached = responseCache.get(request.path);
    if (cached !== undefined) return cached;
    const key = device === undefined ? null : `${room.id} ${user} ${device} ${txnId}`;
    const known = key === null ? undefined : sentByDevice.get(key);
    if (known !== undefined) return done({ event_id: known });
    const refused = checkContent(room, request.body, user, type);
    if (refused !== null) return refused;
    const ts = request.query['ts'];
    const event = add(room, { type, sender: user, content: request.body as JsonObject }, ts === undefined ? undefined : Number(ts));
    if (key !== null) sentByDevice.set(key, event.event_id);
    const answer = done({ event_id: event.event_id });
    responseCache.set(request.path, answer);
    return answer;
  }

  /** Tokens are `t<position>`: everything below it is older. */
  function messages(room: Room, query: Readonly<Record<string, string>>): FakeAnswer {
    const limit = Number(query['limit'] ?? 10);
    const from = query['from'] === undefined ? position : readToken(query['from']);
    const to = query['to'] === undefined ? 0 : readToken(query['to']);
    if (Number.isNaN(from) || Number.isNaN(to)) return fail(400, 'M_UNKNOWN');
    const filter = (query['filter'] === undefined ? {} : JSON.parse(query['filter'])) as { senders?: string[]; types?: string[] };
    const older = room.events
      .filter((entry) => entry.position < from && entry.position >= to)
      .filter(({ event }) => filter.senders?.includes(event.sender) !== false && filter.types?.includes(event.type) !== false)
      .toReversed();
    const page = older.slice(0, limit);
    const last = page.at(-1);
    return done({
      chunk: page.map(({ event }) => shown(event)),
      start: `t${from}`,
      ...(last === undefined ? {} : { end: `t${last.position}` }),
    });
  }
  const readToken = (token: string): number => (/^[ts]\d+$/u.test(token) ? Number(token.slice(1)) : Number.NaN);

  function sync(user: string, token: string | undefined): FakeAnswer {
    const since = token === undefined ? 0 : readToken(token);
    if (Number.isNaN(since)) return fail(400, 'M_UNKNOWN');
    const join: JsonObject = {};
    const invite: JsonObject = {};
    const leave: JsonObject = {};
    for (const room of rooms.values()) {
      const own = room.events.findLast(({ event }) => event.type === 'm.room.member' && event.state_key === user);
      const fresh = room.events.filter((entry) => entry.position >= since);
      const timeline = fresh.slice(-20);
      const withoutRoom = timeline.map(({ event }) => ({ ...shown(event), room_id: undefined }));
      const answer = {
        timeline: {
          events: JSON.parse(JSON.stringify(withoutRoom)),
          limited: fresh.length > 20,
          prev_batch: `t${timeline[0]?.position ?? position}`,
        },
      };
      if (membership(room, user) === 'join' && fresh.length > 0) join[room.id] = answer;
      if (membership(room, user) === 'leave' && own !== undefined && own.position >= since) leave[room.id] = answer;
      if (membership(room, user) === 'invite' && own !== undefined && own.position >= since) {
        const strip = ({ type, state_key = '', sender, content }: FakeEvent): JsonObject => ({ type, state_key, sender, content });
        const shownState = ['m.room.create|', 'm.room.encryption|', 'm.room.name|'].flatMap((key) => room.state.get(key) ?? []);
        invite[room.id] = { invite_state: { events: [...shownState.map(strip), strip(own.event)] } };
      }
    }
    return done({ next_batch: `s${position}`, rooms: { join, invite, leave } });
  }

  function takeTrouble(path: string): Trouble | undefined {
    for (const entry of troubles) if (entry.path.test(path) && entry.list.length > 0) return entry.list.shift();
    return undefined;
  }
  function handle(request: FakeRequest): FakeAnswer {
    requests.push(request);
    return route(request);
  }

  function apiOf(identity: MatrixIdentity | null): MatrixApi {
    return {
      async request<T extends object>(
        method: string,
        path: string,
        { query = {}, body, contentType = JSON_TYPE, bytesUpTo, signal }: MatrixRequest = {},
      ) {
        await Promise.resolve();
        if (!up) throw new MatrixError({ errcode: 'UNREACHABLE', status: 0, retryAfterMs: null, certain: true });
        if (signal?.aborted === true) throw new MatrixError({ errcode: 'ABORTED', status: 0, retryAfterMs: null, certain: true });
        let trouble = takeTrouble(path);
        if (trouble?.kind === 'hang') {
          await new Promise<void>((resolve) => signal?.addEventListener('abort', () => resolve(), { once: true }));
          throw new MatrixError({ errcode: 'ABORTED', status: 0, retryAfterMs: null, certain: false });
        }
        const asserted =
          identity === null
            ? {}
            : { user_id: identity.userId, ...(identity.deviceId === undefined ? {} : { device_id: identity.deviceId }) };
        const request: FakeRequest = {
          method,
          path,
          query: { ...Object.fromEntries(Object.entries(query).map(([name, value]) => [name, String(value)])), ...asserted },
          body: Buffer.isBuffer(body) && contentType !== JSON_TYPE ? body : body === undefined ? undefined : readJson(body),
          contentType,
          token: AS_TOKEN,
        };
        let answer = trouble?.kind === 'answer' ? trouble : handle(request);
        // The client repeats GET and PUT once when the socket is lost.
        if (trouble?.kind === 'lose_answer' && (method === 'GET' || method === 'PUT')) {
          trouble = takeTrouble(path);
          answer = trouble?.kind === 'answer' ? trouble : handle(request);
        }
        if (trouble?.kind === 'lose_answer')
          throw new MatrixError({ errcode: 'CONNECTION_LOST', status: 0, retryAfterMs: null, certain: false });
        if (answer.status < 300 && bytesUpTo !== undefined) {
          const file = Buffer.isBuffer(answer.body) ? answer.body : Buffer.from(JSON.stringify(answer.body));
          if (file.length > bytesUpTo)
            throw new MatrixError({ errcode: 'TOO_LARGE', status: answer.status, retryAfterMs: null, certain: false });
          return Buffer.from(file) as object as T;
        }
        if (answer.status < 300 && !Buffer.isBuffer(answer.body)) return structuredClone(answer.body) as T;
        const failure = isJsonObject(answer.body) ? answer.body : {};
        throw new MatrixError({
          errcode: typeof failure['errcode'] === 'string' ? failure['errcode'] : 'NOT_JSON',
          status: answer.status,
          retryAfterMs: typeof failure['retry_after_ms'] === 'number' ? failure['retry_after_ms'] : null,
          certain: answer.status < 500 && typeof failure['errcode'] === 'string',
        });
      },
    };
  }

  return {
    serverName,
    requests,
    connection: () => ({ bare: apiOf(null), as: (identity) => apiOf(identity), close: async () => {} }),
    handle,
    async listen() {
      const server = createServer((request, response) => {
        const chunks: Buffer[] = [];
        request.on('data', (chunk: Buffer) => chunks.push(chunk));
        request.on('end', () => {
          const url = new URL(request.url ?? '/', 'http://fake');
          if (!up) return void request.socket.destroy();
          const trouble = takeTrouble(url.pathname);
          if (trouble?.kind === 'hang') return;
          const bytes = Buffer.concat(chunks);
          const contentType = request.headers['content-type'] ?? JSON_TYPE;
          const answer =
            trouble?.kind === 'answer'
              ? trouble
              : handle({
                  method: request.method ?? 'GET',
                  path: url.pathname,
                  query: Object.fromEntries(url.searchParams),
                  body: contentType !== JSON_TYPE ? bytes : bytes.length === 0 ? undefined : JSON.parse(bytes.toString()),
                  contentType,
                  token: request.headers.authorization?.replace('Bearer ', '') ?? null,
                });
          if (trouble?.kind === 'lose_answer') return void request.socket.destroy();
          const isFile = Buffer.isBuffer(answer.body);
          response.writeHead(answer.status, { 'content-type': isFile ? 'application/octet-stream' : JSON_TYPE });
          response.end(isFile || typeof answer.body === 'string' ? answer.body : JSON.stringify(answer.body));
        });
      });
      await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
      return { baseUrl: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, close: () => closeServer(server) };
    },
    createRoom({ creator, invite = [], direct = false, version = '12', encrypted = false, additionalCreators }) {
      const room: Room = { id: `!room${nextId++}`, events: [], state: new Map(), version };
      rooms.set(room.id, room);
      add(room, {
        type: 'm.room.create',
        state_key: '',
        sender: creator,
        content: { room_version: version, ...(additionalCreators === undefined ? {} : { additional_creators: [...additionalCreators] }) },
      });
      add(room, { type: 'm.room.member', state_key: creator, sender: creator, content: { membership: 'join', displayname: creator } });
      add(room, {
        type: 'm.room.power_levels',
        state_key: '',
        sender: creator,
        content: { users: version === '12' ? {} : { [creator]: 100 }, state_default: 50, users_default: 0 },
      });
      if (encrypted)
        add(room, { type: 'm.room.encryption', state_key: '', sender: creator, content: { algorithm: 'm.megolm.v1.aes-sha2' } });
      for (const target of invite)
        add(room, {
          type: 'm.room.member',
          state_key: target,
          sender: creator,
          content: { membership: 'invite', ...(direct ? { is_direct: true } : {}) },
        });
      return room.id;
    },
    invite: (id, sender, target, content = {}) =>
      add(roomOf(id), { type: 'm.room.member', state_key: target, sender, content: { membership: 'invite', ...content } }),
    join: (id, user) => add(roomOf(id), { type: 'm.room.member', state_key: user, sender: user, content: { membership: 'join' } }),
    leave: (id, user) => add(roomOf(id), { type: 'm.room.member', state_key: user, sender: user, content: { membership: 'leave' } }),
    say: (id, sender, text, more = {}) =>
      add(roomOf(id), { type: 'm.room.message', sender, content: { msgtype: 'm.text', body: text, ...more } }),
    send: (id, sender, type, content) => add(roomOf(id), { type, sender, content }),
    redact: (id, sender, target) => add(roomOf(id), { type: 'm.room.redaction', sender, content: { redacts: target } }),
    setState: (id, sender, type, content, stateKey = '') => add(roomOf(id), { type, state_key: stateKey, sender, content }),
    hideState: (id, type, stateKey = '') => void roomOf(id).state.delete(`${type}|${stateKey}`),
    media,
    timeline: (id) => roomOf(id).events.map(({ event }) => event),
    pushed: (event) => shown(event),
    trouble: (path, ...list) => void troubles.push({ path, list }),
    stop: () => {
      up = false;
    },
    start() {
      up = true;
      responseCache.clear();
    },
  };
}

const JSON_TYPE = 'application/json';
const readJson = (body: object): unknown => JSON.parse(Buffer.isBuffer(body) ? body.toString() : JSON.stringify(body));

async function closeServer(server: Server): Promise<void> {
  server.closeAllConnections();
  await new Promise((resolve) => server.close(resolve));
}

/** Registers the oracle with both devices, as a start of the program does. */
export async function registerOracle(
  connection: MatrixConnection,
  { user = '@oracle:oracle.local', devices = ['ORACLE', 'ORACLER'] } = {},
): Promise<void> {
  await connection.bare.request('POST', '/_matrix/client/v3/register', {
    body: { type: 'm.login.application_service', username: user.slice(1, user.indexOf(':')), inhibit_login: true },
  });
  for (const device of devices)
    await connection.as({ userId: user as never }).request('PUT', `/_matrix/client/v3/devices/${device}`, { body: {} });
}
