import fc from 'fast-check';
import { expect, test } from 'vitest';
import { createAttachments } from '../../../../appservice/crypto/attachments.ts';
import { readSharedFile } from '../../../../appservice/wire/read-shared-file.ts';

const fatal: string[] = [];
const attachments = createAttachments({ onFatal: (reason) => fatal.push(reason) });

test('a file comes back as it was, and is not what the media repository gets', async () => {
  await fc.assert(
    fc.asyncProperty(fc.uint8Array({ minLength: 20, maxLength: 2_000 }), async (bytes) => {
      const { bytes: sealed, key } = await attachments.encrypt(bytes);

      expect(Buffer.from(sealed).equals(bytes)).toBe(false);
      expect(await attachments.decrypt(sealed, key)).toEqual({ ok: true, value: new Uint8Array(bytes) });
    }),
    { numRuns: 50 },
  );
});

test('no two files have the same key', async () => {
  const [one, other] = await Promise.all([attachments.encrypt(Buffer.from('x')), attachments.encrypt(Buffer.from('x'))]);

  expect(one.key.key.k).not.toBe(other.key.key.k);
  expect(one.key.iv).not.toBe(other.key.iv);
});

test('a file that was changed, cut or made longer is found out before it is decrypted', async () => {
  const { bytes, key } = await attachments.encrypt(Buffer.from('pay ten'));
  const turned = Buffer.from(bytes);
  turned[4] = (turned[4] ?? 0) ^ 1;

  for (const other of [turned, bytes.slice(1), Buffer.concat([bytes, Buffer.alloc(1)]), new Uint8Array(0)])
    expect(await attachments.decrypt(other, key)).toEqual({ ok: false, error: 'FILE_DAMAGED' });
});

test('a key that is none is the file’s fault, and ends nothing', async () => {
  const { bytes, key } = await attachments.encrypt(Buffer.from('x'));
  const broken = [{ ...key, iv: 'AAAA' }, { ...key, key: { ...key.key, k: 'AAAA' } }, { ...key, hashes: { sha256: 'AAAA' } }, {}];

  for (const other of broken) expect(await attachments.decrypt(bytes, other as never)).toEqual({ ok: false, error: 'FILE_DAMAGED' });
  expect(fatal).toEqual([]);
});

test('the key has the form that the reader of messages takes', async () => {
  const { bytes, key } = await attachments.encrypt(Buffer.from('x'));
  const read = readSharedFile({ msgtype: 'm.file', body: 'x', file: { ...key, url: 'mxc://a.org/b' } });

  expect(read.ok && read.value?.key).toEqual(key);
  expect(read.ok && read.value?.key != null && (await attachments.decrypt(bytes, read.value.key)).ok).toBe(true);
});
