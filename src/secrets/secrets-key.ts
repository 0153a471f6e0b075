/**
 * The P-256 key of SECRETS_KEY_FILE: people's clients encrypt the secrets of a room to its public part, which the oracle's DID document shows. Without
 * it plugins see the names of secrets and no values. A file that is there and cannot be used stops the start: everybody's secrets would be gone
 * without anybody having said so.
 */
import { createPrivateKey, type KeyObject } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import type { ConfigProblem } from '../config.ts';
import { err, ok, type Result } from '../result.ts';

const MAX_FILE_CHARS = 8_192;

/** JWK, or PEM with PKCS #8. Never says what was in it. */
export function readSecretsKey(text: string): Result<KeyObject, 'BAD_KEY_FILE'> {
  const trimmed = text.trim();
  if (trimmed.length > MAX_FILE_CHARS) return err('BAD_KEY_FILE');
  try {
    const key = trimmed.startsWith('{')
      ? createPrivateKey({ key: JSON.parse(trimmed), format: 'jwk' })
      : createPrivateKey({ key: trimmed, format: 'pem' });
    const isP256 = key.asymmetricKeyType === 'ec' && key.asymmetricKeyDetails?.namedCurve === 'prime256v1';
    return isP256 ? ok(key) : err('BAD_KEY_FILE');
  } catch {
    return err('BAD_KEY_FILE');
  }
}

/** @param file SECRETS_KEY_FILE; undefined when it is not set. @returns null without one. */
export async function loadSecretsKey(file: string | undefined): Promise<Result<KeyObject | null, ConfigProblem>> {
  if (file === undefined) return ok(null);
  const text = await readFile(file, 'utf8').catch(() => null);
  const key = text === null ? err('BAD_KEY_FILE' as const) : readSecretsKey(text);
  if (key.ok) return key;
  return err({
    name: 'SECRETS_KEY_FILE',
    message: `SECRETS_KEY_FILE ${text === null ? 'cannot be read' : 'holds no P-256 private key'}.`,
    remedy: 'Point it to a JWK or a PKCS #8 PEM that the oracle may read, or leave it out.',
  });
}
