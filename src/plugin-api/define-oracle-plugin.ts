/**
 * A plugin is data with a name and a few optional hooks; each hook is an ability of its own, and a plugin brings those it needs. The host reads the
 * manifest before it runs any code of the plugin, calls the boot hooks once with the plugin's own validated configuration, and the request hooks
 * once per turn. What a plugin is not handed it cannot reach: there is no runtime object, no database and no Matrix client.
 */
import type { FastifyPluginAsync } from 'fastify';
import type { AgentMiddleware } from 'langchain';
import type { z } from 'zod';
import type { PluginLogger, ReadonlyState, RuntimeContext, UserContextData } from '../runtime-context/runtime-context.ts';
import type { SubAgentDefinition } from './define-sub-agent.ts';
import type { AnyTool } from './define-tool.ts';
import { readPlugin } from './read-plugin.ts';

/** `always`: in every prompt; `on-demand`: its tools are there once the agent has loaded it for the thread; `silent`: never advertised. */
export type PluginVisibility = 'always' | 'on-demand' | 'silent';
export type PluginCategory = 'data' | 'communication' | 'automation' | 'memory' | 'integration' | 'ui' | 'auth' | 'observability' | 'core';

export interface PluginManifest {
  readonly title: string;
  /** One sentence for people and for the model. */
  readonly summary: string;
  /** Situations in which the model should think of this plugin; at least one unless it is silent. */
  readonly whenToUse: readonly string[];
  readonly whenNotToUse?: readonly string[];
  readonly examples?: readonly { readonly user: string; readonly thought?: string; readonly tool: string; readonly args?: unknown }[];
  /** Lower case. */
  readonly tags?: readonly string[];
  readonly category?: PluginCategory;
  /** Default `on-demand`. */
  readonly visibility?: PluginVisibility;
  readonly stability?: 'stable' | 'beta' | 'experimental';
}
/** The environment as `autoDetect` and the schemas see it. */
export type PluginEnvironment = Readonly<Record<string, string | undefined>>;

/** What boot hooks are given. */
export interface PluginContext<Config> {
  /** Of this plugin's own schema, and nobody else's. */
  readonly config: Config;
  readonly identity: { readonly name: string; readonly did: string; readonly entityDid: string | null };
  /** Every plugin that survived boot resolution. */
  readonly availablePlugins: ReadonlySet<string>;
  readonly logger: PluginLogger;
}
/** What a plugin keeps for one person. The host chooses whose; a key is this plugin's alone (G13). */
export interface PluginStorage {
  get(key: string): Promise<string | null>;
  /** @throws OracleError when the value is too large or the person has too many. */
  put(key: string, value: string): Promise<void>;
  delete(key: string): Promise<boolean>;
  /** Newest first. */
  list(options?: {
    readonly prefix?: string;
    readonly limit?: number;
  }): Promise<readonly { readonly key: string; readonly value: string }[]>;
  /** By words, best first. */
  search(query: string, options?: { readonly limit?: number }): Promise<readonly { readonly key: string; readonly value: string }[]>;
}
/** Who calls a plugin's route, after the host has verified the invocation. */
export interface RouteCaller {
  readonly did: string;
  readonly matrixUserId: string | null;
  readonly storage: PluginStorage;
}
/** What routes are given besides. */
export interface PluginRoutesContext<Config> extends PluginContext<Config> {
  /** Of a request to a route that is not in `getAuthExcludedRoutes`: the host has let nobody else through. */
  readonly callerOf: (request: object) => RouteCaller;
}
/** What a run costs; the host reserves, settles and releases. Whole credits. */
export interface CreditPolicy {
  /** Held when a run starts; what a person must have to be answered at all. */
  readonly hold: number;
  /** Given once to an account that is new. */
  readonly initial: number;
  /** What one model call costs, by what the provider or our estimate counted. */
  priceOf(call: { readonly model: string; readonly inputTokens: number; readonly outputTokens: number }): number;
}

/** A hook may answer at once or later. */
type Soon<T> = T | Promise<T>;

