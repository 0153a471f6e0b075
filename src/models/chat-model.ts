/**
 * The library's streaming without what nobody here reads: for each token it joins the answer so far into a new message and tells callback
 * handlers and tracers, of which there are none; and the provider's client below it passes each token through eight async iterators.
 * Here the tokens of one piece of the response (`createModelFetch` collects them) are parsed in one go, and their text becomes one chunk;
 * `readModelStream` does the joining, once.
 */
import { type AIMessageChunk, BaseMessage } from '@langchain/core/messages';
import { ChatOpenAICompletions, OpenAIClient, wrapOpenAIClientError } from '@langchain/openai';
import { isJsonObject } from '../json.ts';
import { createSseReader, type SseEvent } from './read-sse.ts';

type StreamIterator = ChatOpenAICompletions['_streamIterator'];
type Params = OpenAIClient.Chat.ChatCompletionCreateParams;
type StreamingParams = OpenAIClient.Chat.ChatCompletionCreateParamsStreaming;
type NonStreamingParams = OpenAIClient.Chat.ChatCompletionCreateParamsNonStreaming;
type Completion = OpenAIClient.Chat.Completions.ChatCompletion;
type CompletionChunk = OpenAIClient.Chat.Completions.ChatCompletionChunk;
type RequestOptions = OpenAIClient.RequestOptions;

export class ChatModel extends ChatOpenAICompletions {
  override async *_streamIterator(...[input, options]: Parameters<StreamIterator>): AsyncGenerator<AIMessageChunk> {
    if (!isMessages(input) || this.outputVersion === 'v1') {
      yield* super._streamIterator(input, options);
      return;
    }
    const callOptions = { ...options } as this['ParsedCallOptions'];
    for await (const chunk of this._streamResponseChunks(input, callOptions)) {
      callOptions.signal?.throwIfAborted();
      const message = chunk.message as AIMessageChunk;
      message.response_metadata = { ...chunk.generationInfo, ...message.response_metadata };
      yield message;
    }
    callOptions.signal?.throwIfAborted();
  }

  override async completionWithRetry(request: StreamingParams, options?: RequestOptions): Promise<AsyncIterable<CompletionChunk>>;
  override async completionWithRetry(request: NonStreamingParams, options?: RequestOptions): Promise<Completion>;
  override async completionWithRetry(request: Params, options?: RequestOptions): Promise<AsyncIterable<CompletionChunk> | Completion> {
    if (request.stream !== true) return super.completionWithRetry(request as NonStreamingParams, options);
    const { maxRetries, ...rest } = options ?? {};
    const clientOptions = this._getClientOptions(rest as Parameters<typeof this._getClientOptions>[0]);
    return this.caller.callWithOptions({ ...(maxRetries === undefined ? {} : { maxRetries }) }, async () => {
      try {
        return readCompletion(await this.client.chat.completions.create(request, clientOptions).asResponse());
      } catch (error) {
        throw wrapOpenAIClientError(error);
      }
    });
  }
}

const isMessages = (input: unknown): input is BaseMessage[] => Array.isArray(input) && input.every((one) => one instanceof BaseMessage);

/** @throws APIError when the provider reports an error inside the stream. */
async function* readCompletion({ body, headers }: Response): AsyncGenerator<CompletionChunk> {
  if (body === null) throw new OpenAIClient.OpenAIError('the answer has no body');
  const reader = createSseReader();
  // Leaving the loop early cancels the body, and with it the request.
  for await (const piece of body) {
    const { chunks, done, failure } = readEvents(reader.push(piece), headers);
    yield* chunks;
    if (failure !== null) throw failure.error;
    if (done) return;
  }
  const { chunks, failure } = readEvents(reader.end(), headers);
  yield* chunks;
  if (failure !== null) throw failure.error;
}

interface Events {
  readonly chunks: readonly CompletionChunk[];
  readonly done: boolean;
  /** What came before it was said, and counts as said. */
  readonly failure: { readonly error: unknown } | null;
}
function readEvents(events: readonly SseEvent[], headers: Headers): Events {
  const chunks: CompletionChunk[] = [];
  for (const event of events) {
    if (event.data === '[DONE]') return { chunks: joinText(chunks), done: true, failure: null };
    try {
      chunks.push(readEvent(event, headers));
    } catch (error) {
      return { chunks: joinText(chunks), done: false, failure: { error } };
    }
  }
  return { chunks: joinText(chunks), done: false, failure: null };
}

function readEvent({ event, data }: SseEvent, headers: Headers): CompletionChunk {
  const value = parse(data);
  const error = isJsonObject(value) ? value['error'] : undefined;
  if (event === 'error' || error) throw new OpenAIClient.APIError(undefined, (error ?? value) as object, undefined, headers);
  return value as CompletionChunk;
}

function parse(data: string): unknown {
  try {
    return JSON.parse(data);
  } catch {
    // What was received is not repeated: it is content (G12).
    throw new SyntaxError('the stream holds an event that is no JSON');
  }
}

/** Neighbours that say nothing but text become one. The last of a call (`finish_reason`, usage), tool calls and log probabilities stay alone. */
function joinText(chunks: readonly CompletionChunk[]): CompletionChunk[] {
  const joined: CompletionChunk[] = [];
  let into: TextDelta | null = null;
  for (const chunk of chunks) {
    const delta = readTextDelta(chunk);
    if (into !== null && delta !== null && (delta.role == null || delta.role === into.role)) {
      for (const key of TEXT_KEYS) if (delta[key] != null) into[key] = (into[key] ?? '') + delta[key];
    } else {
      joined.push(chunk);
      into = delta;
    }
  }
  return joined;
}

const TEXT_KEYS = ['content', 'reasoning_content'] as const;
interface TextDelta {
  role?: string | null;
  content?: string | null;
  reasoning_content?: string | null;
}

/** Null when the chunk says anything else. */
function readTextDelta(chunk: CompletionChunk): TextDelta | null {
  const choice = chunk?.choices?.[0];
  if (choice == null || chunk.choices.length > 1 || choice.index !== 0 || choice.finish_reason != null) return null;
  if (chunk.usage != null || choice.logprobs != null || !isJsonObject(choice.delta)) return null;
  for (const [key, value] of Object.entries(choice.delta)) {
    const isText = key === 'role' || key === 'content' || key === 'reasoning_content';
    if (value !== null && !(isText && typeof value === 'string')) return null;
  }
  return choice.delta as TextDelta;
}
