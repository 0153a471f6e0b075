/**
 * The program that holds the real clients: `matrix-js-sdk` with its Rust crypto, as Element has it. A process of its own, because it and the
 * oracle use the same WebAssembly module: one instance is one log, one global `indexedDB` and one panic, and a test must be able to kill the oracle
 * beside it. Spoken to in calls (`ClientCalls`) by crypto-client.ts; tells of room events by itself.
 */

import {
  AllDevicesIsolationMode,
  type CryptoApi,
  EventShieldColour,
  EventShieldReason,
  OnlySignedDevicesIsolationMode,
} from 'matrix-js-sdk/lib/crypto-api/index.js';
import type { Logger } from 'matrix-js-sdk/lib/logger.js';
import {
  ClientEvent,
  createClient,
  type IEvent,
  type MatrixClient,
  MatrixEvent,
  MatrixEventEvent,
  MemoryStore,
  PendingEventOrdering,
} from 'matrix-js-sdk/lib/matrix.js';
import type { JsonObject } from '../../src/json.ts';
import type { MatrixEvent as WireEvent } from '../../synapse-dev/homeserver/user-client.ts';
import { type VerificationOutcome, verifyByEmoji } from './crypto-verification.ts';

export interface OpenArgs {
  readonly baseUrl: string;
  readonly userId: string;
  readonly accessToken: string;
  readonly deviceId: string;
  /** Makes (or, for a further device, does not touch) the person's own identity and signs this device with it. */
  readonly crossSigning: boolean;
}
export interface OwnKeys {
  readonly ed25519: string;
  readonly curve25519: string;
}
export interface DeviceTrust {
  readonly deviceId: string;
  /** Base64 of its Ed25519 key. */
  readonly fingerprint: string | undefined;
  readonly signedByOwner: boolean;
  readonly verified: boolean;
}
export interface UserTrust {
  readonly known: boolean;
  /** Element says "identity changed". */
  readonly needsUserApproval: boolean;
  readonly verified: boolean;
}
/** What a client shows beside a message. */
export interface Shield {
  readonly colour: 'none' | 'grey' | 'red';
  readonly reason: string | null;
}

/** A room event as a person sees it: decrypted, or with the reason why not. */
export interface SeenInClient {
  readonly roomId: string;
  readonly event: WireEvent;
  readonly encrypted: boolean;
  /** `DecryptionFailureCode`. */
  readonly failure?: string;
}

export interface ClientCalls {
  open(args: OpenArgs): Promise<{ readonly handle: number; readonly keys: OwnKeys }>;
  close(handle: number): Promise<void>;
  /** Encrypts when the room is encrypted, as far as this client has heard. @returns the event id. */
  send(handle: number, event: { roomId: string; type: string; content: JsonObject; txnId: string }): Promise<string>;
  isEncrypted(handle: number, roomId: string): Promise<boolean>;
  /** What this client makes of an event as the homeserver has it. */
  read(handle: number, event: WireEvent & { readonly room_id: string }): Promise<SeenInClient>;
  shield(handle: number, roomId: string, eventId: string): Promise<Shield>;
  devices(handle: number, userId: string): Promise<readonly DeviceTrust[]>;
  userTrust(handle: number, userId: string): Promise<UserTrust>;
  /** The next message begins a new session. */
  discardSession(handle: number, roomId: string): Promise<void>;
  /** Element's "never send to insecure devices". */
  onlySignedDevices(handle: number, on: boolean): Promise<void>;
  /** Emoji verification begun by this client, in the room or, without one, by to-device messages to that device. */
  verify(handle: number, other: { userId: string; roomId?: string; deviceId?: string }): Promise<VerificationOutcome>;
}

export type Request = {
  readonly [K in keyof ClientCalls]: { readonly id: number; readonly call: K; readonly args: Parameters<ClientCalls[K]> };
}[keyof ClientCalls];
export type Message =
  | { readonly id: number; readonly result: unknown }
  | { readonly id: number; readonly error: string }
  | { readonly handle: number; readonly seen: SeenInClient };

interface Opened {
  readonly client: MatrixClient;
  readonly crypto: CryptoApi;
  readonly seen: Map<string, MatrixEvent>;
}

const SYNC_LIMIT = 200;
const SILENT: Logger = { trace() {}, debug() {}, info() {}, warn() {}, error() {}, getChild: () => SILENT };
const opened = new Map<number, Opened>();
let handles = 0;

const tell = (message: Message): void => void process.send?.(message);

function get(handle: number): Opened {
  const found = opened.get(handle);
  if (found === undefined) throw new Error('this client was closed');
  return found;
}

