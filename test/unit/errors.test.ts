import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, test } from 'vitest';
import { ERRORS, type ErrorSpec } from '../../src/errors.ts';

const ROOT = join(fileURLToPath(import.meta.url), '..', '..', '..');
const CODES = Object.entries<ErrorSpec>(ERRORS);

function sourceFiles(folder: string): string[] {
  return readdirSync(join(ROOT, folder), { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith('.ts'))
    .map((name) => join(folder, name));
}
const sources = ['src', 'appservice']
  .flatMap(sourceFiles)
  .filter((path) => path !== join('src', 'errors.ts'))
  .map((path) => readFileSync(join(ROOT, path), 'utf8'));

/** Codes that a class of errors.ts carries, so that users of the class need not name them. */
const CARRIED = [
  ...readFileSync(join(ROOT, 'src', 'errors.ts'), 'utf8').matchAll(/^export class (?<name>\w+)[^}]*?refusal\('(?<code>[A-Z_]+)'/gmu),
].map(({ groups }) => ({ code: groups?.['code'], use: `new ${groups?.['name']}(` }));

test('every listed code is used somewhere: a code that cannot happen is not documented', () => {
  const usesOf = (code: string) => [`'${code}'`, ...CARRIED.filter((carried) => carried.code === code).map(({ use }) => use)];
  const unused = CODES.map(([code]) => code).filter((code) => !sources.some((text) => usesOf(code).some((use) => text.includes(use))));

  expect(unused).toEqual([]);
});

test('every refusal names a listed code', () => {
  const used = sources.flatMap((text) => [...text.matchAll(/\brefusal\('(?<code>[A-Z_]+)'/gu)].map((match) => match.groups?.['code']));

  expect(used.filter((code) => !Object.hasOwn(ERRORS, String(code)))).toEqual([]);
});

test('docs/errors.md has a row for every code and no other', () => {
  const page = readFileSync(join(ROOT, 'docs', 'errors.md'), 'utf8');
  const documented = [...page.matchAll(/^\| `(?<code>[A-Z_]+)`/gmu)].map((match) => match.groups?.['code']);

  expect(documented).toEqual(CODES.map(([code]) => code));
});

test('what is said to a person is a sentence, and fits the status', () => {
  for (const [code, spec] of CODES) {
    expect(spec.message, code).toMatch(/^[A-Z].*[.]$/u);
    expect(spec.hint, code).not.toBe('');
    expect(spec.status, code).toSatisfy((status: number) => status >= 400 && status < 600);
  }
});
