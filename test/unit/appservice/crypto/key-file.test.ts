import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { loadStoreKey } from '../../../../appservice/crypto/key-file.ts';
import { writePrivateFile } from '../../../../appservice/crypto/private-file.ts';

describe('files that only we may read', () => {
  let folder: string;
  let keyFile: string;
  let database: string;
  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), 'key-file-'));
    keyFile = join(folder, 'crypto.key');
    database = join(folder, 'crypto.db');
  });
  afterEach(() => rmSync(folder, { recursive: true }));
  const load = () => {
    const result = loadStoreKey({ keyFile, database });
    return result.ok ? Buffer.from(result.value).toString('hex') : result.error.code;
  };

  test('the key is made once, of 32 random bytes and mode 0600, and read from then on', () => {
    const first = load();
    const again = load();

    expect(first).toMatch(/^[0-9a-f]{64}$/u);
    expect(again).toBe(first);
    expect(statSync(keyFile).mode & 0o777).toBe(0o600);
    rmSync(keyFile);
    expect(load()).not.toBe(first);
  });

  test('no key is made for a store that is there already', () => {
    writeFileSync(database, 'x');

    expect(load()).toBe('STORE_KEY_MISSING');
    expect(readdirSync(folder)).toEqual(['crypto.db']);
  });

  test.each([
    ['empty', ''],
    ['of 31 bytes', Buffer.alloc(31).toString('base64')],
    ['of 33 bytes', Buffer.alloc(33).toString('base64')],
    ['not base64', 'x'.repeat(44)],
    ['two keys', `${Buffer.alloc(32).toString('base64')}\n${Buffer.alloc(32).toString('base64')}`],
  ])('a file that is %s is refused and left as it is', (_name, text) => {
    writeFileSync(keyFile, text);

    expect(load()).toBe('STORE_KEY_BROKEN');
    expect(readFileSync(keyFile, 'utf8')).toBe(text);
  });

  test('whoever lost the key is told what the next start needs, before and after `crypto new-device` moved the store away', () => {
    const remedy = () => {
      const result = loadStoreKey({ keyFile, database });
      return result.ok ? 'it starts' : result.error.remedy;
    };
    writeFileSync(database, 'x');
    expect(remedy()).toContain('crypto new-device');
    writeFileSync(keyFile, 'garbage');
    expect(remedy()).toMatch(/put back .* crypto new-device.* remove this file/u);

    rmSync(database);

    expect(remedy()).toContain('remove it, and the next start makes another');
    rmSync(keyFile);
    expect(remedy()).toBe('it starts');
  });

  test('a file that cannot be read is refused', () => {
    mkdirSync(keyFile);

    expect(load()).toBe('STORE_KEY_BROKEN');
  });

  test('a replaced file is whole, has mode 0600 whatever it had before, and leaves no draft', () => {
    const path = join(folder, 'identity.json');
    writeFileSync(path, 'old', { mode: 0o644 });
    writeFileSync(`${path}.new`, 'left over by a crash', { mode: 0o644 });

    writePrivateFile(path, 'new');

    expect(readFileSync(path, 'utf8')).toBe('new');
    expect(statSync(path).mode & 0o777).toBe(0o600);
    expect(readdirSync(folder)).toEqual(['identity.json']);
  });

  test('it is not written through a link that lies in its draft’s place', () => {
    const path = join(folder, 'identity.json');
    const victim = join(folder, 'victim');
    writeFileSync(victim, 'untouched');
    symlinkSync(victim, `${path}.new`);

    writePrivateFile(path, 'secret');

    expect(readFileSync(victim, 'utf8')).toBe('untouched');
    expect(readFileSync(path, 'utf8')).toBe('secret');
  });
});
