import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, test } from 'vitest';
import { describeConfig } from '../../../src/config.ts';
import { ERRORS } from '../../../src/errors.ts';
import { describeMetrics } from '../../../src/observe/metrics.ts';

const ROOT = join(fileURLToPath(import.meta.url), '..', '..', '..', '..');
const page = readFileSync(join(ROOT, 'docs', 'operations.md'), 'utf8');
const sources = ['src', 'appservice']
  .flatMap((folder) =>
    readdirSync(join(ROOT, folder), { recursive: true, encoding: 'utf8' })
      .filter((name) => name.endsWith('.ts'))
      .map((name) => readFileSync(join(ROOT, folder, name), 'utf8')),
  )
  .join('\n');

test('every log line that the page explains is written by the code', () => {
  const explained = [...page.matchAll(/^\| (?:error|warn) \| (?<message>[^|]+) \|/gmu)].map((match) => String(match.groups?.['message']));

  expect(explained.length).toBeGreaterThan(10);
  expect(explained.filter((message) => !sources.includes(`'${message}'`))).toEqual([]);
});

test('every metric in an alarm exists', () => {
  const names = describeMetrics().map(({ name }) => name);
  const used = [...page.matchAll(/matrix_oracle_[a-z_]+/gu)].map(([name]) => name);

  expect(used.length).toBeGreaterThan(5);
  expect(used.filter((name) => !names.includes(name))).toEqual([]);
});

test('every setting and code that is named exists', () => {
  const names = new Set([...describeConfig().map(({ name }) => name), ...Object.keys(ERRORS)]);
  const used = [...page.matchAll(/`(?<name>[A-Z][A-Z_]*_[A-Z_]+|PORT|HOST)(?:=\w+)?`/gu)].map((match) => String(match.groups?.['name']));

  expect(used.length).toBeGreaterThan(10);
  expect(used.filter((name) => !names.has(name))).toEqual([]);
});
