/**
 * Encryption as admission sees it, without cryptography: a ciphertext is content that names its session, index and what is inside, and can be read
 * once the test has brought that key. Not kinder than the real thing: nothing is said about who waits for a key, a look takes a turn of the loop, a
 * key counts from its index on, the room and the sender inside must fit, and while the engine is closed every look throws.
 */
import { setImmediate as nextTask } from 'node:timers/promises';
import type { AdmitOptions } from '../../src/admission/admit.ts';
import type { Fingerprint } from '../../src/admission/admit-device.ts';
import type { Reveal, Revealed } from '../../src/admission/reveal.ts';
import type { DeviceId, MegolmSessionId, RoomId, UserId } from '../../src/ids.ts';
import type { IncomingEvent } from '../../src/inbox/inbox.ts';
import { Unavailable } from '../../src/inbox/unavailable.ts';
import { isJsonObject, type JsonObject } from '../../src/json.ts';
import type { Clock } from '../../src/time.ts';
import type { SenderTrust } from '../../src/turn/principal.ts';
import { incoming, ORACLE } from './events.ts';

export const session = (name: string): MegolmSessionId => name as MegolmSessionId;

export interface Sealed {
  readonly session: string;
  readonly index: number;
  readonly content?: JsonObject;
  readonly type?: string;
  /** Who really encrypted it. */
  readonly by?: string;
  /** Stays in the clear. */
  readonly relation?: JsonObject;
}
/** An `m.room.encrypted` event as the endpoint hands it over. */
export function encrypted(
  name: string,
  { session: id, index, type = 'm.room.message', relation, by, content = { msgtype: 'm.text', body: name } }: Sealed,
  change: Partial<IncomingEvent> = {},
): IncomingEvent {
  const { roomId: room, sender } = incoming(name, change);
  const inside = { type, content, room, sender: by ?? sender, index };
  return incoming(name, { type: 'm.room.encrypted', ...change, content: sealedContent(id, inside, relation) });
}

export const sealedContent = (
  id: string,
  { type, content, room, sender, index }: { type: string; content: JsonObject; room: string; sender: string; index: number },
  relation?: JsonObject,
): JsonObject => ({
  algorithm: 'm.megolm.v1.aes-sha2',
  session_id: id,
  ciphertext: JSON.stringify({ type, content, room_id: room, sender, index }),
  ...(relation === undefined ? {} : { 'm.relates_to': relation }),
});

export interface FakeReveal {
  readonly reveal: Reveal;
  readonly verification: AdmitOptions['verification'] & {
    readonly received: { event: JsonObject; room: RoomId; user: UserId; mayVerify: boolean }[];
  };
  readonly fingerprint: () => Promise<Fingerprint | null>;
  syncedSince(at: number): boolean;
  onKeys(listener: (sessions: readonly MegolmSessionId[]) => void): void;
  /** A key is on disk, and told; with `untold` the process died, or has not come so far, in between. */
  bring(id: string, key?: { trust?: Exclude<SenderTrust, 'clear'>; fromIndex?: number; untold?: boolean }): void;
  /** The sender's app said that it will not give its key. */
  withhold(id: string): void;
  /** A look for keys that began now is over. */
  sync(): void;
  closed: boolean;
  own: Fingerprint | null;
  /** Runs before each look answers. */
  onLook: (id: string) => void;
  looks: number;
}

export interface FakeKey {
  readonly trust: Exclude<SenderTrust, 'clear'>;
  readonly fromIndex: number;
}

/** What the engine says of an event, with these keys. */
export function openSealed(event: JsonObject, room: RoomId, keys: ReadonlyMap<string, FakeKey>): Revealed {
  const content = event['content'];
  if (!isJsonObject(content) || content['algorithm'] !== 'm.megolm.v1.aes-sha2') return { kind: 'refused', reason: 'unknown_algorithm' };
  const { session_id: id, ciphertext } = content;
  const inside: unknown = typeof ciphertext === 'string' && ciphertext.startsWith('{') ? JSON.parse(ciphertext) : null;
  if (typeof id !== 'string' || !isJsonObject(inside) || typeof inside['index'] !== 'number')
    return { kind: 'refused', reason: 'malformed' };
  const key = keys.get(id);
  const index = inside['index'];
  if (key === undefined || index < key.fromIndex) return { kind: 'missing_key', session: session(id), indexTooOld: key !== undefined };
  if (inside['sender'] !== event['sender']) return { kind: 'refused', reason: 'forged_sender' };
  if (inside['room_id'] !== room || !isJsonObject(inside['content'])) return { kind: 'refused', reason: 'unreadable' };
  const { event_id, room_id, sender, origin_server_ts } = event;
  const relation = content['m.relates_to'];
  const clear = { ...inside['content'], ...(relation === undefined ? {} : { 'm.relates_to': relation }) };
  const revealed = { event_id, room_id, sender, origin_server_ts, type: inside['type'], content: clear } as JsonObject;
  return { kind: 'clear', event: revealed, trust: key.trust, device: 'PHONE', session: session(id), index };
}

export function fakeReveal(clock: Clock): FakeReveal {
  const keys = new Map<string, FakeKey>();
  const withheld = new Set<string>();
  const listeners: ((sessions: readonly MegolmSessionId[]) => void)[] = [];
  const received: FakeReveal['verification']['received'] = [];
  let syncedAt = Number.NEGATIVE_INFINITY;

  function open(event: JsonObject, room: RoomId): Revealed {
    const content = event['content'];
    const isWithheld = isJsonObject(content) && typeof content['session_id'] === 'string' && withheld.has(content['session_id']);
    return isWithheld ? { kind: 'refused', reason: 'withheld' } : openSealed(event, room, keys);
  }

  const fake: FakeReveal = {
    async reveal({ event, roomId }) {
      fake.looks += 1;
      await nextTask();
      if (fake.closed) throw new Unavailable('the engine is not open');
      const revealed = open(event, roomId);
      const content = event['content'];
      if (isJsonObject(content)) fake.onLook(String(content['session_id']));
      await nextTask();
      return revealed;
    },
    verification: {
      received,
      receive: async (event, room, { user, mayVerify }) => void received.push({ event, room, user, mayVerify }),
    },
    fingerprint: async () => fake.own,
    syncedSince: (at) => syncedAt >= at,
    onKeys: (listener) => void listeners.push(listener),
    bring(id, { trust = 'cross-signed', fromIndex = 0, untold = false } = {}) {
      keys.set(id, { trust, fromIndex });
      if (!untold) for (const listener of listeners) listener([session(id)]);
    },
    withhold: (id) => void withheld.add(id),
    sync() {
      syncedAt = clock.monotonic();
    },
    closed: false,
    own: { userId: ORACLE, deviceId: 'ORACLE_ABC123' as DeviceId, fingerprint: 'AbCdEfGhIjKlMnOpQrStUvWxYz0123456789+/AbCdE' },
    onLook: () => undefined,
    looks: 0,
  };
  return fake;
}
