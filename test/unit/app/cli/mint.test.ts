import { readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { buildKeyFile, generateKey, readKeyFile } from '../../../../src/ucan/signing-key.ts';
import { type CliFolder, createCliFolder } from '../../../cli-folder.ts';

let cli: CliFolder;
beforeEach(() => {
  cli = createCliFolder();
  writeFileSync(join(cli.dir, 'alice.key'), buildKeyFile(generateKey()), { mode: 0o600 });
});
afterEach(() => cli.remove());

const ORACLE = 'did:key:z6MkhaXgBZDvotDkL5257faiztiGiC2QtKLGpbnnEGta2doK';

test('mint key writes a key for its owner only, prints its DID, and never over another file (G12)', async () => {
  const first = await cli.run(['mint', 'key', '--out', 'bob.key']);
  const again = await cli.run(['mint', 'key', '--out', 'bob.key']);

  const file = join(cli.dir, 'bob.key');
  const key = readKeyFile(readFileSync(file, 'utf8'));
  expect(first.status).toBe(0);
  expect(key.ok && first.stdout).toBe(key.ok && `${key.value.did}\n`);
  expect(statSync(file).mode & 0o777).toBe(0o600);
  expect(again).toMatchObject({ status: 1, stdout: '' });
  expect(again.stderr).toContain('bob.key is there already');
});

test('mint message prints a content that carries an invocation, in the thread it was asked for', async () => {
  const result = await cli.run(
    ['mint', 'message', '--key', 'alice.key', '--room', '!r', '--sender', '@alice:example.org', '--body', 'hello', '--thread', '$root'],
    { ORACLE_DID: ORACLE },
  );

  expect(result).toMatchObject({ status: 0, stderr: '' });
  expect(JSON.parse(result.stdout)).toMatchObject({
    msgtype: 'm.text',
    body: 'hello',
    'm.relates_to': { rel_type: 'm.thread', event_id: '$root' },
    'ixo.oracle.ucan': { v: 1, inv: expect.stringMatching(/^[\w-]{200,5500}$/u) },
  });
});

test('mint request prints one bearer token', async () => {
  const result = await cli.run([
    ...['mint', 'request', '--key', 'alice.key', '--sender', '@alice:example.org', '--path', '/messages/$s', '--method', 'post'],
    ...['--body', '{"message":"hi"}', '--room', '!r', '--thread', '$s', '--audience', ORACLE],
  ]);

  expect(result).toMatchObject({ status: 0, stderr: '' });
  expect(result.stdout).toMatch(/^[\w-]{200,5500}\n$/u);
});

test.each([
  ['no key', ['--key', 'nobody.key'], 'mint key --out nobody.key'],
  ['a room that is none', ['--room', 'r'], '--room is not a room id'],
  ['a sender that is none', ['--sender', 'alice'], '--sender is not a Matrix user id'],
  ['a thread that is none', ['--thread', 'root'], '--thread is not an event id'],
  ['no oracle', ['--audience', 'example'], '--audience is not a DID'],
])('%s is one sentence with what to do', async (_, change, said) => {
  const result = await cli.run([
    ...['mint', 'message', '--key', 'alice.key', '--room', '!r', '--sender', '@a:example.org', '--body', 'x', '--audience', ORACLE],
    ...change,
  ]);

  expect(result).toMatchObject({ status: 1, stdout: '' });
  expect(result.stderr).toContain(said);
});

test("without the oracle's settings its DID must be given", async () => {
  const result = await cli.run(['mint', 'message', '--key', 'alice.key', '--room', '!r', '--sender', '@a:example.org', '--body', 'x']);

  expect(result.stderr).toContain('--audience');
});
