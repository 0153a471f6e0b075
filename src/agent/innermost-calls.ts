/**
 * The two innermost calls of a loop, one to the model and one to a tool; every middleware is around them, and nothing reaches a model or an effect
 * beside them. The model is streamed here, inside the wrap hook, not through the graph's stream: text, tool frames and retries then have one
 * order, and a token costs less.
 */
import type { BaseChatModel } from '@langchain/core/language_models/chat_models';
import { type AIMessage, SystemMessage, ToolMessage } from '@langchain/core/messages';
import type { ModelRequest } from 'langchain';
import { OracleError, refusal } from '../errors.ts';
import { estimateTokens, readUsage } from '../models/usage.ts';
import type { Usage } from '../runs/run.ts';
import { buildContext } from './build-context.ts';
import { callModel } from './call-model.ts';
import { countChars } from './context-budget.ts';
import { callIdsOf, keyOf, type Loop, offeredNow, requireModelCall } from './loop.ts';
import { type RunnableTool, runTool, type ToolCall, type ToolRunOptions } from './run-tool.ts';
import { innerCallsOf, isForeignResult } from './taint.ts';
import { type AgentTool, narrowOffer } from './tool-set.ts';
import { charge, requireAuthority, requireModel } from './turn.ts';
import { readAnswer, textOf } from './turn-messages.ts';

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
  if (loop.parent !== null) turn.innerModelCalls += 1;
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

const estimateUsage = (chars: number, answer: AIMessage): Usage => ({
  inputTokens: estimateTokens(chars),
  outputTokens: estimateTokens(countChars([answer])),
  estimated: true,
});

function nameOfModel(model: BaseChatModel): string {
  const name: unknown = 'knownAs' in model ? model.knownAs : 'model' in model ? model.model : undefined;
  return typeof name === 'string' ? name.slice(0, 200) : 'unknown';
}

/** The innermost tool call. */
export async function useTool(loop: Loop, call: ToolCall): Promise<ToolMessage> {
  const result = await runTool(call, buildToolOptions(loop));
  const before = loop.brought.get(call.id);
  loop.brought.set(call.id, {
    isForeign: before?.isForeign === true || isForeignResult(result, loop.tools.all),
    calls: [...(before?.calls ?? []), ...innerCallsOf(result)],
  });
  return result;
}

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
    mayPay: () => parts.spending.maySpend(run, parts.clock.now()),
    pay: (credits) => parts.spending.bill(run, credits),
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

/** Of this loop and of the main one, with those that sub-agents made on the way to a result. */
function knownCallsOf(loop: Loop): Set<string> {
  const { main } = loop.turn;
  const known = new Set(main === undefined ? [] : callIdsOf(main.messages));
  for (const message of main?.messages ?? []) if (ToolMessage.isInstance(message)) for (const key of innerCallsOf(message)) known.add(key);
  if (loop.parent !== null) for (const id of callIdsOf(loop.messages)) known.add(keyOf(loop, id));
  return known;
}
