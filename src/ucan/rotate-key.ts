/**
 * Changes the oracle's key. A crash between any two writes must leave an oracle that starts with one of the two keys and that lost neither:
 * first the old key under its new name, then the list that keeps its DID valid, last the key file itself. Until that last rename the old key is
 * the current one and its entry in the list is ignored; a second attempt finds the copy and goes on from it.
 */
import { chmod, mkdir, open, readdir, readFile, rename, rm } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { LIMITS } from '../limits.ts';
import { err, ok, type Result } from '../result.ts';
import { buildOldKeys, OLD_KEY_NAME, OLD_KEYS_FILE, readOldKeys } from './oracle-keys.ts';
import { buildKeyFile, readKeyFile, type SigningKey } from './signing-key.ts';

export interface KeyFiles {
  /** Null: not there. */
  read(path: string): Promise<string | null>;
  /** Writes beside `path`, for the owner only, onto the disk. What an earlier attempt left there is replaced. */
  stage(path: string, text: string): Promise<void>;
  /** What was staged becomes `path`, at once or not at all. */
  commit(path: string): Promise<void>;
}

export interface Rotation {
  readonly files: KeyFiles;
  /** DATA_DIR, absolute. */
  readonly dir: string;
  readonly keyFile: string;
  readonly current: SigningKey;
  readonly next: SigningKey;
  /** Whether the DID changes with the key (did:key), so that the old one must go on counting. */
  readonly changesDid: boolean;
  /** `2026-11-30`. */
  readonly date: string;
  /** Wall clock ms. */
  readonly now: number;
}
export interface Rotated {
  /** Name of the old key within DATA_DIR. */
  readonly file: string;
  /** Wall clock ms; null when the DID stays. */
  readonly until: number | null;
}

/** @returns BAD_OLD_KEYS before anything was written. Throws what the disk throws; then the oracle goes on with the old key. */
export async function rotateKey(rotation: Rotation): Promise<Result<Rotated, 'BAD_OLD_KEYS'>> {
  const { files, dir, keyFile, current, next, changesDid, date, now } = rotation;
  const listPath = join(dir, OLD_KEYS_FILE);
  const list = readOldKeys(await files.read(listPath));
  if (!list.ok) return list;
  const file = await findName({ files, dir, current, date });
  if (file === undefined) return err('BAD_OLD_KEYS');
  const until = changesDid ? now + LIMITS.oldKeyMs : null;
  await write(files, join(dir, file), buildKeyFile(current));
  if (until !== null) {
    const kept = list.value.filter((row) => row.until > now && row.did !== current.did);
    await write(files, listPath, buildOldKeys([{ did: current.did, file, until }, ...kept]));
  }
  await write(files, keyFile, buildKeyFile(next));
  return ok({ file, until });
}

async function write(files: KeyFiles, path: string, text: string): Promise<void> {
  await files.stage(path, text);
  await files.commit(path);
}

const MAX_ROTATIONS_PER_DAY = 100;

/** A name that is free, or that an attempt before has given to this very key. */
async function findName({ files, dir, current, date }: Pick<Rotation, 'files' | 'dir' | 'current' | 'date'>): Promise<string | undefined> {
  for (let count = 1; count <= MAX_ROTATIONS_PER_DAY; count += 1) {
    const name = `oracle.key.${date}${count === 1 ? '' : `-${count}`}`;
    const text = await files.read(join(dir, name));
    if (text === null) return name;
    const key = readKeyFile(text);
    if (key.ok && key.value.did === current.did) return name;
  }
  return undefined;
}

/** Old key files that nothing names any more: the operator may remove them. */
export async function findUnusedKeys(dir: string, now: number): Promise<string[]> {
  const list = readOldKeys(await createKeyFiles().read(join(dir, OLD_KEYS_FILE)));
  if (!list.ok) return [];
  const used = new Set(list.value.filter(({ until }) => now < until).map(({ file }) => file));
  const names = await readdir(dir).catch(() => []);
  return names.filter((name) => OLD_KEY_NAME.test(name) && !used.has(name)).sort();
}

const OWNER_ONLY = 0o600;
const stagedName = (path: string): string => `${path}.new`;

export function createKeyFiles(): KeyFiles {
  return {
    async read(path) {
      try {
        return await readFile(path, 'utf8');
      } catch (error) {
        if (error instanceof Error && 'code' in error && error.code === 'ENOENT') return null;
        throw error;
      }
    },
    async stage(path, text) {
      await mkdir(dirname(path), { recursive: true, mode: 0o700 });
      await rm(stagedName(path), { force: true });
      const file = await open(stagedName(path), 'wx', OWNER_ONLY);
      try {
        // The process may run with a umask that takes even from the owner.
        await chmod(stagedName(path), OWNER_ONLY);
        await file.writeFile(text);
        await file.sync();
      } finally {
        await file.close();
      }
    },
    async commit(path) {
      await rename(stagedName(path), path);
      const folder = await open(dirname(path), 'r');
      try {
        await folder.sync();
      } finally {
        await folder.close();
      }
    },
  };
}
