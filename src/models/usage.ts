/** What a turn cost, summed over its model calls. Providers that report nothing leave no usage rather than a made-up one. */
import type { Usage } from '../runs/run.ts';

/** Usage of one model call as the agent library reports it (`usage_metadata`). */
export function readUsage(metadata: unknown): Usage | null {
  if (typeof metadata !== 'object' || metadata === null) return null;
  const { input_tokens: inputTokens, output_tokens: outputTokens } = metadata as Record<string, unknown>;
  return isCount(inputTokens) && isCount(outputTokens) ? { inputTokens, outputTokens } : null;
}

const isCount = (value: unknown): value is number => typeof value === 'number' && Number.isSafeInteger(value) && value >= 0;

export const addUsage = (a: Usage | undefined, b: Usage | null): Usage | undefined =>
  b === null ? a : { inputTokens: (a?.inputTokens ?? 0) + b.inputTokens, outputTokens: (a?.outputTokens ?? 0) + b.outputTokens };
