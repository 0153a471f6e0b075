/**
 * The engine's part in sending and reading, without the engine: it never encrypts twice to the same bytes (the ratchet goes on with each call, also
 * when nobody sends what came of it), copies the relation out, refuses rooms without readers, and cannot read what it has not encrypted. The words are
 * not in the ciphertext, so a test may look for them in everything that was sent.
 */
import { CryptoUnavailable, type RoomEncryption } from '../../appservice/crypto/crypto-service.ts';
import type { RoomId } from '../../src/ids.ts';
import { isJsonObject, type JsonObject } from '../../src/json.ts';

export interface FakeSealer {
  seal(event: { type: string; content: JsonObject }, room: RoomEncryption): Promise<JsonObject>;
  /** As `CryptoService.read`. */
  read(event: JsonObject, room: RoomId): Promise<JsonObject | null>;
  /** What each call of `seal` was for, in order. */
  readonly sealed: { readonly type: string; readonly content: JsonObject; readonly room: RoomEncryption }[];
  /** Thrown by the next calls of `seal`, in order. */
  readonly failures: unknown[];
  /** The store is lost: what was encrypted before cannot be read. */
  forgetKeys(): void;
}

export function fakeSealer(): FakeSealer {
  let index = 0;
  const texts = new Map<string, { type: string; content: JsonObject; room: RoomId }>();
  const fake: FakeSealer = {
    sealed: [],
    failures: [],
    async seal({ type, content }, room) {
      await Promise.resolve();
      const failure = fake.failures.shift();
      if (failure !== undefined) throw failure;
      if (room.readers.length === 0) throw new CryptoUnavailable('nobody reads');
      index += 1;
      const json = JSON.stringify({ type, content, room_id: room.roomId });
      // As long as the real thing: padded, with a header, a MAC and a signature, in unpadded base64.
      const bytes = Buffer.alloc(Math.ceil((Buffer.byteLength(json) + 1) / 16) * 16 + 84, index);
      const ciphertext = `${Buffer.from(`index ${index} `).toString('base64url')}${bytes.toString('base64url')}`;
      texts.set(ciphertext, { type, content: structuredClone(content), room: room.roomId });
      fake.sealed.push({ type, content: structuredClone(content), room });
      return {
        algorithm: 'm.megolm.v1.aes-sha2',
        ciphertext,
        device_id: 'KEYDEVICE',
        sender_key: 'k'.repeat(43),
        session_id: 's'.repeat(43),
        ...(content['m.relates_to'] === undefined ? {} : { 'm.relates_to': structuredClone(content['m.relates_to']) }),
      };
    },
    async read(event, room) {
      await Promise.resolve();
      const outside = isJsonObject(event['content']) ? event['content'] : {};
      const inside = texts.get(String(outside['ciphertext']));
      if (inside === undefined || inside.room !== room) return null;
      const { 'm.relates_to': _inner, ...content } = inside.content;
      const relation = outside['m.relates_to'] === undefined ? {} : { 'm.relates_to': outside['m.relates_to'] };
      return { ...event, type: inside.type, content: { ...content, ...relation } };
    },
    forgetKeys: () => texts.clear(),
  };
  return fake;
}
