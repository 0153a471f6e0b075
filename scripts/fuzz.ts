/**
 * `npm run fuzz -- --minutes 10 [--seed 1]`: the mutations of test/unit/ucan/mutation.property.test.ts for as long as there is time. Prints how far it is, and
 * the first token that was taken wrongly, with what it takes to see it again; then the status is 1.
 */
import { parseArgs } from 'node:util';
import { describeMutant, examine, FAMILIES, type Mutant, mutant } from '../test/vectors/ucan/mutate.ts';

const { values } = parseArgs({ options: { minutes: { type: 'string', default: '10' }, seed: { type: 'string' } } });
const minutes = Number(values.minutes);
const seed = values.seed === undefined ? Math.floor(Math.random() * 2 ** 31) : Number(values.seed);
if (!(minutes > 0) || !Number.isSafeInteger(seed)) {
  console.error('Usage: npm run fuzz -- [--minutes <number>] [--seed <integer>]');
  process.exit(2);
}

const PROGRESS_MS = 10_000;
const start = performance.now();
const end = start + minutes * 60_000;
let told = start;
let slowestMs = 0;
console.log(`Seed ${seed}, ${minutes} minutes.`);
for (let n = 0; performance.now() < end; n += 1) {
  for (const family of FAMILIES) {
    const one = mutant(seed, n, family);
    const before = performance.now();
    const wrong = await examine(one);
    const now = performance.now();
    if (now - before > slowestMs) slowestMs = Math.max(slowestMs, Math.min(now - before, await againMs(one)));
    if (wrong !== undefined) {
      console.error(`${wrong}\n${describeMutant(seed, n, one)}`);
      process.exit(1);
    }
    if (now - told >= PROGRESS_MS) {
      told = now;
      console.log(
        `${Math.round((now - start) / 1_000)} s: ${(n * FAMILIES.length).toLocaleString('en')} mutants refused, the slowest in ${slowestMs.toFixed(1)} ms`,
      );
    }
  }
}
console.log('Nothing found.');

/** The machine may have been busy with something else: the best of three more. */
async function againMs(one: Mutant): Promise<number> {
  let best = Number.POSITIVE_INFINITY;
  for (let n = 0; n < 3; n += 1) {
    const before = performance.now();
    await examine(one);
    best = Math.min(best, performance.now() - before);
  }
  return best;
}
