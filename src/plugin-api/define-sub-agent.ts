/**
 * A sub-agent is a tool that thinks: the model calls `call_<name>({ task })`, and another loop of model and tools answers, with a prompt and tools of
 * its own but the run's authority, credits, taint, budgets and frames. Nothing that guards the main loop is missing in it (research/ixo.md §9.4).
 */
import type { AgentMiddleware } from 'langchain';
import type { MergedConfig, ModelRole, PluginState, RuntimeContext } from '../runtime-context/runtime-context.ts';
import { type AnyTool, readTool } from './define-tool.ts';

// biome-ignore lint/suspicious/noExplicitAny: as for tools
export interface SubAgentDefinition<Config = any, State extends PluginState = any> {
  /** `researcher` becomes the tool `call_researcher`. */
  readonly name: string;
  /** For the main model: what it can be asked. */
  readonly description: string;
  readonly systemPrompt: string | ((ctx: RuntimeContext<Config, State>) => string);
  readonly tools: readonly AnyTool<Config, State>[];
  /** Default `subagent`. */
  readonly model?: ModelRole;
  readonly middlewares?: readonly AgentMiddleware[];
}

const NAME = /^[a-z][a-z0-9_]{0,58}$/u;
const MAX_DESCRIPTION_CHARS = 4_000;
const MAX_TOOLS = 100;

export function defineSubAgent<Config = MergedConfig, State extends PluginState = PluginState>(
  agent: SubAgentDefinition<Config, State>,
): SubAgentDefinition<Config, State> {
  const read = readSubAgent(agent);
  if ('fault' in read) throw new TypeError(read.fault);
  return read as SubAgentDefinition<Config, State>;
}

/** The same for one of which nothing is known, because its author wrote JavaScript. */
export function readSubAgent(agent: unknown): SubAgentDefinition | { readonly fault: string } {
  if (typeof agent !== 'object' || agent === null) return { fault: 'a sub-agent must be an object' };
  const { name, description, systemPrompt, tools, model, middlewares } = agent as Record<string, unknown>;
  if (typeof name !== 'string' || !NAME.test(name))
    return { fault: `a sub-agent name must fit ${NAME.source}: ${(JSON.stringify(name) ?? typeof name).slice(0, 80)}` };
  if (typeof description !== 'string' || description.length === 0 || description.length > MAX_DESCRIPTION_CHARS)
    return { fault: `the description of sub-agent ${name} must have 1 to ${MAX_DESCRIPTION_CHARS} characters` };
  if (typeof systemPrompt !== 'function' && (typeof systemPrompt !== 'string' || systemPrompt === ''))
    return { fault: `the systemPrompt of sub-agent ${name} must be a text, or a function of the context that returns one` };
  if (model !== undefined && (typeof model !== 'string' || model === '')) return { fault: `the model of sub-agent ${name} must be a role` };
  if (middlewares !== undefined && !Array.isArray(middlewares)) return { fault: `the middlewares of sub-agent ${name} must be a list` };
  if (!Array.isArray(tools) || tools.length > MAX_TOOLS)
    return { fault: `the tools of sub-agent ${name} must be a list of at most ${MAX_TOOLS}` };
  const checked: AnyTool[] = [];
  for (const tool of tools) {
    const read = readTool(tool);
    if ('fault' in read) return { fault: `in sub-agent ${name}, ${read.fault}` };
    if (checked.some((other) => other.name === read.name)) return { fault: `sub-agent ${name} has two tools called ${read.name}` };
    checked.push(read);
  }
  return Object.freeze({ ...(agent as SubAgentDefinition), tools: Object.freeze(checked) });
}
