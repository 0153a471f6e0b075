import { expect, test } from 'vitest';
import { isAcceptablePublicKey, SMALL_ORDER_POINTS } from '../../../src/ucan/ed25519-points.ts';

const P = 2n ** 255n - 19n;
const mod = (n: bigint): bigint => ((n % P) + P) % P;
function power(base: bigint, exponent: bigint): bigint {
  let result = 1n;
  for (let b = mod(base), e = exponent; e > 0n; e >>= 1n, b = mod(b * b)) if (e & 1n) result = mod(result * b);
  return result;
}
const inverse = (n: bigint): bigint => power(n, P - 2n);
const D = mod(-121665n * inverse(121666n));
type Point = readonly [bigint, bigint];

function add([x1, y1]: Point, [x2, y2]: Point): Point {
  const cross = mod(D * x1 * x2 * y1 * y2);
  return [mod((x1 * y2 + x2 * y1) * inverse(1n + cross)), mod((y1 * y2 + x1 * x2) * inverse(1n - cross))];
}

/** x² = (y² − 1) / (dy² + 1), RFC 8032 §5.1.3. */
function decompress(hex: string): Point {
  const y = BigInt(`0x${Buffer.from(hex, 'hex').reverse().toString('hex')}`);
  const square = mod((y * y - 1n) * inverse(D * y * y + 1n));
  let x = power(square, (P + 3n) / 8n);
  if (mod(x * x) !== square) x = mod(x * power(2n, (P - 1n) / 4n));
  expect(mod(x * x)).toBe(square);
  return [x, y];
}

test.each(SMALL_ORDER_POINTS)('eight times the listed point %s is the neutral element', (hex) => {
  let point = decompress(hex);
  for (let n = 0; n < 3; n += 1) point = add(point, point);

  expect(point).toEqual([0n, 1n]);
});

test.each(SMALL_ORDER_POINTS)('the listed point %s is no key, with either sign bit (G14)', (hex) => {
  const raw = Buffer.from(hex, 'hex');
  const negative = Buffer.from(raw);
  negative[31]! |= 0x80;

  expect(isAcceptablePublicKey(raw)).toBe(false);
  expect(isAcceptablePublicKey(negative)).toBe(false);
});

test.each(['ed', 'ee', 'ff'])('a second spelling of a point, y past the prime, is no key: %s', (low) => {
  expect(isAcceptablePublicKey(Buffer.from(`${low}${'ff'.repeat(30)}7f`, 'hex'))).toBe(false);
});

test('the base point is a key, and a key has 32 bytes', () => {
  expect(isAcceptablePublicKey(Buffer.from(`58${'66'.repeat(31)}`, 'hex'))).toBe(true);
  expect(isAcceptablePublicKey(Buffer.alloc(31, 0x66))).toBe(false);
});
