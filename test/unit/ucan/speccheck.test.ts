/**
 * The edge cases of Ed25519 on which implementations differ (Chalkias, Garillot, Nikolaenko: "Taming the Many EdDSAs", SSR 2020; the twelve cases of
 * github.com/novifinancial/ed25519-speccheck, Apache-2.0). Two verifiers that differ here could be made to disagree about one token, so ours is pinned:
 * no cofactor, S below L, R as it stands; and no key of small order or of a second spelling gets as far as that.
 */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { isSignedBy } from '../../../src/ucan/check-signature.ts';
import { isAcceptablePublicKey } from '../../../src/ucan/ed25519-points.ts';
import { readVectors } from '../../vectors/ucan/run.ts';

interface Case {
  readonly message: string;
  readonly pub_key: string;
  readonly signature: string;
}
const cases = JSON.parse(readFileSync(join(import.meta.dirname, '../../vectors/ed25519/speccheck.json'), 'utf8')) as Case[];
const hex = (text: string): Uint8Array => Uint8Array.from(Buffer.from(text, 'hex'));

/** `null`: OpenSSL 3.0 says yes and 3.5, of Node 24.21, no; either does, because the key is refused, or its owner signed what he wanted. */
const EXPECTED: readonly [what: string, verifies: boolean | null, keyIsAcceptable: boolean][] = [
  ['small A and R, S = 0', null, false],
  ['small A', null, false],
  ['small R', null, true],
  ['A and R of mixed order', true, true],
  ['fits only with the cofactor', false, true],
  ['fits only with the cofactor, unreduced', false, true],
  ['S past L', false, true],
  ['S far past L', false, true],
  ['R not canonical, reduced for the hash', false, true],
  ['R not canonical, not reduced for the hash', false, true],
  ['A not canonical, reduced for the hash', false, false],
  ['A not canonical, not reduced for the hash', null, false],
];

describe('ed25519-speccheck', () => {
  test('all twelve cases are there', () => {
    expect(cases).toHaveLength(EXPECTED.length);
  });

  test.each(EXPECTED.map(([what, verifies, keyIsAcceptable], n) => ({ n, what, verifies, keyIsAcceptable })))(
    'case $n, $what: signature $verifies, key $keyIsAcceptable (G8)',
    ({ n, verifies, keyIsAcceptable }) => {
      const { message, pub_key, signature } = cases[n]!;

      // The payload of a token is text; these messages are bytes, which the check takes as they are.
      const signed = { signPayload: hex(message) as unknown as string, signature: hex(signature) };

      const answer = isSignedBy(hex(pub_key), signed);
      expect(answer).toBe(verifies ?? answer);
      expect(isAcceptablePublicKey(hex(pub_key))).toBe(keyIsAcceptable);
    },
  );

  test('one changed bit of message or signature is refused in the case that passes', () => {
    for (const { message, pub_key, signature } of cases.slice(3, 4)) {
      for (const at of [0, 100, 255]) {
        const changed = hex(message);
        changed[at >> 3]! ^= 1 << (at & 7);
        expect(isSignedBy(hex(pub_key), { signPayload: changed as unknown as string, signature: hex(signature) })).toBe(false);
      }
      const other = hex(signature);
      other[40]! ^= 1;
      expect(isSignedBy(hex(pub_key), { signPayload: hex(message) as unknown as string, signature: other })).toBe(false);
    }
  });

  test('bytes that are no point, or no key at all, verify nothing and throw nothing (G14)', () => {
    const { message, signature } = cases[2]!;
    const signed = { signPayload: hex(message) as unknown as string, signature: hex(signature) };

    for (const key of [new Uint8Array(0), new Uint8Array(31), new Uint8Array(33), hex('02'.padEnd(64, '0')), hex('ff'.repeat(32))]) {
      expect(isSignedBy(key, signed)).toBe(false);
    }
    expect(isSignedBy(hex(cases[2]!.pub_key), { ...signed, signature: new Uint8Array(63) })).toBe(false);
    expect(isSignedBy(hex(cases[2]!.pub_key), { ...signed, signature: new Uint8Array(0) })).toBe(false);
  });

  test('every weak key has a vector as issuer of a token', () => {
    expect(readVectors().filter(({ name }) => /^(?:small-order|not-canonical-key)-/u.test(name)).length).toBeGreaterThanOrEqual(10);
  });
});
