/**
 * Runs the boot hooks of the loaded plugins, once, and keeps what they brought. A hook that throws or never answers is logged and only what it would
 * have brought is missing; what decides who may do what (names, shared state, prices, routes), and what is a mistake of its author, stops the start.
 * What is made for one turn is returned and never stored, so that two people cannot receive each other's (research/ixo.md §9.1).
 */
import type { AgentMiddleware } from 'langchain';
import { LIMITS } from '../limits.ts';
import type { CreditPolicy, PluginContext } from '../plugin-api/define-oracle-plugin.ts';
import { err, ok } from '../result.ts';
import type { BootProblem } from './boot-problem.ts';
import { buildPluginRoutes } from './build-plugin-routes.ts';
import { collectForRequest } from './collect-for-request.ts';
import type { BuildPluginHost, LoadedPlugin, PluginHost, PluginHostOptions, RegisteredSubAgent, SharedReader } from './plugin-host.ts';
import { createPluginLogger } from './plugin-logger.ts';
import { type Fault, RESERVED, registerSubAgent, registerTool } from './register-tools.ts';
import type { RegisteredTool } from './registered-tool.ts';
import { hookFailed } from './resolve-plugins.ts';
import { withinTime } from './within-time.ts';

/** What the boot hooks of one plugin answered, unread. */
interface Brought {
  readonly plugin: LoadedPlugin;
  readonly tools: readonly unknown[];
  readonly subAgents: readonly unknown[];
  readonly middlewares: readonly unknown[];
  /** Neither hook failed, so that what is missing was never there. */
  readonly complete: boolean;
}
type ContextFor = (plugin: LoadedPlugin) => PluginContext<unknown>;

export const buildPluginHost: BuildPluginHost = async ({ loaded, status }, options) => {
  const names: ReadonlySet<string> = new Set(loaded.map(({ name }) => name));
  const contextFor: ContextFor = ({ name, config }) =>
    Object.freeze({
      config,
      identity: options.identity,
      availablePlugins: new Set(names),
      logger: createPluginLogger(options.logger.child({ plugin: name })),
    });
  const brought = await Promise.all(loaded.map((plugin) => askBootHooks(plugin, contextFor, options)));
  const { tools, subAgents, problems } = register(brought);
  const { middlewares, problems: middlewareProblems } = readMiddlewares(brought);
  const shared = readShared(loaded);
  const credits = readCreditPolicy(loaded, contextFor);
  const all = [...problems, ...planExampleProblems(brought), ...middlewareProblems, ...shared.problems];
  all.push(...credits.problems, ...loaded.flatMap(planStateProblems));
  const close = () => closeAll(loaded, options);
  if (all.length > 0) {
    await close();
    return err(all);
  }
  const visibility = new Map(loaded.map(({ name, manifest }) => [name, manifest.visibility]));
  const config = new Map(loaded.map((plugin) => [plugin.name, plugin.config]));
  return ok({
    names,
    plugins: loaded,
    tools,
    subAgents,
    middlewares,
    shared: shared.readers,
    creditPolicy: credits.policy,
    visibilityOf: (name) => visibility.get(name) ?? 'on-demand',
    configOf: (name) => config.get(name) ?? Object.freeze({}),
    forRequest: (requestContextFor) => collectForRequest(loaded, requestContextFor, { tools, subAgents, options }),
    status: () => status,
    routes: (callerOf) => buildPluginRoutes(loaded, (plugin) => ({ ...contextFor(plugin), callerOf: callerOf(plugin.name) })),
    close,
  });
};

