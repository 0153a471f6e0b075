/** Where things lie in DATA_DIR, said once: the process, `init`, `doctor` and `inbox` must mean the same files. */
import { join, resolve } from 'node:path';
import type { Config } from '../config.ts';

export interface DataPaths {
  /** Absolute; mode 0700. */
  readonly dir: string;
  readonly database: string;
  /** One SQLite file per owner. */
  readonly checkpoints: string;
  /** Default of ORACLE_KEY_FILE. */
  readonly key: string;
  /** Keys of encrypted rooms and what arrived for them; never restored from a copy (docs/operations.md). */
  readonly crypto: string;
  /** Default of CRYPTO_KEY_FILE. */
  readonly cryptoKey: string;
  /** Default of CRYPTO_IDENTITY_FILE. */
  readonly cryptoIdentity: string;
  /** Encrypts blobs where the oracle has no key of its own. */
  readonly blobKey: string;
  /** Where `init` writes it. */
  readonly registration: string;
}

export function dataPaths(dataDir: string): DataPaths {
  const dir = resolve(dataDir);
  return {
    dir,
    database: join(dir, 'oracle.db'),
    checkpoints: join(dir, 'checkpoints'),
    key: join(dir, 'oracle.key'),
    crypto: join(dir, 'crypto.db'),
    cryptoKey: join(dir, 'crypto.key'),
    cryptoIdentity: join(dir, 'crypto-identity.json'),
    blobKey: join(dir, 'blob.key'),
    registration: join(dir, 'registration.yaml'),
  };
}

/** Of encrypted rooms, where the settings say they are. */
export interface CryptoFiles {
  readonly database: string;
  readonly key: string;
  readonly identity: string;
}
export function cryptoFiles({
  dataDir,
  cryptoKeyFile,
  cryptoIdentityFile,
}: Pick<Config, 'dataDir' | 'cryptoKeyFile' | 'cryptoIdentityFile'>): CryptoFiles {
  const { crypto, cryptoKey, cryptoIdentity } = dataPaths(dataDir);
  return { database: crypto, key: cryptoKeyFile ?? cryptoKey, identity: cryptoIdentityFile ?? cryptoIdentity };
}
