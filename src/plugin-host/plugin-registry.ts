/**
 * Which tools there are is settled once, at the start: two tools of one name would let a plugin answer in another's place, so a collision stops
 * the start, as does a configuration that a plugin's own schema refuses. JSON schemas are made here once, not per model call.
 */
import type { JsonObject } from '../json.ts';
import type { AnyOraclePlugin, PluginContext } from '../plugin-api/define-oracle-plugin.ts';
import type { AnyTool } from '../plugin-api/define-tool.ts';
import { err, ok, type Result } from '../result.ts';
import type { PluginLogger } from '../runtime-context/runtime-context.ts';
import { buildParameters } from './register-tools.ts';

export interface RegisteredTool {
  readonly plugin: string;
  readonly definition: AnyTool;
  /** JSON schema of the arguments, as models want it. */
  readonly parameters: JsonObject;
}
export interface PluginRegistry {
  readonly names: ReadonlySet<string>;
  readonly plugins: readonly AnyOraclePlugin[];
  /** By tool name, in the order of plugins. */
  readonly tools: ReadonlyMap<string, RegisteredTool>;
}

/** Until the host builds contexts (src/plugin-host/plugin-host.ts). */
const silent: PluginLogger = { debug: () => undefined, info: () => undefined, warn: () => undefined, error: () => undefined };
const NO_HOST: Omit<PluginContext<unknown>, 'config'> = {
  identity: { name: '', did: '', entityDid: null },
  availablePlugins: new Set(),
  logger: silent,
};

/** Everything wrong at once, so that one start shows it all. */
export function buildPluginRegistry(
  plugins: readonly AnyOraclePlugin[],
  config: Readonly<Record<string, unknown>>,
): Result<PluginRegistry, readonly string[]> {
  const problems: string[] = [];
  const names = new Set<string>();
  const tools = new Map<string, RegisteredTool>();
  for (const plugin of plugins) {
    if (names.has(plugin.name)) {
      problems.push(`plugin ${plugin.name} is there twice`);
      continue;
    }
    names.add(plugin.name);
    const own = plugin.configSchema?.safeParse(config);
    if (own !== undefined && !own.success) {
      for (const issue of own.error.issues) problems.push(`plugin ${plugin.name}: ${issue.path.join('.')}: ${issue.message}`);
      continue;
    }
    for (const definition of (plugin.getTools?.({ config: own?.data ?? {}, ...NO_HOST }) as readonly AnyTool[] | undefined) ?? []) {
      const other = tools.get(definition.name);
      if (other !== undefined) problems.push(`tool ${definition.name} is defined by plugin ${other.plugin} and by plugin ${plugin.name}`);
      else tools.set(definition.name, { plugin: plugin.name, definition, parameters: buildParameters(definition.schema) });
    }
  }
  return problems.length > 0 ? err(problems) : ok({ names, plugins, tools });
}
