/**
 * The agent library has no idle timeout, and it takes a stream that was closed without `finish_reason` for a complete answer
 * (research: a stall hung for ever, a cut answer passed as good). Both are caught here, below it, where bytes are seen as they arrive.
 * Connections are kept: a new TCP and TLS handshake for each model call would cost more than everything else before the first token.
 * On undici's `dispatch`, not its `fetch`: tokens are collected below all streams and handed up a few dozen times a second, because one wake-up
 * of everything above costs more than the parsing of ten tokens. The first piece and the end never wait. It follows no redirect and asks for
 * no compression, and neither is wanted from a model server.
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
/** Pieces of a stream are handed up so far apart. The frame log writes a piece at once when its last one is as old, so this is no second wait. */
const WINDOW_MS = 48;
/** A window ends early when so much has come. */
const FULL_BYTES = 64 * 1024;
/** With so much unread the socket is left alone until somebody reads. */
const PAUSE_BYTES = 1024 * 1024;
/** The response of a finished answer has so long to end. */
const LAST_BYTES_MS = 500;
const KEEP_ALIVE_MS = 30_000;
const MAX_CONNECTIONS = 256;

export interface ModelFetchOptions {
  readonly clock: Clock;
  /** No byte for so long, headers included, ends the call. */
  readonly idleTimeoutMs: number;
}
export interface ModelFetch {
  readonly fetch: typeof fetch;
  /** Closes kept connections. */
  close(): Promise<void>;
}

export function createModelFetch({ clock, idleTimeoutMs }: ModelFetchOptions): ModelFetch {
  // Our own timers judge silence; undici's would only fire with another error.
  const dispatcher = new Agent({ connections: MAX_CONNECTIONS, keepAliveTimeout: KEEP_ALIVE_MS, headersTimeout: 0, bodyTimeout: 0 });
  // `async`: what is wrong with the request itself rejects, too.
  const watched = async (input: unknown, init?: RequestInit): Promise<Response> => {
    init?.signal?.throwIfAborted();
    const request = buildRequest(input, init);
    return new Promise((resolve, reject) =>
      dispatcher.dispatch(request, createExchange({ clock, idleTimeoutMs, signal: init?.signal ?? null, resolve, reject })),
    );
  };
  return { fetch: watched as typeof fetch, close: () => dispatcher.destroy() };
}

function buildRequest(input: unknown, init: RequestInit | undefined): Dispatcher.DispatchOptions {
  const url = new URL(input instanceof Request ? input.url : String(input));
  return {
    origin: url.origin,
    path: `${url.pathname}${url.search}`,
    method: (init?.method ?? 'GET') as Dispatcher.HttpMethod,
    headers: Object.fromEntries(new Headers(init?.headers)),
    body: (init?.body ?? null) as NonNullable<Dispatcher.DispatchOptions['body']> | null,
  };
}

function buildHeaders(headers: Readonly<Record<string, string | string[] | undefined>>): Headers {
  const built = new Headers();
  for (const [name, values] of Object.entries(headers)) for (const value of [values ?? []].flat()) built.append(name, value);
  return built;
}

interface ExchangeOptions extends ModelFetchOptions {
  readonly signal: AbortSignal | null;
  readonly resolve: (response: Response) => void;
  readonly reject: (error: unknown) => void;
}

