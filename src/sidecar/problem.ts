/**
 * The one way an HTTP error looks, and the door at which everything thrown in a handler ends (STYLE §2 "Errors"). A caller gets a code of
 * the closed table; what we did not expect is INTERNAL without a word more, and the log has it under the same request id (G12).
 */
import type { FastifyError, FastifyReply, FastifyRequest } from 'fastify';
import { hasZodFastifySchemaValidationErrors } from 'fastify-type-provider-zod';
import { OracleError, type Refusal, refusal } from '../errors.ts';
import type { JsonObject } from '../json.ts';
import type { Result } from '../result.ts';
import { StorageError } from '../store/store.ts';

export interface Problem {
  statusCode: number;
  code: string;
  message: string;
  requestId: string;
  details?: JsonObject;
}

export const buildProblem = ({ code, status, message, details }: Refusal, requestId: string): Problem => ({
  statusCode: status,
  code,
  message,
  requestId,
  ...(details === undefined ? {} : { details }),
});

/** Inside a handler only: its error is answered by `sendProblem`. */
export function orRefuse<T>(result: Result<T, Refusal>): T {
  if (result.ok) return result.value;
  throw new OracleError(result.error);
}

export async function sendProblem(reply: FastifyReply, request: FastifyRequest, why: Refusal): Promise<void> {
  const retryAfterMs = why.details?.['retryAfterMs'];
  if (why.status === 429 && typeof retryAfterMs === 'number') reply.header('retry-after', String(Math.ceil(retryAfterMs / 1_000)));
  await reply.code(why.status).type('application/json; charset=utf-8').serializer(JSON.stringify).send(buildProblem(why, request.id));
}

/** What a thrown value means to the caller. */
export function readFailure(error: unknown): Refusal {
  if (error instanceof OracleError) return error.refusal;
  if (error instanceof StorageError) return refusal('STORAGE_UNAVAILABLE', { cause: error });
  if (hasZodFastifySchemaValidationErrors(error)) return readValidation(error);
  const { code, statusCode } = error as Partial<FastifyError>;
  if (code === 'FST_ERR_CTP_BODY_TOO_LARGE') return refusal('BODY_TOO_LARGE');
  if (code === 'FST_ERR_HANDLER_TIMEOUT') return refusal('INTERNAL', { message: 'This took too long.', cause: error });
  if (statusCode === 503) return refusal('SHUTTING_DOWN');
  if (code === 'FST_ERR_CTP_INVALID_MEDIA_TYPE') return refusal('BAD_REQUEST', { message: 'The body must be application/json.' });
  if (statusCode !== undefined && statusCode >= 400 && statusCode < 500) {
    return refusal('BAD_REQUEST', { message: 'The request cannot be read.' });
  }
  return refusal('INTERNAL', { cause: error });
}

function readValidation(error: {
  validation: readonly { instancePath: string; message?: string; params: Record<string, unknown> }[];
}): Refusal {
  const [first] = error.validation;
  const path = first?.instancePath.split('/').filter((step) => step !== '') ?? [];
  const keys = first?.params['keys'];
  if (Array.isArray(keys) && typeof keys[0] === 'string') {
    const field = fieldName([...path, keys[0]]);
    return refusal('BAD_REQUEST', { message: `The field \`${field}\` is not known.`, details: { field } });
  }
  const field = fieldName(path);
  const problem = (first?.message ?? 'is not valid').slice(0, 200);
  return refusal('BAD_REQUEST', {
    message: field === '' ? `The request is not valid: ${problem}.` : `The field \`${field}\` is not valid: ${problem}.`,
    details: { field },
  });
}

/** A caller's own words come back to him, but bounded. */
const fieldName = (path: readonly string[]): string => path.join('.').slice(0, 100);
