/** The keys a DID signs with now. Asked once per issuer and chain; the answer is never a verdict that outlives its minute. */
import type { ErrorCode } from '../../errors.ts';
import type { Did } from '../../ids.ts';
import type { Result } from '../../result.ts';

export interface DidKeys {
  /** Raw 32-byte Ed25519 keys, small-order points removed; never empty. */
  readonly keys: readonly Uint8Array[];
  /** Server name of the `MatrixHomeServer` service of a did:ixo document, lower case; null when it names none. */
  readonly homeserver: string | null;
}
/** @returns BAD_ISSUER for a method that may not sign (did:web, others); DID_NOT_RESOLVED when nobody can say. */
export type ResolveKeys = (did: Did) => Promise<Result<DidKeys, ErrorCode>>;
