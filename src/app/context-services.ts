/** What the contexts of plugins are built over: their storage, blobs, secrets and search, on this oracle's database and keys. */
import { join } from 'node:path';
import { loadBlobKey } from '../blob-store/blob-key.ts';
import { createBlobs } from '../blob-store/blobs.ts';
import type { Config } from '../config.ts';
import type { Logger } from '../observe/logger.ts';
import { createPluginStore } from '../plugin-storage/plugin-store.ts';
import type { ContextServices } from '../runtime-context/build-runtime-context.ts';
import type { MatrixAccess } from '../runtime-context/matrix-access.ts';
import { createSecrets } from '../secrets/secrets.ts';
import { loadSecretsKey } from '../secrets/secrets-key.ts';
import { createTranscriptSearch } from '../sessions/search-transcript.ts';
import type { Store } from '../store/store.ts';
import type { Clock } from '../time.ts';
import type { SigningKey } from '../ucan/signing-key.ts';
import { dataPaths } from './data-paths.ts';
import { StartRefused } from './start-refused.ts';

export interface ContextServicesOptions {
  readonly config: Pick<Config, 'dataDir' | 'secretsKeyFile'>;
  readonly store: Store;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly matrix: Pick<MatrixAccess, 'roomState' | 'event'>;
  /** The oracle's own; null when it has none. */
  readonly signing: SigningKey | null;
}

/** Without the host, which is built from them: its plugins' routes have a storage too. */
export async function openContextServices(options: ContextServicesOptions): Promise<Omit<ContextServices, 'host'>> {
  const { config, store, clock, logger, matrix, signing } = options;
  const now = () => clock.now();
  const key = await loadSecretsKey(config.secretsKeyFile);
  if (!key.ok) throw new StartRefused(`${key.error.message} ${key.error.remedy}`);
  return {
    storage: createPluginStore({ store, now }),
    blobs: createBlobs({ store, key: await loadBlobKey({ signing, file: join(dataPaths(config.dataDir).dir, 'blob.key') }), now }),
    secrets: createSecrets({ matrix, key: key.value, monotonic: () => clock.monotonic(), logger }),
    search: createTranscriptSearch({ store }),
  };
}
