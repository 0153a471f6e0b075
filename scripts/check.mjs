/**
 * `npm run check`: everything that can be said about the tree without a network or a homeserver. All steps run even when one fails, so that one
 * run shows everything. `--no-unit` leaves out the unit tests, for those who run `npm test` right after.
 */
import '../src/app/cli/require-node.mjs';
import { runStep } from './run-step.mjs';

const STEPS = [
  { name: 'format and lint', command: ['biome', 'ci', '--error-on-warnings'] },
  { name: 'types', command: ['tsc', '-p', '.'] },
  { name: 'types of the page', command: ['tsc', '-p', 'tsconfig.pages.json'] },
  { name: 'unused code and dependencies', command: ['knip'] },
  { name: 'import rule', command: ['depcruise', 'src', 'appservice', 'plugins'] },
  { name: 'unit tests', command: ['vitest', 'run', '--project', 'unit', '--project', 'properties', '--project', 'cli'], flag: '--no-unit' },
  { name: 'generated files', command: ['node', '--conditions=matrix-oracle-source', 'scripts/generate.ts', '--check'] },
];

const flags = process.argv.slice(2);
const steps = STEPS.filter((step) => !(step.flag && flags.includes(step.flag)));
const failed = [];
for (const { name, command } of steps) {
  process.stdout.write(`\n== ${name}: ${command.join(' ')}\n`);
  const started = performance.now();
  const status = await runStep(command[0], command.slice(1));
  process.stdout.write(`${status === 0 ? '✓' : '✗'} ${name} (${((performance.now() - started) / 1_000).toFixed(1)} s)\n`);
  if (status !== 0) failed.push(name);
}
process.stdout.write(failed.length === 0 ? '\nAll checks passed.\n' : `\nFailed: ${failed.join(', ')}.\n`);
process.exitCode = failed.length === 0 ? 0 : 1;
