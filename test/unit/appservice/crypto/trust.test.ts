import { expect, test } from 'vitest';
import { decideSenderTrust } from '../../../../appservice/crypto/trust.ts';

test.each(['verified', 'identity_not_verified'] as const)('%s: the device is signed by its owner', (shield) => {
  expect(decideSenderTrust(shield)).toBe('cross-signed');
});

test.each([
  'identity_changed',
  'unsigned_device',
  'unknown_device',
  'not_guaranteed',
  'verification_violation',
  'mismatched_sender',
] as const)('%s: nobody vouches for the device', (shield) => {
  expect(decideSenderTrust(shield)).toBe('unverified');
});
