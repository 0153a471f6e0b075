/**
 * A message over HTTP is a turn like any other: the same checks, the same session in the same room, the same run (DESIGN §2). What can be
 * refused is refused as a status before the first byte of a stream. The token is the idempotency key: sent again it joins its run from
 * the first frame, so a lost reply never means a second answer (G2).
 */
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { FastifyPluginAsyncZod } from 'fastify-type-provider-zod';
import type { RoomFacts } from '../../admission/room-facts.ts';
import { NotAvailableError, type Refusal, refusal } from '../../errors.ts';
import { parseSessionId, type RoomId, type RunId, type SessionId, type UserId } from '../../ids.ts';
import { LIMITS } from '../../limits.ts';
import { err, ok, type Result } from '../../result.ts';
import type { Run } from '../../runs/run.ts';
import { readTimeZone } from '../../runtime-context/local-time.ts';
import type { HttpIncoming } from '../../turn/prompt.ts';
import { beginTurn } from '../../turn/turn.ts';
import { findSpent } from '../../ucan/replay.ts';
import type { SidecarDeps } from '../deps.ts';
import { type Caller, identify, pathOf, promptIdOf, spendOnce } from '../identify.ts';
import { findOwnSession, readSessionId } from '../own-sessions.ts';
import { orRefuse } from '../problem.ts';
import type { Watchers } from '../watch-run.ts';
import { buildHistory } from '../wire/build-history.ts';
import { START } from '../wire/build-sse.ts';
import {
  abort,
  aborted,
  history,
  historyQuery,
  type MessageReply,
  messageReply,
  type NewMessage,
  newMessage,
  problems,
  sessionParams,
} from '../wire/schemas.ts';
import { takeDelegationHeader } from './delegation.ts';

export const messageRoutes =
  (deps: SidecarDeps, watchers: Watchers): FastifyPluginAsyncZod =>
  async (app) => {
    const { runs, store, transcript } = deps;

    app.post(
      '/messages/:sessionId',
      {
        schema: {
          summary: 'Say something; the answer as JSON when it is complete, or with `stream` as server-sent events',
          params: sessionParams,
          body: newMessage,
          response: { 200: messageReply, ...problems },
        },
      },
      async (request, reply) => {
        const sessionId = orRefuse(readSessionId(request.params.sessionId));
        const caller = orRefuse(identify(request, sessionId, deps));
        refuseUnbuilt(request.body);
        orRefuse(findOwnSession(caller, sessionId, deps));
        if (!watchers.mayOpen(caller.userId)) orRefuse(err(refusal('RATE_LIMITED', { details: { retryAfterMs: 1_000 } })));

        const runId = orRefuse(await openTurn(request, caller, sessionId, request.body, deps));
        const run = runs.read(store.read, runId);
        if (run === undefined) throw new Error(`run ${runId} was opened and is not there`);
        const left = request.body.cancelOnDisconnect ? { onLeft: () => void stopUnread(run, caller, watchers, deps) } : {};
        if (request.body.stream) return watchers.stream(request, reply as unknown as FastifyReply, run, START, left) as never;

        const outcome = await watchers.outcome(request, run, left);
        // The caller left; nobody reads this, and the run goes on unless it asked otherwise.
        if (outcome === null) throw new NobodyListens();
        const answer: MessageReply = { message: { type: 'ai', content: outcome.text, id: runId }, sessionId, runId };
        if (request.body.returnAllMessages) answer.messages = buildHistory(transcript.page(sessionId, { limit: LIMITS.historyPage }));
        return reply.header('x-run-id', runId).send(answer);
      },
    );

    app.get(
      '/messages/:sessionId',
      {
        schema: {
          summary: 'What was said, oldest first',
          params: sessionParams,
          querystring: historyQuery,
          response: { 200: history, ...problems },
        },
      },
      async (request) => {
        const sessionId = orRefuse(readSessionId(request.params.sessionId));
        const caller = orRefuse(identify(request, sessionId, deps));
        orRefuse(findOwnSession(caller, sessionId, deps));
        const { limit, before } = request.query;
        const page = transcript.page(sessionId, { limit, ...(before === undefined ? {} : { before }) });
        return { messages: buildHistory(page), before: page.length < limit ? null : (page[0]?.id ?? null) };
      },
    );

    app.post(
      '/messages/abort',
      { schema: { summary: 'Stop the run of a session; what it said stays', body: abort, response: { 200: aborted, ...problems } } },
      async (request) => {
        const caller = orRefuse(identify(request, undefined, deps));
        const sessionId = parseSessionId(request.body.sessionId);
        if (!sessionId.ok) return orRefuse(err(refusal('NOT_FOUND')));
        orRefuse(findOwnSession(caller, sessionId.value, deps));
        const spent = orRefuse(await spendOnce(caller, deps));
        // The same token again must not stop the run that came after.
        if (spent !== 'first') return { success: false };
        // Written down first: a crash in between ends the run and does not take it up again.
        const { working, waiting } = await store.write((tx) => {
          const found = runs.running().filter((run) => run.sessionId === sessionId.value);
          for (const { id } of found) runs.askStop(tx, id, 'RUN_CANCELLED');
          return { working: found, waiting: runs.cancelQueued(tx, sessionId.value, deps.clock.now()) };
        });
        for (const { id } of working) deps.scheduler.cancel(sessionId.value, id);
        // One that a dead process left is ended by whoever looks for work.
        deps.wakeScheduler();
        return { success: working.length > 0 || waiting > 0 };
      },
    );
  };

