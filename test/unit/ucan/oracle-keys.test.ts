import { createHash } from 'node:crypto';
import { chmodSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { ed25519 } from '@ucanto/principal';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import type { Did } from '../../../src/ids.ts';
import { LIMITS } from '../../../src/limits.ts';
import { buildOldKeys, createOracleKeys, keyFromMnemonic, loadOracleKeys, readOldKeys } from '../../../src/ucan/oracle-keys.ts';
import { createKeyFiles, findUnusedKeys, type KeyFiles, rotateKey } from '../../../src/ucan/rotate-key.ts';
import { buildKeyFile, generateKey, type SigningKey } from '../../../src/ucan/signing-key.ts';

const NOW = 1_796_000_000_000;
const DATE = '2026-11-30';
const IXO = 'did:ixo:entity1oracle' as Did;
const first = generateKey();
const second = generateKey();

let dir: string;
let keyFile: string;
beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), 'matrix-oracle-keys-'));
  keyFile = join(dir, 'oracle.key');
  writeFileSync(keyFile, buildKeyFile(first), { mode: 0o600 });
});
afterEach(() => rmSync(dir, { recursive: true }));

async function load(did: Did = first.did, mnemonic: string | null = null) {
  const loaded = await loadOracleKeys({ did, keyFile, mnemonic, dir });
  if (!loaded.ok) throw new Error(loaded.error.message);
  return loaded.value;
}
const rotate = (current: SigningKey, next: SigningKey, more: { files?: KeyFiles; changesDid?: boolean; now?: number } = {}) =>
  rotateKey({ files: createKeyFiles(), dir, keyFile, current, next, changesDid: true, date: DATE, now: NOW, ...more });

describe('the key that signs', () => {
  test('is that of the file, under the DID of the oracle', async () => {
    const { keys, warnings } = await load();

    expect(keys.signerOf(first.did, NOW)).toMatchObject({ did: first.did, key: { did: first.did } });
    expect(keys.audiences(NOW)).toEqual([first.did]);
    expect(warnings).toEqual([]);
  });

  test('is that of the words: SHA-256 of the trimmed text is the seed, as in the IXO family', async () => {
    const key = keyFromMnemonic('  abandon abandon abandon about\n');
    const theirs = await ed25519.derive(createHash('sha256').update('abandon abandon abandon about').digest());

    expect(key.did).toBe(theirs.did());
    expect((await load(key.did, 'abandon abandon abandon about')).keys.current?.did).toBe(key.did);
  });

  test('signs for a did:ixo under that name', async () => {
    const { keys } = await load(IXO);

    expect(keys.signerOf(IXO, NOW)).toMatchObject({ did: IXO, key: { did: first.did } });
    expect(keys.signerOf(first.did, NOW)).toBeNull();
  });

  test('is none when there is no file, and none for a did:key that is another; the oracle runs all the same', async () => {
    const other = await load(second.did);
    rmSync(keyFile);
    const none = await load(second.did);

    expect([other.keys.current, none.keys.current]).toEqual([null, null]);
    expect(none.keys.signerOf(second.did, NOW)).toBeNull();
    expect(other.warnings.map(({ message }) => message)).toEqual([expect.stringContaining('cannot sign')]);
    expect(none.keys.audiences(NOW)).toEqual([second.did]);
  });

  test.each([0o640, 0o604, 0o644])('in a file of mode %o is warned about (G12)', async (mode) => {
    chmodSync(keyFile, mode);

    expect((await load()).warnings).toEqual([expect.objectContaining({ remedy: expect.stringContaining('chmod 600') })]);
  });
});

