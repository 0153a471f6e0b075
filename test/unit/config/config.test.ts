import { inspect } from 'node:util';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { Secret } from '../../../src/config/secret.ts';
import {
  type Config,
  type ConfigProblem,
  describeConfig,
  planIdleWarnings,
  planUnknownWarnings,
  readConfig,
  SAMPLE_TOKENS,
} from '../../../src/config.ts';

const AS_TOKEN = 'as-token-of-this-test-0123456789';
const HS_TOKEN = 'hs-token-of-this-test-0123456789';
const GOOD = {
  MATRIX_BASE_URL: 'http://127.0.0.1:8008',
  MATRIX_SERVER_NAME: 'example.org',
  MATRIX_AS_TOKEN: AS_TOKEN,
  MATRIX_HS_TOKEN: HS_TOKEN,
  ORACLE_DID: 'did:key:z6MkhaXgBZDvotDkL5257faiztiGiC2QtKLGpbnnEGta2doK',
  MODEL_MAIN: 'small',
  OPENAI_BASE_URL: 'http://127.0.0.1:9/v1',
};

function good(changes: Record<string, string | undefined> = {}): Config {
  const read = readConfig({ ...GOOD, ...changes });
  if (!read.ok) throw new Error(JSON.stringify(read.error));
  return read.value;
}
function problems(changes: Record<string, string | undefined>): readonly ConfigProblem[] {
  const read = readConfig({ ...GOOD, ...changes });
  return read.ok ? [] : read.error;
}
const namesOf = (list: readonly ConfigProblem[]): string[] => list.map(({ name }) => name);

test('what must be set is enough, and the rest has the documented default', () => {
  const config = good();

  expect(config).toMatchObject({
    matrixBaseUrl: 'http://127.0.0.1:8008',
    oracleUserId: '@oracle:example.org',
    trustedHomeservers: ['example.org'],
    access: 'own-server',
    unsignedUsers: [],
    rateLimit: 10,
    rateLimitWindowS: 60,
    maxConcurrentRuns: 32,
    maxEventLatenessS: 900,
    appservicePort: 9993,
    port: 3000,
    metricsPort: 9464,
    disableCredits: false,
    corsOrigin: [],
  });
  expect(config.matrixAsToken.reveal()).toBe(AS_TOKEN);
});

test('all faults are named in one go, each with a remedy that names its variable', () => {
  const found = problems({
    PORT: '70000',
    ACCESS: 'everybody',
    MATRIX_BASE_URL: 'ftp://x',
    MATRIX_HS_TOKEN: AS_TOKEN,
    MODEL_MAIN: undefined,
  });

  expect(namesOf(found).sort()).toEqual(['ACCESS', 'MATRIX_BASE_URL', 'MATRIX_HS_TOKEN', 'MODEL_MAIN', 'PORT']);
  for (const { name, message, remedy } of found) {
    expect(message.startsWith(`${name} `)).toBe(true);
    expect(remedy.length).toBeGreaterThan(10);
  }
});

test('a bad value never becomes the default', () => {
  const bad = ['abc', '1e3', '-1', '08', '1.5', ' 5', '0x10', ''];

  for (const value of bad) expect(namesOf(problems({ RATE_LIMIT: value })), JSON.stringify(value)).toEqual(['RATE_LIMIT']);
});

test('whatever text stands in a numeric setting, it is that number or a fault', () => {
  fc.assert(
    fc.property(fc.oneof(fc.string(), fc.integer().map(String), fc.double().map(String)), (value) => {
      const read = readConfig({ ...GOOD, CONTEXT_MESSAGES: value });
      return read.ok ? String(read.value.contextMessages) === value : namesOf(read.error).includes('CONTEXT_MESSAGES');
    }),
  );
});

test.each(['TRUE', 'yes', '1', 'on', ' true', ''])('a flag is exactly true or false, not %j', (value) => {
  expect(namesOf(problems({ DISABLE_CREDITS: value }))).toEqual(['DISABLE_CREDITS']);
});

test('a limit of a number holds at its ends and not one past them', () => {
  expect(good({ PORT: '65535' }).port).toBe(65_535);
  expect(good({ PORT: '0' }).port).toBe(0);
  expect(namesOf(problems({ PORT: '65536' }))).toEqual(['PORT']);
  expect(namesOf(problems({ PORT: '99999999999999999999' }))).toEqual(['PORT']);
});

