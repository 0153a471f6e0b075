/**
 * From nothing to a plugin with a passing test: a copy of the template under another name. The template is itself a plugin of this repository, tested and
 * type checked like the others, so what an author starts from cannot rot. In a clone it becomes one more folder of `plugins/`; anywhere else a package.
 */
import { existsSync, readFileSync } from 'node:fs';
import { mkdir, writeFile } from 'node:fs/promises';
import { dirname, join, relative, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { PLUGIN_NAME } from '../../plugin-api/read-plugin.ts';
import { CliError } from './cli-error.ts';

/** Sources and build lie equally deep below the package. */
const PACKAGE = fileURLToPath(new URL('../../../', import.meta.url));
/** A tool's name is the plugin's and a word, and has an end (src/plugin-api/define-tool.ts). */
const MAX_NAME_CHARS = 40;
/** What the package's own plugins and commands are called would only confuse. */
const TAKEN = ['clock', 'credits', 'mcp', 'memory', 'room', 'template', 'user-preferences', 'matrix-oracle'];
/** What a package of its own is checked and tested with: a test keeps them at this repository's versions. */
export const TOOLS = { '@types/node': '^24.19.4', typescript: '^7.0.2', vitest: '^5.1.2' } as const;

const shownPath = (path: string): string => relative('.', path);

interface NewFile {
  readonly path: string;
  readonly text: string;
}
interface Template {
  readonly plugin: string;
  readonly test: string;
  readonly readme: string;
}
interface Scaffold {
  /** Absolute; must not exist. */
  readonly folder: string;
  readonly files: readonly NewFile[];
  readonly commands: readonly string[];
}

export async function runPluginNew(name: string): Promise<void> {
  checkName(name);
  const here = process.cwd();
  const scaffold = isInClone(here) ? planInClone(name, here) : planPackage(name, here);
  const taken = [scaffold.folder, ...scaffold.files.map(({ path }) => path)].find((path) => existsSync(path));
  if (taken !== undefined) throw new CliError(`${shownPath(taken)} exists. Choose another name, or move it away first.`);
  for (const { path, text } of scaffold.files) {
    await mkdir(dirname(path), { recursive: true });
    await writeFile(path, text, { flag: 'wx' });
  }
  process.stdout.write(buildReport(name, scaffold));
}

function checkName(name: string): void {
  if (!PLUGIN_NAME.test(name) || name.length > MAX_NAME_CHARS || /--|-$/u.test(name))
    throw new CliError(
      `${JSON.stringify(name.slice(0, 80))} is no name for a plugin: lower case letters, digits and single hyphens, such as shopping-list; at most ${MAX_NAME_CHARS}.`,
    );
  if (TAKEN.includes(name)) throw new CliError(`${name} is a plugin of the package already. Choose another name.`);
}

/** The source is there, and whoever calls stands in it. */
function isInClone(here: string): boolean {
  const way = relative(PACKAGE, here);
  return existsSync(join(PACKAGE, 'plugins', 'template')) && !way.startsWith('..') && resolve(PACKAGE, way) === here;
}

function readTemplate(): Template {
  const [plugin, test] = existsSync(join(PACKAGE, 'plugins', 'template'))
    ? ['plugins/template', 'test/unit/plugins/template.test.ts']
    : ['dist/template', 'dist/template/plugin.test.ts'];
  const read = (path: string): string => readFileSync(join(PACKAGE, path), 'utf8');
  return { plugin: read(`${plugin}/plugin.ts`), readme: read(`${plugin}/README.md`), test: read(test) };
}

/** The one word of the template in every spelling that stands in it. */
export function rename(text: string, name: string): string {
  const title = `${name.charAt(0).toUpperCase()}${name.slice(1).replaceAll('-', ' ')}`;
  return text
    .replaceAll('TEMPLATE_', `${name.replaceAll('-', '_').toUpperCase()}_`)
    .replaceAll('template_', `${name.replaceAll('-', '_')}_`)
    .replaceAll("'Template'", `'${title}'`)
    .replaceAll("'template'", `'${name}'`)
    .replaceAll('/template/', `/${name}/`)
    .replaceAll('# template', `# ${name}`);
}
/** The comment at its head is about the template. */
const renamePlugin = (text: string, name: string): string =>
  rename(text, name).replace(
    /^\/\*\*\n.*?\n \*\/\n/su,
    '/** Keeps a list for each person: say here what it is for, and what breaks without it. */\n',
  );

function planInClone(name: string, here: string): Scaffold {
  const template = readTemplate();
  const folder = join(PACKAGE, 'plugins', name);
  const test = join(PACKAGE, 'test', 'unit', 'plugins', `${name}.test.ts`);
  const files = [
    { path: join(folder, 'plugin.ts'), text: renamePlugin(template.plugin, name) },
    { path: join(folder, 'README.md'), text: rename(template.readme, name) },
    { path: test, text: rename(template.test, name) },
  ];
  const back = relative(here, PACKAGE);
  return {
    folder,
    files,
    commands: [
      `${back === '' ? '' : `cd ${back} && `}npx vitest run --project unit test/unit/plugins/${name}.test.ts`,
      'npx tsc -p .',
      `PLUGINS=./plugins/${name}/plugin.ts npm run demo`,
    ],
  };
}

function planPackage(name: string, here: string): Scaffold {
  const template = readTemplate();
  const folder = join(here, name);
  const files = [
    { path: join(folder, 'package.json'), text: buildManifest(name) },
    { path: join(folder, 'tsconfig.json'), text: TSCONFIG },
    { path: join(folder, 'plugin.ts'), text: renamePlugin(template.plugin, name) },
    {
      path: join(folder, 'plugin.test.ts'),
      text: rename(template.test, name).replace(`'../../../plugins/${name}/plugin.ts'`, "'./plugin.ts'"),
    },
    { path: join(folder, 'README.md'), text: rename(template.readme, name) },
  ];
  return { folder, files, commands: isInProject(here) ? planProjectCommands(name) : planPackageCommands(name) };
}

/** Whether the oracle is installed above: then the plugin must use that very copy, and gets none of its own. */
function isInProject(here: string): boolean {
  if (existsSync(join(here, 'node_modules', 'matrix-oracle'))) return true;
  const above = dirname(here);
  return above !== here && isInProject(above);
}
const planProjectCommands = (name: string): readonly string[] => [
  `npm install --save-dev ./${name} ${Object.entries(TOOLS)
    .map(([tool, range]) => `${tool}@${range}`)
    .join(' ')}`,
  `npm --prefix ./${name} test`,
  `PLUGINS=./${name}/plugin.ts npx matrix-oracle plugins`,
];
const planPackageCommands = (name: string): readonly string[] => [
  `cd ${name} && npm install`,
  'npm test',
  'PLUGINS=./plugin.ts npx matrix-oracle plugins',
];

function buildManifest(name: string): string {
  const own = JSON.parse(readFileSync(join(PACKAGE, 'package.json'), 'utf8')) as { version: string; dependencies: { zod: string } };
  const manifest = {
    name,
    version: '0.1.0',
    description: 'A plugin for matrix-oracle.',
    type: 'module',
    engines: { node: '>=24' },
    exports: './dist/plugin.js',
    files: ['dist/plugin.js', 'dist/plugin.d.ts'],
    // Not what the build makes of the tests.
    scripts: { test: 'vitest run .test.ts && tsc', build: 'tsc --noEmit false', prepack: 'npm run build' },
    // Never a copy of its own: an error of another copy is not the host's.
    peerDependencies: { 'matrix-oracle': `>=${own.version}` },
    dependencies: { zod: own.dependencies.zod },
    devDependencies: TOOLS,
  };
  return `${JSON.stringify(manifest, null, 2)}\n`;
}

/** Node runs the source as it is; `npm run build` makes what is published, because Node runs no TypeScript inside node_modules. */
const TSCONFIG = `${JSON.stringify(
  {
    compilerOptions: {
      target: 'es2025',
      module: 'nodenext',
      types: ['node'],
      strict: true,
      exactOptionalPropertyTypes: true,
      noUncheckedIndexedAccess: true,
      verbatimModuleSyntax: true,
      erasableSyntaxOnly: true,
      rewriteRelativeImportExtensions: true,
      skipLibCheck: true,
      declaration: true,
      noEmit: true,
      rootDir: '.',
      outDir: 'dist',
    },
    include: ['*.ts'],
  },
  null,
  2,
)}\n`;

function buildReport(name: string, { files, commands }: Scaffold): string {
  return [
    `Plugin ${name}:`,
    ...files.map(({ path }) => `  ${shownPath(path)}`),
    '',
    'Next:',
    ...commands.map((command) => `  ${command}`),
    '',
    'docs/plugins.md says what its parts mean.',
    '',
  ].join('\n');
}
