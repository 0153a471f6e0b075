import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import credits, { configSchema } from '../../../plugins/credits/plugin.ts';
import { priceOf, readPrices } from '../../../plugins/credits/prices.ts';

const context = (env: Record<string, string>) =>
  ({ config: configSchema.parse(env), identity: { name: '', did: '', entityDid: null }, availablePlugins: new Set(), logger: {} }) as never;
const table = (text: string) => {
  const prices = readPrices(text);
  if (typeof prices === 'string') throw new Error(prices);
  return prices;
};
const call = (model: string, inputTokens: number, outputTokens: number) => ({ model, inputTokens, outputTokens });

describe('prices', () => {
  test('a model costs its own price, others the one of *', () => {
    const prices = table('small=0.25/2, *=1/4');

    expect(priceOf(prices, call('small', 4_000, 1_000))).toBe(3);
    expect(priceOf(prices, call('other', 1_000, 1_000))).toBe(5);
  });

  test('a model without a price costs the dearest one: a new name is not free', () => {
    expect(priceOf(table('small=0.25/2,large=3/1'), call('new', 1_000, 1_000))).toBe(5);
  });

  test.each([
    ['a missing half', 'small=1'],
    ['a negative price', 'small=-1/2'],
    ['an infinite price', 'small=Infinity/2'],
    ['a price beyond all reason', 'small=9999999/2'],
    ['a model that is named twice', 'a=1/1,a=2/2'],
    ['no model', '=1/1'],
  ])('%s is said', (_case, text) => {
    expect(typeof readPrices(text)).toBe('string');
  });

  test('whatever is counted, a price is a whole number of credits and never negative', () => {
    const prices = table('a=0.000001/0.5,*=7/3');
    fc.assert(
      fc.property(
        fc.constantFrom('a', 'b'),
        fc.integer({ min: -10, max: 1e7 }),
        fc.integer({ min: -10, max: 1e7 }),
        (model, input, output) => {
          const price = priceOf(prices, call(model, input, output));
          return Number.isSafeInteger(price) && price >= 0;
        },
      ),
    );
  });
});

describe('the plugin', () => {
  test('is there only where there are prices, and not where credits are switched off', () => {
    expect(credits.autoDetect?.({})).toBe(false);
    expect(credits.autoDetect?.({ CREDITS_PRICES: '*=1/1' })).toBe(true);
    expect(credits.autoDetect?.({ CREDITS_PRICES: '*=1/1', DISABLE_CREDITS: 'true' })).toBe(false);
  });

  test('brings a policy of its settings', () => {
    const policy = credits.getCreditPolicy?.(context({ CREDITS_PRICES: '*=1/2', CREDITS_HOLD: '20', CREDITS_INITIAL: '5' }));

    expect(policy).toMatchObject({ hold: 20, initial: 5 });
    expect(policy?.priceOf(call('m', 1_000, 1_000))).toBe(3);
  });

  test.each([
    ['no price', { CREDITS_PRICES: '' }],
    ['a broken price', { CREDITS_PRICES: 'x' }],
    ['half a credit', { CREDITS_PRICES: '*=1/1', CREDITS_HOLD: '0.5' }],
  ])('%s stops the start', (_case, env) => {
    expect(configSchema.safeParse(env).success).toBe(false);
  });
});
