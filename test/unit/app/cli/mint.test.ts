import { readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { createVerifier } from '../../../../src/ucan/chain.ts';
import { gateDelegation, gateInvocation } from '../../../../src/ucan/gate.ts';
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

/** As the oracle would: with nothing stored. */
const verifier = createVerifier({
  findToken: () => undefined,
  keysOf: async () => ({ ok: false, error: 'BAD_ISSUER' }),
  isRevoked: () => false,
  now: () => Date.now(),
});

test('a session key under mint grant signs messages and requests of whoever granted it, and nobody else’s (G8)', async () => {
  const owner = (await cli.run(['mint', 'key', '--out', 'owner.key'])).stdout.trim();
  const session = (await cli.run(['mint', 'key', '--out', 'session.key'])).stdout.trim();
  const grant = await cli.run([
    ...['mint', 'grant', '--key', 'owner.key', '--audience', session],
    ...['--can', 'oracle/message', 'oracle/read'],
  ]);
  writeFileSync(join(cli.dir, 'grant.car'), grant.stdout);

  const speaker = ['--key', 'session.key', '--sender', '@a:example.org', '--audience', ORACLE];
  const proof = ['--session-of', owner, '--proof', 'grant.car'];
  const message = await cli.run(['mint', 'message', ...speaker, ...proof, '--room', '!r', '--body', 'hi']);
  const request = await cli.run(['mint', 'request', ...speaker, ...proof, '--path', '/sessions']);
  const stranger = await cli.run(['mint', 'message', '--key', 'alice.key', ...speaker.slice(2), ...proof, '--room', '!r', '--body', 'hi']);

  const principalOf = async (token: string) => {
    const gated = gateInvocation(token);
    const verified = gated.ok ? await verifier.invocation(gated.value) : gated;
    return verified.ok ? verified.value.principal : verified.error;
  };
  const invOf = ({ stdout }: { stdout: string }): string => JSON.parse(stdout)['ixo.oracle.ucan'].inv;
  expect(grant).toMatchObject({ status: 0, stderr: '' });
  expect(await principalOf(invOf(message))).toBe(owner);
  expect(await principalOf(request.stdout.trim())).toBe(owner);
  expect(await principalOf(invOf(stranger))).toBe('BROKEN_CHAIN');
});

test('mint grant is made out to the oracle unless it says to whom, for a day unless it says how long', async () => {
  const result = await cli.run(['mint', 'grant', '--key', 'alice.key', '--can', 'memory/read', '--with', 'ixo:memory'], {
    ORACLE_DID: ORACLE,
  });

  const grant = gateDelegation(result.stdout.trim());
  expect(grant.ok && grant.value.leaf).toMatchObject({ audience: ORACLE, capabilities: [{ can: 'memory/read', with: 'ixo:memory' }] });
  expect(grant.ok && Math.round((grant.value.leaf.expiration * 1_000 - Date.now()) / 3_600_000)).toBe(24);
});

test.each([
  ['no days', ['--days', 'soon'], '--days is not a number'],
  ['a time past all times', ['--days', '99999'], 'TOKEN_LIVES_TOO_LONG'],
  ['an ability that is none', ['--can', 'Memory/Read'], 'BAD_CAPABILITY'],
  ['a sender that is none', ['--sender', 'alice'], '--sender is not a Matrix user id'],
])('a grant with %s is one sentence with what to do', async (_, change, said) => {
  const result = await cli.run(['mint', 'grant', '--key', 'alice.key', '--audience', ORACLE, '--can', 'memory/read', ...change]);

  expect(result).toMatchObject({ status: 1, stdout: '' });
  expect(result.stderr).toContain(said);
});

test.each([
  ['no proof', ['--session-of', ORACLE], '--session-of needs --proof'],
  ['a proof that is not there', ['--proof', 'none.car'], 'none.car cannot be read'],
  ['a proof that is none', ['--proof', 'alice.key'], 'holds no grant'],
])('a session key with %s is one sentence with what to do', async (_, change, said) => {
  const result = await cli.run([
    ...['mint', 'message', '--key', 'alice.key', '--room', '!r', '--sender', '@a:example.org', '--body', 'x', '--audience', ORACLE],
    ...change,
  ]);

  expect(result).toMatchObject({ status: 1, stdout: '' });
  expect(result.stderr).toContain(said);
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
