/**
 * Code on a page that does not compile is worse than none. Each `ts` block of the guides names its file in its first line; all are written side by side, as
 * an author has them, checked by tsc without any setting of ours that an author does not have, and the tests among them are run.
 */
import { execFile } from 'node:child_process';
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';

const ROOT = join(import.meta.dirname, '../../..');
const MODULES = join(ROOT, 'node_modules');
const CONDITION = 'matrix-oracle-source';
/** Made of the types: declarations, not code. */
const REFERENCE = 'docs/plugin-api.md';
const run = promisify(execFile);
const dir = mkdtempSync(join(tmpdir(), 'matrix-oracle-docs-'));
afterAll(() => rmSync(dir, { recursive: true, force: true }));

const pages = [
  'README.md',
  'CONTRIBUTING.md',
  ...readdirSync(join(ROOT, 'docs')).map((name) => `docs/${name}`),
  ...readdirSync(join(ROOT, 'plugins')).map((name) => `plugins/${name}/README.md`),
].filter((page) => page.endsWith('.md') && page !== REFERENCE);
const blocks = pages.flatMap((page) =>
  [
    ...readFileSync(join(ROOT, page), 'utf8').matchAll(/^```(?:ts|typescript)\n(?:\/\/ (?<file>[\w./-]+\.ts)\n)?(?<code>[\s\S]*?)^```$/gmu),
  ].map(({ groups }) => ({
    page,
    file: groups?.['file'],
    code: groups?.['code'] ?? '',
  })),
);

test('every block names its file, and no two the same', () => {
  expect(blocks.filter(({ file }) => file === undefined)).toEqual([]);
  expect(new Set(blocks.map(({ file }) => file)).size).toBe(blocks.length);
  expect(blocks.length).toBeGreaterThan(5);
});

describe('written down as an author would', { timeout: 60_000 }, () => {
  const environment = { ...process.env, PATH: `${join(MODULES, '.bin')}:${process.env['PATH']}`, VITEST: '' };
  beforeAll(() => {
    for (const { file = '', code } of blocks) {
      mkdirSync(dirname(join(dir, file)), { recursive: true });
      writeFileSync(join(dir, file), code);
    }
    mkdirSync(join(dir, 'node_modules/@types'), { recursive: true });
    symlinkSync(ROOT, join(dir, 'node_modules/matrix-oracle'));
    for (const name of ['zod', 'langchain', 'vitest', '@types/node']) symlinkSync(join(MODULES, name), join(dir, 'node_modules', name));
    const compilerOptions = {
      ...{
        target: 'es2025',
        module: 'nodenext',
        types: ['node'],
        strict: true,
        exactOptionalPropertyTypes: true,
        noUncheckedIndexedAccess: true,
      },
      ...{ verbatimModuleSyntax: true, erasableSyntaxOnly: true, allowImportingTsExtensions: true, skipLibCheck: true, noEmit: true },
      // A clone has no build: types come from the source.
      customConditions: [CONDITION],
    };
    writeFileSync(join(dir, 'tsconfig.json'), JSON.stringify({ compilerOptions, include: ['**/*.ts'] }));
    writeFileSync(join(dir, 'package.json'), JSON.stringify({ type: 'module' }));
    const conditions = JSON.stringify([CONDITION, 'node', 'import', 'default']);
    const resolve = `{ conditions: ${conditions}, externalConditions: ${conditions} }`;
    const config = `export default { ssr: { resolve: ${resolve} }, test: { execArgv: ['--conditions=${CONDITION}'] } };`;
    writeFileSync(join(dir, 'vitest.config.js'), config);
  });

  test('all of it compiles', async () => {
    const { stdout } = await run('tsc', ['-p', '.'], { cwd: dir, env: environment }).catch((error: { stdout: string }) => error);

    expect(stdout).toBe('');
  });

  test('its tests pass', async () => {
    const { stdout } = await run('vitest', ['run'], { cwd: dir, env: environment });

    expect(stdout).toContain('3 passed');
  });
});
