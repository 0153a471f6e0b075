import fc from 'fast-check';
import { expect, test } from 'vitest';
import { isValidBlobId } from '../../../src/blob-store/blobs.ts';

const hex = fc.string({ unit: fc.constantFrom(...'0123456789abcdef'), minLength: 16, maxLength: 16 });

test('an id is blob_ and sixteen hex digits', () => {
  fc.assert(fc.property(hex, (digits) => isValidBlobId(`blob_${digits}`)));
});

test('nothing else is one, and nothing throws (G14)', () => {
  const near = fc
    .tuple(fc.constantFrom('', 'blob', 'blob_', 'BLOB_', ' blob_'), fc.string({ unit: 'binary' }))
    .map(([head, rest]) => head + rest);
  fc.assert(
    fc.property(fc.oneof(fc.anything(), near), (value) => {
      expect(isValidBlobId(value)).toBe(typeof value === 'string' && value.length === 21 && /^blob_[0-9a-f]+$/u.test(value));
    }),
  );
});
