/**
 * The library's streaming without what nobody here reads: for each token it joins the answer so far into a new message and tells callback
 * handlers and tracers, of which there are none; and the provider's client below it passes each token through eight async iterators.
 * Here the tokens of one piece of the response (`createModelFetch` collects them) are parsed in one go, and their text becomes one chunk;
 * `readModelStream` does the joining, once. The same place knows when nothing was forwarded yet, so here the models of a role stand in for each
 * other; and what was sent and received, so here usage is estimated when a provider reports none.
 */
import { inspect } from 'node:util';
import { type AIMessageChunk, BaseMessage } from '@langchain/core/messages';
import { ChatOpenAICompletions, type ChatOpenAIFields, OpenAIClient, wrapOpenAIClientError } from '@langchain/openai';
import { isJsonObject } from '../json.ts';
import { mayFallBack } from './read-model-error.ts';
import { createSseReader, type SseEvent } from './read-sse.ts';
import { ESTIMATED, estimateTokens } from './usage.ts';

type StreamIterator = ChatOpenAICompletions['_streamIterator'];
type Params = OpenAIClient.Chat.ChatCompletionCreateParams;
type StreamingParams = OpenAIClient.Chat.ChatCompletionCreateParamsStreaming;
type NonStreamingParams = OpenAIClient.Chat.ChatCompletionCreateParamsNonStreaming;
type Completion = OpenAIClient.Chat.Completions.ChatCompletion;
type CompletionChunk = OpenAIClient.Chat.Completions.ChatCompletionChunk;
type RequestOptions = OpenAIClient.RequestOptions;

/** What a run has to say about calls of its models; absent for the agent's own, which asks before it calls. */
export interface CallHooks {
  /** Throws when the run may not ask. */
  readonly beforeCall?: () => void | Promise<void>;
  /** Once per answered call, also one that broke off; the answer ends when it is done. */
  readonly onUsage?: (usage: CallUsage) => void | Promise<void>;
  /** Stops the call. */
  readonly signal?: AbortSignal;
  /** Masks what must not leave the run. */
  readonly clean?: <T>(value: T) => T;
}
export interface CallUsage {
  /** As the operator named it, also when it answered in another's place. */
  readonly model: string;
  readonly inputTokens: number;
  readonly outputTokens: number;
  /** The provider reported nothing. */
  readonly estimated: boolean;
}
export interface ChatModelFields extends ChatOpenAIFields {
  /** With the provider's prefix, when the operator wrote one. */
  readonly knownAs: string;
  /** Asked in this order when the one before failed and nothing of its answer was forwarded. */
  readonly fallbacks?: readonly ChatModel[];
  readonly hooks?: CallHooks;
  readonly onFallback?: (fallback: { readonly from: string; readonly to: string; readonly error: unknown }) => void;
}

export class ChatModel extends ChatOpenAICompletions {
  readonly knownAs: string;
  readonly #fallbacks: readonly ChatModel[];
  readonly #hooks: CallHooks;
  readonly #onFallback: NonNullable<ChatModelFields['onFallback']>;

  constructor({ knownAs, fallbacks = [], hooks = {}, onFallback = () => undefined, ...fields }: ChatModelFields) {
    super(fields);
    this.knownAs = knownAs;
    this.#fallbacks = fallbacks;
    this.#hooks = hooks;
    this.#onFallback = onFallback;
  }

