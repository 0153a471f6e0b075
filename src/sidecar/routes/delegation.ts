/** Grants over HTTP belong to the authority capability; until it is there, a caller is told so and nothing is stored. */
import type { FastifyPluginAsyncZod } from 'fastify-type-provider-zod';
import { NotAvailableError } from '../../errors.ts';
import { problems } from '../wire/schemas.ts';

export const delegationRoutes: FastifyPluginAsyncZod = async (app) => {
  for (const method of ['GET', 'POST', 'DELETE'] as const) {
    app.route({
      method,
      url: '/delegation',
      schema: { summary: 'Grants; not available yet', response: problems },
      handler: async () => {
        throw new NotAvailableError('/delegation (grants)');
      },
    });
  }
};
