/**
 * The HTTP side of the oracle: the same turns as in Matrix for clients that speak JSON and server-sent events (docs/wire-formats.md "HTTP").
 * Everything that arrives is a stranger's until the door has verified who signed it; sizes, headers and rates are bounded before that (G14).
 * The caller listens and closes; nothing here starts by itself.
 */
import type { Socket } from 'node:net';
import cors from '@fastify/cors';
import swagger from '@fastify/swagger';
import Fastify, { type FastifyInstance, type FastifyReply, type FastifyRequest } from 'fastify';
import { jsonSchemaTransform, serializerCompiler, validatorCompiler, type ZodTypeProvider } from 'fastify-type-provider-zod';
import { type Refusal, refusal } from '../errors.ts';
import { LIMITS } from '../limits.ts';
import { StorageError } from '../store/store.ts';
import { writeAudit } from '../turn/audit.ts';
import type { SidecarDeps } from './deps.ts';
import { authenticateCaller } from './door.ts';
import { pluginRoutes, watchOwnRoutes } from './plugin-routes.ts';
import { buildProblem, orRefuse, readFailure, sendProblem } from './problem.ts';
import { createAddressLimits } from './rate-limit.ts';
import { readRequestId } from './request-id.ts';
import { authoriseRoutes } from './routes/authorise.ts';
import { delegationRoutes, newDelegationRoute } from './routes/delegation.ts';
import { messageRoutes } from './routes/messages.ts';
import { healthRoutes, publicRoutes } from './routes/public.ts';
import { runRoutes, watchRoute } from './routes/runs.ts';
import { sessionRoutes } from './routes/sessions.ts';
import { createTickets } from './tickets.ts';
import { createWatchers } from './watch-run.ts';

/** An event id has 255 bytes, three characters each when percent-encoded. */
const MAX_PARAM_CHARS = 1_024;
const AUDITED = new Set([401, 402, 403, 409, 429]);

export function createSidecar(deps: SidecarDeps): FastifyInstance {
  const { options, newRequestId } = deps;
  const app = Fastify({
    logger: false,
    bodyLimit: LIMITS.httpBodyBytes,
    requestTimeout: LIMITS.httpRequestTimeoutMs,
    forceCloseConnections: 'idle',
    exposeHeadRoutes: false,
    routerOptions: { maxParamLength: MAX_PARAM_CHARS },
    trustProxy: [...(options.trustedProxies ?? [])],
    requestIdHeader: false,
    genReqId: (raw) => readRequestId(raw.headers['x-request-id']) ?? newRequestId(),
    clientErrorHandler: (error, socket) => answerUnreadable(error, socket, newRequestId()),
    // A path that cannot be decoded ends before any hook.
    frameworkErrors: (error, request, reply) => void fail(error, request, reply as unknown as FastifyReply, deps),
  }).withTypeProvider<ZodTypeProvider>();
  app.setValidatorCompiler(validatorCompiler);
  app.setSerializerCompiler(serializerCompiler);
  app.decorateRequest('invocation', null);
  app.decorateRequest('legacy', null);
  app.decorateRequest('rawBody', null);
  keepRawBody(app);
  const ownRoutes = watchOwnRoutes(app as unknown as FastifyInstance);

  const limits = createAddressLimits({
    requests: options.requestsPerMinute ?? LIMITS.httpRequestsPerMinutePerAddress,
    refused: options.refusedPerMinute ?? LIMITS.httpRefusalsPerMinutePerAddress,
  });
  const watchers = createWatchers(deps);
  const tickets = createTickets(deps);
  app.addHook('preClose', async () => watchers.close());

  app.addHook('onRequest', async (request, reply) => {
    reply.headers({ 'x-request-id': request.id, 'cache-control': 'no-store', 'x-content-type-options': 'nosniff' });
  });
  app.setErrorHandler(async (error, request, reply) => fail(error, request, reply, deps));
  app.setNotFoundHandler(async (request, reply) => {
    deps.observeRefusal('NOT_FOUND');
    await sendProblem(reply, request, refusal('NOT_FOUND'));
  });

  registerCors(app, options.corsOrigins);
  void app.register(swagger, {
    openapi: {
      openapi: '3.1.0',
      info: { title: `${deps.identity.name} (matrix-oracle)`, version: '1' },
      components: {
        securitySchemes: {
          ucan: { type: 'http', scheme: 'bearer', description: 'UCAN invocation, with `X-Auth-Type: ucan`' },
          ticket: { type: 'apiKey', in: 'query', name: 'ticket', description: 'Of `POST /runs/{runId}/ticket`; one use within a minute' },
        },
      },
    },
    transform: jsonSchemaTransform,
  });

  void app.register(healthRoutes(deps));
  void app.register(async (limited) => {
    // After CORS, so that a browser can read why it was refused.
    limited.addHook('onRequest', async (request) => void orRefuse(await limits.enter(request.ip)));
    await limited.register(publicRoutes(deps));
    const door = async (request: FastifyRequest): Promise<void> => {
      const { invocation, legacy } = orRefuse(await authenticateCaller(request.headers, deps));
      request.invocation = invocation;
      request.legacy = legacy;
    };
    /** A guesser of keys or nonces is soon not listened to any more. */
    const countRefusals = (routes: FastifyInstance): void => {
      routes.addHook('onRequest', async (request) => void orRefuse(await limits.mayTry(request.ip)));
      routes.addHook('onResponse', async (request, reply) => {
        if (reply.statusCode === 401 || reply.statusCode === 403) await limits.wasRefused(request.ip);
      });
    };
    await limited.register(async (counted) => {
      countRefusals(counted as unknown as FastifyInstance);
      await counted.register(newDelegationRoute(deps, door));
      await counted.register(authoriseRoutes({ ...deps, page: deps.authorisePage, abilities: deps.abilitiesToAsk }));
    });
    await limited.register(async (watched) => {
      watched.addHook('onRoute', (route) => {
        route.schema = { ...route.schema, security: [{ ucan: [] }, { ticket: [] }] };
      });
      countRefusals(watched as unknown as FastifyInstance);
      await watched.register(watchRoute(deps, watchers, tickets, door));
    });
    await limited.register(async (guarded) => {
      guarded.addHook('onRoute', (route) => {
        route.schema = { ...route.schema, security: [{ ucan: [] }] };
      });
      countRefusals(guarded as unknown as FastifyInstance);
      guarded.addHook('onRequest', door);
      await guarded.register(sessionRoutes(deps));
      await guarded.register(messageRoutes(deps, watchers));
      await guarded.register(runRoutes(deps, tickets));
      await guarded.register(delegationRoutes(deps));
    });
    await limited.register(async (added) => {
      countRefusals(added as unknown as FastifyInstance);
      if (deps.plugins !== undefined) await pluginRoutes(deps.plugins, { deps, door, ownRoutes })(added as unknown as FastifyInstance);
    });
  });
  return app as unknown as FastifyInstance;
}

