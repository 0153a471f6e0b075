/** What an author gets is run as an author runs it: its own test and the type checker, in a package of its own and in a clone. */
import { execFile } from 'node:child_process';
import { cpSync, existsSync, mkdirSync, readdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { rename, TOOLS } from '../../../../src/app/cli/plugin-new.ts';
import { type CliFolder, createCliFolder } from '../../../cli-folder.ts';

const ROOT = join(import.meta.dirname, '../../../..');
const MODULES = join(ROOT, 'node_modules');
const CONDITION = '--conditions=matrix-oracle-source';
const run = promisify(execFile);
let cli: CliFolder;
beforeEach(() => {
  cli = createCliFolder();
});
afterEach(() => cli.remove());

/** As `npm install` would leave it: the package and the tools are found from here. */
function install(folder: string): void {
  mkdirSync(join(folder, 'node_modules/@types'), { recursive: true });
  symlinkSync(ROOT, join(folder, 'node_modules/matrix-oracle'));
  for (const name of ['zod', ...Object.keys(TOOLS)]) symlinkSync(join(MODULES, name), join(folder, 'node_modules', name));
}
const environment = { ...process.env, PATH: `${join(MODULES, '.bin')}:${process.env['PATH']}`, NODE_OPTIONS: CONDITION, VITEST: '' };

test("in somebody's project it makes a package whose test passes and whose types are right", { timeout: 60_000 }, async () => {
  const made = await cli.run(['plugin', 'new', 'shopping-list']);
  const folder = join(cli.dir, 'shopping-list');
  install(folder);
  // A clone has no build: types come from the source, by the condition that a published package does not have.
  const settings = JSON.parse(readFileSync(join(folder, 'tsconfig.json'), 'utf8'));
  settings.compilerOptions = { ...settings.compilerOptions, customConditions: ['matrix-oracle-source'], allowImportingTsExtensions: true };
  writeFileSync(join(folder, 'tsconfig.json'), JSON.stringify(settings));
  const conditions = `['matrix-oracle-source', 'node', 'import', 'default']`;
  const resolve = `{ conditions: ${conditions}, externalConditions: ${conditions} }`;
  writeFileSync(join(folder, 'vitest.config.js'), `export default { ssr: { resolve: ${resolve} }, test: { execArgv: ['${CONDITION}'] } };`);

  const tested = await run('vitest', ['run'], { cwd: folder, env: environment });
  await run('tsc', [], { cwd: folder, env: environment });

  expect(made).toMatchObject({ status: 0, stderr: '' });
  expect(made.stdout.split('Next:\n')[1]?.split('\n').slice(0, 3)).toEqual([
    '  cd shopping-list && npm install',
    '  npm test',
    '  PLUGINS=./plugin.ts npx matrix-oracle plugins',
  ]);
  expect(readdirSync(folder).toSorted()).toEqual(
    ['README.md', 'node_modules', 'package.json', 'plugin.test.ts', 'plugin.ts', 'tsconfig.json', 'vitest.config.js'].toSorted(),
  );
  expect(tested.stdout).toContain('6 passed');
});

test('where an oracle is installed the plugin gets no copy of its own, and the oracle loads it', async () => {
  install(cli.dir);

  const made = await cli.run(['plugin', 'new', 'shopping-list']);
  const plugins = await cli.run(['plugins', '--json'], { PLUGINS: './shopping-list/plugin.ts', SHOPPING_LIST_MAX_ITEMS: '3' });
  const wrong = await cli.run(['plugins'], { PLUGINS: './shopping-list/plugin.ts', SHOPPING_LIST_MAX_ITEMS: 'many' });

  expect(made.stdout).toContain('npm install --save-dev ./shopping-list ');
  expect(JSON.parse(plugins.stdout).loaded).toContainEqual(expect.objectContaining({ name: 'shopping-list', origin: 'given' }));
  expect(wrong.stderr).toContain('SHOPPING_LIST_MAX_ITEMS');
});

test('in a clone it makes a folder of plugins/ and a test beside the others', { timeout: 60_000 }, async () => {
  const clone = join(cli.dir, 'clone');
  for (const name of ['src', 'appservice', 'plugins', 'test/unit/plugins', 'package.json', 'tsconfig.json', 'vitest.config.ts'])
    cpSync(join(ROOT, name), join(clone, name), { recursive: true });
  symlinkSync(MODULES, join(clone, 'node_modules'));
  const program = [CONDITION, join(clone, 'src/app/cli/bin.mjs')];
  const inClone = { cwd: clone, env: environment };

  const made = await run(process.execPath, [...program, 'plugin', 'new', 'shopping-list'], inClone);
  const tested = await run('vitest', ['run', '--project', 'unit', 'test/unit/plugins/shopping-list.test.ts'], inClone);
  writeFileSync(join(clone, 'tsconfig.test.json'), JSON.stringify({ extends: './tsconfig.json', include: ['plugins/shopping-list'] }));
  await run('tsc', ['-p', 'tsconfig.test.json'], inClone);

  expect(made.stdout).toContain('PLUGINS=./plugins/shopping-list/plugin.ts npm run demo');
  expect(readdirSync(join(clone, 'plugins/shopping-list')).toSorted()).toEqual(['README.md', 'plugin.ts']);
  expect(tested.stdout).toContain('6 passed');
  await expect(run(process.execPath, [...program, 'plugin', 'new', 'shopping-list'], inClone)).rejects.toThrow(/exists/u);
});

test.each(['Shopping', '1st', 'a--b', 'a-', '../evil', 'a/b', '', 'x'.repeat(41), 'memory'])(
  'the name %j is refused and nothing is made',
  async (name) => {
    const { status, stdout, stderr } = await cli.run(['plugin', 'new', name]);

    expect([status, stdout]).toEqual([1, '']);
    expect(stderr).toMatch(/is no name for a plugin|is a plugin of the package already/u);
    expect(readdirSync(cli.dir)).toEqual([]);
  },
);

test('what exists is left alone, be it a folder or a file', async () => {
  writeFileSync(join(cli.dir, 'notes'), 'mine');

  const { status, stderr } = await cli.run(['plugin', 'new', 'notes']);

  expect(status).toBe(1);
  expect(stderr).toContain('notes exists.');
  expect(readFileSync(join(cli.dir, 'notes'), 'utf8')).toBe('mine');
});

test('the name stands wherever the template has its own', () => {
  for (const file of ['plugins/template/plugin.ts', 'plugins/template/README.md', 'test/unit/plugins/template.test.ts']) {
    const left = rename(readFileSync(join(ROOT, file), 'utf8'), 'shopping-list').replace(/^\/\*\*\n.*?\n \*\/\n/su, '');
    expect(left, file).not.toMatch(/template/iu);
    expect(left, file).toContain('shopping-list');
  }
});

test('a package is made with the tools of this repository', () => {
  const { devDependencies } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8'));

  expect(devDependencies).toMatchObject(TOOLS);
  expect(existsSync(join(MODULES, 'zod'))).toBe(true);
});
