/**
 * `npm run build:pages`: the authorise page as three files in dist/pages/authorise. The script is bundled and minified from the same UCAN builder that
 * the tests know, so a browser loads one file and nothing from elsewhere. Part of `npm ci` (prepare), therefore plain JavaScript for Node 20 as well;
 * an installation without development dependencies has no bundler, and its page comes built with the package: then `prepare` leaves it alone.
 */
import { copyFileSync, mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { collectLicenses } from './collect-licenses.mjs';

const ROOT = fileURLToPath(new URL('..', import.meta.url));
const SOURCE = join(ROOT, 'src/sidecar/pages/authorise');
const OUT = join(ROOT, 'dist/pages/authorise');

/** Whose code is in the bundle; their licences ask for being named in every copy. */
const BANNER = [
  'matrix-oracle, Apache-2.0. Contains @ipld/dag-ucan, @ipld/dag-cbor, @ipld/dag-json, multiformats (Apache-2.0 OR MIT), cborg (Apache-2.0),',
  '@scure/bip39 and @noble/hashes (MIT, Paul Miller): LICENSES.txt beside the page as it is published.',
].join(' ');

let rolldown;
try {
  ({ rolldown } = await import('rolldown'));
} catch (error) {
  if (process.env.npm_lifecycle_event === 'prepare' && error.code === 'ERR_MODULE_NOT_FOUND') process.exit(0);
  throw error;
}

const bundle = await rolldown({
  input: join(SOURCE, 'main.ts'),
  platform: 'browser',
  tsconfig: false,
  treeshake: { moduleSideEffects: false },
  onLog(level, log) {
    if (level === 'warn') throw new Error(`the page cannot be bundled: ${log.message}`);
  },
});
const { output } = await bundle.generate({ format: 'esm', minify: true, codeSplitting: false, comments: { legal: true } });
await bundle.close();
const [script, ...others] = output;
if (others.length > 0) throw new Error(`one file was expected, but there is ${others[0].fileName} too`);

// Written beside and moved: a sidecar that starts meanwhile finds all of it or none.
const fresh = `${OUT}.${process.pid}`;
rmSync(fresh, { recursive: true, force: true });
mkdirSync(fresh, { recursive: true });
writeFileSync(join(fresh, 'app.js'), `/*! ${BANNER} */\n${script.code}`);
writeFileSync(join(fresh, 'LICENSES.txt'), collectLicenses(script.moduleIds));
for (const name of ['index.html', 'app.css']) copyFileSync(join(SOURCE, name), join(fresh, name));
rmSync(OUT, { recursive: true, force: true });
renameSync(fresh, OUT);
process.stdout.write(`dist/pages/authorise: app.js ${readFileSync(join(OUT, 'app.js')).length} bytes\n`);
