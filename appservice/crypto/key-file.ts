/**
 * The key that encrypts the engine's store, in a file of its own: a copy of the database alone (a backup, a support bundle) then reads as nothing.
 * It is made once, before the store is. A store without its key cannot be read by a new one, so then a new key is never made.
 */
import { randomBytes } from 'node:crypto';
import { existsSync } from 'node:fs';
import { err, ok, type Result } from '../../src/result.ts';
import { readPrivateFile, writePrivateFile } from './private-file.ts';

export interface KeyFileProblem {
  readonly code: 'STORE_KEY_MISSING' | 'STORE_KEY_BROKEN';
  /** One sentence for the operator. */
  readonly remedy: string;
  readonly cause?: unknown;
}

const KEY_BYTES = 32;
const BASE64_KEY = /^[A-Za-z0-9+/]{43}=$/u;

interface Files {
  readonly keyFile: string;
  readonly database: string;
}

export function loadStoreKey({ keyFile, database }: Files): Result<Uint8Array, KeyFileProblem> {
  const found = readStoreKey({ keyFile, database });
  if (!found.ok) return found;
  if (found.value !== null) return ok(found.value);
  try {
    const key = randomBytes(KEY_BYTES);
    writePrivateFile(keyFile, `${key.toString('base64')}\n`);
    return ok(key);
  } catch (cause) {
    return err({ ...broken(keyFile, database), cause });
  }
}

/** Writes nothing. @returns null: there is none, and no store that needs it. */
export function readStoreKey({ keyFile, database }: Files): Result<Uint8Array | null, KeyFileProblem> {
  try {
    const text = readPrivateFile(keyFile)?.trim() ?? null;
    if (text !== null) return BASE64_KEY.test(text) ? ok(Buffer.from(text, 'base64')) : err(broken(keyFile, database));
    return existsSync(database) ? err(missing(keyFile, database)) : ok(null);
  } catch (cause) {
    return err({ ...broken(keyFile, database), cause });
  }
}

const missing = (keyFile: string, database: string): KeyFileProblem => ({
  code: 'STORE_KEY_MISSING',
  remedy: `${keyFile} is not there, but ${database} is encrypted with the key that was in it: put the file back. If it is lost, run \`matrix-oracle crypto new-device\`: the identity stays.`,
});
/** Without a store nothing is lost with a key that nobody can read: `crypto new-device` leaves it behind, and must not end here. */
const broken = (keyFile: string, database: string): KeyFileProblem => ({
  code: 'STORE_KEY_BROKEN',
  remedy: `${keyFile} must be a file that the oracle may read and that holds 32 bytes in base64: ${
    existsSync(database)
      ? 'put back the one that the oracle wrote. If it is lost, run `matrix-oracle crypto new-device` (the identity stays) and remove this file'
      : 'nothing is encrypted with it any more, so remove it, and the next start makes another'
  }.`,
});
