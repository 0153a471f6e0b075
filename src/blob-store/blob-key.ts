/**
 * The key that blobs are encrypted with: it must be there after a restart and must not be in the database. Derived from the oracle's own key where
 * there is one, so that there is no further secret to guard; without one it is a file of random bytes. When the oracle's key changes, blobs that
 * were put before are gone, as they are after a day.
 */
import { hkdfSync, randomBytes } from 'node:crypto';
import { open, readFile } from 'node:fs/promises';
import type { SigningKey } from '../ucan/signing-key.ts';

const KEY_BYTES = 32;
const PURPOSE = 'matrix-oracle blobs v1';

/** @param file where the key is when the oracle has none of its own: `blob.key` in DATA_DIR, mode 0600. Made when it is not there. */
export async function loadBlobKey({ signing, file }: { signing: SigningKey | null; file: string }): Promise<Uint8Array> {
  if (signing === null) return loadKeyFile(file);
  const { d } = signing.privateKey.export({ format: 'jwk' });
  return new Uint8Array(hkdfSync('sha256', Buffer.from(String(d), 'base64url'), new Uint8Array(), PURPOSE, KEY_BYTES));
}

async function loadKeyFile(file: string): Promise<Uint8Array> {
  const present = await readFile(file).catch((error: unknown) => {
    if (error instanceof Error && 'code' in error && error.code === 'ENOENT') return null;
    throw error;
  });
  if (present?.length === KEY_BYTES) return present;
  const key = randomBytes(KEY_BYTES);
  // One of another length was cut off when it was written: nothing was ever encrypted with it.
  const handle = await open(file, 'w', 0o600);
  try {
    await handle.writeFile(key);
    await handle.sync();
  } finally {
    await handle.close();
  }
  return key;
}
