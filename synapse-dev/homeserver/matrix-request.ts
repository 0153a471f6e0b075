/** One call of the client-server API, with Matrix's own error as a typed throw: a test that expects M_FORBIDDEN must not pass on a 500. */
export class MatrixError extends Error {
  override readonly name = 'MatrixError';
  readonly status: number;
  /** `M_UNKNOWN` when the answer was no Matrix error. */
  readonly errcode: string;
  readonly retryAfterMs: number | undefined;
  constructor(options: { request: string; status: number; errcode: string; error: string; retryAfterMs?: number | undefined }) {
    super(`${options.request} → ${options.status} ${options.errcode}: ${options.error}`);
    this.status = options.status;
    this.errcode = options.errcode;
    this.retryAfterMs = options.retryAfterMs;
  }
}

export interface MatrixRequestOptions {
  readonly accessToken?: string;
  readonly body?: unknown;
  readonly query?: Record<string, string | number | boolean | undefined>;
  readonly timeoutMs?: number;
  readonly signal?: AbortSignal | undefined;
}

const TIMEOUT_MS = 60_000;

/** @throws MatrixError for a status other than 2xx; fetch's own error when there was no answer. */
export async function matrixRequest<T>(baseUrl: string, method: string, path: string, options: MatrixRequestOptions = {}): Promise<T> {
  const { accessToken, body, query = {}, timeoutMs = TIMEOUT_MS, signal } = options;
  const url = new URL(`${baseUrl}${path}`);
  for (const [name, value] of Object.entries(query)) {
    if (value !== undefined) url.searchParams.set(name, String(value));
  }
  const timeout = AbortSignal.timeout(timeoutMs);
  const response = await fetch(url, {
    method,
    headers: {
      ...(accessToken === undefined ? {} : { authorization: `Bearer ${accessToken}` }),
      ...(body === undefined ? {} : { 'content-type': 'application/json' }),
    },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    signal: signal === undefined ? timeout : AbortSignal.any([signal, timeout]),
  });
  const text = await response.text();
  if (response.ok) return (text === '' ? {} : JSON.parse(text)) as T;
  throw readError(`${method} ${path}`, response.status, text);
}

function readError(request: string, status: number, text: string): MatrixError {
  try {
    const {
      errcode,
      error,
      retry_after_ms: retryAfterMs,
    } = JSON.parse(text) as { errcode?: string; error?: string; retry_after_ms?: number };
    return new MatrixError({ request, status, errcode: errcode ?? 'M_UNKNOWN', error: error ?? '', retryAfterMs });
  } catch {
    return new MatrixError({ request, status, errcode: 'M_UNKNOWN', error: text.slice(0, 200) });
  }
}
