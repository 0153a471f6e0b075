/**
 * The one door to the homeserver's client-server API. Everything that speaks to it takes this port, so tests run on a hand-written fake,
 * and a failure always says whether its effect *certainly* did not happen: a sender may only give a message up, or a write tool only be
 * run again, when it knows that (G4, G6).
 */
import type { DeviceId, UserId } from '../src/ids.ts';

export type MatrixMethod = 'GET' | 'PUT' | 'POST' | 'DELETE';
export type QueryValue = string | number | boolean;

export interface MatrixRequest {
  readonly query?: Readonly<Record<string, QueryValue>>;
  /** JSON, or its text as it stands in the outbox: a frozen content must not be parsed and written again. */
  readonly body?: object | Buffer;
  /** Of a `body` that is bytes; JSON when nothing is said. */
  readonly contentType?: string;
  /** The answer is a file of at most so many bytes, and is given as a Buffer. Past it: TOO_LARGE. */
  readonly bytesUpTo?: number;
  /** From sending to the last byte of the answer. */
  readonly timeoutMs?: number;
  readonly signal?: AbortSignal;
}

export interface MatrixApi {
  /** Path with every part encoded (`matrixPath`). Resolves with the JSON object of a 2xx answer, or with its bytes. @throws MatrixError */
  request<T extends object>(method: MatrixMethod, path: string, request?: MatrixRequest): Promise<T>;
}

export interface MatrixIdentity {
  readonly userId: UserId;
  /** Absent only while the device does not exist yet. `device_id` without `user_id` is a 500 on Synapse (research/synapse.md §3). */
  readonly deviceId?: DeviceId;
}

/** One pool of sockets; an api per identity. */
export interface MatrixConnection {
  /** Cached per identity. */
  as(identity: MatrixIdentity): MatrixApi;
  /** Nobody asserted: registration, ping, and the first `whoami` only. */
  readonly bare: MatrixApi;
  /** The homeserver, or a proxy before it, closed a kept connection: it may have restarted. Not called for those that we close. */
  onClosed?(listener: () => void): void;
  close(): Promise<void>;
}

export interface MatrixErrorFacts {
  /** The homeserver's `errcode`; or for what no homeserver said: UNREACHABLE, CONNECTION_LOST, TIMEOUT, NOT_JSON, TOO_LARGE, ABORTED. */
  readonly errcode: string;
  /** HTTP status; 0 when there was no answer. */
  readonly status: number;
  readonly retryAfterMs: number | null;
  /** True: the effect certainly did not happen. False: it may have. */
  readonly certain: boolean;
  readonly cause?: unknown;
}

export class MatrixError extends Error {
  override readonly name = 'MatrixError';
  readonly errcode: string;
  readonly status: number;
  readonly retryAfterMs: number | null;
  readonly certain: boolean;
  constructor({ errcode, status, retryAfterMs, certain, cause }: MatrixErrorFacts) {
    // The server's own sentence is left out: it may quote content or tokens (G12).
    super(`${errcode} (HTTP ${status})`, cause === undefined ? undefined : { cause });
    this.errcode = errcode;
    this.status = status;
    this.retryAfterMs = retryAfterMs;
    this.certain = certain;
  }
}

export const isMatrixError = (error: unknown): error is MatrixError => error instanceof MatrixError;

/**
 * Nobody could have served this request: refused, unresolvable, a proxy without its server, or a token that an operator must repair.
 * The next request would fail as well, so callers wait together. A 500 or a time-out may be one room's trouble and is not meant.
 */
export const isOutage = (error: MatrixError): boolean =>
  (error.status === 0 && error.errcode === 'UNREACHABLE') ||
  error.status === 502 ||
  error.status === 503 ||
  error.status === 504 ||
  error.errcode === 'M_UNKNOWN_TOKEN' ||
  error.errcode === 'M_MISSING_TOKEN';

/** Tagged template that encodes every value: ids hold `/`, `?`, `#` and `%`. */
export const matrixPath = (parts: TemplateStringsArray, ...values: readonly string[]): string =>
  parts.reduce((path, part, index) => path + encodeURIComponent(values[index - 1] ?? '') + part);
