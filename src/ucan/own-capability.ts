/**
 * An invocation asks for exactly one thing on the signer's own DID. With two capabilities a program may check one and obey the other,
 * and a delegation could be passed off as a request (research/ucan.md §3.2 B); both ends here.
 */
import type { ErrorCode } from '../errors.ts';
import type { JsonObject } from '../json.ts';
import { err, ok, type Result } from '../result.ts';
import type { VerifiedInvocation } from './chain.ts';

/** @returns BAD_CAPABILITY unless there is exactly one with this very ability; BAD_ISSUER unless it is on the principal's own DID. */
export function readOwnCapability(ucan: VerifiedInvocation, ability: string): Result<{ nb: JsonObject }, ErrorCode> {
  const [capability, ...more] = ucan.capabilities;
  if (capability === undefined || more.length > 0 || capability.can !== ability) return err('BAD_CAPABILITY');
  if (capability.with !== ucan.principal) return err('BAD_ISSUER');
  return ok({ nb: capability.nb ?? {} });
}

const MIN_NONCE_BITS = 96;

/** Two equal requests within one second must not be one token. Hexadecimal digits carry 4 bits, base64 characters 6. */
export const hasEnoughNonce = (nonce: string): boolean => nonce.length * (/^[0-9a-f]*$/iu.test(nonce) ? 4 : 6) >= MIN_NONCE_BITS;
