/** What the contexts of plugins stand on, put together once: whose anything is, is asked of the run each time (G13), never of these. */
import { loadBlobKey } from '../blob-store/blob-key.ts';
import { createBlobs } from '../blob-store/blobs.ts';
import type { Config } from '../config.ts';
import type { Logger } from '../observe/logger.ts';
import type { PluginHost } from '../plugin-host/plugin-host.ts';
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

export interface PluginServicesOptions {
  readonly config: Pick<Config, 'dataDir' | 'secretsKeyFile'>;
  readonly host: PluginHost;
  readonly store: Store;
  readonly matrix: MatrixAccess;
  /** Null: this oracle cannot sign. */
  readonly signing: SigningKey | null;
  readonly clock: Clock;
  readonly logger: Logger;
}

export async function openPluginServices({
  config,
  host,
  store,
  matrix,
  signing,
  clock,
  logger,
}: PluginServicesOptions): Promise<ContextServices> {
  const key = await loadSecretsKey(config.secretsKeyFile);
  if (!key.ok) throw new StartRefused(`${key.error.message} ${key.error.remedy}`);
  const now = () => clock.now();
  return {
    host,
    storage: createPluginStore({ store, now }),
    blobs: createBlobs({ store, key: await loadBlobKey({ signing, file: dataPaths(config.dataDir).blobKey }), now }),
    secrets: createSecrets({ matrix, key: key.value, monotonic: () => clock.monotonic(), logger }),
    search: createTranscriptSearch({ store }),
  };
}
