/**
 * A person's client that encrypts, as small as the demo and the bench need it: the engine of every present Matrix client (matrix-sdk-crypto) under
 * `UserClient`. It shares keys with all devices of a room and trusts whom it meets; it has no identity of its own to verify. Its keys are in memory,
 * or in the IndexedDB that is named. The tests of encrypted rooms use matrix-js-sdk instead: a client that is not ours.
 */
import {
  CollectStrategy,
  DecryptionSettings,
  DeviceId,
  DeviceLists,
  EncryptionSettings,
  initAsync,
  MegolmDecryptionError,
  OlmMachine,
  RequestType,
  RoomId,
  StoreHandle,
  TrustRequirement,
  UserId,
} from '@matrix-org/matrix-sdk-crypto-wasm';
import { isJsonObject, type JsonObject } from '../../src/json.ts';
import { MatrixError } from './matrix-request.ts';
import { type Cipher, createUserClient, type MatrixEvent, type UserClient } from './user-client.ts';
import type { UserSession } from './users.ts';

export interface EncryptedClientOptions {
  readonly session: UserSession & { readonly baseUrl: string };
  /** Name of an IndexedDB that keeps the keys of exactly this device. Left out, they are in memory, and so the device must be a new one. */
  readonly store?: string;
}
/** Rooms that it makes are encrypted. */
export interface EncryptedClient extends UserClient {
  /** The same account without any cryptography; must not sync, that would take the keys away. */
  readonly wire: UserClient;
  isEncrypted(roomId: string): Promise<boolean>;
  /** What `send` would send, for whoever measures the two apart. */
  readonly seal: Cipher['seal'];
  /** `close`, and waits until the engine has written what it is about to write. */
  end(): Promise<void>;
}

const C = '/_matrix/client/v3';
const ALGORITHM = 'm.megolm.v1.aes-sha2';
const ENCRYPTION = { type: 'm.room.encryption', state_key: '', content: { algorithm: ALGORITHM } };
const SILENT = { debug() {}, info() {}, warn() {}, error() {} };

export async function createEncryptedClient({ session, store }: EncryptedClientOptions): Promise<EncryptedClient> {
  await initAsync();
  const machine = await OlmMachine.initFromStore(
    new UserId(session.userId),
    new DeviceId(session.deviceId),
    await StoreHandle.open(store ?? null, null, SILENT),
    SILENT,
  );
  const wire = createUserClient(session);
  const cipher = createCipher(machine, wire);
  await cipher.flush();
  const client = createUserClient(session, cipher);
  const createRoom = (options: JsonObject = {}): Promise<string> => {
    const state = Array.isArray(options['initial_state']) ? options['initial_state'] : [];
    return client.createRoom({ ...options, initial_state: [...state, ENCRYPTION] });
  };
  return {
    ...client,
    wire,
    isEncrypted: cipher.isEncrypted,
    seal: cipher.seal,
    createRoom,
    createDirectRoom: (invitee) => createRoom({ preset: 'trusted_private_chat', is_direct: true, invite: [invitee] }),
    async end() {
      client.close();
      await cipher.end();
    },
  };
}

interface OwnCipher extends Cipher {
  /** Uploads what the engine wants uploaded. */
  flush(): Promise<void>;
  isEncrypted(roomId: string): Promise<boolean>;
  end(): Promise<void>;
}
type EngineRequest = Awaited<ReturnType<OlmMachine['outgoingRequests']>>[number];

/** A new one for each call: the engine takes it away. */
const anyDevice = () => new DecryptionSettings(TrustRequirement.Untrusted);

