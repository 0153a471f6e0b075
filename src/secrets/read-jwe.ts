/**
 * What is in a room is hostile until it is read: a secret's value is a compact JWE of one algorithm, one content encryption and no extension, looked
 * at before any cryptography. Other algorithms of the JOSE family would let whoever writes the event choose weaker ones, or, with a password
 * algorithm, how much work we do (G14).
 */
import { isJsonObject } from '../json.ts';
import { err, ok, type Result } from '../result.ts';

export const JWE_ALGORITHM = 'ECDH-ES+A256KW';
export const JWE_ENCRYPTION = 'A256GCM';
/** Of the whole token; its value is shorter by a third. */
export const MAX_JWE_CHARS = 16 * 1024;

const PART = /^[A-Za-z0-9_-]+$/u;
/** The content of an empty value is empty: header, wrapped key, iv, content, tag. */
const MAY_BE_EMPTY = 3;
const MAX_HEADER_CHARS = 2_048;
const HEADER_FIELDS: ReadonlySet<string> = new Set(['alg', 'enc', 'epk', 'kid', 'typ', 'cty', 'apu', 'apv']);

/** The token, when it is one that we decrypt. Pure. */
export function readCompactJwe(text: unknown): Result<string, 'BAD_JWE'> {
  if (typeof text !== 'string' || text.length > MAX_JWE_CHARS) return err('BAD_JWE');
  const parts = text.split('.');
  if (parts.length !== 5 || !parts.every((part, at) => PART.test(part) || (at === MAY_BE_EMPTY && part === ''))) return err('BAD_JWE');
  const header = readHeader(parts[0] ?? '');
  if (header === null || header['alg'] !== JWE_ALGORITHM || header['enc'] !== JWE_ENCRYPTION) return err('BAD_JWE');
  const { epk } = header;
  const isKnown = Object.keys(header).every((field) => HEADER_FIELDS.has(field));
  if (!isKnown || !isJsonObject(epk) || epk['kty'] !== 'EC' || epk['crv'] !== 'P-256') return err('BAD_JWE');
  return ok(text);
}

function readHeader(part: string): Record<string, unknown> | null {
  if (part.length > MAX_HEADER_CHARS) return null;
  try {
    const header: unknown = JSON.parse(Buffer.from(part, 'base64url').toString('utf8'));
    return isJsonObject(header) ? header : null;
  } catch {
    return null;
  }
}
