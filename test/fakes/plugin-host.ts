/** The real host of these plugins, resolved without an environment; for tests and benches that need no operator. */
import { createLogger } from '../../src/observe/logger.ts';
import type { AnyOraclePlugin } from '../../src/plugin-api/define-oracle-plugin.ts';
import { buildPluginHost } from '../../src/plugin-host/build-plugin-host.ts';
import type { PluginHost } from '../../src/plugin-host/plugin-host.ts';
import { resolvePlugins } from '../../src/plugin-host/resolve-plugins.ts';
import { systemClock } from '../../src/system-clock.ts';
import type { Clock } from '../../src/time.ts';

export async function hostOf(plugins: readonly AnyOraclePlugin[], clock: Clock = systemClock): Promise<PluginHost> {
  const plan = resolvePlugins(
    plugins.map((plugin) => ({ plugin, origin: 'given' as const })),
    {},
    {},
  );
  if (!plan.ok) throw new Error(plan.error.map(({ message }) => message).join('; '));
  const logger = createLogger({ level: 'silent', format: 'json' });
  const host = await buildPluginHost(plan.value, { identity: { name: 'Oracle', did: 'did:key:zOracle', entityDid: null }, logger, clock });
  if (!host.ok) throw new Error(host.error.map(({ message }) => message).join('; '));
  return host.value;
}
