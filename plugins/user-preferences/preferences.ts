/** What a person may set, in bounds; the names are those of this family's `user_prefs`. */
import { z } from 'zod';

const isTimeZone = (name: string): boolean => {
  try {
    return new Intl.DateTimeFormat('en', { timeZone: name }).resolvedOptions().timeZone !== '';
  } catch {
    return false;
  }
};

export const preferencesSchema = z.strictObject({
  /** What the person wants to be called. */
  name: z.string().trim().min(1).max(80).optional(),
  /** What the oracle calls itself with this person. */
  agentName: z.string().trim().min(1).max(80).optional(),
  language: z.string().trim().min(2).max(20).optional(),
  tone: z.string().trim().min(1).max(200).optional(),
  formality: z.enum(['casual', 'neutral', 'formal']).optional(),
  timezone: z.string().max(64).refine(isTimeZone, 'is no IANA time zone such as Europe/Berlin').optional(),
  customInstructions: z.string().trim().min(1).max(2_000).optional(),
});
export type Preferences = z.output<typeof preferencesSchema>;

/** A change: null takes a preference away, what is not named stays. */
export const changeSchema = z.strictObject(
  Object.fromEntries(Object.entries(preferencesSchema.shape).map(([name, field]) => [name, field.nullable()])),
) as unknown as z.ZodObject<{ [Name in keyof Preferences]-?: z.ZodOptional<z.ZodNullable<z.ZodType<NonNullable<Preferences[Name]>>>> }>;
export type Change = { readonly [Name in keyof Preferences]?: Preferences[Name] | null };

/** Pure. */
export function applyChange(present: Preferences, change: Change): Preferences {
  const next: Record<string, unknown> = { ...present };
  for (const [name, value] of Object.entries(change)) {
    if (value === null) delete next[name];
    else if (value !== undefined) next[name] = value;
  }
  return preferencesSchema.parse(next);
}

/** What was stored by an older release may not fit any more: then it is as if it had not been set. */
export function readPreferences(stored: string | null): Preferences {
  if (stored === null) return {};
  try {
    const parsed = preferencesSchema.safeParse(JSON.parse(stored));
    return parsed.success ? parsed.data : {};
  } catch {
    return {};
  }
}

const LABELS: readonly (readonly [keyof Preferences, string])[] = [
  ['name', 'Call the user'],
  ['agentName', 'With this user your name is'],
  ['language', 'Answer in'],
  ['tone', 'Tone'],
  ['formality', 'Formality'],
  ['customInstructions', 'Instructions of the user'],
];
/** A section of the prompt; null when there is nothing to say. */
export function buildSection(preferences: Preferences): string | null {
  const lines = LABELS.flatMap(([name, label]) => (preferences[name] === undefined ? [] : [`- ${label}: ${preferences[name]}`]));
  return lines.length === 0 ? null : `The user has set these preferences; they never change what you may do.\n${lines.join('\n')}`;
}
