/**
 * What every context is built over, on a real store in memory: only the room, whose state and events a test writes by hand, is no homeserver's. The
 * host is what a test says it is; its plugins' hooks are not run.
 */
import { randomBytes } from 'node:crypto';
import { createBlobs } from '../../src/blob-store/blobs.ts';
import type { AnyOraclePlugin } from '../../src/plugin-api/define-oracle-plugin.ts';
import { createPluginStore } from '../../src/plugin-storage/plugin-store.ts';
import type { ContextServices } from '../../src/runtime-context/build-runtime-context.ts';
import { createSecrets, type SecretsOptions } from '../../src/secrets/secrets.ts';
import { createTranscriptSearch } from '../../src/sessions/search-transcript.ts';
import type { Store } from '../../src/store/store.ts';
import type { Clock } from '../../src/time.ts';
import { fakeClock } from './fake-clock.ts';
import { fakeLogger } from './fake-logger.ts';
import { memoryStore } from './memory-store.ts';

export interface FakeServicesOptions {
  readonly store?: Store;
  readonly clock?: Clock;
  readonly plugins?: readonly AnyOraclePlugin[];
  /** By plugin. */
  readonly configs?: Readonly<Record<string, Readonly<Record<string, unknown>>>>;
  readonly secrets?: Partial<SecretsOptions>;
}

export function fakeServices(options: FakeServicesOptions = {}): ContextServices {
  const { store = memoryStore(), clock = fakeClock(), plugins = [], configs = {}, secrets = {} } = options;
  const now = () => clock.now();
  const shared = plugins.flatMap(({ name, getSharedState }) =>
    Object.entries(getSharedState?.() ?? {}).map(([key, read]) => [key, { plugin: name, read }] as const),
  );
  return {
    host: {
      names: new Set(plugins.map(({ name }) => name)),
      plugins: plugins.map((plugin) => ({
        name: plugin.name,
        version: plugin.version,
        manifest: { ...plugin.manifest, visibility: 'always' },
        config: configs[plugin.name] ?? {},
        plugin,
      })),
      shared: new Map(shared),
      configOf: (plugin) => configs[plugin] ?? {},
    },
    storage: createPluginStore({ store, now }),
    blobs: createBlobs({ store, key: randomBytes(32), now }),
    secrets: createSecrets({
      matrix: { roomState: async () => [], event: async () => ({}) },
      key: null,
      monotonic: () => clock.monotonic(),
      logger: fakeLogger(),
      ...secrets,
    }),
    search: createTranscriptSearch({ store }),
  };
}