async function askBootHooks(loaded: LoadedPlugin, contextFor: ContextFor, { clock, logger }: PluginHostOptions): Promise<Brought> {
  const { name, plugin } = loaded;
  let complete = true;
  const ask = async (hook: 'getTools' | 'getSubAgents' | 'getMiddlewares'): Promise<readonly unknown[]> => {
    if (plugin[hook] === undefined) return [];
    try {
      const answer: unknown = await withinTime<unknown>(clock, LIMITS.pluginBootHookMs, () => plugin[hook]?.(contextFor(loaded)));
      if (Array.isArray(answer)) return [...answer];
      throw new TypeError(`${hook} must return a list`);
    } catch (error) {
      complete = false;
      logger.error({ plugin: name, reason: hook, err: error }, 'a hook of a plugin failed; what it would have brought is missing');
      return [];
    }
  };
  const tools = await ask('getTools');
  const subAgents = await ask('getSubAgents');
  const middlewares = await ask('getMiddlewares');
  return { plugin: loaded, tools, subAgents, middlewares, complete };
}

const problemOf = (plugin: string, { kind, message }: Fault): BootProblem =>
  kind === 'collision'
    ? { code: 'boot.plugin.collision', plugin, message: `Two names collide: ${message}. Rename one, or switch a plugin off in FEATURES.` }
    : { code: 'boot.plugin.invalid', plugin, message: `Plugin ${plugin} cannot be used: ${message}.` };

function register(brought: readonly Brought[]): Pick<PluginHost, 'tools' | 'subAgents'> & { readonly problems: BootProblem[] } {
  const problems: BootProblem[] = [];
  const tools = new Map<string, RegisteredTool>();
  const subAgents = new Map<string, RegisteredSubAgent>();
  const taken = new Map(RESERVED);
  for (const { plugin, tools: own } of brought) {
    for (const tool of own) {
      const registered = registerTool(plugin.name, tool, taken);
      if (!registered.ok) problems.push(problemOf(plugin.name, registered.error));
      else tools.set(registered.value.definition.name, registered.value);
      if (registered.ok) taken.set(registered.value.definition.name, plugin.name);
    }
  }
  for (const { plugin, subAgents: own } of brought) {
    for (const agent of own) {
      const registered = registerSubAgent(plugin.name, agent, taken);
      if (!registered.ok) problems.push(problemOf(plugin.name, registered.error));
      else subAgents.set(registered.value.definition.name, registered.value);
      if (registered.ok) taken.set(registered.value.toolName, plugin.name);
    }
  }
  return { tools, subAgents, problems };
}

/** An example that calls what does not exist teaches the model to do so. A plugin that makes all its tools per turn cannot be checked. */
function planExampleProblems(brought: readonly Brought[]): BootProblem[] {
  return brought.flatMap(({ plugin: { name, manifest }, tools, subAgents, complete }) => {
    const own = new Set([...tools.map(nameOf), ...subAgents.map((agent) => `call_${nameOf(agent)}`)]);
    if (own.size === 0 || !complete) return [];
    return (manifest.examples ?? [])
      .filter(({ tool }) => !own.has(tool))
      .map(({ tool }) => ({
        code: 'boot.plugin.manifest_invalid' as const,
        plugin: name,
        message: `The manifest of plugin ${name} is not valid: an example calls ${JSON.stringify(tool)}, which the plugin does not define.`,
      }));
  });
}
const nameOf = (value: unknown): string => {
  try {
    const { name } = (value ?? {}) as { name?: unknown };
    return typeof name === 'string' ? name : '';
  } catch {
    // A getter that throws: whatever it is, it is no tool.
    return '';
  }
};

/** The agent library refuses two middlewares of one name, without saying whose they are. */
function readMiddlewares(brought: readonly Brought[]): Pick<PluginHost, 'middlewares'> & { readonly problems: BootProblem[] } {
  const problems: BootProblem[] = [];
  const owners = new Map<string, string>();
  const middlewares = brought.flatMap(({ plugin: { name: plugin }, middlewares: own }) =>
    own.flatMap((middleware) => {
      const name = nameOf(middleware);
      const other = owners.get(name);
      if (name === '')
        problems.push(problemOf(plugin, { kind: 'invalid', tool: null, message: 'a middleware must be made with createMiddleware' }));
      else if (other !== undefined) {
        const message = `the middleware ${JSON.stringify(name.slice(0, 64))} of plugin ${plugin} is defined by plugin ${other} already`;
        problems.push(problemOf(plugin, { kind: 'collision', tool: null, message }));
      }
      owners.set(name, plugin);
      return [{ plugin, middleware: middleware as AgentMiddleware }];
    }),
  );
  return { middlewares, problems };
}

