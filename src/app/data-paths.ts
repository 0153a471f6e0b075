/** Where things lie in DATA_DIR, said once: the process, `init`, `doctor` and `inbox` must mean the same files. */
import { join, resolve } from 'node:path';

export interface DataPaths {
  /** Absolute; mode 0700. */
  readonly dir: string;
  readonly database: string;
  /** One SQLite file per owner. */
  readonly checkpoints: string;
  /** Default of ORACLE_KEY_FILE. */
  readonly key: string;
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
    registration: join(dir, 'registration.yaml'),
  };
}
