import { expect, test } from 'vitest';
import { matchOf, planWords, rankByWords } from '../../../src/store/search-words.ts';

test('the words of a query, longest first; as an expression nothing a person writes is syntax', () => {
  expect(planWords('the Dog AND "cats" NEAR(x) -z *')).toEqual(['cats', 'near', 'the', 'dog', 'and', 'x', 'z']);
  expect(planWords('Größe 東京 naïve')).toEqual(['größe', 'naïve', '東京']);
  expect(['and', 'x'].map(matchOf)).toEqual(['"and" *', '"x"']);
});

test('a query without words finds nothing', () => {
  expect([planWords(''), planWords('   '), planWords('"*-:()')]).toEqual([[], [], []]);
});

test('words are few and short (G14)', () => {
  const words = planWords(`${'x'.repeat(500)} ${Array.from({ length: 50 }, (_, at) => `w${at}`).join(' ')}`);

  expect(words).toHaveLength(8);
  expect(Math.max(...words.map((word) => word.length))).toBeLessThan(70);
});

test('more words count more, rare ones most, and the newest comes first among equals', () => {
  const found: Record<string, number[]> = { common: [9, 8, 7, 6, 5, 4, 3], rare: [3] };

  expect(rankByWords(['common', 'rare'], (word) => found[word] ?? [], 3)).toEqual([3, 9, 8]);
  expect(rankByWords(['long word', 'a'], (word) => (word === 'a' ? [2] : [1]), 3)).toEqual([1, 2]);
  expect(rankByWords([], () => [1], 3)).toEqual([]);
});
