/**
 * From "has the form of a token" to "this DID said so". Everything after this file reads a `VerifiedInvocation`, which only this file
 * makes, so no caller can bind or obey a token whose signature nobody checked (G8). Asynchronous, because chains and DID documents will
 * be asked for here; callers stay as they are. Ed25519 by node:crypto: a tenth of the time of the library's own verifier, and
 * stricter on malleable signatures (research/ucan.md §2, §3.2 G). Cost: about 0.12 ms.
 */
import { verify } from 'node:crypto';
import type { ErrorCode } from '../errors.ts';
import type { Did } from '../ids.ts';
import { err, ok, type Result } from '../result.ts';
import type { GatedUcan } from './gate.ts';

declare const verified: unique symbol;

export interface VerifiedInvocation extends GatedUcan {
  readonly [verified]: true;
  /** Root issuer of the authority: the only DID the capability's `with` may name. Equal to the issuer as long as there are no proofs. */
  readonly principal: Did;
}

/** The port callers hold. */
export type VerifyInvocation = (ucan: GatedUcan) => Promise<Result<VerifiedInvocation, ErrorCode>>;

/** @returns BAD_SIGNATURE when the issuer's key did not sign this payload. */
export const verifyInvocation: VerifyInvocation = async (ucan) =>
  isSignedBy(ucan.issuerKey, ucan) ? ok({ ...ucan, principal: ucan.issuer } as VerifiedInvocation) : err('BAD_SIGNATURE');

/** SubjectPublicKeyInfo of an Ed25519 key (RFC 8410 §4) up to its 32 bytes. */
const SPKI_HEAD = Buffer.from('302a300506032b6570032100', 'hex');

function isSignedBy(rawKey: Uint8Array, ucan: GatedUcan): boolean {
  try {
    const key = { key: Buffer.concat([SPKI_HEAD, rawKey]), format: 'der', type: 'spki' } as const;
    return verify(null, Buffer.from(ucan.signPayload), key, ucan.signature);
  } catch {
    return false; // a key that is no point of the curve
  }
}
