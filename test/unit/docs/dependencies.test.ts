import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, test } from 'vitest';

const ROOT = join(fileURLToPath(import.meta.url), '..', '..', '..', '..');
const page = readFileSync(join(ROOT, 'docs', 'dependencies.md'), 'utf8');
const manifest = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as Record<'dependencies' | 'devDependencies', object>;

const [atRunTime = '', forDevelopment = ''] = page.split('## For development').map((part) => part.split('## Stand-ins')[0]);
/** Names in the first column. */
const named = (part: string): string[] =>
  [...part.matchAll(/^\| (?<names>`[^|]+) \|/gmu)].flatMap(({ groups }) =>
    [...(groups?.['names'] ?? '').matchAll(/`(?<name>[^`]+)`/gu)].map((match) => match.groups?.['name'] ?? ''),
  );

test('every dependency has its reason on the page, and every reason its dependency', () => {
  const development = Object.keys(manifest.devDependencies).filter((name) => !name.startsWith('@types/'));

  expect(named(atRunTime).sort()).toEqual(Object.keys(manifest.dependencies).sort());
  expect(
    named(forDevelopment)
      .filter((name) => name !== '@types/*')
      .sort(),
  ).toEqual(development.sort());
});
