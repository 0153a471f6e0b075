import { execFile } from 'node:child_process';
import { cpSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { readRegistration } from '../../../appservice/registration.ts';
import { generatedFiles } from '../../../scripts/generated-files.ts';
import { describeConfig, SAMPLE_TOKENS } from '../../../src/config.ts';

const ROOT = join(fileURLToPath(import.meta.url), '..', '..', '..', '..');
let copy: string;
beforeEach(() => {
  copy = mkdtempSync(join(tmpdir(), 'matrix-oracle-generate-'));
  for (const name of ['src', 'appservice', 'plugins', 'scripts', 'docs', 'package.json', '.env.example', 'registration.yaml']) {
    cpSync(join(ROOT, name), join(copy, name), { recursive: true });
  }
  symlinkSync(join(ROOT, 'node_modules'), join(copy, 'node_modules'));
});
afterEach(() => rmSync(copy, { recursive: true }));

function generate(...args: string[]): Promise<{ status: number; stdout: string }> {
  return new Promise((resolve) => {
    execFile(process.execPath, ['scripts/generate.ts', ...args], { cwd: copy }, (error, stdout) => {
      resolve({ status: typeof error?.code === 'number' ? error.code : 0, stdout });
    });
  });
}

test('--check names the stale file, touches nothing and fails; a run repairs it', { timeout: 30_000 }, async () => {
  await generate();
  const page = join(copy, 'docs', 'errors.md');
  writeFileSync(page, 'edited by hand\n');

  const stale = await generate('--check');
  const untouched = readFileSync(page, 'utf8');
  await generate();
  const fresh = await generate('--check');

  expect(stale).toEqual({ status: 1, stdout: 'docs/errors.md: stale, run `npm run generate`\n' });
  expect(untouched).toBe('edited by hand\n');
  expect(fresh.status).toBe(0);
});

test('of the security page only the table of codes is made: what stands around it stays, and without its marks there is a fault', {
  timeout: 30_000,
}, async () => {
  await generate();
  const page = join(copy, 'docs', 'security.md');
  const text = readFileSync(page, 'utf8');
  writeFileSync(page, text.replace('| `REPLAY` | 401', '| `REPLAY` | 200').replace('# Security\n', '# Security of all\n'));

  const stale = await generate('--check');
  await generate();
  const repaired = readFileSync(page, 'utf8');
  writeFileSync(page, text.replaceAll('<!-- Generated', '<!-- Made'));
  const unmarked = await generate('--check');

  expect(stale).toEqual({ status: 1, stdout: 'docs/security.md: stale, run `npm run generate`\n' });
  expect(repaired).toBe(text.replace('# Security\n', '# Security of all\n'));
  expect(unmarked.status).not.toBe(0);
});

test('every setting is on the page and in .env.example, and no secret has a value there', async () => {
  const files = new Map((await generatedFiles(ROOT)).map(({ path, text }) => [path, text]));

  for (const { name, secret } of describeConfig()) {
    expect(files.get('docs/configuration.md')).toContain(`\`${name}\``);
    expect(files.get('.env.example')).toMatch(new RegExp(`^(# )?${name}=${secret ? '$' : ''}`, 'mu'));
  }
});

test('the sample registration can be read and holds exactly the tokens that are refused elsewhere', async () => {
  const sample = (await generatedFiles(ROOT)).find(({ path }) => path === 'registration.yaml');
  const read = readRegistration(sample?.text ?? '');

  expect(read).toMatchObject({ ok: true, value: { as_token: SAMPLE_TOKENS.asToken, hs_token: SAMPLE_TOKENS.hsToken } });
});
