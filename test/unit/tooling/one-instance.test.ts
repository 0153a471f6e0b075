/**
 * A plugin imports the package by its name, the runtime its own files. Were these two copies, every brand, registry and `instanceof` between them would
 * silently fail. The condition `matrix-oracle-source` makes them one, in vitest, in Node, and in a direct run of the executable.
 */
import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { expect, test } from 'vitest';

const ROOT = join(import.meta.dirname, '../../..');
const run = promisify(execFile);

test('the package imported by its name and src/index.ts are one instance', async () => {
  const byName = await import('matrix-oracle');
  const byPath = await import('../../../src/index.ts');

  expect(byName).toBe(byPath);
});

const COMPARE = `const [a, b] = [await import('matrix-oracle'), await import('./src/index.ts')]; console.log(a === b);`;

test('they are one instance under plain Node with the condition', async () => {
  const { stdout } = await run(process.execPath, ['--conditions=matrix-oracle-source', '--input-type=module', '--eval', COMPARE], {
    cwd: ROOT,
  });

  expect(stdout.trim()).toBe('true');
});

test('without the condition they are not: the control for the tests above', async () => {
  const outcome = await run(process.execPath, ['--input-type=module', '--eval', COMPARE], { cwd: ROOT }).then(
    ({ stdout }) => stdout.trim(),
    (error: Error) => (error.message.includes('ERR_MODULE_NOT_FOUND') ? 'no build' : error.message),
  );

  expect(['no build', 'false']).toContain(outcome);
});
