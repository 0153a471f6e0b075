/**
 * The words of an account: 12 of the BIP-39 list with its checksum, so that one wrong word is found before it opens another, empty account.
 * Phrases of other programs may have no such checksum; whoever says that they are right gets exactly what was typed.
 */
import { generateMnemonic, validateMnemonic } from '@scure/bip39';
import { wordlist } from '@scure/bip39/wordlists/english.js';

export const makeWords = (): readonly string[] => generateMnemonic(wordlist, 128).split(' ');

const KNOWN = new Set(wordlist);
const LENGTHS = new Set([12, 15, 18, 21, 24]);
/** As SIGNING_MNEMONIC: shorter is no secret, longer is no phrase. */
const MIN_CHARS = 16;
const MAX_CHARS = 1_024;

export type TypedWords =
  | { readonly kind: 'good'; readonly words: string }
  /** Has the length of a phrase, but not its checksum; `asTyped` is what it means when it is right all the same. */
  | { readonly kind: 'doubtful'; readonly asTyped: string; readonly unknown: readonly string[]; readonly count: number }
  | { readonly kind: 'unusable'; readonly why: 'empty' | 'short' | 'long' };

/** Reads what a person typed or pasted: case and white space do not count as long as the checksum holds. */
export function readWords(text: string): TypedWords {
  const asTyped = text.trim();
  if (asTyped === '') return { kind: 'unusable', why: 'empty' };
  if (asTyped.length > MAX_CHARS) return { kind: 'unusable', why: 'long' };
  const list = asTyped.normalize('NFKD').toLowerCase().split(/\s+/u);
  const words = list.join(' ');
  if (LENGTHS.has(list.length) && validateMnemonic(words, wordlist)) return { kind: 'good', words };
  if (asTyped.length < MIN_CHARS) return { kind: 'unusable', why: 'short' };
  return { kind: 'doubtful', asTyped, unknown: list.filter((word) => !KNOWN.has(word)), count: list.length };
}

/** Places of two different words to ask for, counted from 0, in order. */
export function pickTwo(count: number, random: (below: number) => number): [number, number] {
  const first = random(count);
  const second = (first + 1 + random(count - 1)) % count;
  return first < second ? [first, second] : [second, first];
}

/** Even up to a bias of 2^-24, which two questions about own words can bear. */
export const randomBelow = (below: number): number => (crypto.getRandomValues(new Uint32Array(1))[0] ?? 0) % below;