function registerCors(app: FastifyInstance, origins: readonly string[]): void {
  const any = origins.includes('*');
  void app.register(cors, {
    origin: any ? '*' : [...origins],
    credentials: !any,
    methods: ['GET', 'POST', 'PUT', 'DELETE', 'PATCH', 'OPTIONS'],
    allowedHeaders: [
      ...['Content-Type', 'Authorization', 'X-Auth-Type', 'x-ucan-delegation', 'x-did', 'x-timezone', 'x-request-id'],
      ...['x-matrix-access-token', 'x-matrix-homeserver', 'Last-Event-ID'],
    ],
    exposedHeaders: ['X-Request-Id', 'x-run-id', 'Retry-After'],
  });
}

/** The signature covers the bytes, not what a parser makes of them: both are kept. `__proto__` and `constructor` keys are refused. */
function keepRawBody(app: FastifyInstance): void {
  const parseJson = app.getDefaultJsonParser('error', 'error');
  app.removeAllContentTypeParsers();
  app.addContentTypeParser<Buffer>('application/json', { parseAs: 'buffer' }, (request, body, done) => {
    request.rawBody = body;
    if (body.length === 0) done(null, undefined);
    else void parseJson(request, body.toString('utf8'), done);
  });
}

async function fail(error: unknown, request: FastifyRequest, reply: FastifyReply, deps: SidecarDeps): Promise<void> {
  const why = readFailure(error);
  const { code, status, cause } = why;
  const fields = { request_id: request.id, path: request.routeOptions.url ?? '', code, status };
  if (reply.raw.destroyed) return void deps.logger.debug(fields, 'a caller left before the answer');
  if (code === 'INTERNAL' || code === 'STORAGE_UNAVAILABLE') deps.logger.error({ ...fields, err: cause ?? error }, 'a request failed');
  else deps.logger.info(fields, 'a request was refused');
  if (why.details?.['runId'] === undefined) deps.observeRefusal(code);
  await audit(request, why, deps);
  await sendProblem(reply, request, why);
}

/** Only of callers whose signature was verified: what strangers send must not fill the disk. */
async function audit(
  { invocation, legacy }: FastifyRequest,
  { status, code }: Refusal,
  { store, clock, logger }: SidecarDeps,
): Promise<void> {
  if ((invocation === null && legacy === null) || !AUDITED.has(status)) return;
  try {
    await store.write((tx) =>
      writeAudit(store, tx, {
        at: clock.now(),
        principal_id: invocation?.principal ?? legacy?.did ?? null,
        token_id: (invocation ?? legacy)?.tokenId ?? null,
        capability: invocation?.capabilities[0]?.can ?? null,
        decision: 'refused',
        code,
      }),
    );
  } catch (error) {
    if (!(error instanceof StorageError)) throw error;
    logger.warn({ err: error, code }, 'a refusal could not be recorded');
  }
}

/** What is no HTTP, or has headers past Node's limit, never becomes a request. */
function answerUnreadable(error: Error & { code?: string }, socket: Socket, requestId: string): void {
  if (!socket.writable || error.code === 'ECONNRESET') return void socket.destroy();
  const large = error.code === 'HPE_HEADER_OVERFLOW';
  const why = refusal('BAD_REQUEST', { message: large ? 'The headers are too large.' : 'This is no HTTP request.' });
  const body = JSON.stringify(buildProblem(why, requestId));
  const head = [
    'HTTP/1.1 400 Bad Request',
    'Content-Type: application/json; charset=utf-8',
    `X-Request-Id: ${requestId}`,
    'Connection: close',
  ];
  socket.end(`${head.join('\r\n')}\r\nContent-Length: ${Buffer.byteLength(body)}\r\n\r\n${body}`);
}
