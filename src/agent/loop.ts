/**
 * One loop of model and tools: the turn's own, or a sub-agent's. Here stand its two innermost calls, one to the model and one to a tool; every middleware
 * is around them, and nothing reaches a model or an effect beside them. The model is streamed here, inside the wrap hook, not through the graph's
 * stream: text, tool frames and retries then have one order, and a token costs less.
 */
import type { BaseChatModel } from '@langchain/core/language_models/chat_models';
import { AIMessage, type BaseMessage, SystemMessage, ToolMessage } from '@langchain/core/messages';
import type { ModelRequest } from 'langchain';
import { OracleError, refusal } from '../errors.ts';
import type { ModelRole } from '../models/models.ts';
import { estimateTokens, readUsage } from '../models/usage.ts';
import type { Usage } from '../runs/run.ts';
import type { AnswerWriter } from './answer-writer.ts';
import { buildContext } from './build-context.ts';
import { callModel } from './call-model.ts';
import { countChars } from './context-budget.ts';
import { type RunnableTool, runTool, type ToolCall, type ToolRunOptions } from './run-tool.ts';
import { innerCallsOf } from './taint.ts';
import { type AgentTool, narrowOffer, type OfferedTools, type ToolSet } from './tool-set.ts';
import { charge, requireAuthority, requireModel, type Turn } from './turn.ts';
import { readAnswer, textOf } from './turn-messages.ts';

export interface Loop {
  readonly turn: Turn;
  /** Key of the tool call that a sub-agent answers; null in the main loop. */
  readonly parent: string | null;
  /** Begins the ids of its model's messages. */
  readonly id: string;
  readonly tools: ToolSet;
  readonly system: SystemMessage;
  readonly window: readonly BaseMessage[];
  readonly model: BaseChatModel;
  readonly modelName: string;
  readonly writer: AnswerWriter;
  readonly signal: AbortSignal;
  readonly maxModelCalls: number;
  /** The loop so far: prompts, answers, results. Kept beside the graph, so that a stopped one can be told without reading it back. */
  messages: BaseMessage[];
  modelCalls: number;
  /** How often a call (its tool and arguments) failed with an error. */
  readonly failures: Map<string, Map<string, number>>;
  /** The model is offered no tools any more: it must answer with what it has. */
  toolsClosed: boolean;
  /** Names of middlewares whose `beforeAgent` has run in this execution. */
  readonly begun: Set<string>;
}

export function createLoop(
  turn: Turn,
  own: Pick<Loop, 'parent' | 'id' | 'tools' | 'system' | 'window' | 'model' | 'modelName' | 'writer' | 'signal' | 'maxModelCalls'>,
): Loop {
  return { turn, ...own, messages: [], modelCalls: 0, failures: new Map(), toolsClosed: false, begun: new Set() };
}

/** What the model is offered now; the same object while nothing changes. */
export const offeredNow = ({ tools, turn }: Loop): OfferedTools => tools.offered(turn.thread.loadedPlugins);

/** @throws OracleError when the loop has asked often enough. */
export function requireModelCall({ modelCalls, maxModelCalls }: Loop): void {
  if (modelCalls < maxModelCalls) return;
  throw new OracleError(refusal('MODEL_ERROR', { message: 'The language model came to no end. Please ask in smaller steps.' }));
}