function createCipher(machine: OlmMachine, wire: UserClient): OwnCipher {
  const encrypted = new Set<string>();
  let hasSynced = false;
  let last: Promise<unknown> = Promise.resolve();
  /** The engine hands out a request until it hears the answer, and a key must be shared and used in one go: one piece of work at a time. */
  const alone = <T>(work: () => Promise<T>): Promise<T> => {
    const next = last.then(work);
    last = next.catch(() => undefined);
    return next;
  };

  async function send(request: EngineRequest): Promise<void> {
    if (request.id === undefined) return;
    const answer = await wire.request(...route(request));
    await machine.markRequestAsSent(request.id, request.type, JSON.stringify(answer));
  }
  async function flush(): Promise<void> {
    for (const request of await machine.outgoingRequests()) await send(request);
  }

  async function isEncrypted(roomId: string): Promise<boolean> {
    if (encrypted.has(roomId)) return true;
    try {
      await wire.state(roomId, ENCRYPTION.type);
    } catch (error) {
      if (error instanceof MatrixError && error.status === 404) return false;
      throw error;
    }
    encrypted.add(roomId);
    return true;
  }

  /** Everybody who is in the room or invited: fresh lists each time, because the engine takes its arguments away. */
  async function shareKey(roomId: string): Promise<void> {
    const members = Object.entries(await wire.members(roomId)).flatMap(([user, membership]) =>
      membership === 'join' || membership === 'invite' ? [user] : [],
    );
    const users = () => members.map((user) => new UserId(user));
    await machine.updateTrackedUsers(users());
    await flush();
    const claim = await machine.getMissingSessions(users());
    if (claim !== null) await send(claim);
    const sharing = new EncryptionSettings();
    sharing.sharingStrategy = CollectStrategy.allDevices();
    for (const request of await machine.shareRoomKey(new RoomId(roomId), users(), sharing)) await send(request);
  }

  async function decrypt(event: MatrixEvent, roomId: string): Promise<MatrixEvent | null> {
    try {
      const { event: opened } = await machine.decryptRoomEvent(JSON.stringify(event), new RoomId(roomId), anyDevice());
      const { type, content } = JSON.parse(opened) as Pick<MatrixEvent, 'type' | 'content'>;
      const relation = event.content['m.relates_to'];
      return { ...event, type, content: { ...content, ...(isJsonObject(relation) ? { 'm.relates_to': relation } : {}) } };
    } catch (error) {
      // Whatever is wrong with it, a person sees "could not be decrypted".
      if (error instanceof MegolmDecryptionError) return null;
      throw error;
    }
  }

  return {
    isEncrypted,
    flush: () => alone(flush),
    end: () => alone(async () => machine.close()),
    receive: ({ to_device, device_lists, device_one_time_keys_count, device_unused_fallback_key_types: unused }) =>
      alone(async () => {
        await machine.receiveSyncChanges(
          JSON.stringify(to_device?.events ?? []),
          new DeviceLists(
            device_lists?.changed?.map((user) => new UserId(user)),
            device_lists?.left?.map((user) => new UserId(user)),
          ),
          new Map(Object.entries(device_one_time_keys_count ?? {})),
          unused === undefined ? undefined : new Set(unused),
          anyDevice(),
        );
        // What a kept store knows of devices is from before this first answer, which tells no changes: all are asked for again, or a new one gets no keys.
        if (!hasSynced) await machine.markAllTrackedUsersAsDirty();
        hasSynced = true;
        await flush();
      }),
    open: (event, roomId) => (event.type === 'm.room.encrypted' ? alone(() => decrypt(event, roomId)) : Promise.resolve(event)),
    seal: (roomId, event) =>
      alone(async () => {
        if (!(await isEncrypted(roomId))) return event;
        await shareKey(roomId);
        const sealed = await machine.encryptRoomEvent(new RoomId(roomId), event.type, JSON.stringify(event.content));
        return { type: 'm.room.encrypted', content: JSON.parse(sealed) as JsonObject };
      }),
  };
}

type Route = [method: string, path: string, options: { body: unknown }];

function route(request: EngineRequest): Route {
  const body: unknown = JSON.parse(request.body);
  switch (request.type) {
    case RequestType.KeysUpload:
      return ['POST', `${C}/keys/upload`, { body }];
    case RequestType.KeysQuery:
      return ['POST', `${C}/keys/query`, { body }];
    case RequestType.KeysClaim:
      return ['POST', `${C}/keys/claim`, { body }];
    case RequestType.SignatureUpload:
      return ['POST', `${C}/keys/signatures/upload`, { body }];
    case RequestType.ToDevice: {
      const { event_type: type, txn_id: txnId } = request as { event_type: string; txn_id: string };
      return ['PUT', `${C}/sendToDevice/${encodeURIComponent(type)}/${encodeURIComponent(txnId)}`, { body }];
    }
    default:
      throw new Error(`the engine asked for what this client does not do: ${RequestType[request.type]}`);
  }
}