/** Its hooks and its tools' handlers see as `config` what its own `configSchema` makes of the environment, and nobody else's. */
export interface OraclePlugin<Schema extends z.ZodObject = z.ZodObject, State extends z.ZodObject = z.ZodObject> {
  readonly name: string;
  readonly version: string;
  readonly manifest: PluginManifest;
  /** Without them this plugin is not loaded either. */
  readonly dependsOn?: readonly string[];
  /** It works without them, with less. */
  readonly softDependsOn?: readonly string[];
  /** Of environment variables. */
  readonly configSchema?: Schema;
  /** Whether it can work here, when the operator said nothing. Pure. */
  readonly autoDetect?: (env: PluginEnvironment) => boolean;
  /** Completes "it is not loaded: …" for the operator. */
  readonly autoDetectHint?: string;
  /** Fields it keeps per thread in the checkpoint; every field needs a default. Written by tools through `ctx.state.update`. */
  readonly stateSchema?: State;
  /** Asked once, at the start; the parameter gives the handlers of tools defined here their type of `ctx.config`. */
  readonly getTools?: (ctx: PluginContext<z.output<Schema>>) => Soon<readonly AnyTool<z.output<Schema>, z.output<State>>[]>;
  /** Asked for each turn, within two seconds; nothing of it is seen by any other turn. */
  readonly getRequestTools?: (
    ctx: RuntimeContext<z.output<Schema>, z.output<State>>,
  ) => Soon<readonly AnyTool<z.output<Schema>, z.output<State>>[]>;
  readonly getSubAgents?: (ctx: PluginContext<z.output<Schema>>) => Soon<readonly SubAgentDefinition<z.output<Schema>, z.output<State>>[]>;
  readonly getRequestSubAgents?: (
    ctx: RuntimeContext<z.output<Schema>, z.output<State>>,
  ) => Soon<readonly SubAgentDefinition<z.output<Schema>, z.output<State>>[]>;
  readonly getMiddlewares?: (ctx: PluginContext<z.output<Schema>>) => Soon<readonly AgentMiddleware[]>;
  /** Readable by other plugins as `ctx.shared.<key>`; extend `SharedAccessors` for its type. */
  readonly getSharedState?: () => Readonly<
    Record<string, (state: ReadonlyState, ctx: RuntimeContext<z.output<Schema>, z.output<State>>) => unknown>
  >;
  /** Further HTTP routes below the sidecar; the place of `getNestModules` in this family. */
  readonly getRoutes?: (ctx: PluginRoutesContext<z.output<Schema>>) => FastifyPluginAsync;
  readonly getAuthExcludedRoutes?: () => readonly { readonly path: string; readonly method?: string }[];
  /** A section of the system prompt for this turn; null for none. Plugin text does not taint, so never put words of strangers in it. */
  readonly getPromptContribution?: (ctx: RuntimeContext<z.output<Schema>, z.output<State>>) => Soon<string | null>;
  /** Facts about the person for `ctx.history.userContext` and the prompt, asked once per turn, within two seconds. */
  readonly getUserContext?: (ctx: RuntimeContext<z.output<Schema>, z.output<State>>) => Soon<UserContextData>;
  /** At most one loaded plugin brings it; then nobody is answered without credits. */
  readonly getCreditPolicy?: (ctx: PluginContext<z.output<Schema>>) => CreditPolicy;
  /** Closes what boot hooks opened; within five seconds. */
  readonly close?: () => Promise<void>;
}

/** A plugin whose types were forgotten, as the host keeps it: its own schemas have checked what its hooks are given. */
// biome-ignore lint/suspicious/noExplicitAny: see above
export type AnyOraclePlugin = OraclePlugin<any, any>;

export function defineOraclePlugin<Schema extends z.ZodObject = z.ZodObject, State extends z.ZodObject = z.ZodObject>(
  plugin: OraclePlugin<Schema, State>,
): OraclePlugin<Schema, State> {
  const read = readPlugin(plugin);
  if ('faults' in read)
    throw new TypeError(`plugin ${(JSON.stringify(plugin.name) ?? 'without a name').slice(0, 80)}: ${read.faults.join('; ')}`);
  return Object.freeze({ ...plugin });
}
