/**
 * One closed table of every error a person, a portal or an operator can meet: code, HTTP status, whether trying again can help, and
 * a sentence that says what to do. `docs/errors.md` is generated from it, and a test fails for a code that is used but not listed,
 * or listed but never used. UCAN codes live here too, so that rooms, HTTP and logs speak one language.
 */
import type { JsonObject } from './json.ts';
import { AUTHORITY_CODES } from './ucan/codes.ts';

export interface ErrorSpec {
  /** HTTP status; also the `status` of `ixo.oracle.error` in rooms. */
  readonly status: number;
  readonly retryable: boolean;
  /** Said to the person. Never holds a token, a path or another user's data (G12). */
  readonly message: string;
  /** Said to the operator in docs/errors.md. */
  readonly hint: string;
}

export const ERRORS = {
  ...AUTHORITY_CODES,
  // balance, throttle (402/429)
  OUT_OF_CREDITS: { status: 402, retryable: false, message: 'You have no credits left.', hint: 'Only when a credits plugin is loaded.' },
  RATE_LIMITED: {
    status: 429,
    retryable: true,
    message: 'You are writing faster than I may answer. Please wait a minute and send it again.',
    hint: 'RATE_LIMIT per RATE_LIMIT_WINDOW_S, per DID and MXID.',
  },
  // lateness, recovery
  TOO_LATE: {
    status: 503,
    retryable: true,
    message: 'I was offline when you wrote this, please send it again.',
    hint: 'Older than MAX_EVENT_LATENESS_S at the first claim.',
  },
  GAVE_UP: {
    status: 500,
    retryable: true,
    message: 'I could not process this message, although I tried several times. Please send it again.',
    hint: 'The inbox row is dead: `matrix-oracle inbox list`, then `requeue`.',
  },
  INTERRUPTED: {
    status: 500,
    retryable: true,
    message: 'This answer was interrupted and could not be continued.',
    hint: 'The run could not be resumed within its attempts or its deadline.',
  },
  ANSWER_REFUSED: {
    status: 502,
    retryable: true,
    message: 'The chat server refused to take my answer. Please ask again, perhaps for something shorter.',
    hint: 'An event of the answer was parked (413, or a bad request): `matrix-oracle doctor` and the log line name the reason.',
  },
  // encryption
  CANNOT_READ: {
    status: 503,
    retryable: true,
    message:
      'I could not read your message, because its key has not reached me. Please send it again. If I still cannot read it, send `/discardsession` first (in Element), then your message.',
    hint: 'An encrypted message waits for its room key. Keys arrive on another connection: see `matrix-oracle crypto status`.',
  },
  UNVERIFIED_DEVICE: {
    status: 403,
    retryable: false,
    message:
      'I only take messages from devices that their owner has verified. Please verify this session in the settings of your app, and me if you have reset your identity, then send it again.',
    hint: 'CRYPTO_TRUST is `cross-signed`, and the device is not signed by the identity of its owner.',
  },
  NOT_ENCRYPTED: {
    status: 403,
    retryable: false,
    message:
      'This room is encrypted and your message was not, so I cannot be sure that it is yours. Please send it from an app that encrypts.',
    hint: 'CRYPTO_TRUST is `cross-signed`, or an encrypted message was edited in the clear: only the homeserver says who sent it.',
  },
  // model and run
  MODEL_ERROR: {
    status: 502,
    retryable: true,
    message: 'The language model failed before the answer was complete. Please try again.',
    hint: 'The provider answered with an error or cut the stream; see the log line with the run id.',
  },
  MODEL_TIMEOUT: {
    status: 504,
    retryable: true,
    message: 'The language model stopped sending. Please try again.',
    hint: 'No bytes within MODEL_IDLE_TIMEOUT_S.',
  },
  MODEL_RATE_LIMITED: {
    status: 503,
    retryable: true,
    message: 'The language model is overloaded at the moment. Please try again in a minute.',
    hint: 'The provider answered 429 until the deadline of the run.',
  },
  MODEL_REFUSED: {
    status: 502,
    retryable: false,
    message: 'The language model refused the request.',
    hint: 'The provider answered 4xx: key, model name or request size.',
  },
  EMPTY_ANSWER: {
    status: 502,
    retryable: true,
    message: 'The language model gave an empty answer. Please try again.',
    hint: 'The stream ended with neither text nor tool call.',
  },
  RUN_DEADLINE: { status: 504, retryable: true, message: 'The answer took too long and was stopped.', hint: 'RUN_DEADLINE_S.' },
  RUN_CANCELLED: { status: 499, retryable: false, message: 'Stopped on request.', hint: 'Somebody who may stop this run did so.' },
  CHECKPOINT_UNAVAILABLE: {
    status: 503,
    retryable: true,
    message: 'The memory of this conversation cannot be read at the moment. Please try again.',
    hint: 'The checkpoint file of the owner cannot be opened.',
  },
  // agent
  CONTEXT_FULL: {
    status: 413,
    retryable: false,
    message: 'This is more than the language model can take in at once. Please ask for less, or send `!new` to begin anew.',
    hint: 'MODEL_CONTEXT_TOKENS: prompt, tools and results of one turn fill 95 % of it.',
  },
  // HTTP
  BAD_REQUEST: { status: 400, retryable: false, message: 'The request is not valid.', hint: '`details` names the field.' },
  UNAUTHENTICATED: {
    status: 401,
    retryable: false,
    message: 'Send `Authorization: Bearer <invocation>` with `X-Auth-Type: ucan`.',
    hint: 'No credentials, or of a kind that is not supported.',
  },
  NOT_FOUND: {
    status: 404,
    retryable: false,
    message: 'There is nothing here.',
    hint: 'Unknown path, session or run; a foreign one looks the same.',
  },
  RUN_PRUNED: {
    status: 410,
    retryable: false,
    message: 'The events of this run are no longer kept. What was said is in the history of its session.',
    hint: 'The run ended more than RETENTION_DAYS ago; `details.read` names the path of the history.',
  },
  BODY_TOO_LARGE: {
    status: 413,
    retryable: false,
    message: 'The request body is too large.',
    hint: '256 KiB at the sidecar, 32 MiB for transactions.',
  },
  CONFLICT: {
    status: 409,
    retryable: false,
    message: 'This token was already used for another request.',
    hint: 'Same token id, another body.',
  },
  STORAGE_UNAVAILABLE: {
    status: 503,
    retryable: true,
    message: 'I cannot store anything at the moment. Please try again later.',
    hint: 'The database is locked, read-only or full; ready is false until it is writable again.',
  },
  HOMESERVER_UNAVAILABLE: {
    status: 503,
    retryable: true,
    message: 'The chat server does not answer at the moment. Please try again later.',
    hint: 'The homeserver did not confirm an event or a room in time.',
  },
  SHUTTING_DOWN: { status: 503, retryable: true, message: 'I am restarting. Please try again in a moment.', hint: 'SIGTERM was received.' },
  NOT_AVAILABLE: {
    status: 501,
    retryable: false,
    message: 'This part of the oracle is not built yet.',
    hint: 'The message names the part.',
  },
  STALE_CONTEXT: { status: 500, retryable: false, message: 'This turn is over.', hint: 'A plugin used its RuntimeContext after the turn.' },
  INTERNAL: {
    status: 500,
    retryable: true,
    message: 'Something went wrong on my side. The operator can find it by the request id.',
    hint: 'A bug: see the log line with the same request or run id.',
  },
} as const satisfies Record<string, ErrorSpec>;

