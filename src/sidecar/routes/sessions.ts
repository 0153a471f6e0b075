/**
 * Sessions of the caller. A session is named after an event in his direct room, so opening one posts that event; the same token asked
 * again answers the same session, whatever was lost on the way (DESIGN §5 "Over HTTP").
 */
import type { FastifyPluginAsyncZod } from 'fastify-type-provider-zod';
import { refusal } from '../../errors.ts';
import { LIMITS } from '../../limits.ts';
import { err } from '../../result.ts';
import type { Session } from '../../sessions/sessions.ts';
import type { SidecarDeps } from '../deps.ts';
import { identify, spendOnce } from '../identify.ts';
import { findOwnSession, listOwnSessions, readSessionId, retireSession } from '../own-sessions.ts';
import { orRefuse } from '../problem.ts';
import { createPace } from '../rate-limit.ts';
import { isoTime } from '../wire/iso.ts';
import {
  newSession,
  problems,
  type SessionReply,
  sessionDeleted,
  sessionParams,
  session as sessionSchema,
  sessionsPage,
  sessionsQuery,
} from '../wire/schemas.ts';
import { takeDelegationHeader } from './delegation.ts';

export const sessionRoutes =
  (deps: SidecarDeps): FastifyPluginAsyncZod =>
  async (app) => {
    const { store, sessions, links, clock, identity } = deps;
    // Each posts an event into a room.
    const pace = createPace(LIMITS.sessionsOpenedPerMinute);

    const show = (session: Session): SessionReply => ({
      sessionId: session.session_id,
      ...(session.title === null ? {} : { title: session.title }),
      lastUpdatedAt: isoTime(session.last_at),
      createdAt: isoTime(session.created_at),
      oracleName: identity.name,
      oracleDid: identity.did,
      oracleEntityDid: identity.entityDid ?? identity.did,
      roomId: session.room_id,
    });

    app.post(
      '/sessions',
      { schema: { summary: 'Start a conversation', body: newSession, response: { 201: sessionSchema, ...problems } } },
      async (request, reply) => {
        const caller = orRefuse(identify(request, undefined, deps));
        // Of the account: a person may have proven as many DIDs as he likes.
        if (caller.again === null) orRefuse(await pace(caller.userId));
        orRefuse(await spendOnce(caller, deps));
        const { did, userId, tokenId } = caller;
        await takeDelegationHeader(request, did, deps);
        // Looked up again: another first request may have opened the direct room meanwhile, and one is enough.
        const room = caller.room ?? links.of(did, userId)?.directRoom ?? null;
        const opened = orRefuse(await deps.openSession({ roomId: room, userId, did, tokenId }));
        if (room !== null && opened.roomId !== room) throw new Error('the session was opened in another room than asked');
        const session = await store.write((tx) => {
          const at = clock.now();
          if (room === null) links.prove(tx, { did, userId, directRoom: opened.roomId }, at);
          const { sessionId: id, roomId } = opened;
          return sessions.byId(tx, id) ?? sessions.create(tx, { id, roomId, owner: did, kind: 'thread', threadRoot: id, title: null }, at);
        });
        // Known already and not his: only if two tokens named one event, which the port forbids.
        if (session.owner !== did) orRefuse(err(refusal('NOT_FOUND')));
        return reply.code(201).send(show(session));
      },
    );

    app.get(
      '/sessions',
      { schema: { summary: 'Own conversations, newest first', querystring: sessionsQuery, response: { 200: sessionsPage, ...problems } } },
      async (request) => {
        const { did, room } = orRefuse(identify(request, undefined, deps));
        if (room === null) return { sessions: [], total: 0 };
        const { limit, offset } = request.query;
        const found = listOwnSessions(store, { did, room }, { limit, offset });
        return { sessions: found.sessions.map(show), total: found.total };
      },
    );

    app.delete(
      '/sessions/:sessionId',
      { schema: { summary: 'Take a conversation off the list', params: sessionParams, response: { 200: sessionDeleted, ...problems } } },
      async (request) => {
        const id = orRefuse(readSessionId(request.params.sessionId));
        const caller = orRefuse(identify(request, id, deps));
        if (caller.again === null) {
          orRefuse(findOwnSession(caller, id, deps));
          orRefuse(await spendOnce(caller, deps));
          await store.write((tx) => retireSession(store, tx, id, clock.now()));
        }
        return { message: 'Session deleted successfully' };
      },
    );
  };
