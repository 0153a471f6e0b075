/**
 * Who may use the oracle at all, before any tier (DESIGN §5). Globs are matched on whole Matrix ids; a wildcard in the server part is
 * refused at start, because anybody can register any name on a server of his own.
 */
import type { ErrorCode } from '../errors.ts';
import { localpartOf, serverOf, type UserId } from '../ids.ts';
import type { Tier } from '../turn/principal.ts';

export interface AccessRules {
  readonly access: 'own-server' | 'allowed' | 'granted' | 'open';
  readonly trustedHomeservers: readonly string[];
  readonly allowedUsers: readonly string[];
  readonly unsignedUsers: readonly string[];
}

/**
 * `*` stands for any characters of the localpart and `?` for one; the server part is literal, without case. Name and server are compared
 * apart, so that no star reaches over the colon. No regular expression is built from configuration; cost is at most length times length.
 */
export function matchesGlob(user: UserId, glob: string): boolean {
  const colon = glob.indexOf(':');
  if (!glob.startsWith('@') || colon < 0 || glob.slice(colon + 1).toLowerCase() !== serverOf(user)) return false;
  return matchesName([...localpartOf(user)], [...glob.slice(1, colon)]);
}

/** By characters, not UTF-16 units. After a mismatch only the last star can take one more character, so there is no other way back. */
function matchesName(name: readonly string[], pattern: readonly string[]): boolean {
  let at = 0;
  let next = 0;
  let star = -1;
  let starTook = 0;
  while (at < name.length) {
    if (pattern[next] === '*') {
      star = next++;
      starTook = at;
    } else if (pattern[next] === '?' || pattern[next] === name[at]) {
      at++;
      next++;
    } else if (star >= 0) {
      next = star + 1;
      at = ++starTook;
    } else return false;
  }
  while (pattern[next] === '*') next++;
  return next === pattern.length;
}

export const isTrustedServer = (user: UserId, rules: AccessRules): boolean =>
  rules.trustedHomeservers.some((server) => server.toLowerCase() === serverOf(user));

/**
 * Whether a message of this account is looked at at all, before any cryptography. With `granted` the rows name DIDs, which are known only after
 * it: a signed message passes here and is judged by `decideAccess`.
 */
export function mayUse(user: UserId, rules: AccessRules, isSigned = false): boolean {
  switch (rules.access) {
    case 'open':
      return true;
    case 'own-server':
      return isTrustedServer(user, rules);
    case 'granted':
      return isSigned || isTrustedServer(user, rules);
    case 'allowed':
      return rules.allowedUsers.some((glob) => matchesGlob(user, glob));
  }
}

/** From whom invites are taken; `open` still has the flood bucket in front. */
export const mayInvite = (user: UserId, rules: AccessRules): boolean => mayUse(user, rules);

export interface ProvenUser {
  readonly user: UserId;
  readonly tier: Tier;
  /** Whether the operator let this DID, or one linked to the account, in (`grant-use`). Asked only where it counts. */
  readonly isGranted: () => boolean;
}

/** The answer for somebody whose tier is proven; null lets him in. */
export function decideAccess({ user, tier, isGranted }: ProvenUser, rules: AccessRules): ErrorCode | null {
  if (!mayUse(user, rules, tier === 'signed')) return 'NOT_ALLOWED';
  if (tier !== 'signed' && !isTrustedServer(user, rules)) return 'UNTRUSTED_SERVER';
  return rules.access === 'granted' && !isGranted() ? 'NOT_ALLOWED' : null;
}

/** The homeserver's word is all there is for these, so only servers we trust count (DESIGN §5 "Tiers"). */
export const isListed = (user: UserId, rules: AccessRules): boolean =>
  isTrustedServer(user, rules) && rules.unsignedUsers.some((glob) => matchesGlob(user, glob));