describe('secrets (G12)', () => {
  test('a secret prints as [secret] however it is printed', () => {
    const config = good({ OPENAI_API_KEY: 'sk-do-not-print-me' });

    const printed = [
      String(config.matrixAsToken),
      `${config.openaiApiKey}`,
      JSON.stringify(config),
      inspect(config, { depth: 9, showHidden: true }),
      JSON.stringify({ ...config.matrixHsToken }),
    ].join();

    expect(printed).toContain('[secret]');
    for (const text of [AS_TOKEN, HS_TOKEN, 'sk-do-not-print-me']) expect(printed).not.toContain(text);
    expect(new Secret('x').reveal()).toBe('x');
  });

  test('no fault quotes a value, because a secret may have gone astray into any variable', () => {
    const stray = 'sk-a-secret-in-the-wrong-place-äö';
    const everywhere = Object.fromEntries(describeConfig().map(({ name }) => [name, stray]));

    const read = readConfig(everywhere);
    const said = JSON.stringify([read, planUnknownWarnings({ ...everywhere, MATRIX_TOKEN: stray })]);

    expect(read.ok).toBe(false);
    expect(said).not.toContain(stray);
  });
});

describe('who may speak', () => {
  test.each(['@*:*', '@alice:*.org', '@*:exam?le.org'])('a wildcard in the server part of %j stops the start', (glob) => {
    expect(namesOf(problems({ UNSIGNED_USERS: glob }))).toEqual(['UNSIGNED_USERS']);
    expect(namesOf(problems({ ALLOWED_USERS: `@ok:example.org,${glob}` }))).toEqual(['ALLOWED_USERS']);
  });

  test('a wildcard in the name is fine, and servers compare without case', () => {
    expect(good({ UNSIGNED_USERS: '@*:Example.org, @bob:[::1]:8448' }).unsignedUsers).toEqual(['@*:example.org', '@bob:[::1]:8448']);
  });

  test.each(['alice', 'alice:example.org', '@alice', '@:example.org', '@a b:example.org', '@a:exa/mple'])('%j is no account', (glob) => {
    expect(namesOf(problems({ UNSIGNED_USERS: glob }))).toEqual(['UNSIGNED_USERS']);
  });

  test('ACCESS is one of its four words', () => {
    for (const access of ['own-server', 'granted', 'open']) expect(problems({ ACCESS: access })).toEqual([]);
    expect(problems({ ACCESS: 'Granted' })[0]?.message).toContain('is none of: own-server, allowed, granted, open');
  });

  test.each([
    ['memory/* ixo:memory, fs/read ixo:filesystem', true],
    ['', true],
    ['* ixo:memory', false],
    ['memory/*', false],
    ['Memory/read ixo:memory', false],
    ['memory/read  ixo:memory', false],
  ])('GRANT_ABILITIES takes pairs of a named ability and a resource: %j', (value, isGood) => {
    expect(namesOf(problems({ GRANT_ABILITIES: value }))).toEqual(isGood ? [] : ['GRANT_ABILITIES']);
  });

  test('SIGNING_MNEMONIC is a secret, trimmed, and not too short to be one', () => {
    const read = readConfig({ ...GOOD, SIGNING_MNEMONIC: '  some words that nobody guesses  ' });
    expect(read.ok && read.value.signingMnemonic?.reveal()).toBe('some words that nobody guesses');
    expect(read.ok && String(read.value.signingMnemonic)).not.toContain('words');
    expect(namesOf(problems({ SIGNING_MNEMONIC: 'short' }))).toEqual(['SIGNING_MNEMONIC']);
  });

  test('ACCESS=allowed without anybody allowed is a fault', () => {
    expect(namesOf(problems({ ACCESS: 'allowed' }))).toEqual(['ALLOWED_USERS']);
    expect(problems({ ACCESS: 'allowed', ALLOWED_USERS: '@a:example.org' })).toEqual([]);
  });

  test('an empty list of trusted servers trusts nobody, which is not the default', () => {
    expect(good({ TRUSTED_HOMESERVERS: '' }).trustedHomeservers).toEqual([]);
    expect(good({ TRUSTED_HOMESERVERS: 'A.example, b.example:8448' }).trustedHomeservers).toEqual(['a.example', 'b.example:8448']);
  });

  test('unsigned users on an untrusted server are warned about, because they stay refused', () => {
    expect(namesOf(planIdleWarnings(good({ UNSIGNED_USERS: '@*:elsewhere.org' })))).toEqual(['UNSIGNED_USERS']);
    expect(planIdleWarnings(good({ UNSIGNED_USERS: '@*:example.org' }))).toEqual([]);
  });
});

