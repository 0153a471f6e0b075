/**
 * Whether a right rests within another. The library's default compares resources as plain prefixes and caveats with `!=`, and drops a
 * caveat that its schema does not know, so "only in this room" is lost on the way (research/ucan.md §3.2 C and D). Here resources are equal as
 * text, abilities by whole segments, caveats by type and value, and a caveat nobody knows covers nothing (G8). Pure.
 */
import type { JsonObject, JsonValue } from '../json.ts';
import { MESSAGE_ABILITY, READ_ABILITY } from './abilities.ts';
import type { UcanCapability } from './read-ucan.ts';

/** True when whoever holds `proof` may hand on, or use, `claim`. */
export const covers = (proof: UcanCapability, claim: UcanCapability): boolean =>
  proof.with === claim.with && coversAbility(proof.can, claim.can) && keepsCaveats(proof.nb, claim.nb);

/** Equal, `*`, or `segments/*` in front of it. */
export const coversAbility = (proof: string, claim: string): boolean =>
  proof === claim || proof === '*' || (proof.endsWith('/*') && claim.startsWith(proof.slice(0, -1)));

/** Everything that the proof restricts must be restricted to the same in what rests on it; more may be. */
function keepsCaveats(proof: JsonObject = {}, claim: JsonObject = {}): boolean {
  return Object.keys(proof).every((key) => Object.hasOwn(claim, key) && isSame(proof[key], claim[key]));
}

/** Both came through the gate: plain, and LIMITS.nbDepth deep at most. Arrays by order, maps by key, numbers and text by type and value. */
function isSame(a: JsonValue | undefined, b: JsonValue | undefined): boolean {
  if (typeof a !== 'object' || typeof b !== 'object' || a === null || b === null) return a === b;
  if (Array.isArray(a) || Array.isArray(b)) {
    return Array.isArray(a) && Array.isArray(b) && a.length === b.length && a.every((item, n) => isSame(item, b[n]));
  }
  const keys = Object.keys(a);
  return keys.length === Object.keys(b).length && keys.every((key) => Object.hasOwn(b, key) && isSame(a[key], b[key]));
}

/** Signed by the authorise page into any capability of its grant. */
const EVERYWHERE = ['link', 'sender'];
const CAVEATS: Readonly<Record<string, readonly string[]>> = {
  [MESSAGE_ABILITY]: ['room', 'sender', 'type', 'hash', 'ts', 'thread', 'edits'],
  [READ_ABILITY]: ['sender', 'room'],
};

/** False when `nb` restricts by something we do not understand and so could not keep. */
export function hasKnownCaveats({ can, nb = {} }: UcanCapability): boolean {
  const known = Object.hasOwn(CAVEATS, can) ? CAVEATS[can] : undefined;
  return Object.keys(nb).every((key) => EVERYWHERE.includes(key) || known?.includes(key) === true);
}
