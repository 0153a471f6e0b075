/**
 * A gate must be seen to fail: dependency-cruiser beside TypeScript 7 reads no `.ts` file with its own parser and says "no violations".
 * So the real rules run over a small tree that breaks each of them once.
 */
import { execFile } from 'node:child_process';
import { basename, join } from 'node:path';
import { describe, expect, test } from 'vitest';

const ROOT = join(import.meta.dirname, '../../..');
const FIXTURE = join(ROOT, 'test/fixtures/tooling/import-rule');
const CONFIG = join(ROOT, '.dependency-cruiser.cjs');

interface Cruise {
  summary: {
    totalCruised: number;
    violations: { from: string; to: string; rule: { name: string } }[];
    ruleSetUsed: { forbidden: { name: string }[] };
  };
}

const cruise = await new Promise<Cruise>((resolve, reject) => {
  const args = [
    join(ROOT, 'node_modules/dependency-cruiser/bin/dependency-cruiser.mjs'),
    ...['--config', CONFIG, '--output-type', 'json', 'src', 'appservice', 'plugins'],
  ];
  execFile(process.execPath, args, { cwd: FIXTURE, maxBuffer: 64 * 1024 * 1024 }, (error, stdout) => {
    try {
      resolve(JSON.parse(stdout) as Cruise);
    } catch {
      reject(error ?? new Error('dependency-cruiser printed no JSON'));
    }
  });
});
const { violations, ruleSetUsed } = cruise.summary;
const rules = ruleSetUsed.forbidden.map((rule) => rule.name);

describe('the import rule', () => {
  test.each(rules)('a file that breaks "%s" is reported', (rule) => {
    const reported = violations.filter((violation) => violation.rule.name === rule).map((violation) => basename(violation.from, '.ts'));

    expect(reported).toContain(rule);
  });

  test('allowed imports are not reported, so the reports above are no accident', () => {
    const offenders = new Set(violations.map((violation) => basename(violation.from, '.ts')));

    expect([...offenders].sort()).toEqual([...rules].sort());
  });

  test('nothing but the rule it is named after is broken by a file', () => {
    const other = violations.filter(({ from, rule }) => basename(from, '.ts') !== rule.name);

    expect(other).toEqual([]);
  });
});
