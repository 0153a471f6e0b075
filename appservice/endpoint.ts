/**
 * What the homeserver calls. A transaction is answered 200 only after `receive` has put its events on disk (G1): nothing else happens
 * before the answer, and nothing stands between the answer and the work but that database. Whoever does not know the hs_token is sent
 * away before a byte of the body is read; a broken event is skipped and the others go on (G17).
 */
import { createHash, timingSafeEqual } from 'node:crypto';
import Fastify, { type FastifyInstance, type FastifyReply, type FastifyRequest } from 'fastify';
import type { IncomingEvent } from '../src/inbox/inbox.ts';
import { isJsonObject } from '../src/json.ts';
import { LIMITS } from '../src/limits.ts';
import type { Logger } from '../src/observe/logger.ts';
import { StorageError } from '../src/store/store.ts';
import { CryptoUnavailable } from './crypto/crypto-service.ts';
import { buildIncoming, logSkipped, type OnSkipped } from './read-incoming.ts';
import { readTransaction, type Transaction } from './wire/read-transaction.ts';

export interface EndpointOptions {
  readonly hsToken: string;
  /** Resolves once every event is on disk. */
  readonly receive: (events: IncomingEvent[]) => Promise<unknown>;
  /**
   * With CRYPTO_TRANSPORT=appservice: takes the keys of a transaction, before its events, which may need them. Resolves once they are on disk; the
   * homeserver leaves them out when it sends the transaction again, so it may wait for the key store to open, but must not refuse lightly.
   */
  readonly receiveKeys?: (transaction: Transaction) => Promise<void>;
  /** A ping arrived: `transaction_id` of its body, null when it had none. */
  readonly onPing: (transactionId: string | null) => void;
  /** A transaction arrived with a good token: the homeserver is up. */
  readonly onTransaction?: () => void;
  /** A transaction was answered, whatever with; ms since its first byte. */
  readonly onAnswered?: (status: number, durationMs: number) => void;
  /** For the metric. */
  readonly onSkipped?: OnSkipped;
  readonly logger: Logger;
}

/** Synapse gives up after 60 s; a body that takes longer is not from a homeserver we know. */
const REQUEST_TIMEOUT_MS = 90_000;

export function createEndpoint(options: EndpointOptions): FastifyInstance {
  const { logger } = options;
  const app = Fastify({
    logger: false,
    bodyLimit: LIMITS.pingBodyBytes,
    requestTimeout: REQUEST_TIMEOUT_MS,
    keepAliveTimeout: 75_000,
    // A homeserver keeps its connection open: closing must not wait for it. Requests in flight are answered first.
    forceCloseConnections: 'idle',
    routerOptions: { maxParamLength: 1_024 },
    exposeHeadRoutes: false,
  });
  app.removeAllContentTypeParsers();
  // Synapse says application/json; what counts is whether it is JSON.
  app.addContentTypeParser('*', { parseAs: 'string' }, (_request, text, done) => {
    try {
      done(null, text === '' ? undefined : JSON.parse(text as string));
    } catch {
      done(new NotJson());
    }
  });

  const authenticate = createTokenCheck(options.hsToken);
  const guarded = {
    async onRequest(request: FastifyRequest, reply: FastifyReply) {
      if (authenticate(request.headers.authorization)) return;
      logger.warn({ code: 'M_FORBIDDEN', path: request.routeOptions.url ?? '' }, 'a request with a wrong hs_token was refused');
      // The body was not read, so the connection cannot be used again.
      await reply.header('connection', 'close').code(403).send(problem('M_FORBIDDEN', 'Bad hs_token'));
    },
  };

  async function takeTransaction(request: FastifyRequest<{ Params: { txnId: string } }>, reply: FastifyReply): Promise<object> {
    const transaction = readTransaction(request.body);
    if (!transaction.ok) {
      const large = transaction.error === 'too_many_events';
      return reply
        .code(large ? 413 : 400)
        .send(problem(large ? 'M_TOO_LARGE' : 'M_BAD_JSON', `The transaction cannot be read: ${transaction.error}`));
    }
    options.onTransaction?.();
    const { events, skipped } = buildIncoming(transaction.value.events, { source: 'push' });
    logSkipped(skipped, { logger, onSkipped: options.onSkipped, fields: { txn_id: request.params.txnId.slice(0, 64) } });
    await options.receiveKeys?.(transaction.value);
    if (events.length > 0) await options.receive(events);
    return {};
  }
  const transaction = {
    ...guarded,
    bodyLimit: LIMITS.transactionBodyBytes,
    async onResponse(_request: FastifyRequest, reply: FastifyReply) {
      options.onAnswered?.(reply.statusCode, reply.elapsedTime);
    },
  };
  for (const url of ['/_matrix/app/v1/transactions/:txnId', '/transactions/:txnId']) {
    app.put<{ Params: { txnId: string } }>(url, transaction, takeTransaction);
  }
  app.post('/_matrix/app/v1/ping', guarded, async (request) => {
    const id = isJsonObject(request.body) ? request.body['transaction_id'] : null;
    options.onPing(typeof id === 'string' ? id : null);
    return {};
  });
  // Synapse asks these when somebody invites an unknown user of our namespace; the invite works whatever we say (research/synapse.md §3).
  for (const url of ['/_matrix/app/v1/users/:id', '/_matrix/app/v1/rooms/:id', '/users/:id', '/rooms/:id']) {
    app.get(url, async (_request, reply) => reply.code(404).send(problem('M_NOT_FOUND', 'Not found')));
  }
  app.setNotFoundHandler(async (_request, reply) => reply.code(404).send(problem('M_UNRECOGNIZED', 'Unrecognized request')));
  app.setErrorHandler(async (error, request, reply) => {
    const { status, errcode, text } = readFailure(error);
    if (status >= 500)
      logger.error({ code: errcode, status, path: request.routeOptions.url ?? '', err: error }, 'a transaction could not be stored');
    else logger.warn({ code: errcode, status, path: request.routeOptions.url ?? '' }, 'a request of the homeserver was refused');
    await reply.code(status).send(problem(errcode, text));
  });
  return app;
}

const problem = (errcode: string, error: string) => ({ errcode, error });

class NotJson extends Error {
  override readonly name = 'NotJson';
}

function readFailure(error: unknown): { status: number; errcode: string; text: string } {
  if (error instanceof NotJson) return { status: 400, errcode: 'M_NOT_JSON', text: 'The body is not JSON' };
  // 503: the homeserver keeps the transaction and tries again (G1).
  if (error instanceof StorageError || error instanceof CryptoUnavailable)
    return { status: 503, errcode: 'M_UNKNOWN', text: 'The events cannot be stored at the moment' };
  const status = error instanceof Error && 'statusCode' in error && typeof error.statusCode === 'number' ? error.statusCode : 500;
  if (status === 413) return { status, errcode: 'M_TOO_LARGE', text: 'The body is too large' };
  if (status >= 400 && status < 500) return { status, errcode: 'M_BAD_JSON', text: 'The request cannot be read' };
  return { status: 500, errcode: 'M_UNKNOWN', text: 'Internal error' };
}

/** Compares digests: equal length, constant time, whatever was sent. */
function createTokenCheck(hsToken: string): (header: string | undefined) => boolean {
  const digest = (text: string) => createHash('sha256').update(text).digest();
  const expected = digest(`Bearer ${hsToken}`);
  return (header) => timingSafeEqual(digest(header?.replace(/^bearer\s+/iu, 'Bearer ') ?? ''), expected);
}
