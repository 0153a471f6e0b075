/**
 * An Ed25519 key and the did:key that names it: the oracle's own, a demo user's, a test's. The file is PKCS #8 PEM, what `openssl genpkey
 * -algorithm ed25519` writes; a bare 32-byte seed in base64 is read too. Whoever writes the file gives it mode 0600 (G12).
 */
import { createPrivateKey, createPublicKey, generateKeyPairSync, type KeyObject } from 'node:crypto';
import { type Did, parseDid } from '../ids.ts';
import { err, ok, type Result } from '../result.ts';
import { didKeyOf } from './build-ucan.ts';
import { decodeStrictBase64 } from './gate.ts';

export interface SigningKey {
  readonly did: Did;
  readonly privateKey: KeyObject;
}

/** PrivateKeyInfo of an Ed25519 key (RFC 8410 §7) up to its 32-byte seed. */
const PKCS8_HEAD = Buffer.from('302e020100300506032b657004220420', 'hex');
const SEED_BYTES = 32;
const MAX_FILE_CHARS = 4_096;

/** A fresh key from the system's randomness. */
export const generateKey = (): SigningKey => fromPrivateKey(generateKeyPairSync('ed25519').privateKey);

/** The key of a 32-byte seed; another length is a bug of the caller. */
export function keyFromSeed(seed: Uint8Array): SigningKey {
  if (seed.length !== SEED_BYTES) throw new Error(`an Ed25519 seed has ${SEED_BYTES} bytes`);
  return fromPrivateKey(createPrivateKey({ key: Buffer.concat([PKCS8_HEAD, seed]), format: 'der', type: 'pkcs8' }));
}

/** The text of a key file: PKCS #8 PEM, or a 32-byte seed as base64 or base64url. Never says what was in it. */
export function readKeyFile(text: string): Result<SigningKey, 'BAD_KEY_FILE'> {
  const trimmed = text.trim();
  if (trimmed.length > MAX_FILE_CHARS) return err('BAD_KEY_FILE');
  const seed = decodeStrictBase64(trimmed);
  if (seed?.length === SEED_BYTES) return ok(keyFromSeed(seed));
  try {
    const key = createPrivateKey({ key: trimmed, format: 'pem' });
    return key.asymmetricKeyType === 'ed25519' ? ok(fromPrivateKey(key)) : err('BAD_KEY_FILE');
  } catch {
    return err('BAD_KEY_FILE');
  }
}

/** What `readKeyFile` reads. Secret. */
export const buildKeyFile = (key: SigningKey): string => key.privateKey.export({ format: 'pem', type: 'pkcs8' }).toString();

export const didOf = (key: SigningKey): Did => key.did;

function fromPrivateKey(privateKey: KeyObject): SigningKey {
  const { x } = createPublicKey(privateKey).export({ format: 'jwk' });
  const did = parseDid(didKeyOf(Buffer.from(String(x), 'base64url')));
  if (!did.ok) throw new Error('an Ed25519 key always has a did:key');
  return { did: did.value, privateKey };
}
