/**
 * Under a public key of small order *every* message has a valid signature that needs no secret, and both noble and OpenSSL accept it
 * (research/ucan.md §3.2 G). Such a key is nobody's identity, so it is refused wherever a key enters: an issuer, later a DID document.
 */

/**
 * Encodings of the points of order 1, 2, 4 and 8 with the sign bit cleared: y = 1, −1, 0 and the two y of order 8
 * (libsodium 1.0.20, `ge25519_has_small_order`; a unit test multiplies each by 8). Encodings of y ≥ p are caught by their own rule.
 */
export const SMALL_ORDER_POINTS: readonly string[] = [
  '0100000000000000000000000000000000000000000000000000000000000000',
  'ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f',
  '0000000000000000000000000000000000000000000000000000000000000000',
  '26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05',
  'c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a',
];

/** True for a 32-byte Ed25519 public key that may stand for somebody: y < p (one spelling per point) and not of small order. */
export function isAcceptablePublicKey(raw: Uint8Array): boolean {
  if (raw.length !== 32) return false;
  const y = Buffer.from(raw);
  y.writeUInt8(y.readUInt8(31) & 0x7f, 31);
  return !isPastPrime(y) && !SMALL_ORDER_POINTS.includes(y.toString('hex'));
}

/** p = 2^255 − 19 is `ed ff … ff 7f` in little-endian. */
const isPastPrime = (y: Buffer): boolean =>
  y.readUInt8(31) === 0x7f && y.readUInt8(0) >= 0xed && y.subarray(1, 31).every((byte) => byte === 0xff);