const calls: ClientCalls = {
  async open({ crossSigning, ...session }) {
    const client = createClient({ ...session, logger: SILENT, store: new MemoryStore(), useAuthorizationHeader: true });
    // Nothing is kept: a test's client lives as long as its test.
    await client.initRustCrypto({ useIndexedDB: false });
    const crypto = client.getCrypto();
    if (crypto === undefined) throw new Error('the client has no cryptography');
    if (crossSigning) await crypto.bootstrapCrossSigning({ authUploadDeviceSigningKeys: async (upload) => upload(null) });
    handles += 1;
    const handle = handles;
    const seen = new Map<string, MatrixEvent>();
    opened.set(handle, { client, crypto, seen });
    tellOfEvents(handle, client, seen);
    const synced = new Promise<void>((resolve) => {
      client.on(ClientEvent.Sync, (state) => {
        if (state === 'PREPARED' || state === 'SYNCING') resolve();
      });
    });
    await client.startClient({ initialSyncLimit: SYNC_LIMIT, pendingEventOrdering: PendingEventOrdering.Detached, disablePresence: true });
    await synced;
    return { handle, keys: await crypto.getOwnDeviceKeys() };
  },
  async close(handle) {
    get(handle).client.stopClient();
    opened.delete(handle);
  },
  async send(handle, { roomId, type, content, txnId }) {
    const { event_id } = await get(handle).client.sendEvent(roomId, null, type as never, content as never, txnId);
    return event_id;
  },
  isEncrypted: async (handle, roomId) => get(handle).crypto.isEncryptionEnabledInRoom(roomId),
  async read(handle, raw) {
    const { client, seen } = get(handle);
    const event = new MatrixEvent(raw as Partial<IEvent>);
    await client.decryptEventIfNeeded(event);
    seen.set(raw.event_id, event);
    return describe(event);
  },
  async shield(handle, roomId, eventId) {
    const { client, crypto, seen } = get(handle);
    const event = client.getRoom(roomId)?.findEventById(eventId) ?? seen.get(eventId);
    if (event === undefined) throw new Error(`${eventId} was not seen`);
    const info = await crypto.getEncryptionInfoForEvent(event);
    if (info === null) throw new Error(`${eventId} is not encrypted`);
    const { shieldColour: colour, shieldReason: reason } = info;
    return {
      colour: colour === EventShieldColour.NONE ? 'none' : colour === EventShieldColour.GREY ? 'grey' : 'red',
      reason: reason === null ? null : (EventShieldReason[reason] ?? null),
    };
  },
  async devices(handle, userId) {
    const { crypto } = get(handle);
    const devices = (await crypto.getUserDeviceInfo([userId], true)).get(userId);
    return Promise.all(
      [...(devices?.values() ?? [])].map(async (device) => {
        const status = await crypto.getDeviceVerificationStatus(userId, device.deviceId);
        return {
          deviceId: device.deviceId,
          fingerprint: device.getFingerprint(),
          signedByOwner: status?.signedByOwner ?? false,
          verified: status?.crossSigningVerified ?? false,
        };
      }),
    );
  },
  async userTrust(handle, userId) {
    const status = await get(handle).crypto.getUserVerificationStatus(userId);
    return { known: status.known, needsUserApproval: status.needsUserApproval, verified: status.isCrossSigningVerified() };
  },
  discardSession: async (handle, roomId) => get(handle).crypto.forceDiscardSession(roomId),
  async onlySignedDevices(handle, on) {
    get(handle).crypto.setDeviceIsolationMode(on ? new OnlySignedDevicesIsolationMode() : new AllDevicesIsolationMode(false));
  },
  verify: async (handle, other) => verifyByEmoji(get(handle).crypto, other),
};

/** In the order of each room; an event without its key is told of at once, and again when the key has come. */
function tellOfEvents(handle: number, client: MatrixClient, seen: Map<string, MatrixEvent>): void {
  const queues = new Map<string, Promise<void>>();
  const take = async (event: MatrixEvent): Promise<void> => {
    await client.decryptEventIfNeeded(event);
    seen.set(event.getId() ?? '', event);
    tell({ handle, seen: describe(event) });
    if (event.isDecryptionFailure()) {
      const onDecrypted = () => {
        if (event.isDecryptionFailure()) return;
        event.off(MatrixEventEvent.Decrypted, onDecrypted);
        tell({ handle, seen: describe(event) });
      };
      event.on(MatrixEventEvent.Decrypted, onDecrypted);
    }
  };
  client.on(ClientEvent.Event, (event) => {
    const roomId = event.getRoomId();
    if (roomId === undefined || event.getId() === undefined) return;
    // A failure here is a fault of this program, and ends it.
    queues.set(
      roomId,
      (queues.get(roomId) ?? Promise.resolve()).then(() => take(event)),
    );
  });
}

function describe(event: MatrixEvent): SeenInClient {
  const failed = event.isDecryptionFailure();
  const encrypted = event.isEncrypted();
  const relation = event.getWireContent()['m.relates_to'];
  const content = failed ? event.getWireContent() : event.getOriginalContent();
  const stateKey = event.getStateKey();
  const redacts = event.event.redacts;
  return {
    roomId: event.getRoomId() ?? '',
    encrypted,
    ...(failed ? { failure: event.decryptionFailureReason ?? 'UNKNOWN_ERROR' } : {}),
    event: {
      event_id: event.getId() ?? '',
      type: failed ? 'm.room.encrypted' : event.getType(),
      sender: event.getSender() ?? '',
      origin_server_ts: event.getTs(),
      // The relation counts that stands in the clear.
      content: { ...content, ...(encrypted && relation !== undefined ? { 'm.relates_to': relation } : {}) } as JsonObject,
      unsigned: event.getUnsigned() as JsonObject,
      ...(stateKey === undefined ? {} : { state_key: stateKey }),
      ...(redacts === undefined ? {} : { redacts }),
    },
  };
}

process.on('message', (request: Request) => {
  const { id, call, args } = request;
  const work = calls[call] as (...args: unknown[]) => Promise<unknown>;
  work(...args).then(
    (result) => tell({ id, result }),
    (error: unknown) => tell({ id, error: error instanceof Error ? `${error.name}: ${error.message}` : String(error) }),
  );
});
process.on('disconnect', () => process.exit(0));
