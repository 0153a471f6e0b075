/**
 * `MatrixApi` on matrix-bot-sdk's `doRequest` (DESIGN §9: its own `send*` make txn ids and are forbidden). The SDK asserts the device under
 * a name that Synapse ignores, returns non-JSON answers as if they were values, and leaves sockets to a deprecated library; our request
 * function puts that right. Without the device, a retry after a Synapse restart is a second message (G4, research/synapse.md §4).
 * Loading the SDK costs about 0.4 s and 39 MiB: create the connection after listening.
 */
import { type Dispatcher, errors, Pool } from 'undici';
import { isJsonObject } from '../src/json.ts';
import { LIMITS } from '../src/limits.ts';
import type { Clock } from '../src/time.ts';
import {
  type MatrixApi,
  type MatrixConnection,
  MatrixError,
  type MatrixErrorFacts,
  type MatrixIdentity,
  type MatrixMethod,
  type MatrixRequest,
} from './matrix-api.ts';

export interface ConnectMatrixOptions {
  /** Client-server API, without `/_matrix`; a path prefix is kept. */
  readonly baseUrl: string;
  readonly asToken: string;
  readonly clock: Clock;
}

/** Enough for all lanes of the sender beside look-ups and one long poll. */
const CONNECTIONS = 32;
/** Below the homeserver's and any proxy's own (60 s and more), so that a socket is rarely closed under a request. */
const KEEP_ALIVE_MS = 20_000;
const CONNECT_TIMEOUT_MS = 10_000;

export async function connectMatrix({ baseUrl, asToken, clock }: ConnectMatrixOptions): Promise<MatrixConnection> {
  const { LogService, MatrixClient, setRequestFn } = await import('matrix-bot-sdk');
  // It logs to the console, and every failed request at error level; ours are typed values that the caller logs once.
  LogService.setLogger(SILENT);
  setRequestFn(requestThroughPool);

  const url = new URL(baseUrl);
  const pool = new Pool(url.origin, {
    connections: CONNECTIONS,
    pipelining: 1,
    keepAliveTimeout: KEEP_ALIVE_MS,
    keepAliveMaxTimeout: KEEP_ALIVE_MS,
    connect: { timeout: CONNECT_TIMEOUT_MS },
  });
  const closedListeners: (() => void)[] = [];
  pool.on('disconnect', (_origin, _targets, error) => {
    if (isLostSocket(error)) for (const listener of closedListeners) listener();
  });
  const prefix = url.origin + url.pathname.replace(/\/+$/u, '');

  const createApi = (identity: MatrixIdentity | null): MatrixApi => {
    const client = new MatrixClient(prefix, asToken);
    if (identity !== null) client.impersonateUserId(identity.userId, identity.deviceId);
    return {
      async request<T extends object>(
        method: MatrixMethod,
        path: string,
        { query, body, contentType, bytesUpTo, timeoutMs = LIMITS.matrixTimeoutMs, signal }: MatrixRequest = {},
      ) {
        // The SDK hands this very object on to the request function: the way to give it what its signature has no room for.
        const qs: CarriedQuery = { ...query, [CALL]: { pool, clock, timeoutMs, signal, bytesUpTo } };
        return (await client.doRequest(method, path, qs, body ?? null, timeoutMs, false, contentType)) as T;
      },
    };
  };
  const apis = new Map<string, MatrixApi>();
  return {
    bare: createApi(null),
    as(identity) {
      const key = `${identity.userId} ${identity.deviceId ?? ''}`;
      const api = apis.get(key) ?? createApi(identity);
      apis.set(key, api);
      return api;
    },
    onClosed: (listener) => void closedListeners.push(listener),
    close: () => pool.destroy(),
  };
}

const silent = () => {};
const SILENT = { info: silent, warn: silent, error: silent, debug: silent, trace: silent };

interface Call {
  readonly pool: Pool;
  readonly clock: Clock;
  readonly timeoutMs: number;
  readonly signal: AbortSignal | undefined;
  readonly bytesUpTo: number | undefined;
}
const CALL = Symbol('call');
type CarriedQuery = { [name: string]: unknown; [CALL]: Call };

/** What the SDK passes to a `request`-like function. */
interface RequestParams {
  readonly uri: string;
  readonly method: string;
  readonly qs: CarriedQuery;
  readonly body?: string | Buffer;
  readonly headers: Record<string, string>;
}
type RequestCallback = (error: unknown, response?: { statusCode: number; body: object }, body?: object) => void;

function requestThroughPool(params: RequestParams, callback: RequestCallback): void {
  perform(params).then(
    (body) => callback(null, { statusCode: 200, body }, body),
    (error: unknown) => callback(error),
  );
}

/** Never throws anything but MatrixError, so the SDK's own error paths are not taken. */
async function perform(params: RequestParams): Promise<object> {
  const call = params.qs[CALL];
  const abort = new AbortController();
  const onAbort = () => abort.abort(failure({ errcode: 'ABORTED', cause: call.signal?.reason }));
  if (call.signal?.aborted === true) throw failure({ errcode: 'ABORTED', certain: true, cause: call.signal.reason });
  call.signal?.addEventListener('abort', onAbort, { once: true });
  const timer = call.clock.after(call.timeoutMs, () => abort.abort(failure({ errcode: 'TIMEOUT' })));
  try {
    return await exchangeWithRetry(call, params, abort.signal);
  } catch (error) {
    if (error instanceof MatrixError) throw error;
    if (abort.signal.reason instanceof MatrixError) throw abort.signal.reason;
    throw networkFailure(error);
  } finally {
    timer.cancel();
    call.signal?.removeEventListener('abort', onAbort);
  }
}

