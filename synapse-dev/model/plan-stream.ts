/**
 * Turns a reply into the steps that the wire will see, byte for byte as OpenAI sends them: role first, pieces, `finish_reason`, usage
 * in a chunk of its own, `[DONE]`. Pure, so that what a failing provider does is decided in one place and can be read in a test.
 * Cost: the envelope of a chunk is encoded once per answer, a piece costs one JSON string.
 */
import type { JsonObject } from '../../src/json.ts';
import { assertNever } from '../../src/result.ts';
import type { ApiError } from './chat-request.ts';
import {
  type GateInternals,
  type Hold,
  type Pace,
  pieceDelayMs,
  type Reply,
  type ReplyText,
  type ScriptedToolCall,
  splitIntoTokens,
  splitText,
} from './reply.ts';

/** What one answer has that no other has. */
export interface AnswerFacts {
  /** Unique per answer: the agent library replaces an older answer of the same id in place and loses the new one. */
  readonly id: string;
  readonly created: number;
  readonly model: string;
  readonly promptTokens: number;
  readonly includeUsage: boolean;
  /** Pace of replies that have none of their own. */
  readonly pace: Pace;
  newCallId(): string;
}

export type StreamStep =
  /** Status and headers of the stream go out. */
  | { readonly kind: 'head' }
  /** One piece of the answer; the player waits `delayMs` after the piece before. */
  | { readonly kind: 'piece'; readonly data: string; readonly delayMs: number }
  /** Frames that follow at once. */
  | { readonly kind: 'frame'; readonly data: string }
  /** Bytes with a write boundary before and after them. */
  | { readonly kind: 'bytes'; readonly data: Buffer }
  | { readonly kind: 'wait'; readonly ms: number }
  | { readonly kind: 'gate'; readonly gate: GateInternals }
  /** Nothing more, with the connection open. */
  | { readonly kind: 'stall' }
  | { readonly kind: 'error'; readonly status: number; readonly error: ApiError; readonly retryAfterS?: number }
  /** A whole answer as JSON, where no stream was asked for. */
  | { readonly kind: 'json'; readonly body: JsonObject }
  | { readonly kind: 'reset' }
  /** Ends the response; `cut` when the answer is not complete. */
  | { readonly kind: 'end'; readonly as: 'completed' | 'cut' };

const DONE = 'data: [DONE]\n\n';

/** Token counts are pieces and a quarter of the characters: stable numbers, not a tokenizer. */
export interface Usage {
  readonly prompt_tokens: number;
  readonly completion_tokens: number;
  readonly total_tokens: number;
  readonly prompt_tokens_details: { readonly cached_tokens: number };
  readonly completion_tokens_details: { readonly reasoning_tokens: number };
}

export const buildUsage = (promptTokens: number, completionTokens: number, reasoningTokens = 0): Usage => ({
  prompt_tokens: promptTokens,
  completion_tokens: completionTokens,
  total_tokens: promptTokens + completionTokens,
  prompt_tokens_details: { cached_tokens: 0 },
  completion_tokens_details: { reasoning_tokens: reasoningTokens },
});

/** Encodes the frames of one answer. */
function createFrames(answer: AnswerFacts) {
  const envelope = JSON.stringify({
    id: answer.id,
    object: 'chat.completion.chunk',
    created: answer.created,
    model: answer.model,
    service_tier: 'default',
    system_fingerprint: 'fp_matrix_oracle',
  }).slice(0, -1);
  const tail = answer.includeUsage ? ',"usage":null}\n\n' : '}\n\n';
  const choice = (delta: string, finish: string) =>
    `data: ${envelope},"choices":[{"index":0,"delta":${delta},"logprobs":null,"finish_reason":${finish}}]${tail}`;
  const pieceHead = `data: ${envelope},"choices":[{"index":0,"delta":{"content":`;
  const pieceTail = `},"logprobs":null,"finish_reason":null}]${tail}`;
  return {
    role: (content: '' | null) => choice(JSON.stringify({ role: 'assistant', content, refusal: null }), 'null'),
    text: (piece: string) => pieceHead + JSON.stringify(piece) + pieceTail,
    reasoning: (piece: string) => choice(JSON.stringify({ reasoning_content: piece }), 'null'),
    callStart: (index: number, id: string, name: string) =>
      choice(JSON.stringify({ tool_calls: [{ index, id, type: 'function', function: { name, arguments: '' } }] }), 'null'),
    callArguments: (index: number, piece: string) =>
      choice(JSON.stringify({ tool_calls: [{ index, function: { arguments: piece } }] }), 'null'),
    finish: (reason: string) => choice('{}', JSON.stringify(reason)),
    usage: (usage: Usage) => (answer.includeUsage ? `data: ${envelope},"choices":[],"usage":${JSON.stringify(usage)}}\n\n` : ''),
    error: (error: ApiError) => `data: ${JSON.stringify({ error })}\n\n`,
  };
}

