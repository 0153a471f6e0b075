/**
 * did:key is its own document: the key stands in the name. Only Ed25519 (`z6Mk…`), only the one spelling, and no key of small order, under
 * which every signature is valid (research/ucan.md §3.2 G, I).
 */
import { base58btc } from 'multiformats/bases/base58';
import { isAcceptablePublicKey } from '../ed25519-points.ts';

/** multicodec ed25519-pub as varint. */
export const ED25519_PREFIX = Buffer.from('ed01', 'hex');
const DID_KEY = /^did:key:z6Mk[1-9A-HJ-NP-Za-km-z]{44}$/u;

/** The raw 32 bytes; undefined for anything that is not the did:key of an acceptable Ed25519 key. */
export function readDidKey(did: string): Uint8Array | undefined {
  if (!DID_KEY.test(did)) return undefined;
  const bytes = base58btc.decode(did.slice('did:key:'.length));
  if (bytes.length !== 34 || !ED25519_PREFIX.equals(bytes.subarray(0, 2))) return undefined;
  const raw = Uint8Array.from(bytes.subarray(2));
  return isAcceptablePublicKey(raw) ? raw : undefined;
}
