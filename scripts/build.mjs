/**
 * `npm run build`: what is published. npm overrides and workspaces do not reach whoever installs us as a dependency, so everything that must be
 * the hardened version (CBOR and UCAN codecs) or our stand-in (parts of matrix-bot-sdk) is bundled; the rest stays an ordinary dependency.
 * All code lies three folders deep, as in the source: two files find things relative to themselves.
 */
import { cpSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { rolldown } from 'rolldown';
import '../src/app/cli/require-node.mjs';
import './build-pages.mjs';
import { collectLicenses } from './collect-licenses.mjs';
import { runStep } from './run-step.mjs';

// Not a static import: an older Node would stop at the types before require-node is heard.
const { BUNDLED } = await import('./packed-manifest.ts');

const ROOT = join(import.meta.dirname, '..');
const OUT = join(ROOT, 'dist');
const { dependencies } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8'));
const external = Object.keys(dependencies).filter((name) => !BUNDLED.includes(name));
const isExternal = (id) => external.some((name) => id === name || id.startsWith(`${name}/`));

for (const folder of ['app', 'src', 'appservice', 'plugins', 'template', 'index.js', 'app.js', 'testing.js'])
  rmSync(join(OUT, folder), { recursive: true, force: true });

const bundle = await rolldown({
  cwd: ROOT,
  platform: 'node',
  input: { 'app/cli/bin': 'src/app/cli/bin.mjs', index: 'src/index.ts', app: 'src/app/create-oracle-app.ts', testing: 'src/testing.ts' },
  // `synapse-dev` is only in a clone; the command that imports it looks first.
  external: (id) => isExternal(id) || id.includes('/synapse-dev/'),
  resolve: { conditionNames: ['matrix-oracle-source', 'node', 'import', 'default'] },
  onLog(level, log, handle) {
    // Old CommonJS inside matrix-bot-sdk; everything else that looks wrong stops the build.
    if (level === 'warn' && !/node_modules/u.test(`${log.id ?? ''}${log.message}`)) throw new Error(log.message);
    if (level !== 'warn') handle(level, log);
  },
});
const { output } = await bundle.write({
  dir: OUT,
  format: 'esm',
  entryFileNames: '[name].js',
  chunkFileNames: 'app/cli/[name]-[hash].js',
  minify: false,
});
await bundle.close();
writeFileSync(join(OUT, 'THIRD-PARTY-LICENSES.txt'), collectLicenses(output.flatMap((chunk) => chunk.moduleIds ?? [])));

// What `plugin new` copies: text, not code of the bundle.
for (const file of ['plugin.ts', 'README.md']) cpSync(join(ROOT, 'plugins/template', file), join(OUT, 'template', file));
cpSync(join(ROOT, 'test/unit/plugins/template.test.ts'), join(OUT, 'template', 'plugin.test.ts'));

const status = await runStep('tsc', ['-p', 'tsconfig.build.json']);
if (status !== 0) process.exit(status);