describe('tokens', () => {
  const SAMPLE = { MATRIX_AS_TOKEN: SAMPLE_TOKENS.asToken, MATRIX_HS_TOKEN: SAMPLE_TOKENS.hsToken };

  test('the tokens of the sample are refused unless homeserver and listener are both on loopback', () => {
    expect(problems(SAMPLE)).toEqual([]);
    expect(problems({ ...SAMPLE, MATRIX_BASE_URL: 'http://[::1]:8008', APPSERVICE_HOST: 'localhost' })).toEqual([]);
    expect(namesOf(problems({ ...SAMPLE, APPSERVICE_HOST: '0.0.0.0' }))).toEqual(['MATRIX_AS_TOKEN']);
    expect(namesOf(problems({ ...SAMPLE, MATRIX_BASE_URL: 'https://matrix.example.org' }))).toEqual(['MATRIX_AS_TOKEN']);
    expect(namesOf(problems({ MATRIX_HS_TOKEN: SAMPLE_TOKENS.hsToken, MATRIX_BASE_URL: 'http://127.0.0.1.evil.org' }))).toEqual([
      'MATRIX_HS_TOKEN',
    ]);
  });

  test.each(['short', 'with a blank in the middle', 'ünïcode-token-0123456789'])('%j is no token', (token) => {
    expect(namesOf(problems({ MATRIX_HS_TOKEN: token }))).toEqual(['MATRIX_HS_TOKEN']);
  });

  test('a key is demanded by api.openai.com only', () => {
    expect(namesOf(problems({ OPENAI_BASE_URL: undefined }))).toEqual(['OPENAI_API_KEY']);
    expect(problems({ OPENAI_BASE_URL: undefined, OPENAI_API_KEY: 'sk-x' })).toEqual([]);
  });
});

test.each(['http://user:pass@host', 'http://host/?a=1', 'http://host/#a', 'host:8008', 'http://', 'javascript:alert(1)'])(
  '%j is no address of a homeserver',
  (url) => {
    expect(namesOf(problems({ MATRIX_BASE_URL: url }))).toEqual(['MATRIX_BASE_URL']);
  },
);

test('the oracle must not be the sender of the registration, because Synapse refuses /sync to it (G1)', () => {
  expect(namesOf(problems({ MATRIX_SENDER_LOCALPART: 'oracle' }))).toEqual(['MATRIX_SENDER_LOCALPART']);
});

describe('unknown variables', () => {
  test.each([
    ['ORACLE_NANE', 'ORACLE_NAME'],
    ['MATRIX_BASEURL', 'MATRIX_BASE_URL'],
    ['MATRIX_ASTOKEN', 'MATRIX_AS_TOKEN'],
    ['ORACLE_ENTITYDID', 'ORACLE_ENTITY_DID'],
  ])('%s is named with %s', (typed, meant) => {
    expect(planUnknownWarnings({ [typed]: 'x' })).toEqual([
      { name: typed, message: `${typed} is not a setting of the oracle and is ignored.`, remedy: `Did you mean ${meant}?` },
    ]);
  });

  test('a name far from all others gets no guess, and a name of the older oracles gets the reason', () => {
    expect(planUnknownWarnings({ ORACLE_SOMETHING_ELSE_ENTIRELY: '1' })[0]?.remedy).toBe('See docs/configuration.md.');
    expect(planUnknownWarnings({ MATRIX_ORACLE_ADMIN_PASSWORD: 'x' })[0]?.remedy).toContain('has no password');
  });

  test('known names and names of others are not warned about', () => {
    expect(planUnknownWarnings({ ...GOOD, PATH: '/bin', HOMESERVER: 'x', NODE_ENV: 'test' })).toEqual([]);
  });
});

test('every setting has a meaning, a type in words, and a default that is itself valid', () => {
  for (const row of describeConfig()) {
    expect(row.description, row.name).toMatch(/\.$/u);
    expect(row.expects, row.name).not.toBe('');
    if (row.default !== undefined) expect(problems({ [row.name]: row.default, OPENAI_API_KEY: 'sk-x' }), row.name).toEqual([]);
  }
});

test('trusted proxies are addresses and ranges, this machine unless said otherwise', () => {
  expect(good().trustedProxies).toEqual(['127.0.0.0/8', '::1']);
  expect(good({ TRUSTED_PROXIES: '' }).trustedProxies).toEqual([]);
  expect(good({ TRUSTED_PROXIES: '10.0.0.0/8, fd00::/8,192.0.2.1' }).trustedProxies).toEqual(['10.0.0.0/8', 'fd00::/8', '192.0.2.1']);
  for (const value of ['true', '*', 'proxy.example.org', '10.0.0.0/33', '::1/129', '0.0.0.0/0', '10.0.0.1/8/8', '10.0.0.0/'])
    expect(namesOf(problems({ TRUSTED_PROXIES: value })), value).toEqual(['TRUSTED_PROXIES']);
});
