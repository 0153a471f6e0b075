/**
 * People with a real client that encrypts: what `UserClient` is for everybody else, with the same rooms and the same watches, so that a test of
 * encrypted rooms reads like any other. What is sent is encrypted and what is seen decrypted by matrix-js-sdk (crypto-client-process.ts); what
 * goes past it on purpose (a forged event, a look at what the homeserver has) is `wire`.
 */
import { type ChildProcess, fork } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { join } from 'node:path';
import type { JsonObject } from '../../src/json.ts';
import { createRoomLog, type RoomLog } from '../../synapse-dev/homeserver/room-watch.ts';
import type { Homeserver } from '../../synapse-dev/homeserver/start-synapse.ts';
import { createUserClient, type MatrixEvent, type UserClient } from '../../synapse-dev/homeserver/user-client.ts';
import type { UserSession } from '../../synapse-dev/homeserver/users.ts';
import type { ClientCalls, DeviceTrust, Message, OwnKeys, SeenInClient, Shield, UserTrust } from './crypto-client-process.ts';
import type { VerificationOutcome } from './crypto-verification.ts';
import { eventually, within } from './harness.ts';

const PROGRAM = join(import.meta.dirname, 'crypto-client-process.ts');
const CALL_WITHIN_MS = 60_000;
export const ENCRYPTION = { type: 'm.room.encryption', state_key: '', content: { algorithm: 'm.megolm.v1.aes-sha2' } } as const;

/** A client of one device of one person. Rooms it makes are encrypted unless `wire` makes them. */
export interface CryptoClient extends UserClient {
  readonly keys: OwnKeys;
  /** The same account without any cryptography. */
  readonly wire: UserClient;
  /** Waits until this client knows that the room is encrypted: what it sends before is in the clear. */
  knowsEncryption(roomId: string): Promise<void>;
  /** Events of a room that this device could not read, as they stand now. */
  unreadable(roomId: string): readonly SeenInClient[];
  /** Whether the event, as this client saw it, was encrypted. */
  sawEncrypted(eventId: string): boolean;
  /** What this device makes of an event as the homeserver has it. */
  read(roomId: string, event: MatrixEvent): Promise<SeenInClient>;
  shield(roomId: string, eventId: string): Promise<Shield>;
  devices(userId: string): Promise<readonly DeviceTrust[]>;
  userTrust(userId: string): Promise<UserTrust>;
  discardSession(roomId: string): Promise<void>;
  onlySignedDevices(on: boolean): Promise<void>;
  verify(other: { userId: string; roomId?: string; deviceId?: string }): Promise<VerificationOutcome>;
}

/** One process for all the clients of a file. */
export interface ClientProcess {
  open(homeserver: Pick<Homeserver, 'baseUrl'>, session: UserSession, options: { readonly crossSigning: boolean }): Promise<CryptoClient>;
  end(): Promise<void>;
}

export function startClientProcess(): ClientProcess {
  const child = fork(PROGRAM, { execArgv: ['--conditions=matrix-oracle-source'], stdio: ['ignore', 'ignore', 'pipe', 'ipc'] });
  const calling = createCalls(child);
  return {
    async open({ baseUrl }, session, { crossSigning }) {
      const { userId, accessToken, deviceId } = session;
      const rooms = createRooms(userId);
      const { handle, keys } = await calling.call('open', { baseUrl, userId, accessToken, deviceId, crossSigning });
      calling.listen(handle, rooms.take);
      return createCryptoClient({ calls: calling, handle, keys, rooms, wire: createUserClient({ baseUrl, ...session }) });
    },
    async end() {
      if (child.exitCode !== null || child.signalCode !== null) return;
      const ended = new Promise<void>((resolve) => child.once('exit', () => resolve()));
      child.kill('SIGKILL');
      await ended;
    },
  };
}

interface Calls {
  call<K extends keyof ClientCalls>(name: K, ...args: Parameters<ClientCalls[K]>): ReturnType<ClientCalls[K]>;
  /** What was told before somebody listened is told then. */
  listen(handle: number, take: (seen: SeenInClient) => void): void;
}

function createCalls(child: ChildProcess): Calls {
  const waiting = new Map<number, { resolve(result: unknown): void; reject(error: Error): void }>();
  const listeners = new Map<number, (seen: SeenInClient) => void>();
  const early = new Map<number, SeenInClient[]>();
  let ids = 0;
  let said = '';
  child.stderr?.setEncoding('utf8').on('data', (text: string) => {
    said = (said + text).slice(-4_000);
  });
  child.on('message', (message: Message) => {
    if ('seen' in message) {
      const take = listeners.get(message.handle);
      if (take !== undefined) return take(message.seen);
      early.set(message.handle, [...(early.get(message.handle) ?? []), message.seen]);
      return;
    }
    const { resolve, reject } = waiting.get(message.id) ?? {};
    waiting.delete(message.id);
    if ('error' in message) reject?.(new Error(message.error));
    else resolve?.(message.result);
  });
  child.once('exit', () => {
    for (const { reject } of waiting.values()) reject(new Error(`the process of the clients ended:\n${said}`));
    waiting.clear();
  });
  return {
    call<K extends keyof ClientCalls>(name: K, ...args: Parameters<ClientCalls[K]>) {
      ids += 1;
      const id = ids;
      const answer = new Promise<unknown>((resolve, reject) => {
        waiting.set(id, { resolve, reject });
        if (!child.connected) return reject(new Error(`the process of the clients ended:\n${said}`));
        child.send({ id, call: name, args });
      });
      return within(answer, CALL_WITHIN_MS, `the client did not answer to ${name}`) as ReturnType<ClientCalls[K]>;
    },
    listen(handle, take) {
      listeners.set(handle, take);
      for (const seen of early.get(handle) ?? []) take(seen);
      early.delete(handle);
    },
  };
}

