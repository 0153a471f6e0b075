/** Plugins without a host: all of them are loaded from the start, and no hook but their tools is asked. For tests and benches that need no more. */
import type { PluginHost } from '../plugin-host/plugin-host.ts';
import type { PluginRegistry } from '../plugin-host/plugin-registry.ts';

export const buildRegistryHost = ({ names, plugins, tools }: PluginRegistry): PluginHost => ({
  names,
  plugins: plugins.map((plugin) => ({
    name: plugin.name,
    version: plugin.version,
    manifest: { ...plugin.manifest, visibility: 'always' },
    config: {},
    plugin,
  })),
  tools,
  subAgents: new Map(),
  middlewares: [],
  shared: new Map(),
  creditPolicy: null,
  visibilityOf: () => 'always',
  configOf: () => ({}),
  forRequest: async () => ({ tools: new Map(), subAgents: new Map() }),
  status: () => ({ loaded: [], excluded: [], softGaps: [] }),
  close: async () => undefined,
});
