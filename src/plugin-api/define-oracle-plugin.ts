/** A plugin is data with a name: the host reads its manifest and asks it for tools once, at the start, with its own validated configuration. */
import type { z } from 'zod';
import type { AnyTool } from './define-tool.ts';

export interface PluginManifest {
  readonly title: string;
  /** One sentence for people and for the model. */
  readonly summary: string;
  /** Situations in which the model should think of this plugin. */
  readonly whenToUse: readonly string[];
}
export interface PluginContext<Config> {
  readonly config: Config;
}
export interface OraclePlugin<Schema extends z.ZodObject = z.ZodObject> {
  readonly name: string;
  readonly version: string;
  readonly manifest: PluginManifest;
  readonly configSchema?: Schema;
  readonly getTools: (ctx: PluginContext<z.output<Schema>>) => readonly AnyTool[];
}

/** A plugin whose configuration type was forgotten, as the host keeps it. */
export interface AnyOraclePlugin extends Omit<OraclePlugin, 'getTools'> {
  // biome-ignore lint/suspicious/noExplicitAny: the configuration schema of the same object has checked it
  readonly getTools: (ctx: PluginContext<any>) => readonly AnyTool[];
}

const NAME = /^[a-z][a-z0-9-]{0,63}$/u;

export function defineOraclePlugin<Schema extends z.ZodObject>(plugin: OraclePlugin<Schema>): OraclePlugin<Schema> {
  if (!NAME.test(plugin.name)) throw new TypeError(`a plugin name must fit ${NAME.source}: ${JSON.stringify(plugin.name).slice(0, 80)}`);
  return Object.freeze({ ...plugin });
}
