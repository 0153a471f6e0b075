/**
 * A `did:ixo` has one Matrix name, and the name is built from the DID, never read back: anybody may register `@did-ixo-…` on a server of their own
 * (research/ucan.md §3.1, E1 and E2). So the server must be one we trust, or the one that the DID's own document names.
 */
import type { ErrorCode } from '../errors.ts';
import { type Did, localpartOf, serverOf, type UserId } from '../ids.ts';
import { err, ok, type Result } from '../result.ts';
import type { ResolveKeys } from './did/resolve-keys.ts';

export const isIxoDid = (did: Did): boolean => did.startsWith('did:ixo:');

/** The localpart of `did:ixo:X` is `did-ixo-X`; ours may hold no dash within X, so no two DIDs have one name. */
export const isIxoName = (did: Did, user: UserId): boolean => localpartOf(user) === did.replaceAll(':', '-');

/** @returns WRONG_ACCOUNT when this account may not speak for the DID; DID_NOT_RESOLVED when only its document could say. Other methods pass. */
export async function checkIxoAccount(
  did: Did,
  user: UserId,
  { isTrusted, keysOf }: { isTrusted: (user: UserId) => boolean; keysOf: ResolveKeys },
): Promise<Result<true, ErrorCode>> {
  if (!isIxoDid(did)) return ok(true);
  if (!isIxoName(did, user)) return err('WRONG_ACCOUNT');
  if (isTrusted(user)) return ok(true);
  const document = await keysOf(did);
  if (!document.ok) return document;
  return document.value.homeserver === serverOf(user) ? ok(true) : err('WRONG_ACCOUNT');
}
