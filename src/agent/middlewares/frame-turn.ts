/**
 * The outermost middleware: what must be true before anybody else sees a model or tool call, and after everybody has. Prompts are in the checkpoint and
 * marked, taint is written, the model's message and the tool's result have ids and shapes of ours whatever was made of them on the way, and a
 * change of the thread goes into the checkpoint with the result that made it.
 */
import { AIMessage, HumanMessage, ToolMessage } from '@langchain/core/messages';
import { Command } from '@langchain/langgraph';
import { type AgentMiddleware, createMiddleware } from 'langchain';
import type { JsonObject } from '../../json.ts';
import { LIMITS } from '../../limits.ts';
import { cutResult } from '../context-budget.ts';
import { callIdsOf, type Loop, offeredNow, requireModelCall, rootOf } from '../loop.ts';
import type { ToolCall } from '../run-tool.ts';
import { Steered, unwrap } from '../stop-reason.ts';
import { buildArtifact, innerCallsOf, isForeignResult } from '../taint.ts';
import { THREAD_CHANNELS } from '../thread-state.ts';
import { consumePrompts, furtherInputs, noteTaint } from '../turn.ts';
import { readAnswer, textOf } from '../turn-messages.ts';
import { failure, TOOLS_CLOSED } from './failure.ts';
import { noteResult } from './repetition-guard.ts';

export const frameTurn = (loop: Loop): AgentMiddleware =>
  createMiddleware({
    name: 'turn',
    stateSchema: THREAD_CHANNELS,
    async wrapModelCall(request, handler) {
      const { turn } = loop;
      const { messages } = request;
      loop.messages = messages;
      const prompts = loop.parent === null ? messages.filter(HumanMessage.isInstance) : [];
      if (loop.parent === null) takeInputs(loop, prompts);
      requireModelCall(loop);
      const isFirst = turn.consumedIds.size === 0;
      consumePrompts(turn, prompts);
      // Of what came while the run works, nothing reaches the model that was taken back in the last moment.
      if (!isFirst) await turn.consumed;
      noteTaint(turn, messages, loop.tools);
      const { modelCalls } = loop;
      const answer = await handler({
        ...request,
        model: loop.model,
        systemMessage: loop.system,
        messages: [...loop.window, ...messages],
        tools: offeredNow(loop).tools as never,
      });
      // A hook that answers in the model's place comes to an end as well: each step counts, whoever answered.
      loop.modelCalls = Math.max(loop.modelCalls, modelCalls + 1);
      const message = ownMessage(answer, loop);
      loop.writer.endMessage();
      loop.messages = [...messages, message];
      // A hook may have asked twice, or changed what was said.
      loop.writer.repair(readAnswer(loop.messages));
      await turn.consumed;
      await turn.taintWritten;
      return message;
    },
    async wrapToolCall(request, handler) {
      const { turn } = loop;
      const call: ToolCall = { id: request.toolCall.id ?? '', name: request.toolCall.name, args: request.toolCall.args as JsonObject };
      turn.toolCalls += 1;
      if (turn.toolCalls > LIMITS.toolCallsPerRun) loop.toolsClosed = true;
      let message: ToolMessage;
      try {
        message = loop.toolsClosed ? failure(call, TOOLS_CLOSED) : ownResult(call, await handler(request), loop);
      } catch (error) {
        // It ends the run. Other calls of this step end with it, or the library would put what they throw into one error.
        // A sub-agent that ran out of its time ends nobody else.
        if (!loop.signal.aborted || turn.stop.signal.aborted) turn.stop.abort(unwrap(error));
        throw error;
      }
      loop.messages = [...loop.messages, message];
      noteResult(loop, call, message);
      const update = loop.parent === null ? turn.thread.takeUpdate(rootOf(loop, call.id)) : null;
      return update === null ? message : new Command({ update: { messages: [message], ...update } });
    },
  });

/** Stops this step of the graph: what came meanwhile is put into the checkpoint first, and the model is asked after that (G2). */
function takeInputs({ turn }: Loop, prompts: readonly HumanMessage[]): void {
  const further = furtherInputs(turn, prompts);
  if (further.length > 0) throw new Steered(further);
}

/** What a middleware made of an answer, with an id of ours and calls that meet no earlier ones (G6). The innermost call's own message stays as it is. */
function ownMessage(answer: AIMessage, loop: Loop): AIMessage {
  const { run } = loop.turn;
  const id = `${loop.id}.${run.attempt}.${loop.modelCalls}`;
  const used = callIdsOf(loop.messages);
  const calls = answer.tool_calls ?? [];
  const ids = calls.map((call) => call.id ?? '');
  const areOurs = new Set(ids).size === ids.length && ids.every((one) => one !== '' && one.length <= 128 && !used.has(one));
  if (answer.id === id && areOurs && typeof answer.content === 'string') return answer;
  const known = answer.id !== undefined && loop.messages.every((message) => message.id !== answer.id) ? answer.id : undefined;
  return new AIMessage({
    // Also an answer that no model gave has an id of its own.
    id: known ?? `${id}.m${loop.messages.length}`,
    content: textOf(answer).slice(0, LIMITS.modelReplyChars),
    tool_calls: calls.map(({ name, args }, at) => ({
      id: (areOurs ? ids[at] : undefined) ?? `${id}.m${at}`,
      name,
      args,
      type: 'tool_call' as const,
    })),
    response_metadata: answer.response_metadata,
    ...(answer.usage_metadata === undefined ? {} : { usage_metadata: answer.usage_metadata }),
  });
}

/** What a middleware made of a result: the same call's, bounded, and still untrusted if it was, also when it is a message of the middleware's own. */
function ownResult(call: ToolCall, result: ToolMessage | Command, loop: Loop): ToolMessage {
  if (!ToolMessage.isInstance(result)) return failure(call, 'The tool gave no result.');
  const text = textOf(result);
  const cut = cutResult(text, loop.turn.parts.budget.resultChars);
  const { isForeign = false, calls = [] } = loop.brought.get(call.id) ?? {};
  const isMarked = isForeignResult(result, loop.tools.all);
  const isWhole = (isMarked || !isForeign) && innerCallsOf(result).length >= calls.length;
  if (result.tool_call_id === call.id && result.name === call.name && cut === result.content && isWhole) return result;
  return new ToolMessage({
    tool_call_id: call.id,
    name: call.name,
    content: cut,
    status: result.status === 'error' ? 'error' : 'success',
    ...buildArtifact({ isForeign: isForeign || isMarked, calls: [...new Set([...calls, ...innerCallsOf(result)])] }),
  });
}
