/**
 * Runs as their person sees them: which there are, and each read again from any point, where what was seen is not sent twice and what was not is
 * not left out (G7). Another's run is as unknown as none (G13).
 */
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { FastifyPluginAsyncZod } from 'fastify-type-provider-zod';
import { type Refusal, refusal } from '../../errors.ts';
import { parseRunId } from '../../ids.ts';
import { err, ok, type Result } from '../../result.ts';
import { revokersOf } from '../../ucan/grants.ts';
import type { SidecarDeps } from '../deps.ts';
import { type Caller, identify, spendOnce } from '../identify.ts';
import { findOwnRun, listOwnRuns, newestOwnRun, type RunSummary } from '../own-runs.ts';
import { findOwnSession, readSessionId } from '../own-sessions.ts';
import { orRefuse } from '../problem.ts';
import { TICKET, type TicketHolder, type Tickets } from '../tickets.ts';
import type { Watchers } from '../watch-run.ts';
import { readCursor } from '../wire/build-sse.ts';
import { isoTime } from '../wire/iso.ts';
import {
  newTicket,
  problems,
  type RunReply,
  runParams,
  runQuery,
  runSummary,
  runsPage,
  runsQuery,
  sessionParams,
  ticketIssued,
} from '../wire/schemas.ts';

export const runRoutes =
  (deps: SidecarDeps, tickets: Tickets): FastifyPluginAsyncZod =>
  async (app) => {
    const { store } = deps;

    app.get(
      '/runs',
      { schema: { summary: 'Own runs, newest first', querystring: runsQuery, response: { 200: runsPage, ...problems } } },
      async (request) => {
        const caller = orRefuse(identify(request, undefined, deps));
        const { limit, status } = request.query;
        const before = request.query.before === undefined ? undefined : parseRunId(request.query.before);
        if (before?.ok === false) {
          return orRefuse(err(refusal('BAD_REQUEST', { message: '`before` is not the id of a run.', details: { field: 'before' } })));
        }
        const found = listOwnRuns(store, caller, { limit, status, before: before?.value });
        return { runs: found.runs.map(show), before: found.before };
      },
    );

    app.get(
      '/sessions/:sessionId/run',
      {
        schema: { summary: 'The newest run of a session', params: sessionParams, response: { 200: runSummary, ...problems } },
      },
      async (request) => {
        const sessionId = orRefuse(readSessionId(request.params.sessionId));
        const caller = orRefuse(identify(request, sessionId, deps));
        orRefuse(findOwnSession(caller, sessionId, deps));
        const run = newestOwnRun(store, caller, sessionId);
        return run === undefined ? orRefuse(err(refusal('NOT_FOUND'))) : show(run);
      },
    );

    app.post(
      '/runs/:runId/ticket',
      {
        schema: {
          summary: 'A ticket with which a browser reads this run once without headers (EventSource)',
          params: runParams,
          body: newTicket,
          response: { 200: ticketIssued, ...problems },
        },
      },
      async (request) => {
        const caller = orRefuse(identify(request, undefined, deps));
        const run = orRefuse(findOwnRun(caller, request.params.runId, deps));
        const { did, userId, room } = caller;
        if (room === null) return orRefuse(err(refusal('NOT_FOUND')));
        // The same request again must not hand out a second one.
        if (orRefuse(await spendOnce(caller, deps)) !== 'first') return orRefuse(err(refusal('REPLAY')));
        return orRefuse(tickets.issue({ runId: run.id, did, userId, room, ...restsOn(request) }));
      },
    );
  };

/** Apart from the others, because its door is another: a ticket, or as everywhere. */
export const watchRoute =
  (deps: SidecarDeps, watchers: Watchers, tickets: Tickets, door: (request: FastifyRequest) => Promise<void>): FastifyPluginAsyncZod =>
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
        onRequest: async (request) => {
          if (readTicket(request) === undefined) await door(request);
        },
      },
      async (request, reply) => {
        const ticket = readTicket(request);
        const reader = orRefuse(
          ticket === undefined ? identify(request, undefined, deps) : admitTicket(request.params.runId, ticket, tickets, deps),
        );
        const run = orRefuse(findOwnRun(reader, request.params.runId, deps));
        const header = request.headers['last-event-id'];
        const field = header === undefined ? 'after' : 'Last-Event-ID';
        const from = readCursor(typeof header === 'string' ? header : (request.query.after ?? '0'));
        if (!from.ok) {
          return orRefuse(err(refusal('BAD_REQUEST', { message: `\`${field}\` is not the id of an event.`, details: { field } })));
        }
        if (!watchers.mayOpen(reader.userId)) return orRefuse(err(refusal('RATE_LIMITED', { details: { retryAfterMs: 1_000 } })));
        return watchers.stream(request, reply as unknown as FastifyReply, run, from.value, { byTicket: ticket !== undefined }) as never;
      },
    );
  };

/** Only of a request without the header: who can sign needs no ticket, and keeps it. */
function readTicket({ headers, query }: FastifyRequest): string | undefined {
  const { ticket } = query as { ticket?: unknown };
  return headers.authorization === undefined && typeof ticket === 'string' ? ticket : undefined;
}

/** As a read that is signed now: the link, who may use the oracle, and what the signature rested on may all have ended since. */
function admitTicket(
  runId: string,
  ticket: string,
  tickets: Tickets,
  { links, mayUse, isTrustedServer, grants, clock }: SidecarDeps,
): Result<Pick<Caller, 'did' | 'userId' | 'room'>, Refusal> {
  const id = parseRunId(runId);
  const holder = id.ok && TICKET.test(ticket) ? tickets.redeem(ticket, id.value) : undefined;
  if (holder === undefined) return err(refusal('UNAUTHENTICATED', { message: NO_TICKET }));
  const { did, userId, room, isLegacy } = holder;
  const { path, until } = holder.grants;
  const link = links.of(did, userId);
  if (link === undefined || link.directRoom !== room) return err(refusal('NOT_LINKED'));
  if (isLegacy && !isTrustedServer(userId)) return err(refusal('UNTRUSTED_SERVER'));
  if (!mayUse(userId, did)) return err(refusal('NOT_ALLOWED'));
  if (path.some((ref, at) => grants.isRevoked(ref, revokersOf(path, at)))) return err(refusal('REVOKED'));
  if (until !== null && until <= clock.now()) return err(refusal('GRANT_EXPIRED'));
  return ok({ did, userId, room });
}
const NO_TICKET = 'This ticket is not known: it was used, or is over a minute old, or is for another run. Ask for another.';

function restsOn({ invocation }: FastifyRequest): Pick<TicketHolder, 'grants' | 'isLegacy'> {
  return { grants: { path: invocation?.grants ?? [], until: invocation?.grantsUntil ?? null }, isLegacy: invocation === null };
}

const show = (run: RunSummary): RunReply => ({
  runId: run.id,
  sessionId: run.sessionId,
  status: run.status,
  attempt: run.attempt,
  createdAt: isoTime(run.createdAt),
  startedAt: run.startedAt === null ? null : isoTime(run.startedAt),
  endedAt: run.endedAt === null ? null : isoTime(run.endedAt),
  usage: run.usage,
  errorCode: run.errorCode,
  pruned: run.isPruned,
});
