import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, test } from 'vitest';
import { buildPluginApiPage } from '../../../scripts/plugin-api-page.ts';
import { readDeclarations } from '../../../scripts/read-declarations.ts';

const ROOT = join(import.meta.dirname, '../../..');
const dir = mkdtempSync(join(tmpdir(), 'matrix-oracle-declarations-'));
afterAll(() => rmSync(dir, { recursive: true, force: true }));
const write = (name: string, text: string): string => {
  writeFileSync(join(dir, name), text);
  return join(dir, name);
};

test('a declaration is shown with its comment and without its body, wherever it is written', async () => {
  write(
    'deep.ts',
    `/**\n * Counts\n * things.\n */\n// biome-ignore lint/x: y\nexport type Count =\n  /** one; */\n  | { readonly one: 1 }\n  | 'two';\n`,
  );
  write(
    'near.ts',
    `import type { Count } from './deep.ts';\n\nexport type { Count };\n/** Makes one. */\nexport function make(\n  count: Count,\n): { a: 1 } {\n  return { a: 1 };\n}\nexport class Box extends Map {\n  x = 1;\n}\n`,
  );
  const entry = write('entry.ts', `export type { Count } from './near.ts';\nexport { Box, make } from './near.ts';\n`);

  expect(await readDeclarations(entry)).toEqual([
    {
      name: 'Count',
      kind: 'type',
      comment: 'Counts things.',
      text: `export type Count =\n  /** one; */\n  | { readonly one: 1 }\n  | 'two';`,
    },
    { name: 'Box', kind: 'class', comment: '', text: 'export class Box extends Map;' },
    { name: 'make', kind: 'function', comment: 'Makes one.', text: 'export function make(\n  count: Count,\n): { a: 1 };' },
  ]);
});

test('a name that cannot be found is a fault, not a gap in the page', async () => {
  write('empty.ts', '');
  const entry = write('broken.ts', `export type { Gone } from './empty.ts';\n`);

  await expect(readDeclarations(entry)).rejects.toThrow(/Gone/u);
});

test('everything that the package exports is on the page', async () => {
  const page = await buildPluginApiPage(ROOT);
  const values = [...Object.keys(await import('matrix-oracle')), ...Object.keys(await import('matrix-oracle/testing'))];

  for (const name of [...values, 'OraclePlugin', 'RuntimeContext', 'PluginManifest', 'TestRuntime', 'createOracleApp'])
    expect(page).toContain(`### \`${name}\``);
});
