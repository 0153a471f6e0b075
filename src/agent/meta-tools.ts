/**
 * How a model finds and loads what it is not offered at once. Loading changes the thread, not the turn: the plugin's tools are there in the next model
 * call of the same turn, in every later turn, and after a crash, because the change stands in the checkpoint with the result of this call.
 */
import { z } from 'zod';
import type { LoadedPlugin, PluginHost } from '../plugin-host/plugin-host.ts';
import { rootOf } from './loop.ts';
import { type AgentTool, registerTool } from './tool-set.ts';
import type { Turn } from './turn.ts';

/** Whose tools these are in logs and audit rows. */
export const HOST = 'matrix-oracle';
const MAX_NAMES = 20;

const listSchema = z.object({
  includeOnDemand: z.boolean().default(true).describe('Also those that must be loaded first.'),
  includeSilent: z.boolean().default(false).describe('Also those that work without being asked.'),
});
const loadSchema = z.object({
  names: z.array(z.string().max(100)).min(1).max(MAX_NAMES).describe('Names as list_capabilities gives them.'),
});

/** None when everything is there from the start. */
export function buildMetaTools(host: PluginHost): readonly AgentTool[] {
  if (!host.plugins.some(({ name }) => host.visibilityOf(name) === 'on-demand')) return [];
  return [
    {
      ...registerTool(HOST, {
        name: 'list_capabilities',
        description: 'Lists what you can do here, and what you can load with load_capability.',
        schema: listSchema,
        visibility: 'always',
        handler: answeredByHost,
      }),
      answer: async (args, { loop }) => ({ text: JSON.stringify(listCapabilities(loop.turn, listSchema.parse(args))) }),
    },
    {
      ...registerTool(HOST, {
        name: 'load_capability',
        description: 'Loads capabilities by name for this conversation. Their tools can be used at once, in this turn.',
        schema: loadSchema,
        visibility: 'always',
        handler: answeredByHost,
      }),
      answer: async (args, { loop, key }) => ({ text: JSON.stringify(load(loop.turn, loadSchema.parse(args).names, rootOf(loop, key))) }),
    },
  ];
}

/** The definition needs a handler; the host's `answer` is called in its place. */
export const answeredByHost = (): never => {
  throw new Error('this tool is answered by the host');
};

function listCapabilities({ host, thread }: Turn, { includeOnDemand, includeSilent }: z.output<typeof listSchema>): unknown[] {
  return host.plugins.flatMap(({ name, manifest }) => {
    const visibility = host.visibilityOf(name);
    if ((visibility === 'on-demand' && !includeOnDemand) || (visibility === 'silent' && !includeSilent)) return [];
    const loaded = visibility !== 'on-demand' || thread.loadedPlugins.has(name);
    return [{ name, summary: manifest.summary, visibility, loaded, category: manifest.category, tags: manifest.tags ?? [] }];
  });
}

function load(turn: Turn, names: readonly string[], call: string): unknown {
  const { host, thread } = turn;
  const wanted = host.plugins.filter(({ name }) => names.includes(name) && host.visibilityOf(name) !== 'silent');
  const unknown = names.filter((name) => !wanted.some((plugin) => plugin.name === name));
  if (unknown.length > 0) {
    const loadable = host.plugins.filter(({ name }) => host.visibilityOf(name) === 'on-demand').map(({ name }) => name);
    throw new Error(
      `Nothing was loaded: ${unknown.map((name) => JSON.stringify(name)).join(', ')} cannot be. There are: ${loadable.join(', ')}.`,
    );
  }
  const onDemand = wanted.map(({ name }) => name).filter((name) => host.visibilityOf(name) === 'on-demand');
  const added = new Set(thread.load(onDemand, call));
  return wanted.map((plugin) => (added.has(plugin.name) ? describePlugin(plugin, turn) : { name: plugin.name, alreadyAvailable: true }));
}

function describePlugin({ name, manifest }: LoadedPlugin, { tools }: Turn): unknown {
  const own = [...tools.all.values()].filter(({ plugin }) => plugin === name);
  const { title, summary, whenToUse, whenNotToUse, examples } = manifest;
  return {
    ...{ name, title, summary, whenToUse, whenNotToUse, examples },
    tools: own.map(({ definition }) => ({ name: definition.name, description: definition.description })),
  };
}
