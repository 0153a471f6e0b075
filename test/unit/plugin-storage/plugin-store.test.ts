import { describe, expect, test } from 'vitest';
import type { PrincipalId } from '../../../src/ids.ts';
import { createPluginStore, STORAGE_LIMITS, type StorageOwner } from '../../../src/plugin-storage/plugin-store.ts';
import { fakeClock } from '../../fakes/fake-clock.ts';
import { memoryStore } from '../../fakes/memory-store.ts';

const ALICE: StorageOwner = { plugin: 'memory', principal: 'did:key:zAlice' as PrincipalId };
const BOB: StorageOwner = { plugin: 'memory', principal: 'did:key:zBob' as PrincipalId };
const OTHER: StorageOwner = { ...ALICE, plugin: 'notes' };
const bad = { refusal: { code: 'BAD_REQUEST' } };

function setUp() {
  const clock = fakeClock();
  const storage = createPluginStore({ store: memoryStore(), now: () => clock.now() });
  const put = (key: string, value: string, owner = ALICE, tainted = false) => {
    clock.advance(1);
    return storage.put(owner, { key, value, tainted });
  };
  return { storage, put };
}
const keys = (rows: readonly { key: string }[]): string[] => rows.map(({ key }) => key);

test('a value comes back under its key, and the newest one counts, with its taint', async () => {
  const { storage, put } = setUp();
  await put('a', 'one');
  await put('a', 'two', ALICE, true);

  expect(storage.get(ALICE, 'a')).toEqual({ key: 'a', value: 'two', tainted: true });
  expect(storage.get(ALICE, 'b')).toBeUndefined();
});

test("another person's and another plugin's rows are not there: read, listed, found, deleted (G13)", async () => {
  const { storage, put } = setUp();
  await put('a', 'a dog');

  for (const owner of [BOB, OTHER]) {
    expect(storage.get(owner, 'a')).toBeUndefined();
    expect(storage.list(owner, {})).toEqual([]);
    expect(storage.search(owner, 'dog')).toEqual([]);
    expect(await storage.delete(owner, 'a')).toBe(false);
    await put('a', 'of another', owner);
  }
  expect(storage.get(ALICE, 'a')?.value).toBe('a dog');
});

test('a list is newest first, by prefix, and what a prefix holds is text', async () => {
  const { storage, put } = setUp();
  for (const key of ['fact:1', 'fact:2', 'note:1', 'fa%:3', 'fact:1']) await put(key, key);

  expect(keys(storage.list(ALICE, {}))).toEqual(['fact:1', 'fa%:3', 'note:1', 'fact:2']);
  expect(keys(storage.list(ALICE, { prefix: 'fact:' }))).toEqual(['fact:1', 'fact:2']);
  expect(keys(storage.list(ALICE, { prefix: 'fa%' }))).toEqual(['fa%:3']);
  await put('🐕:1', 'x');
  expect(keys(storage.list(ALICE, { prefix: '🐕:' }))).toEqual(['🐕:1']);
  await storage.delete(ALICE, '🐕:1');
  expect(keys(storage.list(ALICE, { limit: 2 }))).toEqual(['fact:1', 'fa%:3']);
  expect(storage.list(ALICE, { limit: -1 })).toEqual([]);
});

test('a search finds by words and by their beginnings, best first, and what was deleted or changed no more', async () => {
  const { storage, put } = setUp();
  await put('a', 'Her dog is called Rex');
  await put('b', 'The cat sleeps, the dogs do not');
  await put('c', 'Nothing of the kind');

  expect(keys(storage.search(ALICE, 'called dog'))).toEqual(['a', 'b']);
  expect(keys(storage.search(ALICE, 'the dog'))[0]).toBe('b');
  expect(keys(storage.search(ALICE, 'rex'))).toEqual(['a']);
  await storage.delete(ALICE, 'a');
  await put('b', 'moved');
  expect(storage.search(ALICE, 'rex dog')).toEqual([]);
  expect(storage.search(ALICE, '" OR 1')).toEqual([]);
});

describe('limits (G14)', () => {
  test('of a value: at, over, no text', async () => {
    const { put } = setUp();

    await put('at', 'x'.repeat(STORAGE_LIMITS.valueBytes));
    await expect(put('over', 'x'.repeat(STORAGE_LIMITS.valueBytes + 1))).rejects.toMatchObject(bad);
    await expect(put('none', 5 as never)).rejects.toMatchObject(bad);
    await expect(put('lone', '\ud800')).rejects.toMatchObject(bad);
  });

  test('of a key', async () => {
    const { put, storage } = setUp();

    await put('x'.repeat(STORAGE_LIMITS.keyChars), 'v');
    await expect(put('x'.repeat(STORAGE_LIMITS.keyChars + 1), 'v')).rejects.toMatchObject(bad);
    await expect(put('', 'v')).rejects.toMatchObject(bad);
    expect(() => storage.get(ALICE, '')).toThrow('1 to 200 characters');
  });

  test('of a person and plugin: a thousand; those can still be changed', async () => {
    const { put } = setUp();
    await Promise.all(Array.from({ length: STORAGE_LIMITS.keysPerOwner }, (_, at) => put(`k${at}`, 'v')));

    await expect(put('one more', 'v')).rejects.toMatchObject(bad);
    await expect(put('k0', 'changed')).resolves.toBeUndefined();
    await expect(put('one more', 'v', BOB)).resolves.toBeUndefined();
    await expect(put('one more', 'v', OTHER)).resolves.toBeUndefined();
  });
});
