/**
 * Whether a signed request may do what it asks, and for whom: bound to method, path, session and body, then held against the link that
 * Matrix proved (DESIGN §5 "Over HTTP"). A valid token of an own DID never opens somebody else's room (G13). Nothing is written here.
 */
import type { FastifyRequest } from 'fastify';
import { type ErrorCode, type Refusal, refusal } from '../errors.ts';
import type { Did, RoomId, RunId, SessionId, TokenId, UserId } from '../ids.ts';
import { sha256Base64Url } from '../json.ts';
import { LIMITS } from '../limits.ts';
import { err, ok, type Result } from '../result.ts';
import { bindToRequest, checkLink } from '../ucan/bind-request.ts';
import type { LegacyInvocation } from '../ucan/legacy-invocation.ts';
import { findSpent, spend } from '../ucan/replay.ts';
import type { SidecarDeps } from './deps.ts';

export interface Caller {
  readonly did: Did;
  readonly userId: UserId;
  /** The direct room that Matrix proved; null before there is one. */
  readonly room: RoomId | null;
  readonly tokenId: TokenId;
  readonly keepUntil: number;
  readonly bodyHash: string;
  /** Set when this very request was here before: same token, same body. Its run, if it opened one. */
  readonly again: { readonly runId: RunId | null } | null;
}

/** What a token is called where prompts have event ids. */
export const promptIdOf = (tokenId: TokenId): string => `http:${tokenId}`;

export function identify(request: FastifyRequest, sessionId: SessionId | undefined, deps: SidecarDeps): Result<Caller, Refusal> {
  const { identity, links, store, mayUse, clock } = deps;
  const { invocation, legacy } = request;
  if (legacy !== null) return identifyLegacy(request, legacy, deps);
  if (invocation === null) return err(refusal('UNAUTHENTICATED'));
  const bodyHash = sha256Base64Url(request.rawBody ?? '');
  const refuse = (code: ErrorCode) => err(refusal(code));

  const spent = findSpent(store, invocation.tokenId);
  if (spent !== undefined) {
    if (spent.bodyHash === null) return refuse('REPLAY');
    if (spent.bodyHash !== bodyHash) return refuse('CONFLICT');
  }
  const bound = bindToRequest(
    invocation,
    { method: request.method, path: pathOf(request), bodySha256: bodyHash, sessionId },
    { oracleDid: identity.did, now: clock.now() },
  );
  if (!bound.ok) return refuse(bound.error);
  const { principal: did, tokenId, expiresAt, claims } = bound.value;
  const known = links.of(did, claims.sender);
  // A request that opened the direct room named none; sent again it still means that room.
  const opened = spent !== undefined && claims.room === undefined && known !== undefined;
  const link = checkLink(bound.value, opened ? { userId: known.userId } : known);
  if (!link.ok) return refuse(link.error);
  const { userId } = link.value;
  if (!mayUse(userId, did)) return refuse('NOT_ALLOWED');
  return ok({
    did,
    userId,
    room: known?.directRoom ?? null,
    tokenId,
    keepUntil: expiresAt + LIMITS.clockSkewS * 1_000,
    bodyHash,
    again: spent === undefined ? null : { runId: spent.runId },
  });
}

/**
 * Nothing of the request is signed, so it is the account that Matrix proved last, and its server must be one whose word counts. `x-request-id` takes the place
 * of the token as the idempotency key.
 */
function identifyLegacy(
  request: FastifyRequest,
  { did, tokenId: bearer, expiresAt }: LegacyInvocation,
  { links, store, mayUse, isTrustedServer }: SidecarDeps,
): Result<Caller, Refusal> {
  const link = links.of(did);
  if (link === undefined) return err(refusal('NOT_LINKED'));
  if (!isTrustedServer(link.userId)) return err(refusal('UNTRUSTED_SERVER'));
  if (!mayUse(link.userId, did)) return err(refusal('NOT_ALLOWED'));
  const bodyHash = sha256Base64Url(request.rawBody ?? '');
  const tokenId = sha256Base64Url(`${bearer} ${request.method} ${pathOf(request)} ${request.id}`) as TokenId;
  const spent = findSpent(store, tokenId);
  if (spent !== undefined && spent.bodyHash !== bodyHash) return err(refusal('CONFLICT'));
  return ok({
    did,
    userId: link.userId,
    room: link.directRoom ?? null,
    tokenId,
    keepUntil: expiresAt + LIMITS.clockSkewS * 1_000,
    bodyHash,
    again: spent === undefined ? null : { runId: spent.runId },
  });
}

/** As it stands in the request line, without the query: what the signer saw. */
export const pathOf = (request: FastifyRequest): string => (request.raw.url ?? '').split('?', 1)[0] ?? '';

/**
 * Spends the token of a call that opens no turn.
 * @returns whether this call is the first with it; CONFLICT when another request was faster with another body.
 */
export async function spendOnce(caller: Caller, { store }: SidecarDeps): Promise<Result<'first' | 'again', Refusal>> {
  const { tokenId, keepUntil, bodyHash } = caller;
  return store.write((tx) => {
    const spent = findSpent(store, tokenId);
    if (spent !== undefined) return spent.bodyHash === bodyHash ? ok('again' as const) : err(refusal('CONFLICT'));
    spend(store, tx, { tokenId, keepUntil, bodyHash }, { promptId: promptIdOf(tokenId), runId: null });
    return ok('first' as const);
  });
}
