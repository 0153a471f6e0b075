import { createHash, createPublicKey, verify } from 'node:crypto';
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { createSessionKey, knowsEd25519, openAccount, sha256, sign } from '../../../../src/sidecar/pages/authorise/account.ts';
import { keyFromSeed } from '../../../../src/ucan/signing-key.ts';

const WORDS = 'legal winner thank year wave sausage worth useful legal winner thank yellow';
const asServer = (text: string) => keyFromSeed(createHash('sha256').update(text.trim()).digest());

test('the account of some words is the key that SIGNING_MNEMONIC makes of them', async () => {
  expect((await openAccount(WORDS)).did).toBe(asServer(WORDS).did);
});

test('any text gives the same DID in the browser and in node, white space around it left out', async () => {
  await fc.assert(
    fc.asyncProperty(fc.string({ minLength: 1, unit: 'grapheme' }), async (text) => {
      expect((await openAccount(` ${text}\n`)).did).toBe(asServer(text).did);
    }),
    { numRuns: 50 },
  );
});

test('what the account signs, its DID verifies', async () => {
  const account = await openAccount(WORDS);
  const payload = new TextEncoder().encode('hello');

  const signature = await sign(account, payload);

  expect(verify(null, payload, createPublicKey(asServer(WORDS).privateKey), signature)).toBe(true);
});

test('neither the account key nor the key of this browser can be taken out (G12)', async () => {
  for (const { privateKey } of [await openAccount(WORDS), await createSessionKey()]) {
    expect(privateKey.extractable).toBe(false);
    await expect(crypto.subtle.exportKey('jwk', privateKey)).rejects.toThrow();
    await expect(crypto.subtle.exportKey('pkcs8', privateKey)).rejects.toThrow();
  }
});

test('each browser key is another', async () => {
  expect((await createSessionKey()).did).not.toBe((await createSessionKey()).did);
});

test('hashes are SHA-256, and a runtime with Ed25519 is known as one', async () => {
  expect(Buffer.from(await sha256(Uint8Array.of(1, 2)))).toEqual(createHash('sha256').update(Uint8Array.of(1, 2)).digest());
  expect(await knowsEd25519()).toBe(true);
});
