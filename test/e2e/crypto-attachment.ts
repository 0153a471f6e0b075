/** Files of encrypted rooms as a client makes and reads them (spec v1.11 §"Sending encrypted attachments"), by Node's own cryptography and not by ours. */
import { createCipheriv, createDecipheriv, createHash, randomBytes } from 'node:crypto';
import type { JsonObject } from '../../src/json.ts';
import type { UserClient } from '../../synapse-dev/homeserver/user-client.ts';

const IV_RANDOM_BYTES = 8;
const unpadded = (bytes: Buffer): string => bytes.toString('base64').replace(/=+$/u, '');

/** @returns the `file` of an `m.image` or `m.file`. */
export async function uploadEncrypted(client: UserClient, bytes: Buffer): Promise<JsonObject> {
  const key = randomBytes(32);
  const iv = Buffer.concat([randomBytes(IV_RANDOM_BYTES), Buffer.alloc(16 - IV_RANDOM_BYTES)]);
  const cipher = createCipheriv('aes-256-ctr', key, iv);
  const sealed = Buffer.concat([cipher.update(bytes), cipher.final()]);
  const response = await fetch(`${client.baseUrl}/_matrix/media/v3/upload`, {
    method: 'POST',
    headers: { authorization: `Bearer ${client.accessToken}`, 'content-type': 'application/octet-stream' },
    body: sealed,
  });
  const { content_uri: url } = (await response.json()) as { content_uri: string };
  return {
    v: 'v2',
    url,
    key: { kty: 'oct', alg: 'A256CTR', ext: true, key_ops: ['encrypt', 'decrypt'], k: key.toString('base64url') },
    iv: unpadded(iv),
    hashes: { sha256: unpadded(createHash('sha256').update(sealed).digest()) },
  };
}

/** As the homeserver has it, for a look at whether it is encrypted. */
export async function download(client: UserClient, mxc: string): Promise<Buffer> {
  const response = await fetch(`${client.baseUrl}/_matrix/client/v1/media/download/${mxc.replace('mxc://', '')}`, {
    headers: { authorization: `Bearer ${client.accessToken}` },
  });
  if (!response.ok) throw new Error(`the download answered ${response.status}`);
  return Buffer.from(await response.arrayBuffer());
}

/** @throws when the hash does not fit. */
export async function downloadEncrypted(client: UserClient, file: JsonObject): Promise<Buffer> {
  const { url, iv, key, hashes } = file as { url: string; iv: string; key: { k: string }; hashes: { sha256: string } };
  const sealed = await download(client, url);
  if (unpadded(createHash('sha256').update(sealed).digest()) !== hashes.sha256) throw new Error('the file is not what was sent');
  const decipher = createDecipheriv('aes-256-ctr', Buffer.from(key.k, 'base64url'), Buffer.from(iv, 'base64'));
  return Buffer.concat([decipher.update(sealed), decipher.final()]);
}
