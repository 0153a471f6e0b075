/**
 * Lets nobody be answered for nothing, where an operator wants that: prices per model, the host does the accounting (reserve, spend, settle, one
 * transaction each). Silent: the model need not know. Loaded when there are prices.
 */
import { defineOraclePlugin } from 'matrix-oracle';
import { z } from 'zod';
import { priceOf, readPrices } from './prices.ts';

const credits = (name: string) =>
  z
    .string()
    .regex(/^\d{1,9}$/u, `${name} must be a whole number of credits`)
    .transform(Number);

export const configSchema = z.object({
  DISABLE_CREDITS: z.enum(['true', 'false']).default('false').describe('`true`: everybody is answered for nothing, whatever the prices.'),
  CREDITS_PRICES: z
    .string()
    .transform((text, ctx) => {
      const prices = readPrices(text);
      if (typeof prices !== 'string' && prices.size > 0) return prices;
      ctx.addIssue({ code: 'custom', message: typeof prices === 'string' ? prices : 'has no entry' });
      return z.NEVER;
    })
    .describe('What models cost, as `<model>=<input>/<output>` in credits per 1,000 tokens, comma-separated; `*` is every other model.'),
  CREDITS_HOLD: credits('CREDITS_HOLD')
    .prefault('10')
    .describe('Credits that are set aside when an answer begins. Whoever has less is not answered.'),
  CREDITS_INITIAL: credits('CREDITS_INITIAL')
    .prefault('0')
    .describe('Credits that a person is given once. With ACCESS=open it counts as 0: identities cost nothing there.'),
});

export default defineOraclePlugin({
  name: 'credits',
  version: '1.0.0',
  manifest: {
    title: 'Credits',
    summary: 'Counts what answers cost, and lets nobody spend more than they have.',
    whenToUse: [],
    visibility: 'silent',
    category: 'core',
    stability: 'stable',
  },
  configSchema,
  autoDetect: (env) => env['DISABLE_CREDITS'] !== 'true' && (env['CREDITS_PRICES'] ?? '') !== '',
  autoDetectHint: 'set CREDITS_PRICES, and leave out DISABLE_CREDITS, to have answers paid for',
  getCreditPolicy: ({ config }) => ({
    hold: config.CREDITS_HOLD,
    initial: config.CREDITS_INITIAL,
    priceOf: (call) => priceOf(config.CREDITS_PRICES, call),
  }),
});