/** A kept-alive socket may be closed by the server just as we write. GET and PUT may be repeated (ours carry txn ids), so they are, once. */
async function exchangeWithRetry(call: Call, params: RequestParams, signal: AbortSignal): Promise<object> {
  try {
    return await exchange(call, params, signal);
  } catch (error) {
    const repeatable = params.method === 'GET' || params.method === 'PUT';
    if (!repeatable || signal.aborted || !isLostSocket(error)) throw error;
    return exchange(call, params, signal);
  }
}

async function exchange({ pool, bytesUpTo }: Call, params: RequestParams, signal: AbortSignal): Promise<object> {
  const url = new URL(params.uri);
  const response = await pool.request({
    path: `${url.pathname}?${readQuery(params.qs)}`,
    method: params.method as Dispatcher.HttpMethod,
    headers: { ...params.headers, accept: bytesUpTo === undefined ? 'application/json' : '*/*' },
    body: params.body ?? null,
    signal,
    // The timer above is the one deadline.
    headersTimeout: 0,
    bodyTimeout: 0,
  });
  const { statusCode, headers, body } = response;
  const isFile = bytesUpTo !== undefined && statusCode >= 200 && statusCode < 300;
  const bytes = await readBounded(body, { status: statusCode, maxBytes: isFile ? bytesUpTo : LIMITS.matrixResponseBytes });
  return isFile ? bytes : readAnswer(statusCode, bytes.toString(), headers['retry-after']);
}

/** `device_id` under its stable name: Synapse 1.163 ignores the one the SDK uses. */
function readQuery(qs: CarriedQuery): string {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(qs)) {
    if (value !== undefined && value !== null) query.append(name === 'org.matrix.msc3202.device_id' ? 'device_id' : name, String(value));
  }
  return query.toString();
}

async function readBounded(body: AsyncIterable<Buffer>, { status, maxBytes }: { status: number; maxBytes: number }): Promise<Buffer> {
  const chunks: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of body) {
    bytes += chunk.length;
    // Leaving the loop destroys the stream, and with it the socket.
    if (bytes > maxBytes) throw failure({ errcode: 'TOO_LARGE', status });
    chunks.push(chunk);
  }
  const [first] = chunks;
  return chunks.length === 1 && first !== undefined ? first : Buffer.concat(chunks, bytes);
}

function readAnswer(status: number, text: string, retryAfter: string | string[] | undefined): object {
  const answer = parseJson(text);
  // Room state comes as a list; a text or number is no answer of this API.
  if (status >= 200 && status < 300 && typeof answer === 'object' && answer !== null) return answer;
  const body = isJsonObject(answer) ? answer : {};
  const { errcode } = body;
  throw failure({
    errcode: typeof errcode === 'string' ? errcode.slice(0, 100) : 'NOT_JSON',
    status,
    retryAfterMs: readRetryAfter(body['retry_after_ms'], retryAfter),
    // A 4xx with an errcode is the homeserver's own refusal. Whatever a proxy or a failing server says leaves it open.
    certain: status >= 400 && status < 500 && typeof errcode === 'string',
  });
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** Longest pause that a server may ask for: a hostile or broken one must not silence us for a day. */
const MAX_RETRY_AFTER_MS = 10 * 60_000;

function readRetryAfter(ms: unknown, header: string | string[] | undefined): number | null {
  const asked = typeof ms === 'number' ? ms : typeof header === 'string' && /^\d{1,6}$/u.test(header) ? Number(header) * 1_000 : null;
  return asked === null || !(asked >= 0) ? null : Math.min(asked, MAX_RETRY_AFTER_MS);
}

function failure(facts: Partial<MatrixErrorFacts> & { errcode: string }): MatrixError {
  return new MatrixError({ status: 0, retryAfterMs: null, certain: false, ...facts });
}

/** Errors before a connection stood: nothing was sent. */
const UNCONNECTED = new Set(['ECONNREFUSED', 'ENOTFOUND', 'EAI_AGAIN', 'EHOSTUNREACH', 'ENETUNREACH', 'UND_ERR_CONNECT_TIMEOUT']);
const LOST = new Set(['ECONNRESET', 'EPIPE', 'UND_ERR_SOCKET']);

const codeOf = (error: unknown): string => (error instanceof Error && 'code' in error && typeof error.code === 'string' ? error.code : '');
const isLostSocket = (error: unknown): boolean => error instanceof errors.SocketError || LOST.has(codeOf(error));

function networkFailure(error: unknown): MatrixError {
  const unconnected =
    UNCONNECTED.has(codeOf(error)) || (error instanceof AggregateError && error.errors.every((one) => UNCONNECTED.has(codeOf(one))));
  return failure({ errcode: unconnected ? 'UNREACHABLE' : 'CONNECTION_LOST', certain: unconnected, cause: error });
}
