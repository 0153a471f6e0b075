import { describe, expect, test } from 'vitest';
import { decideChange, decideTrust } from '../../../src/admission/decide-trust.ts';
import type { SenderTrust } from '../../../src/turn/principal.ts';

const TRUSTS: readonly SenderTrust[] = ['clear', 'unverified', 'cross-signed'];

describe('decideTrust', () => {
  test('`any` obeys every device in every room', () => {
    for (const trust of TRUSTS)
      for (const encryption of ['none', 'encrypted', 'unknown'] as const) expect(decideTrust('any', trust, encryption)).toBeNull();
  });

  test.each([
    ['cross-signed', 'encrypted', null],
    ['cross-signed', 'none', null],
    ['unverified', 'encrypted', 'UNVERIFIED_DEVICE'],
    // Encrypted all the same, by a device that anybody with the password can add.
    ['unverified', 'none', 'UNVERIFIED_DEVICE'],
    ['clear', 'none', null],
    ['clear', 'encrypted', 'NOT_ENCRYPTED'],
    // Nobody can say: nothing is obeyed that might be a homeserver's word (G11).
    ['clear', 'unknown', 'NOT_ENCRYPTED'],
  ] as const)('`cross-signed`: %s in a room with encryption %s is %s', (trust, encryption, refused) => {
    expect(decideTrust('cross-signed', trust, encryption)).toBe(refused);
  });
});

describe('decideChange', () => {
  test.each([
    ['clear', 'clear', null],
    ['clear', 'unverified', 'NOT_ENCRYPTED'],
    ['clear', 'cross-signed', 'NOT_ENCRYPTED'],
    ['unverified', 'clear', null],
    ['unverified', 'unverified', null],
    ['unverified', 'cross-signed', 'UNVERIFIED_DEVICE'],
    ['cross-signed', 'unverified', null],
    ['clear', null, null],
  ] as const)('%s of what was said %s: %s', (change, said, refused) => {
    expect(decideChange(change, said)).toBe(refused);
  });
});
