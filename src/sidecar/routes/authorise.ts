/**
 * The authorise page and the two questions it asks before anybody has signed anything: which oracle this is, and what a link was sent for. The
 * nonce stands in the fragment of the link, so no request line, log or referrer ever has it; it comes in a body, and looking does not use it up (DESIGN §5
 * "Grants from ordinary clients"). Sizes are bounded, and the address limits of the sidecar stand in front (G14).
 */
import type { FastifyReply } from 'fastify';
import type { FastifyPluginAsyncZod } from 'fastify-type-provider-zod';
import { z } from 'zod';
import { refusal } from '../../errors.ts';
import type { Did, RoomId, UserId } from '../../ids.ts';
import { LIMITS } from '../../limits.ts';
import { err, ok } from '../../result.ts';
import type { Clock } from '../../time.ts';
import { type AuthorisePage, PAGE_HEADERS, PAGE_MISSING, type PageFile } from '../pages/read-pages.ts';
import { orRefuse } from '../problem.ts';
import { problems } from '../wire/schemas.ts';

/** Something that people may grant besides chatting. */
export interface AbilityToAsk {
  readonly can: string;
  readonly with: string;
  /** What it means, for people. */
  readonly title: string;
}

export interface AuthorisePorts {
  readonly identity: { readonly name: string; readonly did: Did };
  /** `null`: not built, and the page says so. */
  readonly page: AuthorisePage | null;
  readonly authoriseLinks: { holder(nonce: string, now: number): { user: UserId; room: RoomId; sentAt?: number } | undefined };
  readonly abilities: () => readonly AbilityToAsk[];
  readonly clock: Clock;
}

const DAY_S = 24 * 60 * 60;
const CONTEXT_BODY_BYTES = 1_024;
/** 16 bytes as unpadded base64url. */
const NONCE_CHARS = 22;

const oracle = z.object({ did: z.string(), name: z.string() });
const question = z.strictObject({ nonce: z.string().max(NONCE_CHARS * 2) });
const context = z.object({
  oracle,
  matrixUserId: z.string().describe('The account that the link was sent to; the grant must carry it as `nb.sender`.'),
  roomId: z.string().describe('The direct room with that account.'),
  abilities: z.array(z.object({ can: z.string(), with: z.string(), title: z.string() })),
  expiresInMs: z.number().int().describe('How long the link may still be used, at the most.'),
  maxDays: z.number().int(),
});

export const authoriseRoutes =
  ({ identity, page, authoriseLinks, abilities, clock }: AuthorisePorts): FastifyPluginAsyncZod =>
  async (app) => {
    const serve = (choose: (page: AuthorisePage) => PageFile) => async (_request: unknown, reply: FastifyReply) => {
      reply.headers(PAGE_HEADERS).serializer((body: unknown) => body as string);
      if (page === null) return reply.code(503).type('text/plain; charset=utf-8').send(PAGE_MISSING);
      const { type, body } = choose(page);
      return reply.type(type).send(body);
    };
    const hidden = { schema: { hide: true } };
    app.get(
      '/authorise',
      hidden,
      serve(({ html }) => html),
    );
    app.get(
      '/authorise/app.js',
      hidden,
      serve(({ script }) => script),
    );
    app.get(
      '/authorise/app.css',
      hidden,
      serve(({ style }) => style),
    );

    app.get('/authorise/oracle', { schema: { summary: 'Whose page this is', response: { 200: oracle, ...problems } } }, async () => ({
      did: identity.did,
      name: identity.name,
    }));
    app.post(
      '/authorise/context',
      {
        bodyLimit: CONTEXT_BODY_BYTES,
        schema: { summary: 'What a link to the authorise page was sent for', body: question, response: { 200: context, ...problems } },
      },
      async (request) => {
        const now = clock.now();
        const holder = authoriseLinks.holder(request.body.nonce, now);
        const { user, room, sentAt = now } = orRefuse(holder === undefined ? err(refusal('BAD_LINK')) : ok(holder));
        return {
          oracle: { did: identity.did, name: identity.name },
          matrixUserId: user,
          roomId: room,
          abilities: abilities().map(({ can, with: resource, title }) => ({ can, with: resource, title })),
          expiresInMs: Math.max(0, sentAt + LIMITS.authoriseLinkMs - now),
          maxDays: LIMITS.actingGrantLifetimeS / DAY_S,
        };
      },
    );
  };