export function planStream(reply: Reply, answer: AnswerFacts): StreamStep[] {
  switch (reply.kind) {
    case 'text':
      return planAnswer(reply, answer);
    case 'toolCalls':
      return planAnswer(reply, answer);
    case 'stall': {
      const steps = planAnswer({ text: reply.text, ...(reply.pace === undefined ? {} : { pace: reply.pace }) }, answer);
      const at = indexOfPiece(steps, reply.afterChunks);
      return reply.forMs === undefined
        ? [...steps.slice(0, at), { kind: 'stall' }]
        : [...steps.slice(0, at), ...planSilence(reply.forMs, reply.keepAliveMs ?? reply.forMs), ...steps.slice(at)];
    }
    case 'errorMidStream': {
      const begun = planBegun(reply, answer, 0.6);
      if (reply.how === 'sse_error')
        return [...begun, { kind: 'frame', data: createFrames(answer).error(statusError({ status: 500 })) }, { kind: 'end', as: 'cut' }];
      return [...begun, ...(reply.how === 'reset' ? [] : planHalfPiece(reply, answer, begun.length)), { kind: 'reset' }];
    }
    case 'cut':
      return [...planBegun(reply, answer, 1), { kind: 'end', as: 'cut' }];
    case 'status':
      return [planStatus(reply)];
    case 'empty':
      return planEmpty(reply.how, answer);
    case 'slowHeaders':
      return [{ kind: 'wait', ms: reply.delayMs }, ...planStream(reply.reply, answer)];
    case 'splitUtf8':
      return planTorn(reply.text, answer);
    default:
      return assertNever(reply);
  }
}

interface AnswerParts {
  readonly text?: ReplyText;
  readonly reasoning?: string;
  readonly calls?: readonly ScriptedToolCall[];
  readonly pace?: Pace;
  readonly holds?: readonly Hold[];
  readonly finishReason?: string;
  readonly withoutUsage?: true;
}

function planAnswer(parts: AnswerParts, answer: AnswerFacts): StreamStep[] {
  const frames = createFrames(answer);
  const pace = parts.pace ?? answer.pace;
  const delayMs = pieceDelayMs(pace);
  const calls = parts.calls ?? [];
  const reasoning = parts.reasoning === undefined ? [] : splitText(parts.reasoning, pace);
  const data: string[] = reasoning.map((piece) => frames.reasoning(piece));
  for (const piece of parts.text === undefined ? [] : splitText(parts.text, pace)) data.push(frames.text(piece));
  for (const [index, call] of calls.entries()) {
    data.push(frames.callStart(index, call.id ?? answer.newCallId(), call.name));
    for (const piece of splitIntoTokens(argumentsText(call))) data.push(frames.callArguments(index, piece));
  }
  const steps: StreamStep[] = [
    ...holdsAt(parts.holds, 'headers'),
    { kind: 'head' },
    { kind: 'frame', data: frames.role(calls.length > 0 && parts.text === undefined ? null : '') },
  ];
  for (const [index, piece] of data.entries()) steps.push(...holdsAt(parts.holds, index), { kind: 'piece', data: piece, delayMs });
  for (const hold of parts.holds ?? []) {
    if (typeof hold.before === 'number' && hold.before >= data.length) steps.push({ kind: 'gate', gate: hold.gate as GateInternals });
  }
  const finish = calls.length > 0 ? 'tool_calls' : (parts.finishReason ?? 'stop');
  const usage = parts.withoutUsage === true ? '' : frames.usage(buildUsage(answer.promptTokens, data.length, reasoning.length));
  steps.push({ kind: 'frame', data: frames.finish(finish) + usage + DONE }, { kind: 'end', as: 'completed' });
  return steps;
}

const holdsAt = (holds: readonly Hold[] | undefined, place: Hold['before']): StreamStep[] =>
  holds === undefined
    ? []
    : holds.filter((hold) => hold.before === place).map((hold) => ({ kind: 'gate', gate: hold.gate as GateInternals }));

export const argumentsText = (call: ScriptedToolCall): string => (typeof call.args === 'string' ? call.args : JSON.stringify(call.args));

/** The steps of an answer up to a fraction of its pieces, at least one piece short of the end unless the fraction is 1. */
function planBegun(reply: { text: ReplyText; fraction?: number; pace?: Pace }, answer: AnswerFacts, usual: number): StreamStep[] {
  const steps = planAnswer({ text: reply.text, ...(reply.pace === undefined ? {} : { pace: reply.pace }) }, answer);
  const pieces = steps.filter((step) => step.kind === 'piece').length;
  return steps.slice(0, indexOfPiece(steps, Math.floor(pieces * (reply.fraction ?? usual))));
}

