/**
 * What plugins bring for one turn only. All are asked at once and none is waited for longer than a person notices; what throws, comes too late or takes
 * a name that is there is logged and missing in this turn, never in another's (lifecycle seed "Sub-agent init").
 */
import { readThrown } from '../errors.ts';
import { LIMITS } from '../limits.ts';
import type { RuntimeContext } from '../runtime-context/runtime-context.ts';
import type { LoadedPlugin, PluginHost, PluginHostOptions, RegisteredSubAgent, RequestContributions } from './plugin-host.ts';
import { type Fault, RESERVED, registerSubAgent, registerTool } from './register-tools.ts';
import type { RegisteredTool } from './registered-tool.ts';
import { withinTime } from './within-time.ts';

interface AtBoot extends Pick<PluginHost, 'tools' | 'subAgents'> {
  readonly options: PluginHostOptions;
}
type RequestHook = 'getRequestTools' | 'getRequestSubAgents';

export async function collectForRequest(
  loaded: readonly LoadedPlugin[],
  contextFor: (plugin: string) => RuntimeContext,
  { tools: bootTools, subAgents: bootSubAgents, options }: AtBoot,
): Promise<RequestContributions> {
  const tools = new Map<string, RegisteredTool>();
  const subAgents = new Map<string, RegisteredSubAgent>();
  const asking = loaded.filter(({ plugin }) => plugin.getRequestTools !== undefined || plugin.getRequestSubAgents !== undefined);
  if (asking.length === 0) return { tools, subAgents };
  const answers = await Promise.all(asking.map((plugin) => askRequestHooks(plugin, contextFor, options)));

  const taken = new Map(RESERVED);
  for (const [name, { plugin }] of bootTools) taken.set(name, plugin);
  for (const { toolName, plugin } of bootSubAgents.values()) taken.set(toolName, plugin);
  const skip = (plugin: string, { kind, tool, message }: Fault): void => {
    const facts = { plugin, code: kind, reason: message.slice(0, 200), ...(tool === null ? {} : { tool }) };
    options.logger.warn(facts, 'what a plugin brought for this turn cannot be used');
  };
  // In the order of the plugins, whoever answered first: which of two gets a name must not depend on a network.
  for (const answer of answers) {
    for (const tool of answer.tools) {
      const registered = registerTool(answer.plugin, tool, taken);
      if (!registered.ok) {
        skip(answer.plugin, registered.error);
        continue;
      }
      tools.set(registered.value.definition.name, registered.value);
      taken.set(registered.value.definition.name, answer.plugin);
    }
    for (const agent of answer.subAgents) {
      const registered = registerSubAgent(answer.plugin, agent, taken);
      if (!registered.ok) {
        skip(answer.plugin, registered.error);
        continue;
      }
      subAgents.set(registered.value.definition.name, registered.value);
      taken.set(registered.value.toolName, answer.plugin);
    }
  }
  return { tools, subAgents };
}

async function askRequestHooks(
  { name, plugin }: LoadedPlugin,
  contextFor: (plugin: string) => RuntimeContext,
  { clock, logger }: PluginHostOptions,
): Promise<{ readonly plugin: string; readonly tools: readonly unknown[]; readonly subAgents: readonly unknown[] }> {
  const ask = async (hook: RequestHook): Promise<readonly unknown[]> => {
    if (plugin[hook] === undefined) return [];
    try {
      const answer: unknown = await withinTime<unknown>(clock, LIMITS.pluginHookMs, () => plugin[hook]?.(contextFor(name)));
      if (!Array.isArray(answer)) throw new TypeError(`${hook} must return a list`);
      if (answer.length > LIMITS.pluginToolsPerTurn) throw new RangeError(`${hook} returned more than ${LIMITS.pluginToolsPerTurn}`);
      return [...answer];
    } catch (error) {
      // Its name alone: the hook knows prompts and secrets of the person, and its error may quote them (G12).
      const thrown = readThrown(error);
      const reason = `${hook}: ${thrown instanceof Error ? thrown.name : 'thrown value'}`;
      logger.warn({ plugin: name, reason }, 'a hook of a plugin failed; what it would have brought is missing');
      return [];
    }
  };
  const [tools, subAgents] = await Promise.all([ask('getRequestTools'), ask('getRequestSubAgents')]);
  return { plugin: name, tools, subAgents };
}
