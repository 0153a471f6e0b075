/**
 * `npm run bench -- <name> [--json]`: measures one thing and prints one flat JSON object. Nothing here asserts a time: machines are noisy,
 * and what counts is the ratio to a baseline measured in the same run.
 */
import '../../src/app/cli/require-node.mjs';

const BENCHES: Record<string, (onProgress: (line: string) => void) => Promise<Record<string, number>>> = {
  crypto: async (onProgress) => (await import('./crypto.ts')).benchCrypto(onProgress),
  e2e: async (onProgress) => (await import('./e2e.ts')).benchE2e(onProgress),
  plugins: async (onProgress) => (await import('./plugins.ts')).benchPlugins(onProgress),
  runs: async (onProgress) => (await import('./runs.ts')).benchRuns(onProgress),
  ucan: async (onProgress) => (await import('./ucan.ts')).benchUcan(onProgress),
};

const [name = '', ...flags] = process.argv.slice(2);
const bench = BENCHES[name];
if (bench === undefined || flags.some((flag) => flag !== '--json')) {
  console.error(`Usage: npm run bench -- <${Object.keys(BENCHES).join('|')}> [--json]`);
  process.exit(2);
}
const figures = await bench((line) => console.error(`… ${line}`));
console.log(JSON.stringify(figures, null, flags.includes('--json') ? undefined : 2));
