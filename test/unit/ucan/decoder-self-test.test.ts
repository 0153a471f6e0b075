import { decode } from '@ipld/dag-ucan';
import { expect, test } from 'vitest';
import { assertSafeDecoder } from '../../../src/ucan/decoder-self-test.ts';

/** What cborg 5 did: the value of a `__proto__` key becomes the prototype. */
const assignsPrototype = (bytes: Uint8Array) => {
  const fact: Record<string, unknown> = {};
  const key = Buffer.from(bytes).includes('__proto__') ? '__proto__' : '__plain__';
  fact[key] = { planted: true };
  return { facts: [fact] };
};

test('the installed decoder passes the self-test, and the probe itself is readable', () => {
  expect(() => assertSafeDecoder()).not.toThrow();
});

test('a decoder that lets __proto__ through stops the start (G14)', () => {
  expect(() => assertSafeDecoder(assignsPrototype)).toThrow(/lets a map key "__proto__" through.*cborg/su);
});

test('a decoder that refuses the key passes; one that reads nothing does not', () => {
  const refuses = (bytes: Uint8Array) => {
    if (Buffer.from(bytes).includes('__proto__')) throw new Error('no');
    return decode(bytes as never);
  };
  const readsNothing = () => {
    throw new Error('broken');
  };

  expect(() => assertSafeDecoder(refuses)).not.toThrow();
  expect(() => assertSafeDecoder(readsNothing)).toThrow(/cannot read/u);
});
