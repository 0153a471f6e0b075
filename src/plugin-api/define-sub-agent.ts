/**
 * A sub-agent is a tool that thinks: the model calls `call_<name>({ task })`, and another loop of model and tools answers, with a prompt and tools of
 * its own but the run's authority, credits, taint, budgets and frames. Nothing that guards the main loop is missing in it (research/ixo.md §9.4).
 */
import type { AgentMiddleware } from 'langchain';
import type { ModelRole, RuntimeContext } from '../runtime-context/runtime-context.ts';
import type { AnyTool } from './define-tool.ts';

export interface SubAgentDefinition {
  /** `researcher` becomes the tool `call_researcher`. */
  readonly name: string;
  /** For the main model: what it can be asked. */
  readonly description: string;
  readonly systemPrompt: string | ((ctx: RuntimeContext) => string);
  readonly tools: readonly AnyTool[];
  /** Default `subagent`. */
  readonly model?: ModelRole;
  readonly middlewares?: readonly AgentMiddleware[];
}

const NAME = /^[a-z][a-z0-9_]{0,58}$/u;

export function defineSubAgent(agent: SubAgentDefinition): SubAgentDefinition {
  if (!NAME.test(agent.name)) throw new TypeError(`a sub-agent name must fit ${NAME.source}: ${JSON.stringify(agent.name).slice(0, 80)}`);
  return Object.freeze({ ...agent });
}
