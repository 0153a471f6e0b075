/**
 * What survived boot resolution, as the rest of the runtime uses it: the agent takes tools, sub-agents, middlewares and prompt sections from here, the
 * sidecar routes, the runtime context shared accessors and each plugin's own configuration. Built once at the start (build-plugin-host.ts) and never
 * changed: what is made per request is returned, not stored, so that two people can never receive each other's (research/ixo.md §9.1).
 */
import type { FastifyPluginAsync } from 'fastify';
import type { AgentMiddleware } from 'langchain';
import type { Logger } from '../observe/logger.ts';
import type {
  AnyOraclePlugin,
  CreditPolicy,
  PluginContext,
  PluginManifest,
  PluginRoutesContext,
  PluginVisibility,
} from '../plugin-api/define-oracle-plugin.ts';
import type { SubAgentDefinition } from '../plugin-api/define-sub-agent.ts';
import type { Result } from '../result.ts';
import type { ReadonlyState, RuntimeContext } from '../runtime-context/runtime-context.ts';
import type { Clock } from '../time.ts';
import type { BootProblem } from './boot-problem.ts';
import type { RegisteredTool } from './registered-tool.ts';
import type { PluginPlan } from './resolve-plugins.ts';

export interface LoadedPlugin {
  readonly name: string;
  readonly version: string;
  /** Overrides applied. */
  readonly manifest: PluginManifest & { readonly visibility: PluginVisibility };
  /** Of its own schema; frozen. */
  readonly config: Readonly<Record<string, unknown>>;
  readonly plugin: AnyOraclePlugin;
}
export interface RegisteredSubAgent {
  readonly plugin: string;
  readonly definition: SubAgentDefinition;
  /** `call_<name>`. */
  readonly toolName: string;
  /** Its own, by name, which need not be unique beyond it. */
  readonly tools: ReadonlyMap<string, RegisteredTool>;
}
export interface SharedReader {
  readonly plugin: string;
  /** With the context of the plugin that shares, not of the one that asks. */
  readonly read: (state: ReadonlyState, ctx: RuntimeContext) => unknown;
}
/** Of one turn. */
export interface RequestContributions {
  readonly tools: ReadonlyMap<string, RegisteredTool>;
  readonly subAgents: ReadonlyMap<string, RegisteredSubAgent>;
}
export interface PluginStatus {
  readonly loaded: readonly {
    readonly name: string;
    readonly version: string;
    readonly visibility: PluginVisibility;
    readonly origin: 'bundled' | 'given';
    readonly because: string;
  }[];
  readonly excluded: readonly { readonly name: string; readonly reason: string }[];
  readonly softGaps: readonly { readonly plugin: string; readonly missing: string }[];
}
export interface PluginHost {
  readonly names: ReadonlySet<string>;
  /** In topological order. */
  readonly plugins: readonly LoadedPlugin[];
  /** Boot tools by name, in the order of plugins; `visibility` of a tool wins over its plugin's. */
  readonly tools: ReadonlyMap<string, RegisteredTool>;
  readonly subAgents: ReadonlyMap<string, RegisteredSubAgent>;
  readonly middlewares: readonly { readonly plugin: string; readonly middleware: AgentMiddleware }[];
  readonly shared: ReadonlyMap<string, SharedReader>;
  readonly creditPolicy: CreditPolicy | null;
  visibilityOf(plugin: string): PluginVisibility;
  configOf(plugin: string): Readonly<Record<string, unknown>>;
  /** Runs `getRequestTools` and `getRequestSubAgents` of every plugin, each with its own context; what throws or collides is logged and skipped. */
  forRequest(contextFor: (plugin: string) => RuntimeContext): Promise<RequestContributions>;
  status(): PluginStatus;
  close(): Promise<void>;
}

/** What a plugin adds to the sidecar. */
export interface PluginRoutes {
  readonly plugin: string;
  readonly register: FastifyPluginAsync;
  /** Of `getAuthExcludedRoutes`: the only ones that are served to anybody. */
  readonly open: readonly { readonly path: string; readonly method?: string }[];
}
/** As the composition root has it. */
export interface BootedPlugins extends PluginHost {
  /**
   * Asks every plugin for its routes, once.
   * @param callerOf by plugin: who sent a request, after the sidecar has verified it.
   */
  routes(callerOf: (plugin: string) => PluginRoutesContext<unknown>['callerOf']): Result<readonly PluginRoutes[], readonly BootProblem[]>;
}
export interface PluginHostOptions {
  readonly identity: PluginContext<unknown>['identity'];
  readonly logger: Logger;
  readonly clock: Clock;
}
/** Runs every boot hook once. A hook that throws is logged and only what it would have brought is missing; what must not be missing is a problem. */
export type BuildPluginHost = (plan: PluginPlan, options: PluginHostOptions) => Promise<Result<BootedPlugins, readonly BootProblem[]>>;