interface Rooms {
  log(roomId: string): RoomLog;
  take(seen: SeenInClient): void;
  unreadable(roomId: string): SeenInClient[];
  readonly encrypted: ReadonlySet<string>;
  close(reason: Error): void;
}

function createRooms(me: string): Rooms {
  const abort = new AbortController();
  const logs = new Map<string, RoomLog>();
  const failed = new Map<string, SeenInClient>();
  const encrypted = new Set<string>();
  const log = (roomId: string): RoomLog => {
    const own = logs.get(roomId) ?? createRoomLog({ roomId, me, signal: abort.signal });
    logs.set(roomId, own);
    return own;
  };
  return {
    log,
    take(seen) {
      const { event, roomId, failure } = seen;
      if (seen.encrypted) encrypted.add(event.event_id);
      // Without its key it is no message yet; the log takes an event id once only.
      if (failure !== undefined) return void failed.set(event.event_id, seen);
      failed.delete(event.event_id);
      log(roomId).append([event], performance.now());
    },
    unreadable: (roomId) => [...failed.values()].filter((seen) => seen.roomId === roomId),
    encrypted,
    close: (reason) => abort.abort(reason),
  };
}

interface Parts {
  readonly calls: Calls;
  readonly handle: number;
  readonly keys: OwnKeys;
  readonly rooms: Rooms;
  readonly wire: UserClient;
}

function createCryptoClient({ calls, handle, keys, rooms, wire }: Parts): CryptoClient {
  const client: CryptoClient = {
    ...wire,
    keys,
    wire,
    createRoom: async (options = {}) => {
      const state = Array.isArray(options['initial_state']) ? options['initial_state'] : [];
      const roomId = await wire.createRoom({ ...options, initial_state: [...state, ENCRYPTION] });
      await client.knowsEncryption(roomId);
      // As Element does: the sync may have seen the room before its invitations, and would share no key with whom it does not know.
      const invited = Array.isArray(options['invite']) ? options['invite'] : [];
      const { watch } = rooms.log(roomId);
      for (const user of invited) await watch.waitFor(({ event }) => event.type === 'm.room.member' && event.state_key === user);
      return roomId;
    },
    createDirectRoom: (invitee) => client.createRoom({ preset: 'trusted_private_chat', is_direct: true, invite: [invitee] }),
    send: (roomId, content, { type = 'm.room.message', txnId = randomUUID() } = {}) =>
      calls.call('send', handle, { roomId, type, content, txnId }),
    sendText: (roomId, body, { content = {}, ...options } = {}) => client.send(roomId, { msgtype: 'm.text', body, ...content }, options),
    // A second /sync of this device would take the keys away from the first.
    sync: () => Promise.reject(new Error('only matrix-js-sdk may sync this device')),
    waitForInvite: () => Promise.reject(new Error('this client has no invites')),
    watchRoom: async (roomId) => rooms.log(roomId).watch,
    async knowsEncryption(roomId) {
      await eventually(() => calls.call('isEncrypted', handle, roomId));
    },
    unreadable: rooms.unreadable,
    sawEncrypted: (eventId) => rooms.encrypted.has(eventId),
    read: (roomId, event) => calls.call('read', handle, { ...event, room_id: roomId }),
    shield: (roomId, eventId) => calls.call('shield', handle, roomId, eventId),
    devices: (userId) => calls.call('devices', handle, userId),
    userTrust: (userId) => calls.call('userTrust', handle, userId),
    discardSession: (roomId) => calls.call('discardSession', handle, roomId),
    onlySignedDevices: (on) => calls.call('onlySignedDevices', handle, on),
    verify: (other) => calls.call('verify', handle, other),
    close() {
      rooms.close(new Error(`the client of ${wire.userId} was closed`));
      // The process may have ended already.
      calls.call('close', handle).catch(() => undefined);
      wire.close();
    },
  };
  return client;
}

/** The whole content of a room as the homeserver has it holds no such text anywhere. */
export const textIn = (history: readonly MatrixEvent[], text: string): MatrixEvent[] =>
  history.filter((event) => JSON.stringify(event as unknown as JsonObject).includes(text));