describe('after a rotation', () => {
  test('the new key signs, and grants to the old DID count for 30 days with the old key (the last millisecond not)', async () => {
    const rotated = await rotate(first, second);
    const { keys } = await load(second.did);
    const end = NOW + LIMITS.oldKeyMs;

    expect(rotated).toEqual({ ok: true, value: { file: `oracle.key.${DATE}`, until: end } });
    expect(keys.current?.did).toBe(second.did);
    expect(keys.audiences(end - 1)).toEqual([second.did, first.did]);
    expect(keys.signerOf(first.did, end - 1)).toMatchObject({ did: first.did, key: { did: first.did } });
    expect(keys.audiences(end)).toEqual([second.did]);
    expect(keys.signerOf(first.did, end)).toBeNull();
  });

  test('all files are for their owner only, and nothing half-written is left (G12)', async () => {
    await rotate(first, second);

    expect(readdirSync(dir).sort()).toEqual(['oracle-keys.json', 'oracle.key', `oracle.key.${DATE}`]);
    for (const name of readdirSync(dir)) expect(statSync(join(dir, name)).mode & 0o777).toBe(0o600);
    expect(readFileSync(join(dir, 'oracle-keys.json'), 'utf8')).not.toContain('PRIVATE');
  });

  test('a second one on the same day keeps both old keys', async () => {
    const third = generateKey();
    await rotate(first, second);
    await rotate(second, third);

    expect((await load(third.did)).keys.audiences(NOW)).toEqual([third.did, second.did, first.did]);
  });

  test('one that is over is taken out of the list by the next, and its file is told as unused', async () => {
    const third = generateKey();
    await rotate(first, second);
    const later = NOW + LIMITS.oldKeyMs;
    expect(await findUnusedKeys(dir, later - 1)).toEqual([]);
    await rotateKey({
      files: createKeyFiles(),
      dir,
      keyFile,
      current: second,
      next: third,
      changesDid: true,
      date: '2026-12-30',
      now: later,
    });

    expect((await load(third.did)).keys.audiences(later)).toEqual([third.did, second.did]);
    expect(await findUnusedKeys(dir, later)).toEqual([`oracle.key.${DATE}`]);
  });

  test('of a did:ixo the old key is kept as a file, and nothing else changes', async () => {
    const rotated = await rotate(first, second, { changesDid: false });

    expect(rotated).toEqual({ ok: true, value: { file: `oracle.key.${DATE}`, until: null } });
    const { keys } = await load(IXO);
    expect(keys.signerOf(IXO, NOW)?.key.did).toBe(second.did);
    expect(keys.old).toEqual([]);
    expect(await findUnusedKeys(dir, NOW)).toEqual([`oracle.key.${DATE}`]);
  });

  test('an old key file that is gone, or is another key, is a warning that names it, and its DID no longer counts', async () => {
    await rotate(first, second);
    writeFileSync(join(dir, `oracle.key.${DATE}`), buildKeyFile(generateKey()), { mode: 0o600 });
    const { keys, warnings } = await load(second.did);

    expect(keys.audiences(NOW)).toEqual([second.did]);
    expect(warnings).toEqual([expect.objectContaining({ message: expect.stringContaining(`oracle.key.${DATE}`) })]);
  });
});

describe('a crash in the middle', () => {
  class Crash extends Error {}
  /** Dies before the n-th step. */
  function crashing(at: number): { files: KeyFiles; steps: () => number } {
    const real = createKeyFiles();
    let steps = 0;
    const step = async (work: () => Promise<void>): Promise<void> => {
      steps += 1;
      if (steps === at) throw new Crash();
      await work();
    };
    return {
      steps: () => steps,
      files: {
        read: real.read,
        stage: (path, text) => step(() => real.stage(path, text)),
        commit: (path) => step(() => real.commit(path)),
      },
    };
  }

  test('a rotation has six steps (control)', async () => {
    const { files, steps } = crashing(0);
    await rotate(first, second, { files });

    expect(steps()).toBe(6);
  });

  test.each([1, 2, 3, 4, 5, 6])('before step %i leaves the old key signing, and a second attempt completes it', async (at) => {
    await expect(rotate(first, second, { files: crashing(at).files })).rejects.toThrow(Crash);

    const between = await load();
    expect(between.keys.current?.did).toBe(first.did);
    expect(between.keys.audiences(NOW)).toEqual([first.did]);
    expect(between.warnings).toEqual([]);

    const third = generateKey();
    await rotate(first, third);
    expect((await load(third.did)).keys.audiences(NOW)).toEqual([third.did, first.did]);
    expect(readdirSync(dir).filter((name) => name.startsWith('oracle.key.2'))).toEqual([`oracle.key.${DATE}`]);
    expect(readdirSync(dir).filter((name) => name.endsWith('.new'))).toEqual([]);
  });

  test('a torn list stops the start with what to do, and nothing is rotated over it', async () => {
    await rotate(first, second);
    writeFileSync(join(dir, 'oracle-keys.json'), '{"v":1,"old":[{"did":"did:k');

    expect(await loadOracleKeys({ did: second.did, keyFile, mnemonic: null, dir })).toMatchObject({
      ok: false,
      error: { name: 'oracle-keys.json', remedy: expect.stringContaining('backup') },
    });
    expect(await rotate(second, generateKey())).toEqual({ ok: false, error: 'BAD_OLD_KEYS' });
    expect((await loadOracleKeys({ did: second.did, keyFile, mnemonic: null, dir: join(dir, 'none') })).ok).toBe(true);
  });
});

test('the list names files of its own folder only', () => {
  const row = { did: first.did, until: NOW };
  const read = (file: string) => readOldKeys(JSON.stringify({ v: 1, old: [{ ...row, file }] })).ok;

  expect([`oracle.key.${DATE}`, `oracle.key.${DATE}-2`].map(read)).toEqual([true, true]);
  expect(['../oracle.key.2026-11-30', '/etc/passwd', 'oracle.key', `oracle.key.${DATE}/../x`, ''].map(read)).toEqual(Array(5).fill(false));
  expect(readOldKeys(buildOldKeys([{ ...row, file: `oracle.key.${DATE}` }]))).toMatchObject({ ok: true });
  expect([readOldKeys('{"v":2,"old":[]}').ok, readOldKeys('null').ok, readOldKeys(null).ok]).toEqual([false, false, true]);
});

test('an old DID mints only under its own name: a grant to it is no proof for the new one', () => {
  const keys = createOracleKeys({ did: second.did, current: second, old: [{ did: first.did, key: first, until: NOW + 1 }] });

  expect(keys.signerOf(first.did, NOW)).toEqual({ did: first.did, key: first });
  expect(keys.signerOf('did:key:zStranger' as Did, NOW)).toBeNull();
});
