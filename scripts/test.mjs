/**
 * `npm test`: what needs no homeserver first (under a minute), then the end-to-end and crash tests on a real Synapse. `node scripts/test.mjs unit e2e` runs
 * only the projects named. The last line is one of its own, `N passed, N failed`, summed from the runner's reports and never from its printed text;
 * a file that cannot be loaded, a hook that failed and a runner that died count as failed, and a run in which no test ran is a failure too.
 */
import '../src/app/cli/require-node.mjs';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { runStep } from './run-step.mjs';

// Not a static import: an older Node would stop at the types before require-node is heard.
const { readReport, sumReports, summaryLine } = await import('./read-test-report.ts');

/** One after the other; the groups of a stage run side by side, each in a process of its own: what waits for minutes must hold up nothing else. */
const STAGES = [[['unit', 'contracts', 'conformance']], [['properties', 'cli', 'crash-matrix']], [['e2e', 'crash'], ['e2e-slow']]];

const named = process.argv.slice(2);
const projects = STAGES.flat(2);
const unknown = named.filter((name) => !projects.includes(name));
if (unknown.length > 0) {
  process.stderr.write(`No such test project: ${unknown.join(', ')}. Known: ${projects.join(', ')}.\n`);
  process.exit(2);
}
const isAsked = (name) => named.length === 0 || named.includes(name);
const stages = STAGES.map((groups) => groups.map((group) => group.filter(isAsked)).filter((group) => group.length > 0));

let stopped = false;
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) {
  process.on(signal, () => {
    stopped = true;
  });
}

async function runGroup(group) {
  const file = join(folder, `${group.join('-')}.json`);
  const asked = group.flatMap((name) => ['--project', name]);
  const status = await runStep('vitest', ['run', ...asked, '--reporter=default', '--reporter=json', `--outputFile.json=${file}`]);
  let text;
  try {
    text = readFileSync(file, 'utf8');
  } catch {
    text = undefined;
  }
  return readReport(text, status);
}

const folder = mkdtempSync(join(tmpdir(), 'matrix-oracle-test-'));
const results = [];
try {
  for (const stage of stages) {
    if (stopped) break;
    results.push(...(await Promise.all(stage.map(runGroup))));
  }
} finally {
  rmSync(folder, { recursive: true, force: true });
}

const sum = sumReports(results);
process.exitCode = sum.failed > 0 || sum.passed === 0 || stopped ? 1 : 0;
process.stdout.write(`\n${summaryLine(sum)}\n`);
