/**
 * `call_<name>({ task })`: a loop of its own behind one tool call. It is built from the same pieces as the main one and shares its turn, so authority,
 * taint, credits, marks, budgets and the signal are the run's. It has no checkpoint: a resumed run asks it again, and its finished write calls
 * are answered from their marks (G6).
 */

import { AIMessage, HumanMessage, SystemMessage } from '@langchain/core/messages';
import { z } from 'zod';
import { OracleError } from '../errors.ts';
import type { RegisteredSubAgent } from '../plugin-host/plugin-host.ts';
import type { AnswerWriter } from './answer-writer.ts';
import { buildGraph, RECURSION_LIMIT } from './build-graph.ts';
import { callIdsOf, createLoop, keyOf, type Loop } from './loop.ts';
import { answeredByHost } from './meta-tools.ts';
import type { HostAnswer, HostCall } from './run-tool.ts';
import { isHostStop, unwrap } from './stop-reason.ts';
import { hasForeignResult } from './taint.ts';
import { type AgentTool, createToolSet, registerTool, type ToolSet } from './tool-set.ts';
import { modelFor, requireAuthority } from './turn.ts';
import { textOf } from './turn-messages.ts';

const MODEL_CALLS = 10;
/** As long as a person waits for an answer; the deadline of the run counts as well. */
const TIMEOUT_MS = 5 * 60_000;
const MAX_PROMPT_CHARS = 32_000;
const MAX_TASK_CHARS = 16_000;

const taskSchema = z.object({ task: z.string().min(1).max(MAX_TASK_CHARS).describe('Everything it needs to know: it sees nothing else.') });

export function buildSubAgentTool(agent: RegisteredSubAgent): AgentTool {
  const { plugin, definition, toolName } = agent;
  // Whoever is asked has everything at hand that was given to it.
  const tools = createToolSet(new Map([...agent.tools].map(([name, tool]) => [name, alwaysThere(tool)])), () => 'always');
  return {
    ...registerTool(plugin, { name: toolName, description: definition.description, schema: taskSchema, handler: answeredByHost }),
    timeoutMs: TIMEOUT_MS,
    answer: (args, asked) => askSubAgent(agent, { ...asked, tools, task: taskSchema.parse(args).task }),
  };
}
const alwaysThere = (tool: AgentTool): AgentTool => ({ ...tool, definition: { ...tool.definition, visibility: 'always' } });

async function askSubAgent(
  { plugin, definition }: RegisteredSubAgent,
  asked: HostCall & { readonly loop: Loop; readonly tools: ToolSet; readonly task: string },
): Promise<HostAnswer> {
  const { turn } = asked.loop;
  const { models } = turn.parts.options;
  requireAuthority(turn);
  const role = definition.model ?? 'subagent';
  const { systemPrompt } = definition;
  const system = typeof systemPrompt === 'function' ? systemPrompt(asked.context) : systemPrompt;
  const loop = createLoop(turn, {
    parent: asked.key,
    id: `${turn.run.id}.${asked.key}`,
    tools: asked.tools,
    system: new SystemMessage(system.slice(0, MAX_PROMPT_CHARS)),
    window: [],
    model: modelFor(turn, role),
    modelName: models.nameOf(role),
    writer: UNSEEN,
    signal: asked.signal,
    maxModelCalls: MODEL_CALLS,
  });
  const more = (definition.middlewares ?? []).map((middleware) => ({ plugin, middleware }));
  try {
    const { messages } = await buildGraph(loop, { saver: false, more }).invoke(
      { messages: [new HumanMessage({ id: `${loop.id}.task`, content: asked.task })] },
      { signal: asked.signal, recursionLimit: RECURSION_LIMIT },
    );
    if (hasForeignResult(messages, asked.tools.all)) asked.readsForeign();
    const last = messages.filter(AIMessage.isInstance).at(-1);
    return {
      text: last === undefined ? 'It gave no answer.' : textOf(last),
      calls: [...callIdsOf(messages)].map((id) => keyOf(loop, id)),
    };
  } catch (error) {
    const reason = unwrap(error);
    // What ends the run ends it from in here as well; a model that failed is a result that the main one can read.
    if (isHostStop(error, turn.stop.signal)) turn.stop.abort(reason);
    if (reason instanceof OracleError) throw new OracleError(reason.refusal);
    throw reason;
  }
}

/** What it says is a tool's result, no part of the answer. */
const UNSEEN: AnswerWriter = {
  startMessage: () => undefined,
  push: () => undefined,
  endMessage: () => undefined,
  partial: '',
  aside: () => undefined,
  endAside: () => undefined,
  repair: () => undefined,
};
