/**
 * A plugin that was given a secret may hand it on without meaning to: in an error text, in a service's answer that repeats the request, in a log
 * line. So every value that was handed out is masked wherever text leaves the plugin for eyes or for the model: tool results, frames, log lines,
 * rooms, model calls (G12). Exact values only: who wants to smuggle one out encodes it, and plugins are trusted not to.
 * Cost: nothing while no value was handed out, else one search of the text per value.
 */
import { SECRET_VALUE } from '../runs/without-secrets.ts';

export interface SecretRedactor {
  /** Masked from now on. */
  add(value: string): void;
  clean(text: string): string;
  /** The same for every string in a value that has JSON, names of its fields included. */
  cleanJson<T>(value: T): T;
  /** Whether a value that was handed out stands in the text. */
  holds(text: string): boolean;
}

/** Shorter ones are words and numbers that stand everywhere: masking them would blot out the answer and tell the secret by what is missing. */
export const MIN_MASKED_CHARS = 6;

/** @param known values that are masked from the start: those of this room that an earlier run was given. */
export function createRedactor(known: Iterable<string> = []): SecretRedactor {
  const values = new Set<string>();
  /** Longest first: a value inside another one must not leave the rest of it standing. */
  let ordered: readonly string[] = [];

  function add(value: string): void {
    const trimmed = value.trim();
    // A plugin trims what it sends, and JSON escapes what it holds.
    for (const form of [value, trimmed, JSON.stringify(trimmed).slice(1, -1)]) if (form.trim().length >= MIN_MASKED_CHARS) values.add(form);
    ordered = [...values].sort((a, b) => b.length - a.length);
  }
  for (const value of known) add(value);

  // What stands between two finds is searched for the others: never the mask itself.
  function clean(text: string, from = 0): string {
    const value = ordered[from];
    if (value === undefined) return text;
    if (!text.includes(value)) return clean(text, from + 1);
    return text
      .split(value)
      .map((rest) => clean(rest, from + 1))
      .join(SECRET_VALUE);
  }
  const cleanJson = (value: unknown): unknown => {
    if (typeof value === 'string') return clean(value);
    if (Array.isArray(value)) return value.map(cleanJson);
    if (typeof value !== 'object' || value === null) return value;
    return Object.fromEntries(Object.entries(value).map(([key, inner]) => [clean(key), cleanJson(inner)]));
  };
  return {
    add,
    clean: (text) => clean(text),
    cleanJson: <T>(value: T) => (ordered.length === 0 ? value : (cleanJson(value) as T)),
    holds: (text) => ordered.some((value) => text.includes(value)),
  };
}
