import { wordlist } from '@scure/bip39/wordlists/english.js';
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { makeWords, pickTwo, randomBelow, readWords } from '../../../../src/sidecar/pages/authorise/words.ts';

const WORDS = 'legal winner thank year wave sausage worth useful legal winner thank yellow';

test('made words are 12, of the list, and read back as good', () => {
  const words = makeWords();

  expect(words).toHaveLength(12);
  expect(words.every((word) => wordlist.includes(word))).toBe(true);
  expect(readWords(words.join(' '))).toEqual({ kind: 'good', words: words.join(' ') });
  expect(makeWords()).not.toEqual(words);
});

test.each([WORDS.toUpperCase(), `  ${WORDS.replaceAll(' ', ' \n\t ')}\n`, WORDS.replaceAll(' ', '\u00a0')])(
  'case and white space do not count: %j',
  (typed) => {
    expect(readWords(typed)).toEqual({ kind: 'good', words: WORDS });
  },
);

test('one wrong word is found by the checksum, and named when it is on no list', () => {
  expect(readWords(WORDS.replace('yellow', 'year'))).toMatchObject({ kind: 'doubtful', unknown: [], count: 12 });
  expect(readWords(WORDS.replace('yellow', 'yelow'))).toMatchObject({ kind: 'doubtful', unknown: ['yelow'] });
});

test('a phrase of another program means exactly what was typed', () => {
  const typed = ' My  Own phrase, Not of any list ';

  expect(readWords(typed)).toMatchObject({ kind: 'doubtful', asTyped: typed.trim() });
});

test.each([
  ['', 'empty'],
  ['   \n', 'empty'],
  ['legal winner', 'short'],
  ['x'.repeat(1_025), 'long'],
])('%j is no phrase at all: %s', (typed, why) => {
  expect(readWords(typed)).toEqual({ kind: 'unusable', why });
});

test('reading is total, whatever is pasted (G14)', () => {
  fc.assert(
    fc.property(fc.string({ unit: 'binary', maxLength: 2_000 }), (typed) => {
      expect(['good', 'doubtful', 'unusable']).toContain(readWords(typed).kind);
    }),
  );
});

test('two different words are asked for, in order', () => {
  fc.assert(
    fc.property(fc.nat(), fc.nat(), (a, b) => {
      const numbers = [a, b];
      const [first, second] = pickTwo(12, (below) => (numbers.shift() ?? 0) % below);
      expect(first).toBeGreaterThanOrEqual(0);
      expect(second).toBeGreaterThan(first);
      expect(second).toBeLessThan(12);
    }),
  );
});

test('chance stays below its bound', () => {
  expect(Array.from({ length: 100 }, () => randomBelow(3)).every((n) => n >= 0 && n < 3)).toBe(true);
});