  /** Its fields hold the operator's key, and whoever looks for a fault prints what is at hand (G12). */
  [inspect.custom](): string {
    return `ChatModel { ${this.knownAs} }`;
  }

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
    const { beforeCall, signal, clean = (value) => value } = this.#hooks;
    await beforeCall?.();
    const asked = { ...request, messages: clean(request.messages) };
    const stopped = options?.signal == null ? signal : signal === undefined ? options.signal : AbortSignal.any([signal, options.signal]);
    const call: RequestOptions = { ...options, ...(stopped === undefined ? {} : { signal: stopped }) };
    return asked.stream === true ? this.#streamAny(asked, call) : this.#completeAny(asked as NonStreamingParams, call);
  }

  async #completeAny(request: NonStreamingParams, options: RequestOptions): Promise<Completion> {
    return this.#tryEach(options, async (target) => {
      const completion = await target.#complete(request, options);
      const usage = completion.usage ?? estimateUsage(request, lengthOf(completion.choices));
      await this.#report(target, usage);
      return { ...completion, usage };
    });
  }

  async *#streamAny(request: StreamingParams, options: RequestOptions): AsyncGenerator<CompletionChunk> {
    const opened = await this.#tryEach(options, async (target) => {
      const chunks = (await target.#stream(request, options))[Symbol.asyncIterator]();
      // What says nothing yet is held back: as long as nothing was forwarded, another model may be asked.
      const held: CompletionChunk[] = [];
      for (;;) {
        const next = await chunks.next();
        if (next.done === true) return { target, chunks, held };
        held.push(next.value);
        if (saysSomething(next.value)) return { target, chunks, held };
      }
    });
    yield* this.#forward(opened, request);
  }

  async *#forward({ target, chunks, held }: OpenedStream, request: StreamingParams): AsyncGenerator<CompletionChunk> {
    let usage: CompletionChunk['usage'];
    let last: CompletionChunk | undefined;
    let chars = 0;
    const note = (chunk: CompletionChunk): CompletionChunk => {
      usage = chunk.usage ?? usage;
      last = chunk;
      chars += lengthOf(chunk.choices);
      return chunk;
    };
    try {
      for (const chunk of held) yield note(chunk);
      for (let next = await chunks.next(); next.done !== true; next = await chunks.next()) yield note(next.value);
      if (usage != null || last === undefined) return;
      const estimated = estimateUsage(request, chars);
      usage = estimated;
      yield { ...last, choices: [], usage: estimated };
    } finally {
      if (last !== undefined) await this.#report(target, usage ?? estimateUsage(request, chars));
      await chunks.return?.();
    }
  }

  async #tryEach<T>(options: RequestOptions, ask: (target: ChatModel) => Promise<T>): Promise<T> {
    const targets = [this, ...this.#fallbacks];
    for (const [at, target] of targets.entries()) {
      try {
        return await ask(target);
      } catch (error) {
        const next = targets[at + 1];
        if (next === undefined || options.signal?.aborted === true || !mayFallBack(error)) throw error;
        this.#onFallback({ from: target.knownAs, to: next.knownAs, error });
      }
    }
    throw new Error('there is always a model to ask');
  }

  async #report(target: ChatModel, usage: NonNullable<Completion['usage']>): Promise<void> {
    await this.#hooks.onUsage?.({
      model: target.knownAs,
      inputTokens: usage.prompt_tokens,
      outputTokens: usage.completion_tokens,
      estimated: ESTIMATED in usage,
    });
  }

  /** The same request under this model's own name, with its own name for the length of the answer. */
  #asOwn<R extends Params>(request: R): R {
    const { max_tokens: _tokens, max_completion_tokens: _completion, ...rest } = request;
    const { max_tokens, max_completion_tokens } = this.invocationParams({} as this['ParsedCallOptions']);
    return {
      ...rest,
      model: this.model,
      ...(max_tokens == null ? {} : { max_tokens }),
      ...(max_completion_tokens == null ? {} : { max_completion_tokens }),
    } as R;
  }

  #complete(request: NonStreamingParams, options: RequestOptions): Promise<Completion> {
    return super.completionWithRetry(this.#asOwn(request), options);
  }

  #stream(request: StreamingParams, options: RequestOptions): Promise<AsyncIterable<CompletionChunk>> {
    const { maxRetries, ...rest } = options;
    const clientOptions = this._getClientOptions(rest as Parameters<typeof this._getClientOptions>[0]);
    return this.caller.callWithOptions({ ...(maxRetries === undefined ? {} : { maxRetries }) }, async () => {
      try {
        return readCompletion(await this.client.chat.completions.create(this.#asOwn(request), clientOptions).asResponse());
      } catch (error) {
        throw wrapOpenAIClientError(error);
      }
    });
  }
}

interface OpenedStream {
  readonly target: ChatModel;
  readonly chunks: AsyncIterator<CompletionChunk>;
  readonly held: readonly CompletionChunk[];
}

/** Text, thoughts or a call: what the reader cannot take back. */
const saysSomething = ({ choices }: CompletionChunk): boolean => lengthOf(choices) > 0;

/** Characters that the model wrote, in chunks or in a whole answer. */
function lengthOf(choices: readonly unknown[] | undefined): number {
  let chars = 0;
  for (const choice of choices ?? []) {
    if (!isJsonObject(choice)) continue;
    const said = choice['delta'] ?? choice['message'];
    if (!isJsonObject(said)) continue;
    for (const field of ['content', 'reasoning_content', 'reasoning', 'refusal']) {
      const text = said[field];
      if (typeof text === 'string') chars += text.length;
    }
    const calls = said['tool_calls'];
    if (Array.isArray(calls) && calls.length > 0) chars += JSON.stringify(calls).length;
  }
  return chars;
}

function estimateUsage({ messages, tools = [] }: Params, chars: number): NonNullable<Completion['usage']> & { readonly [ESTIMATED]: true } {
  const prompt_tokens = estimateTokens(JSON.stringify(messages).length + (tools.length === 0 ? 0 : JSON.stringify(tools).length));
  const completion_tokens = estimateTokens(chars);
  return { prompt_tokens, completion_tokens, total_tokens: prompt_tokens + completion_tokens, [ESTIMATED]: true };
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