/** The innermost model call. What middlewares have made of the request is what is sent. */
export async function askModel(
  loop: Loop,
  request: Pick<ModelRequest, 'messages' | 'tools' | 'systemMessage' | 'model'>,
): Promise<AIMessage> {
  const { turn } = loop;
  const { parts, run } = turn;
  requireModelCall(loop);
  const offered = narrowOffer(offeredNow(loop), request.tools);
  const model = request.model as BaseChatModel;
  const modelName = model === loop.model ? loop.modelName : nameOfModel(model);
  // As one string: some compatible servers refuse a system message in parts.
  const messages = [new SystemMessage(textOf(request.systemMessage)), ...request.messages];
  const chars = countChars(messages) + offered.chars;
  if (chars > parts.budget.fullChars) throw new OracleError(refusal('CONTEXT_FULL'));
  await requireModel(turn);
  loop.modelCalls += 1;
  // What an earlier call of the same step has shown is none of the answer any more.
  loop.writer.repair(readAnswer(loop.messages));
  const message = await callModel({
    model: parts.bindTools(model, offered),
    modelName,
    messages,
    messageId: `${loop.id}.${run.attempt}.${loop.modelCalls}`,
    usedCallIds: callIdsOf(loop.messages),
    writer: loop.writer,
    signal: loop.signal,
    deadlineAt: run.deadlineAt,
    clock: parts.clock,
    chance: parts.chance,
    logger: turn.logger,
    requireAuthority: () => requireAuthority(turn),
    takingTurns: parts.takingTurns,
    onCall: (name) => turn.job.output.modelCalled(name),
  });
  // Models of the host tell of each call themselves, also of one that broke off; a middleware may bring one that does not.
  if (!('knownAs' in model)) {
    const usage = readUsage(message.usage_metadata, message.response_metadata) ?? estimateUsage(chars, message);
    await charge(turn, { model: modelName, estimated: false, ...usage });
  }
  return message;
}

/** The model of a role, for this turn: it tells of each call. */
export const modelFor = (turn: Turn, role: ModelRole, model?: string): BaseChatModel =>
  turn.parts.options.models.get(role, model === undefined ? undefined : { model }, { onUsage: (usage) => charge(turn, usage) });

const estimateUsage = (chars: number, answer: AIMessage): Usage => ({
  inputTokens: estimateTokens(chars),
  outputTokens: estimateTokens(countChars([answer])),
  estimated: true,
});

const nameOfModel = (model: BaseChatModel): string =>
  'model' in model && typeof model.model === 'string' ? model.model.slice(0, 200) : 'unknown';

/** The innermost tool call. */
export const useTool = (loop: Loop, call: ToolCall): Promise<ToolMessage> => runTool(call, buildToolOptions(loop));

function buildToolOptions(loop: Loop): ToolRunOptions {
  const { turn } = loop;
  const { parts, run } = turn;
  const { options } = parts;
  return {
    run,
    tools: { get: (name) => withLoop(loop.tools.all.get(name), loop) },
    marks: options.marks,
    knownCalls: knownCallsOf(loop),
    authority: options.authority,
    tainted: turn.taint.isOn,
    audit: options.audit,
    clock: parts.clock,
    logger: turn.logger,
    signal: loop.signal,
    clean: turn.redactor.clean,
    sendFrame: (data) => {
      if (!turn.over) turn.job.output.toolCall(data);
    },
    buildContext: (call, tool, { signal, isOver, readsForeign }) =>
      buildContext(turn, { plugin: tool.plugin, loop, signal, isOver, readsForeign, call, tool: tool.definition }),
  };
}

/** What the host answers itself is handed the loop that asks. */
function withLoop(tool: AgentTool | undefined, loop: Loop): RunnableTool | undefined {
  if (tool?.answer === undefined) return tool as RunnableTool | undefined;
  const { answer, ...rest } = tool;
  return { ...rest, answer: (args, asked) => answer(args, { ...asked, loop }) };
}

/** A call as marks, frames and contexts name it. The ids of a sub-agent's model are new in each attempt, so the attempt is part of them. */
export const keyOf = ({ parent, turn: { run } }: Loop, id: string): string =>
  parent === null ? id : `${parent}/${run.attempt > 1 ? `${run.attempt}.` : ''}${id}`;

/** The call of the main loop that a call belongs to: its result takes the changes of the thread into the checkpoint. */
export const rootOf = ({ parent }: Loop, id: string): string => parent ?? id;

export const callIdsOf = (messages: readonly BaseMessage[]): Set<string> =>
  new Set(messages.filter(AIMessage.isInstance).flatMap((message) => (message.tool_calls ?? []).map((call) => call.id ?? '')));

/** Of this loop and of the main one, with those that sub-agents made on the way to a result. */
function knownCallsOf(loop: Loop): Set<string> {
  const { main } = loop.turn;
  const known = new Set(main === undefined ? [] : callIdsOf(main.messages));
  for (const message of main?.messages ?? []) if (ToolMessage.isInstance(message)) for (const key of innerCallsOf(message)) known.add(key);
  if (loop.parent !== null) for (const id of callIdsOf(loop.messages)) known.add(keyOf(loop, id));
  return known;
}