/** The wait before each comment; none after the last wait. */
const planSilence = (ms: number, everyMs: number): StreamStep[] =>
  ms <= everyMs
    ? [{ kind: 'wait', ms }]
    : [{ kind: 'wait', ms: everyMs }, { kind: 'frame', data: ': keep-alive\n\n' }, ...planSilence(ms - everyMs, everyMs)];

/** The piece that comes at this step, cut behind the first byte of its last character of many bytes, or in its middle. */
function planHalfPiece(reply: { text: ReplyText; pace?: Pace }, answer: AnswerFacts, at: number): StreamStep[] {
  const next = planAnswer({ text: reply.text, ...(reply.pace === undefined ? {} : { pace: reply.pace }) }, answer)[at];
  if (next?.kind !== 'piece') return [];
  const bytes = Buffer.from(next.data);
  const torn = bytes.findLastIndex((byte) => byte >= 0xc0) + 1;
  return [{ kind: 'bytes', data: bytes.subarray(0, torn === 0 ? Math.floor(bytes.length / 2) : torn) }];
}

/** Where the piece with this number stands, or the place behind the last piece. */
function indexOfPiece(steps: readonly StreamStep[], number: number): number {
  let seen = 0;
  for (const [index, step] of steps.entries()) {
    if (step.kind !== 'piece') continue;
    if (seen === number) return index;
    seen += 1;
  }
  return steps.findLastIndex((step) => step.kind === 'piece' || step.kind === 'head') + 1;
}

function planEmpty(how: 'no_body' | 'only_done' | 'no_text', answer: AnswerFacts): StreamStep[] {
  switch (how) {
    case 'no_body':
      return [{ kind: 'head' }, { kind: 'end', as: 'cut' }];
    case 'only_done':
      return [{ kind: 'head' }, { kind: 'frame', data: DONE }, { kind: 'end', as: 'completed' }];
    case 'no_text':
      return planAnswer({}, answer);
    default:
      return assertNever(how);
  }
}

/** Cuts behind the first byte of every character that has more than one. */
function planTorn(text: ReplyText, answer: AnswerFacts): StreamStep[] {
  return planAnswer({ text, pace: 'instant' }, answer).flatMap((step): StreamStep[] => {
    if (step.kind !== 'piece') return [step];
    const bytes = Buffer.from(step.data);
    const parts: StreamStep[] = [];
    let from = 0;
    for (let at = 1; at < bytes.length; at += 1) {
      const isFirstOfMany = (bytes[at - 1] ?? 0) >= 0xc0;
      if (!isFirstOfMany) continue;
      parts.push({ kind: 'bytes', data: bytes.subarray(from, at) });
      from = at;
    }
    return [...parts, { kind: 'bytes', data: bytes.subarray(from) }];
  });
}

export function planStatus(reply: {
  status: number;
  message?: string;
  type?: string;
  code?: string;
  retryAfterS?: number;
}): Extract<StreamStep, { kind: 'error' }> {
  return {
    kind: 'error',
    status: reply.status,
    error: statusError(reply),
    ...(reply.retryAfterS === undefined ? {} : { retryAfterS: reply.retryAfterS }),
  };
}

/** The provider's usual body for a status. */
export function statusError(reply: { status: number; message?: string; type?: string; code?: string }): ApiError {
  const usual = USUAL_ERRORS[reply.status] ?? (reply.status >= 500 ? SERVER_ERROR : REQUEST_ERROR);
  return { message: reply.message ?? usual.message, type: reply.type ?? usual.type, param: null, code: reply.code ?? usual.code };
}

const SERVER_ERROR: ApiError = {
  message: 'The server had an error while processing your request. Sorry about that!',
  type: 'server_error',
  param: null,
  code: null,
};
const REQUEST_ERROR: ApiError = { message: 'The request is not valid.', type: 'invalid_request_error', param: null, code: null };
const USUAL_ERRORS: Readonly<Record<number, ApiError>> = {
  401: { message: 'Incorrect API key provided.', type: 'invalid_request_error', param: null, code: 'invalid_api_key' },
  404: {
    message: 'The model does not exist or you do not have access to it.',
    type: 'invalid_request_error',
    param: null,
    code: 'model_not_found',
  },
  429: { message: 'Rate limit reached for requests. Please try again later.', type: 'requests', param: null, code: 'rate_limit_exceeded' },
  503: { message: 'The engine is currently overloaded, please try again later.', type: 'server_error', param: null, code: 'overloaded' },
};
