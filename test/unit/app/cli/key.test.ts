import { execFileSync } from 'node:child_process';
import { mkdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { keyFromMnemonic } from '../../../../src/ucan/oracle-keys.ts';
import { buildKeyFile, generateKey, readKeyFile } from '../../../../src/ucan/signing-key.ts';
import { type CliFolder, createCliFolder } from '../../../cli-folder.ts';

const old = generateKey();
const WORDS = 'legal winner thank year wave sausage worth useful legal winner thank yellow';

let cli: CliFolder;
let blocksync: Server | undefined;
beforeEach(() => {
  cli = createCliFolder();
  mkdirSync(join(cli.dir, 'data'), { mode: 0o700 });
  writeFileSync(join(cli.dir, 'data/oracle.key'), buildKeyFile(old), { mode: 0o600 });
});
afterEach(() => {
  blocksync?.close();
  blocksync = undefined;
  cli.remove();
});

const didIn = (name: string): string => {
  const key = readKeyFile(readFileSync(join(cli.dir, 'data', name), 'utf8'));
  return key.ok ? key.value.did : key.error;
};

test('key rotate makes another key, keeps the old one, and says what clients and the operator must do', async () => {
  const result = await cli.run(['key', 'rotate']);

  const next = didIn('oracle.key');
  expect(result).toMatchObject({ status: 0, stderr: '' });
  expect(next).not.toBe(old.did);
  for (const said of [next, old.did, 'Restart the oracle', '!authorise', 'Clients that sign']) expect(result.stdout).toContain(said);
  expect(result.stdout).not.toContain('PRIVATE');
  expect(statSync(join(cli.dir, 'data/oracle.key')).mode & 0o777).toBe(0o600);

  const shown = await cli.run(['key', 'show']);
  expect(shown).toMatchObject({ status: 0, stderr: '' });
  expect(shown.stdout).toContain(
    `The oracle is ${next}\nIt signs with data/oracle.key (${next})\nGrants made out to ${old.did} count until 20`,
  );
});

test('key show says when another user of the machine can read the key (G12)', async () => {
  execFileSync('chmod', ['644', join(cli.dir, 'data/oracle.key')]);

  expect((await cli.run(['key', 'show'])).stdout).toContain('chmod 600');
});

test('a DID that is pinned to the old key is to be taken out first', async () => {
  writeFileSync(join(cli.dir, '.env'), `ORACLE_DID=${old.did}\n`);
  const result = await cli.run(['key', 'rotate']);

  expect(result).toMatchObject({ status: 1, stdout: '' });
  expect(result.stderr).toContain('Take ORACLE_DID out of .env');
  expect(didIn('oracle.key')).toBe(old.did);
});

test('words are not rotated; the way that is told instead gives the same DID in a file', async () => {
  rmSync(join(cli.dir, 'data/oracle.key'));
  const result = await cli.run(['key', 'rotate'], { SIGNING_MNEMONIC: WORDS });
  const command = /^ {2}\((?<command>.*)\)$/mu.exec(result.stderr)?.groups?.['command'] ?? '';

  expect(result).toMatchObject({ status: 1, stdout: '' });
  expect(result.stderr).not.toContain('winner');
  execFileSync('sh', ['-c', command.replace('<the words>', WORDS)], { cwd: cli.dir });
  expect(didIn('oracle.key')).toBe(keyFromMnemonic(WORDS).did);
  expect(statSync(join(cli.dir, 'data/oracle.key')).mode & 0o077).toBe(0);
});

test('without a key there is nothing to change', async () => {
  rmSync(join(cli.dir, 'data/oracle.key'));

  expect((await cli.run(['key', 'rotate'])).stderr).toContain('matrix-oracle init');
  expect((await cli.run(['key', 'show'])).stderr).toContain('matrix-oracle init');
});

const IXO = 'did:ixo:ixo1oracle';

/** A Blocksync that knows one document, with these keys. */
async function startBlocksync(dids: readonly string[]): Promise<string> {
  const verificationMethod = dids.map((did, n) => ({
    id: `${IXO}#key-${n}`,
    type: 'Ed25519VerificationKey2020',
    controller: IXO,
    publicKeyMultibase: did.slice('did:key:'.length),
  }));
  const server = createServer((request, response) => {
    request.resume();
    response.setHeader('content-type', 'application/json');
    response.end(JSON.stringify({ data: { iids: { nodes: [{ id: IXO, verificationMethod, service: [] }] } } }));
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  blocksync = server;
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}/graphql`;
}

test('of a did:ixo the new key must be in the DID document before the switch', async () => {
  const next = generateKey();
  writeFileSync(join(cli.dir, 'next.key'), buildKeyFile(next), { mode: 0o600 });
  const settings = { ORACLE_DID: IXO, BLOCKSYNC_GRAPHQL_URL: await startBlocksync([old.did]) };

  const without = await cli.run(['key', 'rotate'], settings);
  const tooEarly = await cli.run(['key', 'rotate', '--key', 'next.key'], settings);
  expect(without.stderr).toContain('key rotate --key <file>');
  expect(tooEarly).toMatchObject({ status: 1, stdout: '' });
  expect(tooEarly.stderr).toContain(next.did.slice('did:key:'.length));
  expect(didIn('oracle.key')).toBe(old.did);

  blocksync?.close();
  const after = { ORACLE_DID: IXO, BLOCKSYNC_GRAPHQL_URL: await startBlocksync([old.did, next.did]) };
  const result = await cli.run(['key', 'rotate', '--key', 'next.key'], after);
  expect(result).toMatchObject({ status: 0, stderr: '' });
  expect(result.stdout).toContain('the DID stays');
  expect(didIn('oracle.key')).toBe(next.did);
});

test('without Blocksync the document cannot be looked up, so nothing is changed', async () => {
  writeFileSync(join(cli.dir, 'next.key'), buildKeyFile(generateKey()), { mode: 0o600 });
  const unset = await cli.run(['key', 'rotate', '--key', 'next.key'], { ORACLE_DID: IXO });
  const down = await cli.run(['key', 'rotate', '--key', 'next.key'], {
    ORACLE_DID: IXO,
    BLOCKSYNC_GRAPHQL_URL: 'http://127.0.0.1:9/graphql',
  });

  expect(unset.stderr).toContain('BLOCKSYNC_GRAPHQL_URL');
  expect(down.stderr).toContain('DID_NOT_RESOLVED');
  expect(didIn('oracle.key')).toBe(old.did);
});
