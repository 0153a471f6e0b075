/**
 * What the lockfile must say, because nobody reads 7,000 lines of it: no deprecated package, the hardened CBOR decoder everywhere (an older one lets
 * `__proto__` through), one better-sqlite3 that needs no compiler, our stand-ins in place of what matrix-bot-sdk imports, and no address of a registry,
 * so that a clone installs from whatever registry its machine uses.
 */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';

const ROOT = join(import.meta.dirname, '../../..');
const text = readFileSync(join(ROOT, 'package-lock.json'), 'utf8');
const manifest = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as { allowScripts: Record<string, boolean> };
interface Entry {
  version?: string;
  deprecated?: string;
  resolved?: string;
  link?: boolean;
  hasInstallScript?: boolean;
  gypfile?: boolean;
}
const packages = Object.entries((JSON.parse(text) as { packages: Record<string, Entry> }).packages);
const nameOf = (path: string): string => path.slice(path.lastIndexOf('node_modules/') + 'node_modules/'.length);
const major = (entry: Entry): number => Number(entry.version?.split('.')[0]);
const versionsOf = (name: string) =>
  packages.filter(([path]) => path.includes('node_modules/') && nameOf(path) === name).map(([, entry]) => entry);

test('no package is deprecated', () => {
  const deprecated = packages.filter(([, entry]) => entry.deprecated !== undefined).map(([path, entry]) => `${path}: ${entry.deprecated}`);

  expect(deprecated).toEqual([]);
});

test('no address of a registry is in the lockfile', () => {
  expect(text.match(/"resolved": "\w+:\/\/[^"]*"/g) ?? []).toEqual([]);
});

test.each([
  ['htmlencode', 'packages/htmlencode'],
  ['request', 'packages/request'],
  ['request-promise', 'packages/request-promise'],
  ['@matrix-org/matrix-sdk-crypto-nodejs', 'packages/matrix-sdk-crypto-nodejs'],
])('%s is our stand-in and nothing else', (name, folder) => {
  expect(versionsOf(name).map((entry) => ({ resolved: entry.resolved, link: entry.link }))).toEqual([{ resolved: folder, link: true }]);
});

test.each([
  ['@ipld/dag-cbor', 10],
  ['cborg', 6],
  ['better-sqlite3', 13],
])('there is one %s, of version %i or newer', (name, atLeast) => {
  const found = versionsOf(name);

  expect(found).toHaveLength(1);
  expect(major(found[0]!)).toBeGreaterThanOrEqual(atLeast);
});

test('every package with an install script is allowed or refused by name, so that npm ci asks nothing', () => {
  const undecided = packages
    .filter(([path, entry]) => entry.hasInstallScript && !(nameOf(path) in manifest.allowScripts))
    .map(([path]) => path);

  expect(undecided).toEqual([]);
});

test('only the package that brings Node may run an install script: nothing here needs a compiler', () => {
  expect(Object.keys(manifest.allowScripts).filter((name) => manifest.allowScripts[name])).toEqual(['node']);
});

test('npm 10 is told not to compile better-sqlite3 (scripts/mark-lockfile.mjs): a clone installs without a compiler', () => {
  expect(versionsOf('better-sqlite3').map((entry) => entry.gypfile)).toEqual([false]);
});
