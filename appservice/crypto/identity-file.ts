/**
 * The three private keys of the oracle's identity as they stand in CRYPTO_IDENTITY_FILE: what people verified. A lost store is a new device under the same
 * identity; without this file it would be a new identity, and every client would warn its owner.
 */
import { createPublicKey, sign } from 'node:crypto';
import { z } from 'zod';
import type { UserId } from '../../src/ids.ts';
import { canonicalJson, type JsonObject } from '../../src/json.ts';
import { err, ok, type Result } from '../../src/result.ts';
import { keyFromSeed } from '../../src/ucan/signing-key.ts';

/** Seeds, unpadded base64. Secret. */
export interface Identity {
  readonly masterKey: string;
  readonly selfSigningKey: string;
  readonly userSigningKey: string;
}

const Seed = z.string().regex(/^[A-Za-z0-9+/]{42}[AEIMQUYcgkosw048]$/u);
const File = z.strictObject({
  v: z.literal(1),
  user_id: z.string(),
  master_key: Seed,
  self_signing_key: Seed,
  user_signing_key: Seed,
});
const MAX_FILE_CHARS = 4_096;

/** @returns `OF_ANOTHER_ACCOUNT`: it is the identity of somebody else. */
export function readIdentity(text: string, user: UserId): Result<Identity, 'BAD_IDENTITY_FILE' | 'OF_ANOTHER_ACCOUNT'> {
  const parsed = File.safeParse(readJson(text));
  if (!parsed.success) return err('BAD_IDENTITY_FILE');
  if (parsed.data.user_id !== user) return err('OF_ANOTHER_ACCOUNT');
  const { master_key: masterKey, self_signing_key: selfSigningKey, user_signing_key: userSigningKey } = parsed.data;
  return ok({ masterKey, selfSigningKey, userSigningKey });
}

function readJson(text: string): unknown {
  try {
    return text.length > MAX_FILE_CHARS ? null : JSON.parse(text);
  } catch {
    return null;
  }
}

/** What `readIdentity` reads. Secret. */
export function buildIdentityFile({ masterKey, selfSigningKey, userSigningKey }: Identity, user: UserId): string {
  const file: z.infer<typeof File> = {
    v: 1,
    user_id: user,
    master_key: masterKey,
    self_signing_key: selfSigningKey,
    user_signing_key: userSigningKey,
  };
  return `${JSON.stringify(file, null, 2)}\n`;
}

/** The public key of a seed, unpadded base64, as it stands on the homeserver. */
export function publicKeyOf(seed: string): string {
  const { x } = createPublicKey(privateKeyOf(seed)).export({ format: 'jwk' });
  return withoutPadding(Buffer.from(String(x), 'base64url'));
}

/**
 * Body of `/keys/device_signing/upload` (spec v1.19, "Cross-signing"). Made here and not by the engine, which after an import of the seeds alone sends keys
 * that the master key has not signed (measured, 18.9.0).
 */
export function buildPublicKeys({ masterKey, selfSigningKey, userSigningKey }: Identity, user: UserId): JsonObject {
  const build = (usage: string, seed: string): JsonObject => {
    const key = publicKeyOf(seed);
    return { user_id: user, usage: [usage], keys: { [`ed25519:${key}`]: key } };
  };
  const signed = (key: JsonObject): JsonObject => ({
    ...key,
    signatures: { [user]: { [`ed25519:${publicKeyOf(masterKey)}`]: signJson(key, masterKey) } },
  });
  return {
    master_key: build('master', masterKey),
    self_signing_key: signed(build('self_signing', selfSigningKey)),
    user_signing_key: signed(build('user_signing', userSigningKey)),
  };
}

function signJson(value: JsonObject, seed: string): string {
  const text = canonicalJson(value);
  if (!text.ok) throw new Error('a public key always has canonical JSON');
  return withoutPadding(sign(null, Buffer.from(text.value), privateKeyOf(seed)));
}

const privateKeyOf = (seed: string) => keyFromSeed(Buffer.from(seed, 'base64')).privateKey;
const withoutPadding = (bytes: Buffer): string => bytes.toString('base64').replace(/=+$/u, '');
