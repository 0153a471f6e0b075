import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { readCiphertext, readMessageIndex } from '../../../../appservice/crypto/read-ciphertext.ts';

const SESSION = 'D6lldsECBPifQfjViYmGoRtxOUnQ2HvPnW4Ocvco0Bw';
/** Written by matrix-sdk-crypto-wasm 18.9.0: messages 0 and 1 of a session. */
const FIRST =
  'AwgAElCIYRwIr96U+Scl0m8BHYSaAP61wvc6sSTAp+Amg1AsL1HZX55h8MfuZqCxcm/YnWrOjFSXvzwWn1NzWpQ42ganpdm6WKEKapEUM8SW2taxFWpolbHTqGTE+SSEUu+W6kuEy8p5CB5EjKfIQveu8JX7ryeYnTOAZP6+RBEDr2e/9F7qJ5QrO1rFpr9WyEtADPpP6CjLjqvHDw';
const SECOND =
  'AwgBElA/a9LvDsS3mVR+7o7QEN4wXkoDIe5tWDGBwgS8Xqkj8hed7HiMVncw2O8iA4rcYFCYKKsDjFWzsihcqrqITjt20maS1u/r5eUKG9EY5TLrdgI5TUwMIJxdz0zg46EWvqX6wy8yX9Wk61xguUQb8bgqI0VUA+tlU6Pd9rZd5jaCvctPaONVqvONcsPpJNiQ6uWV8uKDNL9qBA';
const content = (more: object = {}) => ({ algorithm: 'm.megolm.v1.aes-sha2', session_id: SESSION, ciphertext: FIRST, ...more });

const varint = (value: number): number[] => (value < 0x80 ? [value] : [(value % 0x80) | 0x80, ...varint(Math.floor(value / 0x80))]);
const message = (index: number, length: number): Uint8Array =>
  Uint8Array.from([3, 0x08, ...varint(index), 0x12, ...varint(length), ...new Array<number>(length + 72).fill(7)]);
const uint32 = fc.integer({ min: 0, max: 0xffff_ffff });
const lengths = fc.integer({ min: 1, max: 400 });

test.each([
  [FIRST, 0],
  [SECOND, 1],
])('the engine and this reader agree on a real message', (ciphertext, index) => {
  expect(readCiphertext(content({ ciphertext }))).toEqual({ ok: true, value: { session: SESSION, index } });
});

test('every index of 32 bits is read as it was written', () => {
  fc.assert(
    fc.property(uint32, lengths, (index, length) => {
      expect(readMessageIndex(message(index, length))).toBe(index);
    }),
  );
});

test('a message that was cut anywhere, or has something after it, is none', () => {
  fc.assert(
    fc.property(uint32, lengths, fc.nat(), (index, length, at) => {
      const whole = message(index, length);

      expect(readMessageIndex(whole.subarray(0, at % whole.length))).toBeNull();
      expect(readMessageIndex(Uint8Array.from([...whole, 0]))).toBeNull();
    }),
  );
});

test('a number in a longer form is refused: it would be a second name of the same message', () => {
  const tail = [0x12, 1, ...new Array<number>(73).fill(7)];

  expect(readMessageIndex(Uint8Array.from([3, 0x08, 5, ...tail]))).toBe(5);
  expect(readMessageIndex(Uint8Array.from([3, 0x08, 0x85, 0x00, ...tail]))).toBeNull();
});

test('an index past 32 bits, or of endless bytes, is refused', () => {
  const tail = [0x12, 1, ...new Array<number>(73).fill(7)];

  expect(readMessageIndex(Uint8Array.from([3, 0x08, 0xff, 0xff, 0xff, 0xff, 0x0f, ...tail]))).toBe(0xffff_ffff);
  expect(readMessageIndex(Uint8Array.from([3, 0x08, 0xff, 0xff, 0xff, 0xff, 0x1f, ...tail]))).toBeNull();
  expect(readMessageIndex(Uint8Array.from([3, 0x08, ...new Array<number>(100).fill(0xff), ...tail]))).toBeNull();
});

test('fields twice or in another order are refused, which a lenient reader would take', () => {
  const body = [0x12, 1, 7];
  const tail = new Array<number>(72).fill(7);

  expect(readMessageIndex(Uint8Array.from([3, ...body, 0x08, 5, ...tail]))).toBeNull();
  expect(readMessageIndex(Uint8Array.from([3, 0x08, 5, 0x08, 6, ...body, ...tail]))).toBeNull();
});

test('no bytes make the reader throw, and what it takes is an index', () => {
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 300 }), (bytes) => {
      const index = readMessageIndex(bytes);

      expect(index === null || (Number.isSafeInteger(index) && index >= 0 && index <= 0xffff_ffff)).toBe(true);
    }),
  );
});

describe('content', () => {
  test.each([
    ['no object', 'text', 'malformed'],
    ['nothing', undefined, 'malformed'],
    ['no algorithm', content({ algorithm: undefined }), 'malformed'],
    ['an Olm message', content({ algorithm: 'm.olm.v1.curve25519-aes-sha2' }), 'unknown_algorithm'],
    ['an algorithm of tomorrow', content({ algorithm: 'm.megolm.v9' }), 'unknown_algorithm'],
    ['no session', content({ session_id: undefined }), 'malformed'],
    ['a session that is no key', content({ session_id: `${SESSION}A` }), 'malformed'],
    ['a session of a megabyte', content({ session_id: 'A'.repeat(1_000_000) }), 'malformed'],
    ['no ciphertext', content({ ciphertext: undefined }), 'malformed'],
    ['a ciphertext per device', content({ ciphertext: { [SESSION]: { type: 0, body: FIRST } } }), 'malformed'],
    ['a ciphertext that is no base64', content({ ciphertext: `${FIRST.slice(0, -1)}!` }), 'malformed'],
    ['base64 of another alphabet', content({ ciphertext: FIRST.replaceAll('+', '-').replaceAll('/', '_') }), 'malformed'],
    ['a cut ciphertext', content({ ciphertext: FIRST.slice(0, 40) }), 'malformed'],
    ['an empty ciphertext', content({ ciphertext: '' }), 'malformed'],
    ['a ciphertext longer than an event', content({ ciphertext: 'A'.repeat(65_537) }), 'malformed'],
  ])('%s is refused with its reason', (_name, value, reason) => {
    expect(readCiphertext(value)).toEqual({ ok: false, error: reason });
  });

  test('the same bytes with padding have the same name', () => {
    expect(readCiphertext(content({ ciphertext: `${FIRST}=` }))).toEqual(readCiphertext(content()));
  });

  test('no JSON makes the reader throw', () => {
    fc.assert(fc.property(fc.jsonValue({ maxDepth: 3 }), (json) => void readCiphertext(json)));
  });
});
