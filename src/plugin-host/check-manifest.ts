/**
 * What a manifest must be, and what it should be. The model chooses a plugin by these words and they stand in every prompt, so an empty one makes a
 * plugin that is never used, and an endless one costs every turn: the first stops the start, the second is said once. Pure.
 */
import { z } from 'zod';
import type { PluginManifest, PluginVisibility } from '../plugin-api/define-oracle-plugin.ts';
import { err, ok, type Result } from '../result.ts';

export type CompleteManifest = PluginManifest & { readonly visibility: PluginVisibility };

const text = (max: number) => z.string().trim().min(1, 'is empty').max(max, `is longer than ${max} characters`);
const list = (item: z.ZodType<string>) => z.array(item).max(50, 'has more than 50 entries');
const form = z.strictObject({
  title: text(100),
  summary: text(1_000),
  whenToUse: list(text(1_000)),
  whenNotToUse: list(text(1_000)).optional(),
  examples: z
    .array(z.strictObject({ user: text(500), thought: text(500).optional(), tool: text(64), args: z.unknown().optional() }))
    .max(20, 'has more than 20 entries')
    .optional(),
  tags: list(text(50).refine((tag) => tag === tag.toLowerCase(), 'is not lower case')).optional(),
  category: z.enum(['data', 'communication', 'automation', 'memory', 'integration', 'ui', 'auth', 'observability', 'core']).optional(),
  visibility: z.enum(['always', 'on-demand', 'silent']).default('on-demand'),
  stability: z.enum(['stable', 'beta', 'experimental']).optional(),
});

/** @returns the faults as the ends of sentences: `summary is empty`. */
export function readManifest(manifest: unknown): Result<CompleteManifest, readonly string[]> {
  const parsed = form.safeParse(manifest);
  if (!parsed.success) return err(parsed.error.issues.map(({ path, message }) => [path.join('.'), message].filter(Boolean).join(' ')));
  const { whenToUse, visibility } = parsed.data;
  if (whenToUse.length === 0 && visibility !== 'silent') return err(['whenToUse needs an entry, unless visibility is silent']);
  // The form adds nothing but the default, and trims; what it makes has the manifest's type but for `undefined`, which no reader asks for.
  return ok(Object.freeze(parsed.data as CompleteManifest));
}

/** Longer than a prompt should be made by one plugin. */
export function planManifestWarnings({ summary, whenToUse, whenNotToUse = [], examples = [] }: PluginManifest): readonly string[] {
  return [
    ...(summary.length > 120 ? ['summary has more than 120 characters'] : []),
    ...(whenToUse.length > 8 ? ['whenToUse has more than 8 entries'] : []),
    ...(whenToUse.some((entry) => entry.length > 100) ? ['whenToUse has an entry of more than 100 characters'] : []),
    ...(whenNotToUse.length > 4 ? ['whenNotToUse has more than 4 entries'] : []),
    ...(whenNotToUse.some((entry) => entry.length > 80) ? ['whenNotToUse has an entry of more than 80 characters'] : []),
    ...(examples.length > 3 ? ['examples has more than 3 entries'] : []),
  ];
}