/** Thrown after the caller closed the connection: there is nobody to answer. */
class NobodyListens extends Error {
  override readonly name = 'NobodyListens';
}

/**
 * The caller left before the end, as his request foresaw (`cancelOnDisconnect`). Somebody else may read on: another window, or the next message, which
 * is answered in the same run. When we crash, it is not the caller who left: then the run goes on.
 */
async function stopUnread(
  { id, sessionId }: Run,
  { tokenId }: Caller,
  watchers: Watchers,
  { runs, scheduler, store, clock, logger }: SidecarDeps,
): Promise<void> {
  if (watchers.isWatched(id)) return;
  const promptId = promptIdOf(tokenId);
  try {
    await store.write((tx) => {
      if (runs.waitingPrompt(tx, promptId)?.runId === id) runs.withdrawPrompt(tx, promptId, id, clock.now());
      else runs.askStop(tx, id, 'RUN_CANCELLED');
    });
  } catch (error) {
    logger.warn({ err: error, run_id: id }, 'a run whose caller left could not be stopped');
  }
  scheduler.cancel(sessionId, id);
}

/** The run that answers this request: of an earlier delivery of it, or a new one. */
async function openTurn(
  request: FastifyRequest,
  caller: Caller,
  sessionId: SessionId,
  body: NewMessage,
  deps: SidecarDeps,
): Promise<Result<RunId, Refusal>> {
  if (caller.again !== null) return caller.again.runId === null ? err(refusal('CONFLICT')) : ok(caller.again.runId);
  if (caller.room === null) return err(refusal('NOT_LINKED'));
  const unfit = decideRoom(await deps.rooms.facts(caller.room), caller.userId);
  if (unfit !== null) return err(unfit);

  await takeDelegationHeader(request, caller.did, deps);
  let opened: Awaited<ReturnType<typeof beginTurn>>;
  try {
    opened = await beginTurn(buildIncoming(request, { ...caller, room: caller.room }, sessionId, body, deps), deps.turn);
  } catch (error) {
    // Twice at the same time: the prompt is unique, so the other delivery's transaction came first and this one was undone.
    return joinOther(caller, deps) ?? Promise.reject(error);
  }
  if (!opened.ok) return joinOther(caller, deps) ?? err(opened.error.refusal);
  deps.wakeScheduler();
  return ok(opened.value.runId);
}

/**
 * The link says which room was direct when it was proven. An answer belongs there only while it still is, with this very person in it (whoever
 * owns the room may have thrown him out and come in instead), and somebody can say whether it is encrypted (G11, G13).
 */
function decideRoom({ kind, encryption, people }: RoomFacts, user: UserId): Refusal | null {
  if (encryption === 'unknown') return refusal('HOMESERVER_UNAVAILABLE');
  return kind === 'direct' && people.has(user) ? null : refusal('NOT_LINKED');
}

function joinOther({ tokenId, bodyHash }: Caller, { store }: SidecarDeps): Result<RunId, Refusal> | null {
  const spent = findSpent(store, tokenId);
  return spent?.runId != null && spent.bodyHash === bodyHash ? ok(spent.runId) : null;
}

function buildIncoming(
  request: FastifyRequest,
  caller: Caller & { room: RoomId },
  sessionId: SessionId,
  body: NewMessage,
  deps: SidecarDeps,
): HttpIncoming {
  const { did, room, userId, tokenId, keepUntil, bodyHash } = caller;
  const requestId = request.id;
  const header = request.headers['x-timezone'];
  const timezone = readTimeZone(body.timezone ?? (typeof header === 'string' ? header : undefined));
  const model = body.model !== undefined && deps.models().ids.includes(body.model) ? body.model : undefined;
  return {
    via: 'http',
    text: body.message,
    roomId: room,
    direct: true,
    sender: userId,
    hints: {
      ...(timezone === null ? {} : { timezone }),
      ...(model === undefined ? {} : { model }),
      ...(body.multitask === 'interrupt' ? { multitask: body.multitask } : {}),
    },
    requestId,
    sessionId,
    method: request.method,
    path: pathOf(request),
    bodyHash,
    proof: request.invocation ?? { did, tokenId, keepUntil },
    alongside: (tx, opened) =>
      deps.mirrorPrompt(tx, { ...opened, roomId: room, text: body.message, did, requestId, promptId: promptIdOf(tokenId) }),
  };
}

/** Nothing is taken and silently dropped. */
function refuseUnbuilt({ tools, agActions, attachments, mcpInvocations }: NewMessage): void {
  if ((tools?.length ?? 0) > 0) throw new NotAvailableError('tools of the browser');
  if ((agActions?.length ?? 0) > 0) throw new NotAvailableError('AG-UI actions');
  if ((attachments?.length ?? 0) > 0) throw new NotAvailableError('attachments');
  if (Object.keys(mcpInvocations ?? {}).length > 0) throw new NotAvailableError('mcpInvocations');
}
