/**
 * Which tools there are, and which of them a model is offered now. All are known from the start; offered are those whose plugin is loaded for the
 * thread, because 500 tools are 186 KB in each request (research/langgraph.md §5) and a model chooses badly among them. Both the list and its
 * conversion for the provider are kept per set of loaded plugins, so that a model call pays for a look-up, not for 500 schemas.
 */
import type { BaseChatModel } from '@langchain/core/language_models/chat_models';
import { LRUCache } from 'lru-cache';
import type { JsonObject } from '../json.ts';
import type { PluginVisibility } from '../plugin-api/define-oracle-plugin.ts';
import type { AnyTool } from '../plugin-api/define-tool.ts';
import { buildParameters } from '../plugin-host/register-tools.ts';
import type { RegisteredTool } from '../plugin-host/registered-tool.ts';
import type { AskableModel } from './call-model.ts';
import type { Loop } from './loop.ts';
import type { HostAnswer, HostCall } from './run-tool.ts';

/** A tool as a loop knows it: of a plugin, or one that the host answers itself. */
export interface AgentTool extends RegisteredTool {
  /** Called in place of the definition's handler, with the loop that asks. */
  readonly answer?: (args: Record<string, unknown>, asked: HostCall & { readonly loop: Loop }) => Promise<HostAnswer>;
  /** Default LIMITS.toolTimeoutMs. */
  readonly timeoutMs?: number;
}

/** As middlewares see it in `request.tools`. */
export interface OfferedTool {
  readonly type: 'function';
  readonly name: string;
  readonly description: string;
  readonly parameters: JsonObject;
}
export interface OfferedTools {
  readonly tools: readonly OfferedTool[];
  readonly names: ReadonlySet<string>;
  /** Size as text. */
  readonly chars: number;
}
export const NO_TOOLS: OfferedTools = { tools: [], names: new Set(), chars: 0 };

export interface ToolSet {
  readonly all: ReadonlyMap<string, AgentTool>;
  /** The same object for the same plugins. */
  offered(loaded: ReadonlySet<string>): OfferedTools;
}

/** Combinations of loaded plugins that are kept; others are made again. */
const KEPT_COMBINATIONS = 256;

export function createToolSet(all: ReadonlyMap<string, AgentTool>, visibilityOf: (plugin: string) => PluginVisibility): ToolSet {
  const visibilities = new Map<string, PluginVisibility>();
  for (const [name, { plugin, definition }] of all) visibilities.set(name, definition.visibility ?? visibilityOf(plugin));
  const onDemand = new Set([...all].filter(([name]) => visibilities.get(name) === 'on-demand').map(([, { plugin }]) => plugin));
  const kept = new LRUCache<string, OfferedTools>({ max: KEPT_COMBINATIONS });
  return {
    all,
    offered(loaded) {
      const key = [...loaded]
        .filter((plugin) => onDemand.has(plugin))
        .sort()
        .join('\n');
      const known = kept.get(key);
      if (known !== undefined) return known;
      const made = buildOffered([...all].filter(([name, { plugin }]) => visibilities.get(name) !== 'on-demand' || loaded.has(plugin)));
      kept.set(key, made);
      return made;
    },
  };
}

function buildOffered(entries: readonly (readonly [string, AgentTool])[]): OfferedTools {
  const tools = entries.map(([name, { definition, parameters }]) => ({
    type: 'function' as const,
    name,
    description: definition.description,
    parameters,
  }));
  return { tools, names: new Set(tools.map(({ name }) => name)), chars: JSON.stringify(tools).length };
}

/** What is left of the offer when a middleware has taken some away; what it may have added is not ours to run. */
export function narrowOffer(offered: OfferedTools, wanted: readonly unknown[]): OfferedTools {
  if (wanted === offered.tools) return offered;
  const names = new Set(wanted.map(nameOf));
  const tools = offered.tools.filter(({ name }) => names.has(name));
  if (tools.length === offered.tools.length) return offered;
  return tools.length === 0 ? NO_TOOLS : { tools, names: new Set(tools.map(({ name }) => name)), chars: JSON.stringify(tools).length };
}
const nameOf = (tool: unknown): unknown => (typeof tool === 'object' && tool !== null && 'name' in tool ? tool.name : undefined);

export type ToolBinder = (model: BaseChatModel, offered: OfferedTools) => AskableModel;

/** Binding tools converts them for the provider each time; a model and an offer live as long as somebody uses them, so it is done once for both. */
export function createToolBinder(): ToolBinder {
  const bound = new WeakMap<BaseChatModel, WeakMap<OfferedTools, AskableModel>>();
  return (model, offered) => {
    if (offered.tools.length === 0 || model.bindTools === undefined) return model as AskableModel;
    const ofModel = bound.get(model) ?? new WeakMap<OfferedTools, AskableModel>();
    bound.set(model, ofModel);
    const known =
      ofModel.get(offered) ??
      (model.bindTools(
        offered.tools.map(({ name, description, parameters }) => ({
          type: 'function' as const,
          function: { name, description, parameters },
        })),
      ) as AskableModel);
    ofModel.set(offered, known);
    return known;
  };
}

const parametersOf = new WeakMap<AnyTool, JsonObject>();
/** Of a tool that no boot hook brought, so that its schema is converted once, however often it is asked for. */
export function registerTool(plugin: string, definition: AnyTool): AgentTool {
  const known = parametersOf.get(definition);
  if (known !== undefined) return { plugin, definition, parameters: known };
  const parameters = buildParameters(definition.schema);
  parametersOf.set(definition, parameters);
  return { plugin, definition, parameters };
}
