/**
 * Proves at start that the homeserver reaches us: the most common fault of a new installation is a URL that only we can resolve. Two
 * traps (research/synapse.md §2): while a backlog drains, a ping that did arrive is answered with an error, so what our own endpoint saw
 * counts more than the answer; and after a restart of the homeserver a good ping delivers nothing that it holds back, so the caller
 * reconciles whatever the outcome.
 */
import { isMatrixError, isOutage, type MatrixApi, type MatrixError, matrixPath } from './matrix-api.ts';

export type PingOutcome =
  | { readonly kind: 'reached'; readonly durationMs: number | null }
  /** The homeserver is up and did not reach our endpoint. */
  | { readonly kind: 'unreachable'; readonly remedy: string; readonly cause: MatrixError }
  /** Nothing is known: the homeserver itself did not answer. */
  | { readonly kind: 'homeserver_down'; readonly remedy: string; readonly cause: MatrixError }
  | { readonly kind: 'refused'; readonly remedy: string; readonly cause: MatrixError };

export interface Ping {
  /** The endpoint saw a ping. */
  seen(transactionId: string | null): void;
  send(): Promise<PingOutcome>;
}

export interface PingOptions {
  /** Nobody asserted. */
  readonly api: MatrixApi;
  /** `id` of the registration file. */
  readonly registrationId: string;
  /** Where the homeserver was told to find us; for the remedy only. */
  readonly url: string;
  readonly newId: () => string;
}

export function createPing({ api, registrationId, url, newId }: PingOptions): Ping {
  const seen = new Set<string>();
  const waiting = new Set<string>();
  return {
    seen(transactionId) {
      if (transactionId !== null && waiting.has(transactionId)) seen.add(transactionId);
    },
    async send() {
      const id = newId();
      waiting.add(id);
      try {
        const path = matrixPath`/_matrix/client/v1/appservice/${registrationId}/ping`;
        const answer = await api.request<{ duration_ms?: unknown }>('POST', path, {
          body: { transaction_id: id },
          timeoutMs: PING_TIMEOUT_MS,
        });
        return { kind: 'reached', durationMs: typeof answer.duration_ms === 'number' ? answer.duration_ms : null };
      } catch (error) {
        if (!isMatrixError(error)) throw error;
        return seen.has(id) ? { kind: 'reached', durationMs: null } : explain(error, { registrationId, url });
      } finally {
        waiting.delete(id);
        seen.delete(id);
      }
    },
  };
}

/** Synapse gives a hanging endpoint 60 s. */
const PING_TIMEOUT_MS = 65_000;
/** Codes by which the homeserver says that it tried (spec v1.19, "Pinging"). They come with 502 and 504, as a proxy's errors would. */
const NOT_REACHED = new Set(['M_CONNECTION_FAILED', 'M_CONNECTION_TIMEOUT']);

function explain(cause: MatrixError, { registrationId, url }: { registrationId: string; url: string }): PingOutcome {
  if (cause.errcode === 'M_BAD_STATUS') {
    return {
      kind: 'unreachable',
      remedy: `What answers at ${url} refuses the homeserver: give both the same registration (hs_token) and restart it, or correct \`url\`.`,
      cause,
    };
  }
  if (NOT_REACHED.has(cause.errcode)) {
    return {
      kind: 'unreachable',
      remedy: `The homeserver cannot reach ${url}: correct \`url\` in the registration, or open the way.`,
      cause,
    };
  }
  if (cause.errcode === 'M_URL_NOT_SET')
    return { kind: 'unreachable', remedy: 'The registration has no `url`: write it and restart the homeserver.', cause };
  if (isOutage(cause) || cause.status === 0 || cause.status >= 500) {
    return { kind: 'homeserver_down', remedy: 'The homeserver does not answer: start it, or correct MATRIX_BASE_URL.', cause };
  }
  const remedy = `The homeserver refuses the ping (${cause.errcode}): \`id\` of its registration must be ${registrationId}, and as_token the same as ours.`;
  return { kind: 'refused', remedy, cause };
}
