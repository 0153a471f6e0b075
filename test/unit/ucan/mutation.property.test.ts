/**
 * Any damage to any honest token is refused with a code, or leaves only honest blocks; nothing is thrown, and the work stays within its counts (G8, G14).
 * 105,000 mutants, other ones in every run; MUTATION_SEED repeats one. `npm run fuzz -- --minutes 10` goes on for longer.
 */
import { expect, test } from 'vitest';
import { describeMutant, examine, type Family, mutant } from '../../vectors/ucan/mutate.ts';

const SEED = Number(process.env['MUTATION_SEED'] ?? Math.floor(Math.random() * 2 ** 31));
/** Cheap refusals are many, whole chains hashed anew are fewer. */
const COUNTS: Readonly<Record<Family, number>> = { text: 15_000, bytes: 50_000, sections: 15_000, blocks: 12_500, fields: 12_500 };

test.each(Object.entries(COUNTS) as [Family, number][])(
  'no mutation of the %s of an honest token passes, %i times (G8, G14)',
  async (family, count) => {
    for (let n = 0; n < count; n += 1) {
      const one = mutant(SEED, n, family);
      const wrong = await examine(one);
      // One assertion for each would take longer than the work.
      if (wrong !== undefined) expect.fail(`${wrong}\n${describeMutant(SEED, n, one)}`);
    }
  },
  120_000,
);

test('a mutant is the same one again for its seed and number', () => {
  for (const family of Object.keys(COUNTS) as Family[]) expect(mutant(7, 11, family)).toEqual(mutant(7, 11, family));
  expect(mutant(7, 11, 'bytes').token).not.toBe(mutant(8, 11, 'bytes').token);
});

test('most mutants are no longer the token that they were', () => {
  const mutants = (Object.keys(COUNTS) as Family[]).flatMap((family) => Array.from({ length: 400 }, (_, n) => mutant(SEED, n, family)));

  expect(mutants.filter(({ same }) => !same).length).toBeGreaterThan(mutants.length * 0.8);
  expect(new Set(mutants.map(({ token }) => token)).size).toBeGreaterThan(mutants.length * 0.8);
});
