/**
 * `npm run soak -- --kills 1000 [--seed 1]`: the kills at random moments of test/crash/random-kills.test.ts, as many as asked for, on a real Synapse.
 * Prints how far it is after every 20; the status is 1 when anything was lost, doubled or left unfinished, with the seed that shows it again.
 */
import '../src/app/cli/require-node.mjs';
import { parseArgs } from 'node:util';
import { runStep } from './run-step.mjs';

const { values } = parseArgs({ options: { kills: { type: 'string', default: '1000' }, seed: { type: 'string' } } });
const kills = Number(values.kills);
const seed = values.seed === undefined ? Math.floor(Math.random() * 2 ** 31) : Number(values.seed);
if (!(Number.isSafeInteger(kills) && kills > 0) || !Number.isSafeInteger(seed)) {
  console.error('Usage: npm run soak -- [--kills <integer>] [--seed <integer>]');
  process.exit(2);
}

console.log(`${kills} kills, seed ${seed}.`);
Object.assign(process.env, { KILLS: String(kills), KILL_SEED: String(seed) });
// What the test prints is shown as it comes.
const status = await runStep('vitest', ['run', 'test/crash/random-kills.test.ts', '--project', 'crash', '--disableConsoleIntercept']);
console.log(
  status === 0
    ? `Nothing was lost or doubled in ${kills} kills.`
    : `Something was lost or doubled: see above, and try again with --seed ${seed}.`,
);
process.exitCode = status;
