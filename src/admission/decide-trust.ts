/**
 * Whose messages are obeyed in an encrypted room (CRYPTO_TRUST). A homeserver, or whoever has a stolen password, can write in anybody's name in
 * the clear or from a device of its own; only the owner's signature over a device says that it is theirs. `any` leaves that to the reader: the
 * trust is written beside every turn (runs, audit). Pure.
 */
import type { ErrorCode } from '../errors.ts';
import { assertNever } from '../result.ts';
import type { SenderTrust } from '../turn/principal.ts';
import type { RoomFacts } from './room-facts.ts';

export type CryptoTrust = 'any' | 'cross-signed';
export type TrustRefusal = Extract<ErrorCode, 'UNVERIFIED_DEVICE' | 'NOT_ENCRYPTED'>;

/** The refusal; null lets the message in. In a room without encryption there is nothing that a device could sign. */
export function decideTrust(rule: CryptoTrust, trust: SenderTrust, encryption: RoomFacts['encryption']): TrustRefusal | null {
  if (rule === 'any') return null;
  switch (trust) {
    case 'cross-signed':
      return null;
    case 'unverified':
      return 'UNVERIFIED_DEVICE';
    case 'clear':
      return encryption === 'none' ? null : 'NOT_ENCRYPTED';
    default:
      return assertNever(trust);
  }
}

const RANKS: Readonly<Record<SenderTrust, number>> = { clear: 0, unverified: 1, 'cross-signed': 2 };
/**
 * A change of what was said must be at least as sure as what it changes: else a homeserver could edit what it cannot read. Null, of an older release
 * or over HTTP, asks for nothing.
 */
export const decideChange = (change: SenderTrust, said: SenderTrust | null): TrustRefusal | null => {
  if (said === null || RANKS[change] >= RANKS[said]) return null;
  return change === 'clear' ? 'NOT_ENCRYPTED' : 'UNVERIFIED_DEVICE';
};
