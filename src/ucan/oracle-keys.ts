/**
 * The keys the oracle signs with. Every grant names the oracle by DID; with a did:key the DID *is* the key, so changing the key would make all
 * grants void at once. Therefore an old DID stays a valid audience of grants for LIMITS.oldKeyMs, and its key is kept for minting: a service
 * accepts an invocation on such a grant only from the DID that the grant names (DESIGN §5 "Downstream").
 * Without any key the oracle still answers; it only cannot act at other services.
 */
import { createHash } from 'node:crypto';
import { readFile, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { z } from 'zod';
import type { ConfigProblem } from '../config.ts';
import { type Did, parseDid } from '../ids.ts';
import { err, ok, type Result } from '../result.ts';
import { keyFromSeed, readKeyFile, type SigningKey } from './signing-key.ts';

export interface OldKey {
  readonly did: Did;
  readonly key: SigningKey;
  /** Wall clock ms: from then on grants made out to this DID no longer count. */
  readonly until: number;
}
/** Who issues and with which key: for a did:ixo the two have different names. */
export interface Signer {
  readonly did: Did;
  readonly key: SigningKey;
}

export interface OracleKeys {
  /** ORACLE_DID. */
  readonly did: Did;
  /** Null: this oracle cannot sign. */
  readonly current: SigningKey | null;
  readonly old: readonly OldKey[];
  /** DIDs that grants may be made out to: the current one first. */
  audiences(now: number): Did[];
  /** Who may issue invocations that rest on a grant to `audience`; null when that is nobody (any more). */
  signerOf(audience: Did, now: number): Signer | null;
}

export function createOracleKeys({ did, current, old }: Pick<OracleKeys, 'did' | 'current' | 'old'>): OracleKeys {
  // A rotation that was cut off has listed the key already that is still the current one.
  const former = old.filter((entry) => entry.did !== did);
  const counting = (now: number) => former.filter(({ until }) => now < until);
  return {
    did,
    current,
    old: former,
    audiences: (now) => [did, ...counting(now).map((entry) => entry.did)],
    signerOf(audience, now) {
      if (audience === did) return current === null ? null : { did, key: current };
      const entry = counting(now).find((candidate) => candidate.did === audience);
      return entry === undefined ? null : { did: entry.did, key: entry.key };
    },
  };
}

/** The key of a mnemonic as the IXO family derives it: SHA-256 of the trimmed text is the seed (research/ixo.md §2.6), not BIP-39. */
export const keyFromMnemonic = (words: string): SigningKey => keyFromSeed(createHash('sha256').update(words.trim(), 'utf8').digest());

/** In DATA_DIR, beside the old key files that it names. */
export const OLD_KEYS_FILE = 'oracle-keys.json';
/** Names `key rotate` gives to old key files. */
export const OLD_KEY_NAME = /^oracle\.key\.\d{4}-\d{2}-\d{2}(?:-\d{1,3})?$/u;

const MAX_OLD_KEYS = 100;
const oldKeysFile = z.strictObject({
  v: z.literal(1),
  old: z
    .array(
      z.strictObject({
        did: z.string().refine((did) => parseDid(did).ok),
        file: z.string().regex(OLD_KEY_NAME),
        until: z.number().int().positive(),
      }),
    )
    .max(MAX_OLD_KEYS),
});
export interface OldKeyRow {
  readonly did: Did;
  /** Name within DATA_DIR. */
  readonly file: string;
  readonly until: number;
}

/** What stands in oracle-keys.json. */
export function readOldKeys(text: string | null): Result<OldKeyRow[], 'BAD_OLD_KEYS'> {
  if (text === null) return ok([]);
  try {
    const parsed = oldKeysFile.safeParse(JSON.parse(text));
    return parsed.success ? ok(parsed.data.old as OldKeyRow[]) : err('BAD_OLD_KEYS');
  } catch {
    return err('BAD_OLD_KEYS');
  }
}
export const buildOldKeys = (old: readonly OldKeyRow[]): string =>
  `${JSON.stringify({ v: 1, old: old.slice(0, MAX_OLD_KEYS) }, null, 2)}\n`;

export interface KeyPlaces {
  /** ORACLE_DID. */
  readonly did: Did;
  /** ORACLE_KEY_FILE, or its default. */
  readonly keyFile: string;
  /** SIGNING_MNEMONIC; null when it is not set. */
  readonly mnemonic: string | null;
  /** DATA_DIR, absolute. */
  readonly dir: string;
}
export interface LoadedKeys {
  readonly keys: OracleKeys;
  /** The oracle runs, but somebody should look. */
  readonly warnings: readonly ConfigProblem[];
}

/** @returns a problem when a file is there and cannot be used: grants would stop counting without anybody having said so. */
export async function loadOracleKeys({ did, keyFile, mnemonic, dir }: KeyPlaces): Promise<Result<LoadedKeys, ConfigProblem>> {
  const warnings: ConfigProblem[] = [];
  const current = await readCurrentKey({ keyFile, mnemonic });
  if (!current.ok) return current;
  if (mnemonic === null) warnings.push(...(await findExposure(keyFile)));
  const isOurs = current.value === null || !did.startsWith('did:key:') || current.value.did === did;
  if (!isOurs)
    warnings.push(keyProblem('is not the key of ORACLE_DID, so this oracle cannot sign', 'Leave ORACLE_DID out, or correct the file.'));

  const list = await readText(join(dir, OLD_KEYS_FILE));
  const rows = list.ok ? readOldKeys(list.value) : err(list.error);
  if (!rows.ok) return err(oldKeysProblem(`${join(dir, OLD_KEYS_FILE)} cannot be read (${rows.error})`));
  const old: OldKey[] = [];
  for (const { did: oldDid, file, until } of rows.value) {
    const path = join(dir, file);
    const key = await readKey(path);
    if (key.ok && key.value?.did === oldDid) {
      old.push({ did: oldDid, key: key.value, until });
      warnings.push(...(await findExposure(path)));
    } else {
      warnings.push(oldKeysProblem(`${path} is not the key that it was, so grants to ${oldDid} no longer count`));
    }
  }
  return ok({ keys: createOracleKeys({ did, current: isOurs ? current.value : null, old }), warnings });
}

/** The key that signs, from the words or else the file; null when there is neither. */
export async function readCurrentKey({
  keyFile,
  mnemonic,
}: Pick<KeyPlaces, 'keyFile' | 'mnemonic'>): Promise<Result<SigningKey | null, ConfigProblem>> {
  if (mnemonic !== null) return ok(keyFromMnemonic(mnemonic));
  const key = await readKey(keyFile);
  return key.ok ? key : err(keyProblem(`names ${keyFile}, which ${key.error}`, MAKE_KEY));
}

const MAKE_KEY = 'Correct the path, or make a key with `matrix-oracle init` or `matrix-oracle mint key --out <file>`.';
const keyProblem = (fault: string, remedy: string): ConfigProblem => ({
  name: 'ORACLE_KEY_FILE',
  message: `ORACLE_KEY_FILE ${fault}.`,
  remedy,
});
const oldKeysProblem = (message: string): ConfigProblem => ({
  name: OLD_KEYS_FILE,
  message: `${message}.`,
  remedy: 'Restore the file from a backup, or take its entry out: people then have to authorise the oracle again.',
});

/** Group and others. */
const OTHERS = 0o077;

/** Whoever can read the key can act in the name of everybody who granted something; for doctor, `key show` and the start. Empty when all is well. */
export async function findExposure(path: string): Promise<ConfigProblem[]> {
  const mode = await stat(path).then(
    (found) => found.mode,
    () => 0,
  );
  return (mode & OTHERS) === 0
    ? []
    : [{ name: 'ORACLE_KEY_FILE', message: `${path} can be read by other users of this machine.`, remedy: `Run \`chmod 600 ${path}\`.` }];
}

/** Null: not there. */
async function readKey(path: string): Promise<Result<SigningKey | null, string>> {
  const text = await readText(path);
  if (!text.ok) return err(`cannot be read (${text.error})`);
  if (text.value === null) return ok(null);
  const key = readKeyFile(text.value);
  return key.ok ? ok(key.value) : err('is no Ed25519 key');
}

async function readText(path: string): Promise<Result<string | null, string>> {
  try {
    return ok(await readFile(path, 'utf8'));
  } catch (error) {
    const code = error instanceof Error && 'code' in error ? String(error.code) : 'unreadable';
    return code === 'ENOENT' ? ok(null) : err(code);
  }
}
