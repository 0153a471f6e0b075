/**
 * Folds the chunks of one model call into one message. The library's own `concat` copies everything for each token; text is only appended here.
 * Ids are ours: a server that repeats its completion id would replace an earlier answer in the graph, and one that repeats
 * its call ids would meet the marks of an earlier call (G6). Arguments that are no JSON become a call that is answered with an error.
 */
import { AIMessage, type AIMessageChunk } from '@langchain/core/messages';
import { OracleError, refusal } from '../errors.ts';
import { isJsonObject, type JsonObject, sha256Base64Url } from '../json.ts';
import { LIMITS } from '../limits.ts';

/** Stands in the arguments of a call whose own arguments could not be read; says why. */
export const BAD_ARGUMENTS = '__bad_arguments';

export interface StreamRead {
  readonly id: string;
  /** Call ids that the turn has used. */
  readonly usedCallIds: ReadonlySet<string>;
  readonly onText: (delta: string) => void;
}

interface OpenCall {
  readonly index: number | undefined;
  id: string;
  name: string;
  args: string;
}

export async function readModelStream(chunks: AsyncIterable<AIMessageChunk>, { id, usedCallIds, onText }: StreamRead): Promise<AIMessage> {
  let text = '';
  let chars = 0;
  const calls: OpenCall[] = [];
  let usage: AIMessageChunk['usage_metadata'];
  let modelName: unknown;
  let finishReason: unknown;
  for await (const chunk of chunks) {
    const delta = typeof chunk.content === 'string' ? chunk.content : chunk.text;
    const reasoning = chunk.additional_kwargs['reasoning_content'];
    chars += delta.length + (typeof reasoning === 'string' ? reasoning.length : 0);
    if (delta !== '') {
      text += delta;
      if (chars <= LIMITS.modelReplyChars) onText(delta);
    }
    for (const part of chunk.tool_call_chunks ?? []) {
      chars += part.args?.length ?? 0;
      addCallPart(calls, part);
    }
    if (chars > LIMITS.modelReplyChars)
      throw new OracleError(refusal('MODEL_ERROR', { message: 'The answer of the language model was too long and was cut.' }));
    usage = chunk.usage_metadata ?? usage;
    modelName = chunk.response_metadata['model_name'] ?? modelName;
    finishReason = chunk.response_metadata['finish_reason'] ?? finishReason;
  }
  const taken = new Set(usedCallIds);
  return new AIMessage({
    id,
    content: text,
    tool_calls: calls.map((call, at) => ({
      id: takeCallId(call.id, `${id}.${at}`, taken),
      name: call.name,
      args: readArguments(call.args),
      type: 'tool_call' as const,
    })),
    response_metadata: {
      ...(typeof modelName === 'string' ? { model_name: modelName } : {}),
      ...(typeof finishReason === 'string' ? { finish_reason: finishReason } : {}),
    },
    ...(usage === undefined ? {} : { usage_metadata: usage }),
  });
}

type CallPart = NonNullable<AIMessageChunk['tool_call_chunks']>[number];

function addCallPart(calls: OpenCall[], { index, id, name, args }: CallPart): void {
  const last = calls.at(-1);
  const known = index === undefined ? (id === undefined || id === last?.id ? last : undefined) : calls.find((call) => call.index === index);
  if (known === undefined) {
    calls.push({ index, id: id ?? '', name: name ?? '', args: args ?? '' });
    return;
  }
  known.id = known.id === '' ? (id ?? '') : known.id;
  known.name = known.name === '' ? (name ?? '') : known.name;
  known.args += args ?? '';
}

function takeCallId(given: string, fallback: string, taken: Set<string>): string {
  const plain = given === '' ? fallback : given.length > 128 ? sha256Base64Url(given) : given;
  const id = taken.has(plain) ? fallback : plain;
  taken.add(id);
  return id;
}

function readArguments(text: string): JsonObject {
  if (Buffer.byteLength(text) > LIMITS.toolArgumentsBytes) return { [BAD_ARGUMENTS]: 'the arguments are too large' };
  if (text.trim() === '') return {};
  try {
    const value: unknown = JSON.parse(text);
    if (!isWithin(value, LIMITS.toolArgumentsDepth)) return { [BAD_ARGUMENTS]: 'the arguments are nested too deeply' };
    return isJsonObject(value) ? value : { [BAD_ARGUMENTS]: 'the arguments are not a JSON object' };
  } catch {
    return { [BAD_ARGUMENTS]: 'the arguments are not valid JSON' };
  }
}

const isWithin = (value: unknown, levels: number): boolean =>
  typeof value !== 'object' || value === null || (levels > 0 && Object.values(value).every((inner) => isWithin(inner, levels - 1)));
