/** What needs no authority: is it alive, is it ready, which models, and the interface as OpenAPI. Says nothing about anybody (G12). */
import type { FastifyPluginAsyncZod } from 'fastify-type-provider-zod';
import { z } from 'zod';
import type { SidecarDeps } from '../deps.ts';
import { isoTime } from '../wire/iso.ts';
import { about, health, models, problems } from '../wire/schemas.ts';

/** Without limits per address: a load balancer asks often, and must be answered under load. */
export const healthRoutes =
  (deps: SidecarDeps): FastifyPluginAsyncZod =>
  async (app) => {
    const read = () => {
      const { live, ready, parts } = deps.health();
      return {
        status: ready && parts.every(({ ok }) => ok) ? ('ok' as const) : ('degraded' as const),
        timestamp: isoTime(deps.clock.now()),
        live,
        ready,
        parts: [...parts],
      };
    };
    app.get('/', { schema: { summary: 'Which oracle this is', response: { 200: about } } }, async () => ({
      status: 'ok' as const,
      message: `${deps.identity.name} is running`,
      timestamp: isoTime(deps.clock.now()),
    }));
    app.get(
      '/health',
      { schema: { summary: 'Whether the process lives; 200 as long as it can answer', response: { 200: health } } },
      async () => read(),
    );
    app.get(
      '/health/ready',
      { schema: { summary: 'Whether it can take work: 503 when not', response: { 200: health, 503: health } } },
      async (_request, reply) => {
        const state = read();
        return reply.code(state.ready ? 200 : 503).send(state);
      },
    );
  };

export const publicRoutes =
  (deps: SidecarDeps): FastifyPluginAsyncZod =>
  async (app) => {
    app.get('/models', { schema: { summary: 'Models a message may ask for', response: { 200: models, ...problems } } }, async () => {
      const { ids, default: preferred } = deps.models();
      return { models: ids.map((id) => ({ id })), default: preferred };
    });
    app.get('/docs/json', { schema: { hide: true, response: { 200: z.any() } } }, async () => app.swagger());
  };
