import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, test } from 'vitest';
import { describeConfig } from '../../../src/config.ts';
import { ERRORS } from '../../../src/errors.ts';
import { AUTHORITY_CODES } from '../../../src/ucan/codes.ts';

const ROOT = join(fileURLToPath(import.meta.url), '..', '..', '..', '..');
const read = (path: string): string => readFileSync(join(ROOT, path), 'utf8');
const page = read('docs/security.md');
const named = [...page.matchAll(/^\| (?<threat>T\d+) \| `(?<file>[^`]+\.test\.ts)` \| (?<title>.+?) \| (?:(?<row>.+) )?\|$/gmu)].map(
  ({ groups }) => ({
    threat: groups?.['threat'] ?? '',
    file: groups?.['file'] ?? '',
    title: groups?.['title'] ?? '',
    row: groups?.['row'],
  }),
);
const threats = [...page.matchAll(/^\| (?<threat>T\d+) \| (?!`)/gmu)].map(({ groups }) => groups?.['threat']);

/** As a literal of any kind of quotes. */
const spellings = (text: string): string[] => [`'${text.replaceAll("'", "\\'")}'`, `"${text.replaceAll('"', '\\"')}"`, `\`${text}\``];
function hasTest(source: string, title: string): boolean {
  // A title follows the opening parenthesis of test(…) or test.each(…)(…).
  return spellings(title).some((text) => source.replaceAll(/\(\s+/gu, '(').includes(`(${text},`));
}
/** Cases of test.each stand in the file of the test, those of the vectors in theirs. */
function hasRow(file: string, source: string, row: string): boolean {
  if (!file.endsWith('/vectors.test.ts')) return spellings(row).some((text) => source.includes(text));
  const folder = 'test/vectors/ucan';
  return readdirSync(join(ROOT, folder)).some((name) => name.endsWith('.json') && read(join(folder, name)).includes(`"${row}"`));
}

test('every threat is shown by tests, and every test is of a threat', () => {
  expect(threats).toEqual(threats.map((_, n) => `T${n + 1}`));
  expect(threats.length).toBeGreaterThan(10);
  expect([...new Set(named.map(({ threat }) => threat))]).toEqual(threats);
});

test('every test that the page names exists', () => {
  const gone = named.filter(({ file, title, row }) => {
    const source = read(file);
    return !hasTest(source, title) || (row !== undefined && !hasRow(file, source, row));
  });

  expect(gone).toEqual([]);
});

test('a test that does not exist is noticed', () => {
  expect(hasTest(read('test/unit/docs/security.test.ts'), 'every test that the page names exists')).toBe(true);
  expect(hasTest(read('test/unit/docs/security.test.ts'), 'every test that the page names')).toBe(false);
});

test('every code of an authorisation is on the page, and every code and setting that is named exists', () => {
  const table = page.slice(page.indexOf('## Codes'), page.indexOf('## Threats'));
  const documented = [...table.matchAll(/^\| `(?<code>[A-Z_]+)`/gmu)].map(({ groups }) => groups?.['code']);
  const known = new Set([...Object.keys(ERRORS), ...describeConfig().map(({ name }) => name)]);
  const used = [...page.matchAll(/`(?<name>[A-Z]+(?:_[A-Z]+)+)(?:=[\w-]+)?`/gu)].map(({ groups }) => groups?.['name'] ?? '');

  expect(documented).toEqual(Object.keys(AUTHORITY_CODES));
  expect(used.filter((name) => !known.has(name))).toEqual([]);
});

test('every source file that the page names exists', () => {
  const files = [...page.matchAll(/`(?<path>src\/[\w/.-]+\.ts)`/gu)].map(({ groups }) => groups?.['path'] ?? '');

  expect(files.length).toBeGreaterThan(8);
  for (const file of files) expect(read(file).length, file).toBeGreaterThan(0);
});
