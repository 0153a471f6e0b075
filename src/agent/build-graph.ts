/**
 * The graph of one loop: which middleware is around which. From the outside in: the frame of the turn, the guards, the plugins' in their topological order,
 * and innermost the call itself, so that a guard sees what a model wished before any plugin does, and nothing comes between the last look at
 * an effect and the effect. Hooks before and after a call are nodes and cost a checkpoint each; only plugins that bring them pay.
 */
import type { BaseMessage } from '@langchain/core/messages';
import { type AgentMiddleware, createAgent, createMiddleware } from 'langchain';
import type { JsonObject } from '../json.ts';
import type { PruningSaver } from '../store/checkpoints/pruning-saver.ts';
import { askModel, useTool } from './innermost-calls.ts';
import { keyOf, type Loop } from './loop.ts';
import { capabilityGate } from './middlewares/capability-gate.ts';
import { contextRoom } from './middlewares/context-room.ts';
import { frameTurn } from './middlewares/frame-turn.ts';
import { type PluginMiddleware, pluginMiddlewares } from './middlewares/plugin-middleware.ts';
import { repetitionGuard } from './middlewares/repetition-guard.ts';
import { toolValidation } from './middlewares/tool-validation.ts';

/** What we use of the compiled graph. */
export interface LoopGraph {
  getState(config: unknown): Promise<{ values: Record<string, unknown> & { messages?: BaseMessage[] }; next: readonly string[] }>;
  invoke(input: unknown, config: unknown): Promise<{ messages: BaseMessage[] }>;
}

/** Every hook of every plugin and each step counts; our own budget of calls ends a loop long before. */
export const RECURSION_LIMIT = 10_000;

/**
 * The compiled graph itself: `ReactAgent.invoke` would load the checkpoint once more for hooks that keep state, which ours do not.
 * @param saver false for a loop that needs no resume.
 */
export function buildGraph(
  loop: Loop,
  { saver, more = [] }: { saver: PruningSaver | false; more?: readonly PluginMiddleware[] },
): LoopGraph {
  const middleware: AgentMiddleware[] = [
    frameTurn(loop),
    capabilityGate(loop),
    toolValidation(loop),
    repetitionGuard(loop),
    contextRoom(loop),
    ...pluginMiddlewares(loop, [...loop.turn.host.middlewares, ...more]),
    innermost(loop),
  ];
  const agent = createAgent({ model: loop.model, tools: [], checkpointer: saver, middleware });
  return agent.graph as unknown as LoopGraph;
}

const innermost = (loop: Loop): AgentMiddleware =>
  createMiddleware({
    name: 'call',
    wrapModelCall: (request) => askModel(loop, request),
    wrapToolCall: ({ toolCall: { id = '', name, args } }) => useTool(loop, { id, key: keyOf(loop, id), name, args: args as JsonObject }),
  });
