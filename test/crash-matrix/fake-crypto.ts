/**
 * The keys of these worlds: what a crash does to the real engine and its store has tests of its own (test/crash/crypto-*), so here a key that came is
 * on disk, and a process may die before anybody heard of it. Not kinder than the engine: no two ciphertexts are the same.
 */
import type { OpenCrypto } from '../../appservice/crypto/open-crypto.ts';
import type { MegolmSessionId } from '../../src/ids.ts';
import { isJsonObject, type JsonObject } from '../../src/json.ts';
import { type FakeKey, openSealed, sealedContent } from '../fakes/fake-reveal.ts';

export interface FakeCrypto extends OpenCrypto {
  announce(session: string): void;
}
/** Own ciphertexts are sealed with it; nobody else's are. */
const OWN = 'oracle';
let sealed = 0;

export function fakeCrypto(keys: ReadonlyMap<string, FakeKey>, oracle: string): FakeCrypto {
  const listeners: ((sessions: readonly MegolmSessionId[]) => void)[] = [];
  const status = {
    ...{ deviceId: 'ORACLE_AAAAAA', fingerprint: 'key', masterKey: null, deviceIsSigned: true, oneTimeKeys: 50 },
    ...{ roomKeys: keys.size, storeBytes: 0, lastSyncAt: 0 },
  };
  return {
    async seal({ type, content }, { roomId }) {
      sealed += 1;
      const { 'm.relates_to': relation, ...inside } = content;
      const whole = { type, content: inside, room: roomId, sender: oracle, index: sealed };
      return sealedContent(OWN, whole, isJsonObject(relation) ? relation : undefined);
    },
    reveal: async ({ event, roomId }) => openSealed(event, roomId, keys),
    async read(event, room) {
      const revealed = openSealed(event, room, new Map([...keys, [OWN, { trust: 'cross-signed', fromIndex: 0 } as const]]));
      return revealed.kind === 'clear' ? revealed.event : null;
    },
    onKeys: (listener) => void listeners.push(listener),
    receiveVerification: async () => undefined,
    verificationSent: async () => undefined,
    status: async () => status as never,
    trouble: () => null,
    syncedSince: () => true,
    receiveTransaction: null,
    stop: async () => undefined,
    announce(session) {
      for (const listener of listeners) listener([session as MegolmSessionId]);
    },
  };
}

/** An own event as a member's client shows it, decrypted where it is encrypted. */
export function asShown<Event extends { readonly type: string; readonly content: JsonObject }>(event: Event): Event {
  const { session_id: session, ciphertext, 'm.relates_to': relation } = event.content;
  if (event.type !== 'm.room.encrypted' || session !== OWN || typeof ciphertext !== 'string') return event;
  const inside = JSON.parse(ciphertext) as { type: string; content: JsonObject };
  const clear = { ...inside.content, ...(relation === undefined ? {} : { 'm.relates_to': relation }) };
  return { ...event, type: inside.type, content: clear };
}
