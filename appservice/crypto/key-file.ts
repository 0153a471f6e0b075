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

export function loadStoreKey({ keyFile, database }: { keyFile: string; database: string }): Result<Uint8Array, KeyFileProblem> {
  try {
    const text = readPrivateFile(keyFile)?.trim() ?? null;
    if (text !== null) return BASE64_KEY.test(text) ? ok(Buffer.from(text, 'base64')) : err(broken(keyFile));
    if (existsSync(database)) return err(missing(keyFile, database));
    const key = randomBytes(KEY_BYTES);
    writePrivateFile(keyFile, `${key.toString('base64')}\n`);
    return ok(key);
  } catch (cause) {
    return err({ ...broken(keyFile), cause });
  }
}

const missing = (keyFile: string, database: string): KeyFileProblem => ({
  code: 'STORE_KEY_MISSING',
  remedy: `${keyFile} is not there, but ${database} is encrypted with the key that was in it: put the file back. If it is lost, move the database away: the oracle makes a new device with the same identity.`,
});
const broken = (keyFile: string): KeyFileProblem => ({
  code: 'STORE_KEY_BROKEN',
  remedy: `${keyFile} must be a file that the oracle may read and that holds 32 bytes in base64: put back the one that the oracle wrote.`,
});
