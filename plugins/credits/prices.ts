/**
 * The price table as an operator writes it, `<model>=<input>/<output>` per 1,000 tokens, and what a call costs by it. Sums are whole credits: they are
 * rounded up per call, so that no arithmetic of fractions ever makes a balance inexact.
 */
export interface Price {
  /** Credits per 1,000 tokens. */
  readonly input: number;
  readonly output: number;
}
/** By model name; `*` is every model without a price of its own. */
export type Prices = ReadonlyMap<string, Price>;

const MAX_ENTRIES = 200;
const MAX_PRICE = 1_000_000;
const ENTRY = /^([^=\s,]{1,200})=(\d{1,7}(?:\.\d{1,6})?)\/(\d{1,7}(?:\.\d{1,6})?)$/u;

/** @returns why not, as text that completes "CREDITS_PRICES …". */
export function readPrices(text: string): Prices | string {
  const entries = text
    .split(',')
    .map((entry) => entry.trim())
    .filter((entry) => entry !== '');
  if (entries.length > MAX_ENTRIES) return `has more than ${MAX_ENTRIES} entries`;
  const prices = new Map<string, Price>();
  for (const entry of entries) {
    const [, model = '', input, output] = ENTRY.exec(entry) ?? [];
    if (model === '') return 'has an entry that is not <model>=<credits per 1,000 input tokens>/<credits per 1,000 output tokens>';
    const price = { input: Number(input), output: Number(output) };
    if (price.input > MAX_PRICE || price.output > MAX_PRICE) return `has a price above ${MAX_PRICE}`;
    if (prices.has(model)) return `names a model twice: ${model}`;
    prices.set(model, price);
  }
  return prices;
}

/** A model without a price costs the dearest one: a new name must not be a free one. */
export function priceOf(
  prices: Prices,
  { model, inputTokens, outputTokens }: { readonly model: string; readonly inputTokens: number; readonly outputTokens: number },
): number {
  const price = prices.get(model) ?? prices.get('*') ?? dearest(prices);
  return Math.ceil((Math.max(0, inputTokens) * price.input + Math.max(0, outputTokens) * price.output) / 1_000);
}

function dearest(prices: Prices): Price {
  const all = [...prices.values()];
  return { input: Math.max(0, ...all.map(({ input }) => input)), output: Math.max(0, ...all.map(({ output }) => output)) };
}
