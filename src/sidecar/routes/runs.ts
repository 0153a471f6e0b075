/** A run read again from any point: what was seen is not sent twice, what was not is not left out (G7). */
import type { FastifyReply } from 'fastify';
import type { FastifyPluginAsyncZod } from 'fastify-type-provider-zod';
import { refusal } from '../../errors.ts';
import { parseRunId } from '../../ids.ts';
import { err } from '../../result.ts';
import type { SidecarDeps } from '../deps.ts';
import { identify } from '../identify.ts';
import { orRefuse } from '../problem.ts';
import type { Watchers } from '../watch-run.ts';
import { readCursor } from '../wire/build-sse.ts';
import { problems, runParams, runQuery } from '../wire/schemas.ts';

export const runRoutes =
  (deps: SidecarDeps, watchers: Watchers): FastifyPluginAsyncZod =>
  async (app) => {
    app.get(
      '/runs/:runId',
      {
        schema: {
          summary: 'The events of a run from after the one already seen, as server-sent events',
          params: runParams,
          querystring: runQuery,
          response: problems,
        },
      },
      async (request, reply) => {
        const caller = orRefuse(identify(request, undefined, deps));
        const id = parseRunId(request.params.runId);
        const run = id.ok ? deps.runs.read(deps.store.read, id.value) : undefined;
        if (run === undefined || run.principalId !== caller.did || run.roomId !== caller.room) return orRefuse(err(refusal('NOT_FOUND')));
        const header = request.headers['last-event-id'];
        const field = header === undefined ? 'after' : 'Last-Event-ID';
        const from = readCursor(typeof header === 'string' ? header : (request.query.after ?? '0'));
        if (!from.ok) {
          return orRefuse(err(refusal('BAD_REQUEST', { message: `\`${field}\` is not the id of an event.`, details: { field } })));
        }
        if (!watchers.mayOpen(caller.did)) return orRefuse(err(refusal('RATE_LIMITED', { details: { retryAfterMs: 1_000 } })));
        return watchers.stream(request, reply as unknown as FastifyReply, run, from.value) as never;
      },
    );
  };