function readShared(loaded: readonly LoadedPlugin[]): { readonly readers: PluginHost['shared']; readonly problems: BootProblem[] } {
  const problems: BootProblem[] = [];
  const readers = new Map<string, SharedReader>();
  for (const { name, plugin } of loaded) {
    let own: unknown;
    try {
      own = plugin.getSharedState?.() ?? {};
    } catch (error) {
      problems.push(hookFailed(name, 'getSharedState', error));
      continue;
    }
    for (const [key, read] of Object.entries(own as Record<string, unknown>)) {
      const other = readers.get(key);
      if (typeof read !== 'function')
        problems.push(
          problemOf(name, {
            kind: 'invalid',
            tool: null,
            message: `the shared state ${JSON.stringify(key.slice(0, 64))} must be a function`,
          }),
        );
      else if (other !== undefined) {
        const message = `plugin ${name} shares ${JSON.stringify(key.slice(0, 64))}, which plugin ${other.plugin} shares already`;
        problems.push(problemOf(name, { kind: 'collision', tool: null, message }));
      } else readers.set(key, { plugin: name, read: read as SharedReader['read'] });
    }
  }
  return { readers, problems };
}

/** Without prices everybody would be answered for nothing, so this hook may not fail quietly. */
function readCreditPolicy(
  loaded: readonly LoadedPlugin[],
  contextFor: ContextFor,
): { readonly policy: CreditPolicy | null; readonly problems: BootProblem[] } {
  const problems: BootProblem[] = [];
  let found: { plugin: string; policy: CreditPolicy } | null = null;
  for (const loadedPlugin of loaded) {
    const { name, plugin } = loadedPlugin;
    if (plugin.getCreditPolicy === undefined) continue;
    if (found !== null) {
      const message = `plugin ${name} sets prices, as does plugin ${found.plugin}`;
      problems.push(problemOf(name, { kind: 'collision', tool: null, message }));
      continue;
    }
    try {
      const policy: CreditPolicy = plugin.getCreditPolicy(contextFor(loadedPlugin));
      if (!isAmount(policy.hold) || !isAmount(policy.initial) || typeof policy.priceOf !== 'function')
        throw new TypeError('hold and initial must be whole numbers of credits, and priceOf a function');
      found = { plugin: name, policy };
    } catch (error) {
      problems.push(hookFailed(name, 'getCreditPolicy', error));
    }
  }
  return { policy: found?.policy ?? null, problems };
}

const isAmount = (credits: unknown): boolean => Number.isSafeInteger(credits) && Number(credits) >= 0;

/** A thread that never used the plugin has no state: what its tools read then are the defaults. */
function planStateProblems({ name, plugin }: LoadedPlugin): BootProblem[] {
  if (plugin.stateSchema === undefined) return [];
  try {
    const parsed = plugin.stateSchema.safeParse({});
    if (parsed.success) return [];
    const fields = parsed.error.issues.map(({ path }: { path: PropertyKey[] }) => String(path[0] ?? '?').slice(0, 64));
    const message = `every field of its stateSchema needs a default, which these have not: ${fields.join(', ')}`;
    return [problemOf(name, { kind: 'invalid', tool: null, message })];
  } catch (error) {
    return [hookFailed(name, 'stateSchema', error)];
  }
}

/** Newest first: what was built last may stand on what was built before. */
async function closeAll(loaded: readonly LoadedPlugin[], { clock, logger }: PluginHostOptions): Promise<void> {
  for (const { name, plugin } of [...loaded].reverse()) {
    try {
      await withinTime(clock, LIMITS.pluginCloseMs, () => plugin.close?.());
    } catch (error) {
      logger.error({ plugin: name, reason: 'close', err: error }, 'a plugin could not be closed');
    }
  }
}
