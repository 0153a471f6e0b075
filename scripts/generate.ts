/**
 * Pages that would otherwise lie within a month: what a table in code says is written into docs from that table. `npm run generate` writes them;
 * with `--check` nothing is touched, every stale file is named and the status is 1, so that a change without its page does not pass.
 */
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { generatedFiles } from './generated-files.ts';

const ROOT = join(fileURLToPath(import.meta.url), '..', '..');
const check = process.argv.includes('--check');

const stale: string[] = [];
for (const { path, text } of await generatedFiles(ROOT)) {
  const present = await readFile(join(ROOT, path), 'utf8').catch(() => '');
  if (present === text) continue;
  stale.push(path);
  if (!check) await writeFile(join(ROOT, path), text);
}
if (stale.length === 0) {
  process.stdout.write('All generated files are up to date.\n');
} else {
  const verb = check ? 'stale, run `npm run generate`' : 'written';
  for (const path of stale) process.stdout.write(`${path}: ${verb}\n`);
  process.exitCode = check ? 1 : 0;
}
