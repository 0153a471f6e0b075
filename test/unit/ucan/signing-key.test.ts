import { ed25519 } from '@ucanto/principal';
import { expect, test } from 'vitest';
import { newNonce } from '../../../src/ucan/mint.ts';
import { hasEnoughNonce } from '../../../src/ucan/own-capability.ts';
import { buildKeyFile, didOf, generateKey, keyFromSeed, readKeyFile } from '../../../src/ucan/signing-key.ts';

const seed = Uint8Array.from({ length: 32 }, (_, n) => n);

test('a seed gives the DID that ucanto derives from it', async () => {
  expect(didOf(keyFromSeed(seed))).toBe((await ed25519.derive(seed)).did());
});

test('a key file gives its key back, as PEM and as a bare seed in base64 or base64url', () => {
  const key = keyFromSeed(seed);

  for (const text of [buildKeyFile(key), `${Buffer.from(seed).toString('base64')}\n`, Buffer.from(seed).toString('base64url')]) {
    const read = readKeyFile(text);
    expect(read.ok && read.value.did).toBe(key.did);
  }
});

test.each([
  ['nothing', ''],
  ['a seed too short', Buffer.alloc(31).toString('base64')],
  ['a PEM of something else', '-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----'],
  ['a megabyte', 'A'.repeat(1_000_000)],
])('a file with %s is no key', (_name, text) => {
  expect(readKeyFile(text)).toEqual({ ok: false, error: 'BAD_KEY_FILE' });
});

test('fresh keys and nonces differ, and a nonce is random enough', () => {
  expect(generateKey().did).not.toBe(generateKey().did);
  expect(newNonce()).not.toBe(newNonce());
  expect(hasEnoughNonce(newNonce())).toBe(true);
});
