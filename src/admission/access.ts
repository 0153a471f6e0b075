/**
 * Who may use the oracle at all, before any tier (DESIGN §5). Globs are matched on whole Matrix ids; a `*` in the server part is refused
 * at start, because anybody can register any name on a server of his own.
 */
import { serverOf, type UserId } from '../ids.ts';

export interface AccessRules {
  readonly access: 'own-server' | 'allowed' | 'open';
  readonly trustedHomeservers: readonly string[];
  readonly allowedUsers: readonly string[];
  readonly unsignedUsers: readonly string[];
}

/** `*` stands for any characters of the localpart; everything else is literal. No regular expression is built from configuration. */
export function matchesGlob(user: UserId, glob: string): boolean {
  const [head = '', ...rest] = glob.split('*');
  if (rest.length === 0) return user === glob;
  if (!user.startsWith(head)) return false;
  let at = head.length;
  const tail = rest.pop() ?? '';
  for (const middle of rest) {
    const found = user.indexOf(middle, at);
    if (found < 0) return false;
    at = found + middle.length;
  }
  return user.length - tail.length >= at && user.endsWith(tail);
}

export const isTrustedServer = (user: UserId, rules: AccessRules): boolean =>
  rules.trustedHomeservers.some((server) => server.toLowerCase() === serverOf(user));

export function mayUse(user: UserId, rules: AccessRules): boolean {
  switch (rules.access) {
    case 'open':
      return true;
    case 'own-server':
      return isTrustedServer(user, rules);
    case 'allowed':
      return rules.allowedUsers.some((glob) => matchesGlob(user, glob));
  }
}

/** From whom invites are taken; `open` still has the flood bucket in front. */
export const mayInvite = (user: UserId, rules: AccessRules): boolean => mayUse(user, rules);

/** The homeserver's word is all there is for these, so only servers we trust count (DESIGN §5 "Tiers"). */
export const isListed = (user: UserId, rules: AccessRules): boolean =>
  isTrustedServer(user, rules) && rules.unsignedUsers.some((glob) => matchesGlob(user, glob));
