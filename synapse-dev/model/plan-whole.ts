/**
 * The same replies for a request without `stream: true`: one JSON body. Pace has no meaning here; gates, waits, stalls and failures
 * have, because a summary or a title is asked for this way and must be cancellable and fallible as well.
 */
import type { JsonObject } from '../../src/json.ts';
import { assertNever } from '../../src/result.ts';
import { type AnswerFacts, argumentsText, buildUsage, planStatus, type StreamStep } from './plan-stream.ts';
import { type GateInternals, type Reply, type ReplyText, type ScriptedToolCall, splitText } from './reply.ts';

export function planWhole(reply: Reply, answer: AnswerFacts): StreamStep[] {
  switch (reply.kind) {
    case 'text':
    case 'toolCalls':
      return [
        ...(reply.holds ?? []).map((hold): StreamStep => ({ kind: 'gate', gate: hold.gate as GateInternals })),
        buildJson(reply, answer),
      ];
    case 'stall':
      return reply.forMs === undefined ? [{ kind: 'stall' }] : [{ kind: 'wait', ms: reply.forMs }, buildJson(reply, answer)];
    case 'errorMidStream':
      return reply.how === 'sse_error' ? [planStatus({ status: 500 })] : [{ kind: 'reset' }];
    case 'cut':
      return [{ kind: 'reset' }];
    case 'status':
      return [planStatus(reply)];
    case 'empty':
      return [reply.how === 'no_text' ? buildJson({}, answer) : { kind: 'json', body: { ...completion(answer), choices: [] } }];
    case 'slowHeaders':
      return [{ kind: 'wait', ms: reply.delayMs }, ...planWhole(reply.reply, answer)];
    case 'splitUtf8':
      return [buildJson(reply, answer)];
    default:
      return assertNever(reply);
  }
}

interface WholeParts {
  readonly text?: ReplyText;
  readonly reasoning?: string;
  readonly calls?: readonly ScriptedToolCall[];
  readonly finishReason?: string;
  readonly withoutUsage?: true;
}

const completion = (answer: AnswerFacts): JsonObject => ({
  id: answer.id,
  object: 'chat.completion',
  created: answer.created,
  model: answer.model,
  service_tier: 'default',
  system_fingerprint: 'fp_matrix_oracle',
});

function buildJson(parts: WholeParts, answer: AnswerFacts): StreamStep {
  const calls = parts.calls ?? [];
  const text = parts.text === undefined ? undefined : splitText(parts.text, 'instant');
  const tokens = (text?.length ?? 0) + calls.length;
  const message: JsonObject = { role: 'assistant', content: text?.join('') ?? (calls.length > 0 ? null : ''), refusal: null };
  if (parts.reasoning !== undefined) message['reasoning_content'] = parts.reasoning;
  if (calls.length > 0) {
    message['tool_calls'] = calls.map((call) => ({
      id: call.id ?? answer.newCallId(),
      type: 'function',
      function: { name: call.name, arguments: argumentsText(call) },
    }));
  }
  const finish = calls.length > 0 ? 'tool_calls' : (parts.finishReason ?? 'stop');
  const choices = [{ index: 0, message, logprobs: null, finish_reason: finish }];
  const usage = parts.withoutUsage === true ? {} : { usage: { ...buildUsage(answer.promptTokens, tokens) } };
  return { kind: 'json', body: { ...completion(answer), choices, ...usage } };
}
