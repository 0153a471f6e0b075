/**
 * matrix-bot-sdk makes its own transaction ids, so whatever is sent through its helpers is sent twice after a crash (G4). It is used behind one port, for
 * requests only. The import rule sees static imports; this reads the text, for calls and for imports that the cruiser might not follow.
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

test.each([
  `import { MatrixClient } from 'matrix-bot-sdk';`,
  `import type { MatrixError } from "matrix-bot-sdk/lib/models/MatrixError.js";`,
  `const sdk = await import('matrix-bot-sdk');`,
  `require('matrix-bot-sdk')`,
])('the search finds this way to import it: %s', (text) => {
  expect(IMPORTS_SDK.test(text)).toBe(true);
});
