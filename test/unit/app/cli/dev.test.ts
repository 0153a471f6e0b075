/** `npm run dev` as package.json spells it: whoever writes a plugin sees each change at once, and a mistake in it does not end the watching. */
import { spawn } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';

const ROOT = join(import.meta.dirname, '../../../..');
const { scripts } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as { scripts: { dev: string } };
let dir: string;
beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), 'matrix-oracle-dev-'));
});
afterEach(() => rmSync(dir, { recursive: true, force: true }));

const PLUGIN = `import { defineOraclePlugin } from 'matrix-oracle';
import { word } from './word.ts';
export default defineOraclePlugin({ name: word, version: '1', manifest: { title: 'Dev', summary: 'Is changed.', whenToUse: ['Never.'] } });
`;
const SETTINGS = {
  ...{
    MATRIX_BASE_URL: 'http://127.0.0.1:9',
    MATRIX_SERVER_NAME: 'example.org',
    OPENAI_BASE_URL: 'http://127.0.0.1:9/v1',
    MODEL_MAIN: 'none',
  },
  ...{ MATRIX_AS_TOKEN: 'a_token_of_the_dev_test', MATRIX_HS_TOKEN: 'another_token_of_the_dev_test' },
  ...{ ORACLE_DID: 'did:key:z6MkiTBz1ymuepAQ4HEHYSF1H8quG5GLVVQR3djdX3mDooWp', PLUGINS: './plugin.ts', LOG_FORMAT: 'json' },
  ...{ APPSERVICE_PORT: '0', METRICS_PORT: '0', PORT: '0' },
};

test('a change of a file that a plugin imports starts the oracle anew, also after a start that failed', { timeout: 60_000 }, async () => {
  const write = (text: string) => writeFileSync(join(dir, 'word.ts'), text);
  write(`export const word = 'first';`);
  writeFileSync(join(dir, 'plugin.ts'), PLUGIN);
  mkdirSync(join(dir, 'node_modules'));
  symlinkSync(ROOT, join(dir, 'node_modules/matrix-oracle'));
  const [program = '', ...args] = scripts.dev.replace(/^exec /u, '').split(' ');
  const watching = spawn(
    program === 'node' ? process.execPath : program,
    [...args.slice(0, -2), join(ROOT, args.at(-2) ?? ''), args.at(-1) ?? ''],
    {
      cwd: dir,
      env: { PATH: process.env['PATH'], ...SETTINGS },
      stdio: ['ignore', 'pipe', 'pipe'],
    },
  );
  let said = '';
  for (const stream of [watching.stdout, watching.stderr]) stream.on('data', (data) => (said += data));
  const ended = new Promise((resolve) => watching.once('exit', resolve));
  const saysSoon = (text: string) => expect.poll(() => said, { timeout: 25_000, interval: 50 }).toContain(text);
  try {
    await saysSoon('user-preferences first');
    write('export const word = ;');
    await saysSoon('Failed running');
    write(`export const word = 'second';`);

    await saysSoon('user-preferences second');
  } finally {
    watching.kill('SIGTERM');
    await ended;
  }
});