/** One request and its answer. Bytes wait here until somebody asks for them and their window is over. */
function createExchange({ clock, idleTimeoutMs, signal, resolve, reject }: ExchangeOptions): Dispatcher.DispatchHandler {
  let connection: Dispatcher.DispatchController | null = null;
  let out: ReadableStreamDefaultController<Uint8Array> | null = null;
  let isStream = false;
  /** Nothing further is heard from the connection: its answer is complete, or it failed. */
  let over = false;
  /** Maybe; the model may speak of [DONE], too. */
  let said = false;
  /** Told to the reader after the bytes before it. */
  let failure: { readonly error: unknown } | null = null;
  let held: Buffer[] = [];
  let heldBytes = 0;
  let bytes = 0;
  const tail: Buffer[] = [];
  let tailBytes = 0;
  /** Settles the reader's request for the next piece. */
  let asked: (() => void) | null = null;
  let givenAt = Number.NEGATIVE_INFINITY;
  let window: Timer | null = null;
  let heardAt = clock.monotonic();

  // One timer that looks again, instead of one per chunk: there are thousands of chunks.
  let idle = clock.after(idleTimeoutMs, judge);
  function judge(): void {
    // A slow reader is not a silent model.
    const silentMs = connection?.paused ? 0 : clock.monotonic() - heardAt;
    if (silentMs >= idleTimeoutMs) fail(new ModelStreamError('idle'));
    else idle = clock.after(idleTimeoutMs - silentMs, judge);
  }

  function end(): boolean {
    if (over) return false;
    over = true;
    idle.cancel();
    signal?.removeEventListener('abort', onAbort);
    return true;
  }

  function fail(error: unknown): void {
    if (!end()) return;
    failure = { error };
    if (out === null) reject(error);
    connection?.abort(error instanceof Error ? error : new Error('the request was given up', { cause: error }));
    give();
  }

  function onAbort(): void {
    held = [];
    fail(signal?.reason);
  }
  signal?.addEventListener('abort', onAbort);

  /** Gives the reader what it asked for, as soon as that is due. */
  function give(): void {
    if (asked === null || out === null) return;
    if (held.length === 0 && !over) return;
    const waitMs = held.length === 0 || !isStream || over || heldBytes >= FULL_BYTES ? 0 : givenAt + WINDOW_MS - clock.monotonic();
    if (waitMs > 0) {
      window ??= clock.after(waitMs, () => {
        window = null;
        give();
      });
      return;
    }
    window?.cancel();
    window = null;
    const given = asked;
    asked = null;
    if (held.length > 0) out.enqueue(takeHeld());
    else if (failure !== null) out.error(failure.error);
    else out.close();
    given();
    if (!over && connection?.paused) {
      heardAt = clock.monotonic();
      connection.resume();
    }
  }

  function takeHeld(): Buffer {
    const [first] = held;
    const piece = held.length === 1 && first !== undefined ? first : Buffer.concat(held);
    held = [];
    heldBytes = 0;
    givenAt = clock.monotonic();
    return piece;
  }

  function keepTail(chunk: Buffer): void {
    tail.push(chunk);
    tailBytes += chunk.byteLength;
    while (tail.length > 1 && tailBytes - (tail[0]?.byteLength ?? 0) >= TAIL_BYTES) tailBytes -= tail.shift()?.byteLength ?? 0;
  }

  const body = (): ReadableStream<Uint8Array> =>
    new ReadableStream<Uint8Array>(
      {
        start(controller) {
          out = controller;
        },
        pull: () =>
          new Promise<void>((done) => {
            asked = done;
            give();
          }),
        cancel(reason) {
          held = [];
          asked = null;
          window?.cancel();
          const unwanted = reason instanceof Error ? reason : new Error('the answer is no longer wanted', { cause: reason });
          if (over) return;
          if (!said) return fail(unwanted);
          // All was said: with the last bytes of the response still to come, the connection can serve the next call.
          out = null;
          idle.cancel();
          idle = clock.after(LAST_BYTES_MS, () => fail(unwanted));
          connection?.resume();
        },
      },
      { highWaterMark: 0 },
    );

  return {
    onRequestStart(controller) {
      connection = controller;
      if (over) controller.abort(new Error('the request was given up', { cause: failure?.error }));
    },
    onResponseStart(_controller, status, headers) {
      heardAt = clock.monotonic();
      if (status < 200 || over) return;
      const answered = { status, headers: buildHeaders(headers) };
      isStream = answered.headers.get('content-type')?.includes('event-stream') === true;
      // These have no body, and `Response` refuses one.
      const empty = status === 204 || status === 205 || status === 304;
      resolve(new Response(empty ? null : body(), answered));
    },
    onResponseData(controller, chunk) {
      if (over) return;
      heardAt = clock.monotonic();
      bytes += chunk.byteLength;
      if (bytes > MAX_RESPONSE_BYTES) return fail(new ModelStreamError('too_large'));
      if (isStream) keepTail(chunk);
      // What nobody can read is let go: an answer without a body.
      if (out === null) return;
      held.push(chunk);
      heldBytes += chunk.byteLength;
      // The end is not to wait, also when the server keeps the connection open after it.
      if (isStream && chunk.includes('[DONE]')) {
        said = true;
        givenAt = Number.NEGATIVE_INFINITY;
      }
      give();
      if (heldBytes >= PAUSE_BYTES && !controller.paused) controller.pause();
    },
    onResponseEnd() {
      if (isStream && !over && !isWhole(tail)) return fail(new ModelStreamError('cut'));
      end();
      give();
    },
    onResponseError(_controller, error) {
      // As the fetch of the platform says it: the library looks for this.
      fail(out === null ? new TypeError('fetch failed', { cause: error }) : error);
    },
  };
}

/** Quotes inside a JSON string are escaped, so neither pattern can be met by what the model says. */
function isWhole(tail: readonly Buffer[]): boolean {
  const text = Buffer.concat(tail).toString('utf8');
  return /^data:\s*\[DONE\]\s*$/mu.test(text) || /"finish_reason":\s*"[^"]/u.test(text);
}
