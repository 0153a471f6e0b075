/**
 * Which ciphertext an encrypted event holds: its Megolm session and its index in it, read by our own code from bytes that anybody may have sent. The
 * engine reads the same ciphertext again under another event id (research/e2ee.md §8), so a homeserver that repeats one would repeat its command:
 * these two name it, whatever the event around it says. Only the one form that clients write is taken (libolm and vodozemac write the same bytes), so
 * that one ciphertext cannot be told in two ways. Pure; nothing is decrypted here.
 */
import type { MegolmSessionId } from '../../src/ids.ts';
import { isJsonObject } from '../../src/json.ts';
import { err, ok, type Result } from '../../src/result.ts';

export interface CiphertextName {
  readonly session: MegolmSessionId;
  /** How many messages of the session came before. */
  readonly index: number;
}
export type CiphertextProblem = 'malformed' | 'unknown_algorithm';

/** Of a whole event (spec v1.19, "Size limits"); no ciphertext of one is longer. */
const MAX_CHARS = 65_536;
/** Ed25519 key in unpadded base64. */
const SESSION_ID = /^[A-Za-z0-9+/]{43}$/u;
const BASE64 = /^[A-Za-z0-9+/]+={0,2}$/u;

// Megolm message: version, index, ciphertext, then both without a length (libolm docs/megolm.md, "Message format").
const VERSION = 3;
const INDEX_TAG = 0x08;
const CIPHERTEXT_TAG = 0x12;
const MAC_BYTES = 8;
const SIGNATURE_BYTES = 64;
const MAX_INDEX = 0xffff_ffff;
/** A 32-bit number in steps of seven bits. */
const MAX_VARINT_BYTES = 5;

export function readCiphertext(content: unknown): Result<CiphertextName, CiphertextProblem> {
  if (!isJsonObject(content) || typeof content['algorithm'] !== 'string') return err('malformed');
  if (content['algorithm'] !== 'm.megolm.v1.aes-sha2') return err('unknown_algorithm');
  const { session_id: session, ciphertext } = content;
  if (typeof session !== 'string' || !SESSION_ID.test(session)) return err('malformed');
  if (typeof ciphertext !== 'string' || ciphertext.length > MAX_CHARS || !BASE64.test(ciphertext)) return err('malformed');
  const index = readMessageIndex(Buffer.from(ciphertext, 'base64'));
  return index === null ? err('malformed') : ok({ session: session as MegolmSessionId, index });
}

/** Null: these are not the bytes of a Megolm message. */
export function readMessageIndex(bytes: Uint8Array): number | null {
  if (bytes[0] !== VERSION || bytes[1] !== INDEX_TAG) return null;
  const index = readVarint(bytes, 2);
  if (index === null || index.value > MAX_INDEX || bytes[index.end] !== CIPHERTEXT_TAG) return null;
  const length = readVarint(bytes, index.end + 1);
  const fits = length !== null && length.value > 0 && length.end + length.value + MAC_BYTES + SIGNATURE_BYTES === bytes.length;
  return fits ? index.value : null;
}

/** Shortest form only: a longer one of the same number would be a second name of the same message. */
function readVarint(bytes: Uint8Array, start: number): { value: number; end: number } | null {
  let value = 0;
  for (let count = 0; count < MAX_VARINT_BYTES; count += 1) {
    const byte = bytes[start + count];
    if (byte === undefined) return null;
    value += (byte & 0x7f) * 2 ** (7 * count);
    if (byte < 0x80) return byte === 0 && count > 0 ? null : { value, end: start + count + 1 };
  }
  return null;
}
