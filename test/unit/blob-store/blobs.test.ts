import { randomBytes } from 'node:crypto';
import { readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { loadBlobKey } from '../../../src/blob-store/blob-key.ts';
import { BLOB_LIMITS, type BlobOwner, createBlobs } from '../../../src/blob-store/blobs.ts';
import type { PrincipalId } from '../../../src/ids.ts';
import { keyFromSeed } from '../../../src/ucan/signing-key.ts';
import { fakeClock } from '../../fakes/fake-clock.ts';
import { fileStore, memoryStore, tempFolder } from '../../fakes/memory-store.ts';

const ALICE: BlobOwner = { plugin: 'p', principal: 'did:key:zAlice' as PrincipalId };
const BOB: BlobOwner = { plugin: 'p', principal: 'did:key:zBob' as PrincipalId };
const blob = (value = 'a value') => ({ name: 'car', value, tainted: false });
const bad = { refusal: { code: 'BAD_REQUEST' } };

function setUp() {
  const clock = fakeClock();
  const store = memoryStore();
  const key = randomBytes(32);
  return { clock, store, key, blobs: createBlobs({ store, key, now: () => clock.now() }) };
}

test('a value comes back by its id, with its name and taint', async () => {
  const { blobs } = setUp();

  const id = await blobs.put(ALICE, { name: 'car', value: 'v', tainted: true });

  expect(id).toMatch(/^blob_[0-9a-f]{16}$/u);
  expect(blobs.get(ALICE, id)).toEqual({ name: 'car', value: 'v', tainted: true });
});

test("another person's, another plugin's and an unknown id are all nothing (G13)", async () => {
  const { blobs } = setUp();
  const id = await blobs.put(ALICE, blob());

  expect(blobs.get(BOB, id)).toBeNull();
  expect(blobs.get({ ...ALICE, plugin: 'q' }, id)).toBeNull();
  expect(blobs.get(ALICE, 'blob_0000000000000000')).toBeNull();
  expect(blobs.get(ALICE, `${id}' or 1=1`)).toBeNull();
});

test('it lives an hour unless asked otherwise, and a day at most', async () => {
  const { blobs, clock } = setUp();
  const plain = await blobs.put(ALICE, blob());
  const short = await blobs.put(ALICE, blob(), 60);
  const long = await blobs.put(ALICE, blob(), 10 * 24 * 3_600);
  const alive = () => [plain, short, long].map((id) => blobs.get(ALICE, id) !== null);

  clock.advance(60_000);
  expect(alive()).toEqual([true, false, true]);
  clock.advance(3_600_000 - 60_000);
  expect(alive()).toEqual([false, false, true]);
  clock.advance(23 * 3_600_000 - 1);
  expect(alive()).toEqual([false, false, true]);
  clock.advance(1);
  expect(alive()).toEqual([false, false, false]);
});

test('it survives a restart, and is not readable in the file (G12)', async () => {
  const file = fileStore();
  const key = randomBytes(32);
  const now = () => 1_000;
  const before = file.open();
  const id = await createBlobs({ store: before, key, now }).put(ALICE, blob('a-very-secret-value'));
  before.close();

  expect(readFileSync(file.path).includes('a-very-secret-value')).toBe(false);
  const after = file.open();
  expect(createBlobs({ store: after, key, now }).get(ALICE, id)?.value).toBe('a-very-secret-value');
  expect(createBlobs({ store: after, key: randomBytes(32), now }).get(ALICE, id)).toBeNull();
  after.close();
});

test('a row that is given to another person or changed does not open (G13)', async () => {
  const { blobs, store } = setUp();
  const id = await blobs.put(ALICE, blob());
  await store.write((tx) => tx.run(store.sql.updateTable('blobs').set({ principal_id: BOB.principal })));
  expect(blobs.get(BOB, id)).toBeNull();

  await store.write((tx) => tx.run(store.sql.updateTable('blobs').set({ sealed: Buffer.from('short') })));
  expect(blobs.get(BOB, id)).toBeNull();
});

describe('limits (G14)', () => {
  test('of a value: at, over, absurd', async () => {
    const { blobs } = setUp();

    await expect(blobs.put(ALICE, blob('x'.repeat(BLOB_LIMITS.valueBytes)))).resolves.toBeDefined();
    await expect(blobs.put(ALICE, blob('x'.repeat(BLOB_LIMITS.valueBytes + 1)))).rejects.toMatchObject(bad);
    await expect(blobs.put(ALICE, blob('é'.repeat(BLOB_LIMITS.valueBytes)))).rejects.toMatchObject(bad);
    await expect(blobs.put(ALICE, { name: '', value: 'v', tainted: false })).rejects.toMatchObject(bad);
    await expect(blobs.put(ALICE, { name: 'n', value: 5 as never, tainted: false })).rejects.toMatchObject(bad);
  });

  test.each([0, -1, Number.NaN, Number.POSITIVE_INFINITY])('a lifetime of %s is none', async (ttl) => {
    await expect(setUp().blobs.put(ALICE, blob(), ttl)).rejects.toMatchObject(bad);
  });

  test('of a person: a hundred that live, whatever the plugin; old ones do not count', async () => {
    const { blobs, clock } = setUp();
    for (let at = 0; at < BLOB_LIMITS.perPrincipal; at += 1) await blobs.put({ ...ALICE, plugin: `p${at % 3}` }, blob());

    await expect(blobs.put(ALICE, blob())).rejects.toMatchObject(bad);
    await expect(blobs.put(BOB, blob())).resolves.toBeDefined();
    clock.advance(3_600_000);
    await expect(blobs.put(ALICE, blob())).resolves.toBeDefined();
  });
});

test('what is over is swept away', async () => {
  const { blobs, store, clock } = setUp();
  await blobs.put(ALICE, blob(), 60);
  await blobs.put(ALICE, blob(), 120);

  clock.advance(60_000);

  expect(await blobs.sweep(clock.now())).toBe(1);
  expect(store.read.all(store.sql.selectFrom('blobs').select('blob_id'))).toHaveLength(1);
});

describe('the key', () => {
  test('is derived from the key of the oracle, and is not it', async () => {
    const signing = keyFromSeed(new Uint8Array(32).fill(3));
    const [one, again, other] = await Promise.all([
      loadBlobKey({ signing, file: '/nowhere' }),
      loadBlobKey({ signing, file: '/nowhere' }),
      loadBlobKey({ signing: keyFromSeed(new Uint8Array(32).fill(4)), file: '/nowhere' }),
    ]);

    expect(one).toEqual(again);
    expect(one).not.toEqual(other);
    expect(one).toHaveLength(32);
    expect(one).not.toEqual(new Uint8Array(32).fill(3));
  });

  test('is else a file that only the oracle reads, made once, made anew when it was cut off', async () => {
    const file = join(tempFolder(), 'blob.key');
    const first = await loadBlobKey({ signing: null, file });

    expect(await loadBlobKey({ signing: null, file })).toEqual(first);
    expect(statSync(file).mode & 0o777).toBe(0o600);
    writeFileSync(file, 'cut');
    expect(await loadBlobKey({ signing: null, file })).toHaveLength(32);
  });
});
