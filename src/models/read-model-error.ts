/**
 * Providers fail in many shapes; people and programs get four codes. What the provider wrote never leaves this file: error texts
 * of providers repeat keys and prompts (G12). "abort" in a provider's error is a failure of the provider, not a cancel of ours.
 */
import { OracleError, type Refusal, refusal } from '../errors.ts';
import { ModelStreamError } from './model-fetch.ts';

const MAX_CAUSES = 8;

interface ErrorFacts {
  readonly status: number | null;
  readonly code: string | null;
  readonly retryAfterMs: number | null;
  readonly stream: ModelStreamError | null;
  readonly oracle: OracleError | null;
  readonly timedOut: boolean;
}

function readErrorFacts(error: unknown): ErrorFacts {
  let facts: ErrorFacts = { status: null, code: null, retryAfterMs: null, stream: null, oracle: null, timedOut: false };
  let current: unknown = error;
  for (let depth = 0; depth < MAX_CAUSES && typeof current === 'object' && current !== null; depth += 1) {
    const bag = current as Record<string, unknown>;
    facts = {
      status: facts.status ?? (typeof bag['status'] === 'number' ? bag['status'] : null),
      code: facts.code ?? readCode(bag['code']),
      retryAfterMs: facts.retryAfterMs ?? readRetryAfterMs(bag['headers']),
      stream: facts.stream ?? (current instanceof ModelStreamError ? current : null),
      oracle: facts.oracle ?? (current instanceof OracleError ? current : null),
      timedOut: facts.timedOut || bag['name'] === 'APIConnectionTimeoutError' || bag['name'] === 'TimeoutError',
    };
    current = bag['cause'];
  }
  return facts;
}

/** Codes are words such as `insufficient_quota` or `ECONNRESET`; anything else may hold content. */
const readCode = (code: unknown): string | null => (typeof code === 'string' && /^[\w.-]{1,64}$/u.test(code) ? code : null);

function readRetryAfterMs(headers: unknown): number | null {
  const text =
    headers instanceof Headers ? headers.get('retry-after') : (headers as Record<string, unknown> | null | undefined)?.['retry-after'];
  if (typeof text !== 'string' || !/^\d{1,6}(\.\d{1,3})?$/u.test(text)) return null;
  return Number(text) * 1_000;
}

/** What the person is told about a failed model call. Pure. */
export function readModelError(error: unknown): Refusal {
  const facts = readErrorFacts(error);
  if (facts.oracle !== null) return facts.oracle.refusal;
  const said = `${facts.status ?? 'no status'} ${facts.code ?? facts.stream?.problem ?? 'no code'}`;
  const more = {
    details: { ...(facts.status === null ? {} : { status: facts.status }), ...(facts.code === null ? {} : { providerCode: facts.code }) },
    // The provider's own error object is left behind: it carries headers and the request.
    cause: new Error(`model provider: ${said}`),
  };
  if (facts.stream?.problem === 'idle' || facts.timedOut) return refusal('MODEL_TIMEOUT', more);
  if (facts.status === 429) return refusal('MODEL_RATE_LIMITED', more);
  if (facts.status !== null && facts.status >= 400 && facts.status < 500 && facts.status !== 408 && facts.status !== 409)
    return refusal('MODEL_REFUSED', more);
  return refusal('MODEL_ERROR', more);
}

/** A refusal that says how the conversation must look. The words are read and go nowhere. */
export function demandsTurns(error: unknown): boolean {
  let current: unknown = error;
  for (let depth = 0; depth < MAX_CAUSES && typeof current === 'object' && current !== null; depth += 1) {
    const { status, message, cause } = current as Record<string, unknown>;
    if (
      (status === 400 || status === 422) &&
      typeof message === 'string' &&
      /\b(?:roles?|turns?|messages?)\b.{0,60}\balternat/iu.test(message)
    )
      return true;
    current = cause;
  }
  return false;
}

/** The request itself is refused, or the conversation: another model would hear the same. */
const SAME_ELSEWHERE: ReadonlySet<number> = new Set([400, 413, 422]);

/** Whether another model of the list may be asked instead: not when the run was stopped, lost its authority, or asks what nobody can answer. Pure. */
export function mayFallBack(error: unknown): boolean {
  const { oracle, status } = readErrorFacts(error);
  return oracle === null && (status === null || !SAME_ELSEWHERE.has(status));
}

const RETRIES = 3;
const BASE_MS = 500;
const CAP_MS = 8_000;
const MAX_RETRY_AFTER_MS = 60_000;

/**
 * How long to wait before the next try of a model call that failed before its first token; null when another try cannot help.
 * @param attempt 1 for the first try. @param remainingMs until the run's deadline. @param chance 0…1, spreads the retries of many runs.
 */
export function planModelRetry(
  error: unknown,
  { attempt, remainingMs, chance }: { attempt: number; remainingMs: number; chance: number },
): number | null {
  const facts = readErrorFacts(error);
  const { code } = readModelError(error);
  if (facts.oracle !== null || attempt > RETRIES || facts.code === 'insufficient_quota') return null;
  // A model that was silent for the whole idle time had its chance; a refusal stays a refusal.
  if (code !== 'MODEL_RATE_LIMITED' && code !== 'MODEL_ERROR') return null;
  const ownMs = Math.min(CAP_MS, BASE_MS * 2 ** (attempt - 1)) * (0.75 + 0.5 * chance);
  const waitMs = facts.retryAfterMs === null ? ownMs : Math.max(facts.retryAfterMs, 100);
  return waitMs > MAX_RETRY_AFTER_MS || waitMs >= remainingMs ? null : waitMs;
}
