import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { buildRegistration, registrationYaml } from '../../../appservice/registration.ts';
import { loadConfig, loadKeys } from '../../../src/app/load-config.ts';
import { keyFromMnemonic } from '../../../src/ucan/oracle-keys.ts';
import { buildKeyFile, generateKey } from '../../../src/ucan/signing-key.ts';

let dir: string;
beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), 'matrix-oracle-config-'));
});
afterEach(() => rmSync(dir, { recursive: true }));

const key = generateKey();
const REGISTRATION = buildRegistration({
  url: 'http://127.0.0.1:9993',
  asToken: 'as-token-of-this-test-0123456789',
  hsToken: 'hs-token-of-this-test-0123456789',
  serverName: 'matrix.example.org:8448',
  localpart: 'helper.bot',
  id: 'my-oracle',
  senderLocalpart: '_helper',
});

function write(name: string, text: string): string {
  writeFileSync(join(dir, name), text);
  return join(dir, name);
}
function createEnvironment(changes: Record<string, string> = {}) {
  return {
    MATRIX_BASE_URL: 'http://127.0.0.1:8008',
    MATRIX_REGISTRATION_FILE: write('registration.yaml', registrationYaml(REGISTRATION)),
    ORACLE_KEY_FILE: write('oracle.key', buildKeyFile(key)),
    MODEL_MAIN: 'small',
    OPENAI_BASE_URL: 'http://127.0.0.1:9/v1',
    ...changes,
  };
}
async function load(environment: Record<string, string>) {
  const loaded = await loadConfig({ environment, settings: write('test.env', 'RATE_LIMIT=7\nCONTEXT_MESSAGES=8\n') });
  return loaded.ok ? { config: loaded.value.config, problems: [] } : { problems: loaded.error };
}

test('registration and key file give tokens, accounts and DID', async () => {
  const { config } = await load(createEnvironment());

  expect(config).toMatchObject({
    oracleUserId: '@helper.bot:matrix.example.org:8448',
    matrixRegistrationId: 'my-oracle',
    matrixSenderLocalpart: '_helper',
    oracleDid: key.did,
  });
  expect(config?.matrixAsToken.reveal()).toBe(REGISTRATION.as_token);
  expect(config?.matrixHsToken.reveal()).toBe(REGISTRATION.hs_token);
});

test('the environment wins over the settings file', async () => {
  const { config } = await load(createEnvironment({ RATE_LIMIT: '9' }));

  expect(config).toMatchObject({ rateLimit: 9, contextMessages: 8 });
});

test.each([
  ['MATRIX_AS_TOKEN', 'another-token-of-this-test-01234'],
  ['MATRIX_SERVER_NAME', 'example.com'],
  ['ORACLE_DID', generateKey().did],
])('%s that contradicts its file stops the start, without quoting either', async (name, value) => {
  const { problems } = await load(createEnvironment({ [name]: value }));

  expect(problems.map((problem) => problem.name)).toEqual([name]);
  expect(JSON.stringify(problems)).not.toContain(value);
});

test('a did:ixo is not contradicted by a key file, because its document names its keys', async () => {
  const { config } = await load(createEnvironment({ ORACLE_DID: 'did:ixo:ixo1abc' }));

  expect(config?.oracleDid).toBe('did:ixo:ixo1abc');
});

test.each([
  ['is not there', () => join(dir, 'nowhere.yaml'), 'ENOENT'],
  ['is a folder', () => dir, 'EISDIR'],
  ['is no registration', () => write('bad.yaml', 'id: x\nas_token: sk-secret-in-file\n'), 'hs_token'],
  ['is no YAML', () => write('bad.yaml', 'as_token: [sk-secret-in-file'), 'YAML'],
])('a registration file that %s is one problem, not three, and is not quoted', async (_, path, said) => {
  const { problems } = await load(createEnvironment({ MATRIX_REGISTRATION_FILE: path() }));

  expect(problems.map((problem) => problem.name)).toEqual(['MATRIX_REGISTRATION_FILE']);
  expect(problems[0]?.message).toContain(said);
  expect(JSON.stringify(problems)).not.toContain('sk-secret');
});

test('a key file that is no key is one problem', async () => {
  const { problems } = await load(createEnvironment({ ORACLE_KEY_FILE: write('bad.key', 'not a key') }));

  expect(problems.map((problem) => problem.name)).toEqual(['ORACLE_KEY_FILE']);
});

test('a registration with a pattern of its own needs MATRIX_SERVER_NAME', async () => {
  const own = { ...REGISTRATION, namespaces: { ...REGISTRATION.namespaces, users: [{ exclusive: true, regex: '@bot_.*' }] } };
  const file = write('own.yaml', registrationYaml(own));

  const without = await load(createEnvironment({ MATRIX_REGISTRATION_FILE: file }));
  const withName = await load(createEnvironment({ MATRIX_REGISTRATION_FILE: file, MATRIX_SERVER_NAME: 'example.org' }));

  expect(without.problems.map((problem) => problem.name)).toEqual(['MATRIX_SERVER_NAME']);
  expect(withName.config?.oracleUserId).toBe('@oracle:example.org');
});

const WORDS = 'legal winner thank year wave sausage worth useful legal winner thank yellow';

test('the words of SIGNING_MNEMONIC give the DID, and no key file is needed', async () => {
  const { ORACLE_KEY_FILE: _, ...environment } = createEnvironment({ SIGNING_MNEMONIC: ` ${WORDS} `, DATA_DIR: dir.concat('/empty') });
  const { config } = await load(environment);

  expect(config?.oracleDid).toBe(keyFromMnemonic(WORDS).did);
  expect(String(config?.signingMnemonic)).toBe('[secret]');
});

test('words and a key file of another key are one problem; of the same key none', async () => {
  const differing = await load(createEnvironment({ SIGNING_MNEMONIC: WORDS }));
  const same = await load(
    createEnvironment({ SIGNING_MNEMONIC: WORDS, ORACLE_KEY_FILE: write('same.key', buildKeyFile(keyFromMnemonic(WORDS))) }),
  );

  expect(differing.problems.map((problem) => problem.name)).toEqual(['SIGNING_MNEMONIC']);
  expect(JSON.stringify(differing.problems)).not.toContain('winner');
  expect(same.config?.oracleDid).toBe(keyFromMnemonic(WORDS).did);
});

test('words keep a did:ixo, and contradict another did:key', async () => {
  const { ORACLE_KEY_FILE: _, ...environment } = createEnvironment({ SIGNING_MNEMONIC: WORDS, DATA_DIR: dir.concat('/empty') });

  expect((await load({ ...environment, ORACLE_DID: 'did:ixo:ixo1abc' })).config?.oracleDid).toBe('did:ixo:ixo1abc');
  const { problems } = await load({ ...environment, ORACLE_DID: key.did });
  expect(problems).toEqual([expect.objectContaining({ name: 'ORACLE_DID', message: expect.stringContaining('SIGNING_MNEMONIC') })]);
});

test('words that are too few are one problem, not two', async () => {
  const { ORACLE_KEY_FILE: _, ...environment } = createEnvironment({ SIGNING_MNEMONIC: '', DATA_DIR: dir.concat('/empty') });

  expect((await load(environment)).problems.map((problem) => problem.name)).toEqual(['SIGNING_MNEMONIC']);
});

test('the keys of a configuration are those that gave its DID', async () => {
  const { config } = await load(createEnvironment());
  if (config === undefined) throw new Error('no config');
  const loaded = await loadKeys(config);

  expect(loaded.ok && loaded.value.keys.current?.did).toBe(key.did);
});