export type ErrorCode = keyof typeof ERRORS;

/** A typed refusal or failure as it crosses a boundary. `message` is for the person; `details` for programs; `cause` for the log only. */
export interface Refusal {
  readonly code: ErrorCode;
  readonly status: number;
  readonly retryable: boolean;
  readonly message: string;
  readonly details?: JsonObject;
  readonly cause?: unknown;
}

export function refusal(code: ErrorCode, more: { message?: string; details?: JsonObject; cause?: unknown } = {}): Refusal {
  const spec = ERRORS[code];
  return {
    code,
    status: spec.status,
    retryable: spec.retryable,
    message: more.message ?? spec.message,
    ...(more.details === undefined ? {} : { details: more.details }),
    ...(more.cause === undefined ? {} : { cause: more.cause }),
  };
}

/** A refusal where only a throw can travel (plugin calls, the agent library). Caught at the four doors and turned back into the value. */
export class OracleError extends Error {
  override readonly name = 'OracleError';
  readonly refusal: Refusal;
  constructor(value: Refusal) {
    super(value.message, value.cause === undefined ? undefined : { cause: value.cause });
    this.refusal = value;
  }
}

/** Thrown by a part of the RuntimeContext that is not built yet; names the part, so that nothing pretends to work. */
export class NotAvailableError extends OracleError {
  constructor(part: string) {
    super(refusal('NOT_AVAILABLE', { message: `${part} is not available in this version of matrix-oracle.`, details: { part } }));
  }
}

/** Plugins may throw anything, also a proxy that itself throws when it is asked what it is: then an error that says so. */
export function readThrown(error: unknown): unknown {
  try {
    void (error instanceof Error);
    return error;
  } catch {
    return new Error('what was thrown cannot be read');
  }
}
