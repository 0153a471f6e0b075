/**
 * Small files that only we may read: the store's key and the identity. Written beside their name and renamed, with both on disk before anybody hears of it,
 * so that a crash leaves the old file or the new one. Half an identity would be a lost one.
 */
import { closeSync, fsyncSync, openSync, readFileSync, renameSync, rmSync, writeSync } from 'node:fs';
import { dirname } from 'node:path';

/** Replaces what is there. @throws the file system's error. */
export function writePrivateFile(path: string, text: string): void {
  const draft = `${path}.new`;
  // Not written through a link that somebody else put there, and never readable in between.
  rmSync(draft, { force: true });
  const file = openSync(draft, 'wx', 0o600);
  try {
    writeSync(file, text);
    fsyncSync(file);
  } finally {
    closeSync(file);
  }
  renameSync(draft, path);
  const folder = openSync(dirname(path), 'r');
  try {
    fsyncSync(folder);
  } finally {
    closeSync(folder);
  }
}

/** Null: there is no such file. @throws the file system's other errors. */
export function readPrivateFile(path: string): string | null {
  try {
    return readFileSync(path, 'utf8');
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'ENOENT') return null;
    throw error;
  }
}
