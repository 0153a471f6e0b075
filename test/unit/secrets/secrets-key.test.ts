import { generateKeyPairSync } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { loadSecretsKey, readSecretsKey } from '../../../src/secrets/secrets-key.ts';
import { tempFolder } from '../../fakes/memory-store.ts';

const { privateKey, publicKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });

test('a JWK and a PEM with PKCS #8 are the same key', () => {
  const jwk = readSecretsKey(JSON.stringify(privateKey.export({ format: 'jwk' })));
  const pem = readSecretsKey(`${privateKey.export({ format: 'pem', type: 'pkcs8' })}\n`);

  expect(jwk.ok && pem.ok && jwk.value.equals(pem.value)).toBe(true);
});

describe('anything else is no key', () => {
  test.each([
    ['nothing', ''],
    ['a public key', String(publicKey.export({ format: 'pem', type: 'spki' }))],
    ['a public JWK', JSON.stringify(publicKey.export({ format: 'jwk' }))],
    ['another curve', String(generateKeyPairSync('ec', { namedCurve: 'P-384' }).privateKey.export({ format: 'pem', type: 'pkcs8' }))],
    ['Ed25519', String(generateKeyPairSync('ed25519').privateKey.export({ format: 'pem', type: 'pkcs8' }))],
    ['JSON that is no key', '{"kty":"EC"}'],
    ['a long file', 'x'.repeat(10_000)],
  ])('%s', (_name, text) => {
    expect(readSecretsKey(text)).toEqual({ ok: false, error: 'BAD_KEY_FILE' });
  });
});

test('without a file there is no key; with one that cannot be used the start is refused', async () => {
  const folder = tempFolder();
  writeFileSync(join(folder, 'bad'), 'no key');
  writeFileSync(join(folder, 'good'), String(privateKey.export({ format: 'pem', type: 'pkcs8' })));

  expect(await loadSecretsKey(undefined)).toEqual({ ok: true, value: null });
  expect(await loadSecretsKey(join(folder, 'good'))).toMatchObject({ ok: true });
  expect(await loadSecretsKey(join(folder, 'bad'))).toMatchObject({ ok: false, error: { name: 'SECRETS_KEY_FILE' } });
  expect(await loadSecretsKey(join(folder, 'none'))).toMatchObject({ ok: false, error: { message: 'SECRETS_KEY_FILE cannot be read.' } });
});
