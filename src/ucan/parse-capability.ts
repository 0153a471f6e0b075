/**
 * What a tool names when it wants to act at a service: `<can> <with>`, or only the resource when one single ability on it was granted. Minted is a
 * concrete ability only: with `memory/*` in the invocation the service could do everything the person allowed, for one request (research/ucan.md
 * §3.4.9). The oracle's own abilities are no service's business.
 */
import { err, ok, type Result } from '../result.ts';
import type { UcanCapability } from './read-ucan.ts';

/** UCAN 0.9.1 has no ability of a single segment. */
const CONCRETE_ABILITY = /^[a-z0-9_-]{1,64}(?:\/[a-z0-9_-]{1,64}){1,4}$/u;
const OWN_ABILITY = /^(?:oracle|ucan)(?:\/|$)/u;
const MAX_CHARS = 512;
const MAX_NAMED = 10;

export interface RequestedCapability {
  readonly can: string;
  readonly with: string;
}

export const isMintable = (can: string): boolean => CONCRETE_ABILITY.test(can) && !OWN_ABILITY.test(can);

/** @returns a sentence for the author of the tool. */
export function parseCapability(text: string, granted: readonly UcanCapability[]): Result<RequestedCapability, string> {
  if (typeof text !== 'string' || text.length > MAX_CHARS) return err('A capability is `<ability> <resource>`, or a resource.');
  const [first = '', second, ...more] = text.trim().split(/ +/u);
  if (first === '' || more.length > 0) return err('A capability is `<ability> <resource>`, or a resource.');
  if (second !== undefined) return isMintable(first) ? ok({ can: first, with: second }) : err(NOT_MINTABLE);
  const abilities = [...new Set(granted.filter((capability) => capability.with === first).map(({ can }) => can))];
  const named = abilities.filter((can) => !OWN_ABILITY.test(can)).sort();
  const [only, ...others] = named;
  if (only !== undefined && others.length === 0 && isMintable(only)) return ok({ can: only, with: first });
  if (only === undefined) return ok({ can: '', with: first });
  return err(`Name the ability as \`<ability> ${first}\`: on it is granted ${named.slice(0, MAX_NAMED).join(', ')}.`);
}

const NOT_MINTABLE =
  'The ability must be one concrete ability of a service, such as memory/read: no wildcard, and none of the oracle itself.';
