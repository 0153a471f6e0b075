/**
 * `npm pack` and `npm publish` take package.json as it lies there, so it is changed for that moment: without our own export condition (a user's
 * tools might set it), without what only a clone needs, and without the dependencies that the build bundles.
 * `prepack` writes it and keeps the original; `postpack` puts that back. Both may run twice.
 */
import { existsSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

/**
 * In the bundle, so that whoever installs us gets these very versions (docs/dependencies.md). The saver because it names an older better-sqlite3, which
 * nobody would use, and whose install script needs a download or a compiler.
 */
export const BUNDLED: readonly string[] = [
  'matrix-bot-sdk',
  '@langchain/langgraph-checkpoint-sqlite',
  '@ipld/dag-ucan',
  '@ipld/dag-cbor',
  'cborg',
  'multiformats',
];
const SOURCE_CONDITION = 'matrix-oracle-source';

interface Manifest {
  readonly exports: Record<string, Record<string, string>>;
  readonly dependencies: Record<string, string>;
  readonly [field: string]: unknown;
}

export function planPackedManifest(manifest: Manifest): Manifest {
  const { scripts: _s, devDependencies: _d, workspaces: _w, overrides: _o, allowScripts: _a, private: _p, ...kept } = manifest;
  const exports = Object.fromEntries(
    Object.entries(manifest.exports).map(([path, { [SOURCE_CONDITION]: _source, ...conditions }]) => [path, conditions]),
  );
  const dependencies = Object.fromEntries(Object.entries(manifest.dependencies).filter(([name]) => !BUNDLED.includes(name)));
  return { ...kept, bin: { 'matrix-oracle': './dist/app/cli/bin.js' }, exports, dependencies };
}

const MANIFEST = join(import.meta.dirname, '..', 'package.json');
const ORIGINAL = join(import.meta.dirname, '..', 'package.json.unpacked');

function restore(): void {
  if (existsSync(ORIGINAL)) renameSync(ORIGINAL, MANIFEST);
}

const [step] = import.meta.filename === process.argv[1] ? process.argv.slice(2) : [];
if (step === 'pack') {
  restore();
  const text = readFileSync(MANIFEST, 'utf8');
  writeFileSync(ORIGINAL, text);
  writeFileSync(MANIFEST, `${JSON.stringify(planPackedManifest(JSON.parse(text)), null, 2)}\n`);
} else if (step === 'unpack') restore();
else if (step !== undefined) throw new Error('usage: packed-manifest.mjs pack|unpack');
