/**
 * Searching one person's rows in an index that holds everybody's. Ranking by the index itself (bm25) looks at every row of every person that holds a
 * word: 130 ms in 200 000 rows, seconds in a few million, and nobody is answered meanwhile. So each word is looked up by itself, its newest matches only, and what is the
 * person's own is ranked here: a rare word is found however old, a word that everybody uses is found in what is recent (G16).
 */

const MAX_QUERY_CHARS = 1_000;
const MAX_WORDS = 8;
const MAX_WORD_CHARS = 64;
/** Shorter ones match whole words only: the beginnings of everything else would be too many. */
const MIN_PREFIX_CHARS = 3;
const MAX_WEIGHING_CHARS = 8;
/** Matches of one word, of all people, that are looked through, newest first. */
export const MATCHES_PER_WORD = 5_000;
/** Of those, the person's own. */
export const OWN_PER_WORD = 100;

/** Words of a query, longest first. Pure. */
export function planWords(query: string): readonly string[] {
  const words =
    query
      .slice(0, MAX_QUERY_CHARS)
      .normalize('NFC')
      .toLowerCase()
      .match(/[\p{L}\p{N}\p{M}]+/gu) ?? [];
  return [...new Set(words.map((word) => word.slice(0, MAX_WORD_CHARS)))].sort((a, b) => b.length - a.length).slice(0, MAX_WORDS);
}

/** A word as an FTS5 expression: quoted, so that nothing a person writes is syntax. Pure. */
export const matchOf = (word: string): string => (word.length >= MIN_PREFIX_CHARS ? `"${word}" *` : `"${word}"`);

/**
 * Ids by how much of the query they hold, newest first among equals. A word counts the more the longer it is and the fewer rows have it: of a
 * question, "the" says little. Pure but for `find`.
 * @param find the person's own rows that hold the word.
 */
export function rankByWords(words: readonly string[], find: (word: string) => readonly number[], limit: number): number[] {
  const scores = new Map<number, number>();
  for (const word of words) {
    const ids = find(word);
    const weight = Math.min(word.length, MAX_WEIGHING_CHARS) / Math.log(Math.E + ids.length);
    for (const id of new Set(ids)) scores.set(id, (scores.get(id) ?? 0) + weight);
  }
  return [...scores]
    .sort(([idA, a], [idB, b]) => b - a || idB - idA)
    .slice(0, limit)
    .map(([id]) => id);
}
