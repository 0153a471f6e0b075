import fc from 'fast-check';
import { base58btc } from 'multiformats/bases/base58';
import { expect, test } from 'vitest';
import { readDidKey } from '../../../../src/ucan/did/key.ts';
import { SMALL_ORDER_POINTS } from '../../../../src/ucan/ed25519-points.ts';
import { generateKey } from '../../../../src/ucan/signing-key.ts';

const didOf = (hex: string): string => `did:key:${base58btc.encode(Buffer.from(hex, 'hex'))}`;
const GOOD = generateKey().did;

test('a did:key is its key', () => {
  const raw = readDidKey(GOOD);

  expect(didOf(`ed01${Buffer.from(raw ?? []).toString('hex')}`)).toBe(GOOD);
});

test.each([
  ['a fragment', `${GOOD}#${GOOD.slice(8)}`],
  ['upper case', GOOD.toUpperCase()],
  ['a blank', `${GOOD} `],
  ['a line feed', `${GOOD}\n`],
  ['one letter less', GOOD.slice(0, -1)],
  ['one letter more', `${GOOD}1`],
  ['another method', 'did:ixo:ixo1abc'],
  ['a P-256 key', `did:key:zDnaerDaTF5BXEavCrfRZEk316dpbLsfPDZ3WJ5hRTPFU2169`],
  ['an X25519 key', didOf(`ec01${'11'.repeat(32)}`)],
  ['31 bytes', didOf(`ed01${'11'.repeat(31)}`)],
  ['33 bytes', didOf(`ed01${'11'.repeat(33)}`)],
  ...SMALL_ORDER_POINTS.map((point) => ['a key of small order', didOf(`ed01${point}`)] as [string, string]),
  ['nothing', ''],
])('%s is no did:key of ours', (_name, did) => {
  expect(readDidKey(did)).toBeUndefined();
});

test('any text has an answer, and a key has 32 bytes', () => {
  const letters = fc.stringMatching(/^did:key:z6Mk[1-9A-HJ-NP-Za-km-z]{40,48}$/u);
  fc.assert(
    fc.property(fc.oneof(fc.string(), letters), (text) => {
      const key = readDidKey(text);
      expect(key === undefined || key.length === 32).toBe(true);
    }),
  );
});
