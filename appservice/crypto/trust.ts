/**
 * From what the engine knows of the device behind a message to the one word that decisions are made on. Pure. "Signed by its owner" is all that
 * is asked: whether the oracle has met the owner says nothing, because nobody compares emoji for a program. But whoever has somebody's password, or
 * runs their homeserver, can make them another identity: an owner whose identity changed is not trusted until they verify the oracle with it. And a key
 * that came by a third party proves no sender at all.
 */
import { assertNever } from '../../src/result.ts';
import type { SenderTrust } from '../../src/turn/principal.ts';
import type { DeviceShield } from './engine.ts';

export function decideSenderTrust(shield: DeviceShield): Exclude<SenderTrust, 'clear'> {
  switch (shield) {
    case 'verified':
    case 'identity_not_verified':
      return 'cross-signed';
    case 'identity_changed':
    case 'unsigned_device':
    case 'unknown_device':
    case 'not_guaranteed':
    case 'verification_violation':
    case 'mismatched_sender':
      return 'unverified';
    default:
      return assertNever(shield);
  }
}

/** More may be known once the sender's devices were asked for: they may not have been yet, or have changed a moment ago. */
export const mayImprove = (shield: DeviceShield): boolean => shield === 'unknown_device' || shield === 'unsigned_device';
