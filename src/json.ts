/**
 * JSON as Matrix signs and hashes it. A UCAN binds to the hash of an event's content, so two programs must agree on every byte
 * (Matrix spec v1.19, appendices, "Canonical JSON": sorted keys, no white space, UTF-8, integers of at most 53 bits).
 */
import { createHash } from 'node:crypto';
import { err, ok, type Result } from './result.ts';

export type JsonValue = null | boolean | number | string | JsonValue[] | JsonObject;
export type JsonObject = { [key: string]: JsonValue };

export const isJsonObject = (value: unknown): value is JsonObject => typeof value === 'object' && value !== null && !Array.isArray(value);

/** Deep enough for any real event, shallow enough that hostile nesting cannot exhaust the stack (G14). */
const MAX_DEPTH = 64;

/**
 * Canonical JSON text, or why there is none: floats, integers past 2^53-1, lone surrogates and nesting past 64 have no canonical form.
 * @returns `NOT_CANONICAL` where the Matrix spec defines no encoding.
 */
export function canonicalJson(value: unknown): Result<string, 'NOT_CANONICAL'> {
  const text = encode(value, 0);
  return text === undefined ? err('NOT_CANONICAL') : ok(text);
}

function encode(value: unknown, depth: number): string | undefined {
  if (depth > MAX_DEPTH) return undefined;
  if (value === null || typeof value === 'boolean') return String(value);
  if (typeof value === 'number') return Number.isSafeInteger(value) ? String(Object.is(value, -0) ? 0 : value) : undefined;
  if (typeof value === 'string') return value.isWellFormed() ? encodeString(value) : undefined;
  if (Array.isArray(value)) {
    const items: string[] = [];
    for (const item of value) {
      const text = encode(item, depth + 1);
      if (text === undefined) return undefined;
      items.push(text);
    }
    return `[${items.join(',')}]`;
  }
  if (typeof value !== 'object') return undefined;
  const members: string[] = [];
  for (const key of Object.keys(value).sort(byCodePoint)) {
    const text = encode((value as Record<string, unknown>)[key], depth + 1);
    if (text === undefined || !key.isWellFormed()) return undefined;
    members.push(`${encodeString(key)}:${text}`);
  }
  return `{${members.join(',')}}`;
}

/** JSON.stringify escapes exactly what canonical JSON does, U+2028 and U+007F included (both stay literal). */
const encodeString = (text: string): string => JSON.stringify(text);

/** UTF-16 order differs from code point order above U+FFFF; the spec sorts by code point. */
function byCodePoint(a: string, b: string): number {
  return Buffer.compare(Buffer.from(a), Buffer.from(b));
}

/** base64url SHA-256 without padding of text or bytes. */
export const sha256Base64Url = (data: string | Uint8Array): string => createHash('sha256').update(data).digest('base64url');

/** Bytes of a value as it will travel: what size limits of the homeserver are measured in (research/synapse.md §8). */
export const jsonBytes = (value: unknown): number => Buffer.byteLength(JSON.stringify(value));
