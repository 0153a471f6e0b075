/**
 * A plugin's configuration is what its own schema makes of the variables that this schema names: of all others, which may be another plugin's
 * secrets, it sees nothing (research/ixo.md §9.1). What is wrong is told by the variable's name and its description, never by its value (G12).
 */
import type { AnyOraclePlugin, PluginEnvironment } from '../plugin-api/define-oracle-plugin.ts';
import { err, ok, type Result } from '../result.ts';
import type { BootProblem } from './boot-problem.ts';

export type OwnConfig = Readonly<Record<string, unknown>>;
const NOTHING: OwnConfig = Object.freeze({});
const MAX_MESSAGE_CHARS = 200;

export function readOwnConfig(
  { name: plugin, configSchema }: Pick<AnyOraclePlugin, 'name' | 'configSchema'>,
  env: PluginEnvironment,
): Result<OwnConfig, readonly BootProblem[]> {
  if (configSchema === undefined) return ok(NOTHING);
  const shape: Readonly<Record<string, { readonly description?: string | undefined }>> = configSchema.shape;
  const own = Object.fromEntries(Object.keys(shape).flatMap((name) => (env[name] === undefined ? [] : [[name, env[name]]])));
  const problem = (message: string): BootProblem => ({ code: 'boot.plugin.env_invalid', plugin, message });
  try {
    const parsed = configSchema.safeParse(own);
    if (parsed.success) return ok(freezeDeep(parsed.data as OwnConfig));
    return err(
      parsed.error.issues.map(({ path, message }: { path: PropertyKey[]; message: string }) => {
        const name = String(path[0] ?? 'its environment');
        const fault = path.length > 0 && own[name] === undefined ? 'is not set' : `is not valid: ${message.slice(0, MAX_MESSAGE_CHARS)}`;
        const meaning = shape[name]?.description;
        const remedy = meaning === undefined ? '' : ` It is: ${meaning.replace(/\.$/u, '').slice(0, MAX_MESSAGE_CHARS)}.`;
        return problem(`For plugin ${plugin}, ${name} ${fault}.${remedy} Correct it, or switch the plugin off in FEATURES.`);
      }),
    );
  } catch (error) {
    const why = error instanceof Error ? error.message.slice(0, MAX_MESSAGE_CHARS) : 'it threw';
    return err([problem(`The configSchema of plugin ${plugin} cannot be used: ${why}. It must check without waiting.`)]);
  }
}

/** Plain values only: what a schema made of a class stays as it is. */
function freezeDeep<T>(value: T): T {
  if (typeof value !== 'object' || value === null || Object.isFrozen(value)) return value;
  const prototype: unknown = Object.getPrototypeOf(value);
  if (prototype !== Object.prototype && prototype !== Array.prototype && prototype !== null) return value;
  for (const part of Object.values(value)) freezeDeep(part);
  return Object.freeze(value);
}
