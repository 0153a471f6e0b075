import { createPublicKey, generateKeyPairSync } from 'node:crypto';
import fc from 'fast-check';
import { CompactEncrypt } from 'jose';
import { describe, expect, test } from 'vitest';
import { MAX_JWE_CHARS, readCompactJwe } from '../../../src/secrets/read-jwe.ts';

const { privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
const encrypt = (text: string): Promise<string> =>
  new CompactEncrypt(Buffer.from(text)).setProtectedHeader({ alg: 'ECDH-ES+A256KW', enc: 'A256GCM' }).encrypt(createPublicKey(privateKey));
const token = await encrypt('value');
const part = (text: string): string => Buffer.from(text).toString('base64url');
const withHeader = (header: unknown): string => [part(JSON.stringify(header)), ...token.split('.').slice(1)].join('.');
const header = JSON.parse(Buffer.from(token.split('.')[0] ?? '', 'base64url').toString());

test('what a client encrypts is read, whatever it holds', async () => {
  await fc.assert(
    fc.asyncProperty(fc.string({ unit: 'binary', maxLength: 200 }), async (text) => {
      const made = await encrypt(text);

      expect(readCompactJwe(made)).toEqual({ ok: true, value: made });
    }),
    { numRuns: 50 },
  );
});

test('anything else is refused and nothing throws (G14)', () => {
  fc.assert(
    fc.property(
      fc.oneof(
        fc.anything(),
        fc.string({ unit: 'binary' }),
        fc.base64String().map((text) => `${text}.a.b.c.d`),
      ),
      (input) => {
        expect(readCompactJwe(input)).toEqual({ ok: false, error: 'BAD_JWE' });
      },
    ),
  );
});

test('one changed character outside the ciphertext parts is either refused or still the same form', () => {
  fc.assert(
    fc.property(fc.nat(token.length - 1), fc.string({ minLength: 1, maxLength: 1, unit: 'binary' }), (at, character) => {
      const read = readCompactJwe(`${token.slice(0, at)}${character}${token.slice(at + 1)}`);

      if (read.ok) expect(read.value.split('.')).toHaveLength(5);
    }),
  );
});

describe('what would let the sender choose the work or the strength is refused', () => {
  test.each([
    ['another algorithm', { ...header, alg: 'dir' }],
    ['a password algorithm', { ...header, alg: 'PBES2-HS512+A256KW', p2c: 1_000_000, p2s: 'AAAA' }],
    ['RSA', { ...header, alg: 'RSA-OAEP' }],
    ['another encryption', { ...header, enc: 'A128CBC-HS256' }],
    ['compression', { ...header, zip: 'DEF' }],
    ['critical extensions', { ...header, crit: ['b64'], b64: false }],
    ['another curve', { ...header, epk: { ...header.epk, crv: 'P-521' } }],
    ['no ephemeral key', { ...header, epk: undefined }],
    ['a header that is a list', [header]],
    ['a header that is null', null],
  ])('%s', (_name, changed) => {
    expect(readCompactJwe(withHeader(changed)).ok).toBe(false);
  });

  test('control: the unchanged header is read', () => {
    expect(readCompactJwe(withHeader(header)).ok).toBe(true);
  });

  test('at, over and far over the length', () => {
    const rest = token.split('.');
    const sized = (length: number): string => {
      const others = [rest[0], rest[1], rest[2], '', rest[4]].join('.');
      return [rest[0], rest[1], rest[2], 'A'.repeat(length - others.length), rest[4]].join('.');
    };

    expect(readCompactJwe(sized(MAX_JWE_CHARS)).ok).toBe(true);
    expect(readCompactJwe(sized(MAX_JWE_CHARS + 1)).ok).toBe(false);
    expect(readCompactJwe(sized(50_000_000)).ok).toBe(false);
  });
});
