/** On an older Node the native database crashes without a word, so every entry looks at the version first and says what to do. */
import { execFileSync, spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { afterAll, expect, test } from 'vitest';

const ROOT = join(import.meta.dirname, '../../..');
const CHECK = join(ROOT, 'src/app/cli/require-node.mjs');
const folder = mkdtempSync(join(tmpdir(), 'matrix-oracle-node-version-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

/** The same check, told by a preload that it runs on another version. */
const runAs = (version: string) => {
  const preload = join(folder, `as-${version}.mjs`);
  writeFileSync(preload, `Object.defineProperty(process, 'versions', { value: { ...process.versions, node: '${version}' } });`);
  const entry = join(folder, `entry-${version}.mjs`);
  writeFileSync(entry, `import ${JSON.stringify(pathToFileURL(CHECK).href)};\nconsole.log('went on');`);
  return spawnSync(process.execPath, ['--import', pathToFileURL(preload).href, entry], { encoding: 'utf8' });
};

test.each(['18.20.0', '20.20.2', '23.11.1'])('Node %s is turned away with the remedy', (version) => {
  const { status, stdout, stderr } = runAs(version);

  expect(status).toBe(1);
  expect(stdout).toBe('');
  expect(stderr).toContain(`needs Node.js 24 or newer, but this is ${version}`);
  expect(stderr).toContain('npm run oracle');
  expect(stderr.trim().split('\n')).toHaveLength(1);
});

test.each(['24.0.0', '26.10.0'])('Node %s goes on: the control', (version) => {
  expect(runAs(version)).toMatchObject({ status: 0, stdout: 'went on\n', stderr: '' });
});

test('the version is checked before anything else is imported', () => {
  for (const entry of ['src/app/cli/bin.mjs', 'scripts/test.mjs', 'scripts/check.mjs']) {
    const imports = [...readFileSync(join(ROOT, entry), 'utf8').matchAll(/^import .*$/gm)].map((match) => match[0]);

    expect(imports[0], entry).toMatch(/require-node\.mjs/);
  }
  expect(readFileSync(CHECK, 'utf8')).not.toMatch(/^import /m);
});

test('npm scripts that start a .ts file check the version too', () => {
  const { scripts } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as { scripts: Record<string, string> };
  const unchecked = Object.entries(scripts).filter(
    ([, command]) => /\.ts\b/.test(command) && !command.includes('--import ./src/app/cli/require-node.mjs'),
  );

  expect(unchecked).toEqual([]);
});

test('the Node that npm scripts get is new enough', () => {
  const version = execFileSync(join(ROOT, 'node_modules/.bin/node'), ['--version'], { encoding: 'utf8' });

  expect(Number(version.slice(1).split('.')[0])).toBeGreaterThanOrEqual(24);
});
