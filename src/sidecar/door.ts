/**
 * Who knocks: the bearer token is gated and its signature checked once per request, before the body is read. That says which DID signed
 * it and nothing more; what it is good for is judged with method, path, body and link in `identify` (G8, G14).
 */
import type { IncomingHttpHeaders } from 'node:http';
import { type Refusal, refusal } from '../errors.ts';
import { err, ok, type Result } from '../result.ts';
import type { VerifiedInvocation, VerifyInvocation } from '../ucan/chain.ts';
import { gateInvocation } from '../ucan/gate.ts';

declare module 'fastify' {
  interface FastifyRequest {
    /** Set by the door on every route behind it. */
    invocation: VerifiedInvocation | null;
    /** The bytes that the token's hash is about; null when there was no body. */
    rawBody: Buffer | null;
  }
}

const BEARER = /^bearer ([A-Za-z0-9+/_=-]+)$/iu;

/** @returns UNAUTHENTICATED when there is no token of the kind we take: one that is there and bad has its own code. */
export async function authenticateCaller(
  headers: IncomingHttpHeaders,
  verify: VerifyInvocation,
): Promise<Result<VerifiedInvocation, Refusal>> {
  // Other kinds of bearer tokens travel in the same header; the selector says that this one is ours.
  if (headers['x-auth-type'] !== 'ucan') return err(refusal('UNAUTHENTICATED'));
  const token = BEARER.exec(headers.authorization ?? '')?.[1];
  if (token === undefined) return err(refusal('UNAUTHENTICATED'));
  const gated = gateInvocation(token);
  if (!gated.ok) return err(refusal(gated.error));
  const verified = await verify(gated.value);
  return verified.ok ? ok(verified.value) : err(refusal(verified.error));
}
