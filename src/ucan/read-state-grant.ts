/**
 * The delegation that other oracles of the IXO family keep as room state (`ixo.room.state` / `ucan_delegation`): base64 of zlib of superjson
 * (research/ixo.md §2.8). Everybody with power in the room can write it, and a few bytes of zlib can become gigabytes, so it is unpacked within
 * LIMITS.stateGrantBytes, and nothing but the token is read: issuer, audience and expiry are the token's own to say.
 */
import { inflateSync } from 'node:zlib';
import { z } from 'zod';
import type { ErrorCode } from '../errors.ts';
import { LIMITS } from '../limits.ts';
import { err, ok, type Result } from '../result.ts';
import { decodeStrictBase64 } from './gate.ts';

const superjson = z.object({ json: z.object({ raw: z.string().min(1) }) });

/** @returns the CAR in base64 as it was kept; UCAN_TOO_LARGE or UCAN_MALFORMED. */
export function readStateGrant(data: string): Result<string, ErrorCode> {
  if (data.length > LIMITS.stateGrantBytes) return err('UCAN_TOO_LARGE');
  const packed = decodeStrictBase64(data);
  if (packed === undefined) return err('UCAN_MALFORMED');
  const text = inflate(packed);
  if (!text.ok) return text;
  const read = superjson.safeParse(parseJson(text.value));
  return read.success ? ok(read.data.json.raw) : err('UCAN_MALFORMED');
}

function inflate(packed: Buffer): Result<string, ErrorCode> {
  try {
    return ok(new TextDecoder('utf-8', { fatal: true }).decode(inflateSync(packed, { maxOutputLength: LIMITS.stateGrantBytes })));
  } catch (error) {
    return err(error instanceof Error && 'code' in error && error.code === 'ERR_BUFFER_TOO_LARGE' ? 'UCAN_TOO_LARGE' : 'UCAN_MALFORMED');
  }
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
