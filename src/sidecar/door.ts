/**
 * Who knocks: the bearer token is gated and its signature checked once per request, before the body is read. That says which DID signed
 * it and nothing more; what it is good for is judged with method, path, body and link in `identify` (G8, G14).
 */
import type { IncomingHttpHeaders } from 'node:http';
import { type ErrorCode, type Refusal, refusal } from '../errors.ts';
import { err, ok, type Result } from '../result.ts';
import type { VerifiedInvocation, VerifyInvocation } from '../ucan/chain.ts';
import { type GatedToken, gateInvocation } from '../ucan/gate.ts';
import { isLegacy, type LegacyInvocation } from '../ucan/legacy-invocation.ts';

declare module 'fastify' {
  interface FastifyRequest {
    /** Set by the door on every route behind it. */
    invocation: VerifiedInvocation | null;
    /** Set instead, when the operator lets the bearer tokens of older portals in. */
    legacy: LegacyInvocation | null;
    /** The bytes that the token's hash is about; null when there was no body. */
    rawBody: Buffer | null;
  }
}

const BEARER = /^bearer ([A-Za-z0-9+/_=-]+)$/iu;

export interface DoorOptions {
  readonly verify: VerifyInvocation;
  /** HTTP_LEGACY_AUTH; null when it is off. */
  readonly verifyLegacy: ((token: GatedToken) => Promise<Result<LegacyInvocation, ErrorCode>>) | null;
}
export type Knocker =
  | { readonly invocation: VerifiedInvocation; readonly legacy: null }
  | { readonly invocation: null; readonly legacy: LegacyInvocation };

/** @returns UNAUTHENTICATED when there is no token of the kind we take: one that is there and bad has its own code. */
export async function authenticateCaller(headers: IncomingHttpHeaders, options: DoorOptions): Promise<Result<Knocker, Refusal>> {
  // Other kinds of bearer tokens travel in the same header; the selector says that this one is ours.
  if (headers['x-auth-type'] !== 'ucan') return err(refusal('UNAUTHENTICATED'));
  const token = BEARER.exec(headers.authorization ?? '')?.[1];
  if (token === undefined) return err(refusal('UNAUTHENTICATED'));
  const gated = gateInvocation(token);
  if (!gated.ok) return err(refusal(gated.error));
  if (options.verifyLegacy !== null && isLegacy(gated.value)) {
    const legacy = await options.verifyLegacy(gated.value);
    return legacy.ok ? ok({ invocation: null, legacy: legacy.value }) : err(refusal(legacy.error));
  }
  const verified = await options.verify(gated.value);
  return verified.ok ? ok({ invocation: verified.value, legacy: null }) : err(refusal(verified.error));
}
