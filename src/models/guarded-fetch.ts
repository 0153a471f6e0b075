/**
 * The agent library has no idle timeout, and it takes a stream that was closed without `finish_reason` for a complete answer
 * (research: a stall hung for ever, a cut answer passed as good). Both are caught here, below it, where bytes are seen as they arrive.
 * Connections are kept: a new TCP and TLS handshake for each model call would cost more than everything else before the first token.
 * On undici's `request`, not its `fetch`: one web stream per answer instead of two, a third less CPU per token below the library. It follows
 * no redirect and asks for no compression, and neither is wanted from a model server.
 */
import { Agent, type Dispatcher } from 'undici';
import type { Clock, Timer } from '../time.ts';

export type ModelStreamProblem = 'idle' | 'cut' | 'too_large';

/** What went wrong with the model's HTTP stream. The library may wrap it; `readModelError` finds it in the chain of causes. */
export class ModelStreamError extends Error {
  override readonly name = 'ModelStreamError';
  readonly problem: ModelStreamProblem;
  constructor(problem: ModelStreamProblem) {
    super(`model stream: ${problem}`);
    this.problem = problem;
  }
}

/** A token costs about 200 bytes on the wire; this is far past any answer that `LIMITS.modelReplyChars` lets through. */
const MAX_RESPONSE_BYTES = 64 * 1024 * 1024;
/** The end of the stream is read for `finish_reason` or `[DONE]`; a usage chunk with many details may follow the former. */
const TAIL_BYTES = 8 * 1024;
const KEEP_ALIVE_MS = 30_000;
const MAX_CONNECTIONS = 256;

export interface GuardedFetchOptions {
  readonly clock: Clock;
  /** No byte for so long, headers included, ends the call. */
  readonly idleTimeoutMs: number;
}
export interface GuardedFetch {
  readonly fetch: typeof fetch;
  /** Closes kept connections. */
  close(): Promise<void>;
}

export function createGuardedFetch({ clock, idleTimeoutMs }: GuardedFetchOptions): GuardedFetch {
  // Our own timers judge silence; undici's would only fire with another error.
  const dispatcher = new Agent({ connections: MAX_CONNECTIONS, keepAliveTimeout: KEEP_ALIVE_MS, headersTimeout: 0, bodyTimeout: 0 });
  const guarded = async (input: unknown, init?: RequestInit): Promise<Response> => {
    const stop = new AbortController();
    const signal = init?.signal ? AbortSignal.any([stop.signal, init.signal]) : stop.signal;
    const waiting = clock.after(idleTimeoutMs, () => stop.abort(new ModelStreamError('idle')));
    try {
      const { statusCode, headers, body } = await dispatcher.request(buildRequest(input, init, signal));
      const answered = { status: statusCode, headers: buildHeaders(headers) };
      // These have no body, and `Response` refuses one.
      if (statusCode === 204 || statusCode === 205 || statusCode === 304) {
        await body.dump();
        return new Response(null, answered);
      }
      const isStream = answered.headers.get('content-type')?.includes('event-stream') === true;
      return new Response(guardBody(body, { clock, idleTimeoutMs, stop, isStream }), answered);
    } catch (error) {
      if (signal.aborted) throw signal.reason;
      // As the fetch of the platform says it: the library looks for this.
      throw new TypeError('fetch failed', { cause: error });
    } finally {
      waiting.cancel();
    }
  };
  return { fetch: guarded as typeof fetch, close: () => dispatcher.destroy() };
}

function buildRequest(input: unknown, init: RequestInit | undefined, signal: AbortSignal): Dispatcher.RequestOptions {
  const url = new URL(input instanceof Request ? input.url : String(input));
  return {
    origin: url.origin,
    path: `${url.pathname}${url.search}`,
    method: (init?.method ?? 'GET') as Dispatcher.HttpMethod,
    headers: Object.fromEntries(new Headers(init?.headers)),
    body: (init?.body ?? null) as NonNullable<Dispatcher.RequestOptions['body']> | null,
    signal,
  };
}

function buildHeaders(headers: Readonly<Record<string, string | string[] | undefined>>): Headers {
  const built = new Headers();
  for (const [name, values] of Object.entries(headers)) for (const value of [values ?? []].flat()) built.append(name, value);
  return built;
}

interface BodyGuard {
  readonly clock: Clock;
  readonly idleTimeoutMs: number;
  readonly stop: AbortController;
  readonly isStream: boolean;
}

function guardBody(source: AsyncIterable<Uint8Array>, { clock, idleTimeoutMs, stop, isStream }: BodyGuard): ReadableStream<Uint8Array> {
  const reader = source[Symbol.asyncIterator]();
  let tail: Uint8Array[] = [];
  let tailBytes = 0;
  let bytes = 0;
  /** Null while nobody waits for a chunk: a slow reader is not a silent model. */
  let waitingSince: number | null = null;
  let timer: Timer | undefined;
  let ended = false;
  // One timer that looks again, instead of one per chunk: there are thousands of chunks.
  const watch = (delayMs: number, controller: ReadableStreamDefaultController<Uint8Array>): void => {
    timer = clock.after(delayMs, () => {
      const silentMs = waitingSince === null ? 0 : clock.monotonic() - waitingSince;
      if (silentMs < idleTimeoutMs) return watch(idleTimeoutMs - silentMs, controller);
      fail(new ModelStreamError('idle'), controller);
    });
  };
  const end = (): boolean => {
    const first = !ended;
    ended = true;
    timer?.cancel();
    return first;
  };
  const fail = (error: unknown, controller: ReadableStreamDefaultController<Uint8Array>): void => {
    if (!end()) return;
    controller.error(error);
    stop.abort(error);
  };
  const keepTail = (chunk: Uint8Array): void => {
    tail.push(chunk);
    tailBytes += chunk.byteLength;
    while (tail.length > 1 && tailBytes - (tail[0]?.byteLength ?? 0) >= TAIL_BYTES) tailBytes -= tail.shift()?.byteLength ?? 0;
  };
  return new ReadableStream<Uint8Array>(
    {
      start: (controller) => watch(idleTimeoutMs, controller),
      async pull(controller) {
        waitingSince = clock.monotonic();
        try {
          const { done, value } = await reader.next();
          waitingSince = null;
          if (ended) return;
          if (done) {
            if (isStream && !isWhole(tail)) return fail(new ModelStreamError('cut'), controller);
            end();
            return controller.close();
          }
          bytes += value.byteLength;
          if (bytes > MAX_RESPONSE_BYTES) return fail(new ModelStreamError('too_large'), controller);
          if (isStream) keepTail(value);
          controller.enqueue(value);
        } catch (error) {
          fail(error, controller);
        }
      },
      async cancel(reason) {
        if (!end()) return;
        tail = [];
        stop.abort(reason);
        await reader.return?.().catch(() => undefined);
      },
    },
    { highWaterMark: 0 },
  );
}

/** Quotes inside a JSON string are escaped, so neither pattern can be met by what the model says. */
function isWhole(tail: readonly Uint8Array[]): boolean {
  const text = Buffer.concat(tail).toString('utf8');
  return /^data:\s*\[DONE\]\s*$/mu.test(text) || /"finish_reason":\s*"/u.test(text);
}
