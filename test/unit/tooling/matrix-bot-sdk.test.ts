/**
 * matrix-bot-sdk makes its own transaction ids, so whatever is sent through its helpers is sent twice after a crash (G4). It is used behind one port, for
 * requests only. The import rule sees static imports; this reads the text, for calls and for imports that the cruiser might not follow.
 * Nor is its encryption used: it signs no device, reads device lists wrong, rotates keys a thousand times too early and loses what its handler throws.
 */
import { globSync, readFileSync } from 'node:fs';
import { join, relative } from 'node:path';
import { expect, test } from 'vitest';

const ROOT = join(import.meta.dirname, '../../..');
const DOOR = /^appservice\/client[^/]*\.ts$/;
const FOLDERS = ['src', 'appservice', 'plugins'];

/** Names that MatrixClient, UnstableApis and Intent of matrix-bot-sdk define as methods and that send, redact or set state. */
const sdkSenders = (): string[] => {
  const lib = join(ROOT, 'node_modules/matrix-bot-sdk/lib');
  const files = ['MatrixClient.d.ts', 'UnstableApis.d.ts', 'appservice/Intent.d.ts'].map((file) => readFileSync(join(lib, file), 'utf8'));
  return [
    ...new Set(files.flatMap((text) => [...text.matchAll(/^ {4}((?:send|redact|setState|reply)\w*)\(/gm)].map((match) => match[1]!))),
  ];
};

const sources = FOLDERS.flatMap((folder) =>
  globSync(`${folder}/**/*.{ts,mjs}`, { cwd: ROOT }).map((path) => ({
    path: relative(ROOT, join(ROOT, path)),
    text: readFileSync(join(ROOT, path), 'utf8'),
  })),
);
const IMPORTS_SDK = /(?:from|import|require)\s*\(?\s*['"]matrix-bot-sdk(?:\/[^'"]*)?['"]/;

test('matrix-bot-sdk is imported by appservice/client*.ts only', () => {
  const importers = sources.filter(({ path, text }) => !DOOR.test(path) && IMPORTS_SDK.test(text)).map(({ path }) => path);

  expect(importers).toEqual([]);
});

test('the files that import matrix-bot-sdk call none of its methods that send, redact or set state (G4)', () => {
  const senders = sdkSenders();
  const calls = sources
    .filter(({ text }) => IMPORTS_SDK.test(text))
    .flatMap(({ path, text }) =>
      [...text.matchAll(/\.(\w+)\s*\(/g)]
        .map((match) => match[1]!)
        .filter((name) => senders.includes(name))
        .map((name) => `${path}: ${name}`),
    );

  expect(senders).toEqual(
    expect.arrayContaining(['sendEvent', 'sendRawEvent', 'sendMessage', 'redactEvent', 'sendStateEvent', 'sendText']),
  );
  expect(calls).toEqual([]);
});

/** What matrix-bot-sdk exports for encryption, and the names under which it is switched on. */
const sdkCrypto = (): string[] => {
  const lib = join(ROOT, 'node_modules/matrix-bot-sdk/lib');
  const files = globSync(['e2ee/*.d.ts', 'storage/*Crypto*.d.ts'], { cwd: lib }).map((file) => readFileSync(join(lib, file), 'utf8'));
  const exported = files.flatMap((text) => [...text.matchAll(/^export (?:declare )?(?:class|interface|function|type|const) (\w+)/gm)]);
  // `UserTracker` and the like may be anybody's word; what matters cannot be had without one of these.
  return [...exported.map((match) => match[1]!).filter((name) => /Crypto|Olm|RustEngine/.test(name)), 'cryptoStorage', 'enableEncryption'];
};
const cryptoUsesIn = (text: string): string[] => [
  ...sdkCrypto().filter((name) => new RegExp(`\\b${name}\\b`).test(text)),
  ...(text.match(/matrix-sdk-crypto-nodejs/g) ?? []),
  ...(IMPORTS_SDK.test(text) ? (text.match(/\.crypto\b|new MatrixClient\([^,()]*,[^,()]*,/g) ?? []) : []),
];

test('the encryption of matrix-bot-sdk, and the binding that it wants, are used nowhere (G11)', () => {
  const uses = sources.flatMap(({ path, text }) => cryptoUsesIn(text).map((use) => `${path}: ${use}`));

  expect(sdkCrypto()).toEqual(expect.arrayContaining(['CryptoClient', 'RustSdkCryptoStorageProvider', 'ICryptoStorageProvider']));
  expect(uses).toEqual([]);
});

test.each([
  `const client = new sdk.CryptoClient(other);`,
  `await intent.enableEncryption();`,
  `import { OlmMachine } from '@matrix-org/matrix-sdk-crypto-nodejs';`,
  `const { MatrixClient } = await import('matrix-bot-sdk'); await client.crypto.prepare();`,
  `const { MatrixClient } = await import('matrix-bot-sdk'); new MatrixClient(url, token, storage, crypto);`,
])('the search finds this way to its encryption: %s', (text) => {
  expect(cryptoUsesIn(text)).not.toEqual([]);
});

test.each([
  `import { MatrixClient } from 'matrix-bot-sdk';`,
  `import type { MatrixError } from "matrix-bot-sdk/lib/models/MatrixError.js";`,
  `const sdk = await import('matrix-bot-sdk');`,
  `require('matrix-bot-sdk')`,
])('the search finds this way to import it: %s', (text) => {
  expect(IMPORTS_SDK.test(text)).toBe(true);
});
