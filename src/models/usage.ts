/** What a turn cost, summed over its model calls. Where a provider reports nothing it is estimated, and says so: a free call would be an invitation. */
import type { Usage } from '../runs/run.ts';

/** English text; other languages and code take more tokens, so an estimate is rather too low than too high. */
const CHARS_PER_TOKEN = 4;
export const estimateTokens = (chars: number): number => Math.ceil(chars / CHARS_PER_TOKEN);

/** In the `usage` of a provider's last chunk: it was counted here. */
export const ESTIMATED = 'estimated';

/**
 * Usage of one model call as the agent library reports it: `usage_metadata` of the message, and its `response_metadata`, where an estimate says that it
 * is one.
 */
export function readUsage(metadata: unknown, response: unknown = {}): Usage | null {
  if (typeof metadata !== 'object' || metadata === null) return null;
  const { input_tokens: inputTokens, output_tokens: outputTokens } = metadata as Record<string, unknown>;
  if (!isCount(inputTokens) || !isCount(outputTokens)) return null;
  return { inputTokens, outputTokens, ...(isEstimated(response) ? { estimated: true } : {}) };
}

/** Whether the usage of a message or a chunk was estimated. */
export function isEstimated(response: unknown): boolean {
  if (typeof response !== 'object' || response === null || !('usage' in response)) return false;
  const { usage } = response;
  return typeof usage === 'object' && usage !== null && ESTIMATED in usage && usage[ESTIMATED] === true;
}

const isCount = (value: unknown): value is number => typeof value === 'number' && Number.isSafeInteger(value) && value >= 0;

export function addUsage(a: Usage | undefined, b: Usage | null): Usage | undefined {
  if (b === null) return a;
  const isEstimate = a?.estimated === true || b.estimated === true;
  return {
    inputTokens: (a?.inputTokens ?? 0) + b.inputTokens,
    outputTokens: (a?.outputTokens ?? 0) + b.outputTokens,
    ...(isEstimate ? { estimated: true } : {}),
  };
}
