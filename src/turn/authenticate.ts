/**
 * Who speaks, proven (DESIGN §5). The event's UCAN is gated before any decoder sees it, verified, and bound to this very event; a token
 * that is present and fails is refused with its code, never treated as absent. Without a token only listed accounts of trusted servers
 * pass, at the lower tier. Reads only: the token is spent in `open` (G8, G14).
 */
import { type AccessRules, isListed } from '../admission/access.ts';
import { type ErrorCode, type Refusal, refusal } from '../errors.ts';
import { type Did, unsignedPrincipalId } from '../ids.ts';
import { LIMITS } from '../limits.ts';
import { err, ok, type Result } from '../result.ts';
import type { Store } from '../store/store.ts';
import { bindToEvent } from '../ucan/bind-event.ts';
import { bindToRequest, checkLink } from '../ucan/bind-request.ts';
import { gateInvocation } from '../ucan/gate.ts';
import { readUcanContent } from '../ucan/read-ucan-content.ts';
import { isSpentOnAnother } from '../ucan/replay.ts';
import type { VerifyInvocation } from '../ucan/verify-invocation.ts';
import type { Links } from './links.ts';
import type { Principal, SpentToken } from './principal.ts';
import type { HttpIncoming, Incoming, MatrixIncoming } from './prompt.ts';

export interface Authenticated {
  readonly incoming: Incoming;
  readonly principal: Principal;
  readonly token: SpentToken | null;
  /** Event id, or `http:<token id>`: what the prompt is called from here on, and what the token is spent on. */
  readonly promptId: string;
}
export type Authenticate = (incoming: Incoming) => Promise<Result<Authenticated, Refusal>>;

export interface AuthenticateOptions {
  readonly oracleDid: Did;
  readonly rules: AccessRules;
  readonly maxLatenessMs: number;
  readonly verify: VerifyInvocation;
  readonly links: Links;
  readonly store: Store;
  readonly now: () => number;
}

export function createAuthenticate(options: AuthenticateOptions): Authenticate {
  const { oracleDid, rules, maxLatenessMs, verify, links, store, now } = options;

  async function authenticateEvent(incoming: MatrixIncoming): Promise<Result<Authenticated, ErrorCode>> {
    const ucan = readUcanContent(incoming.content);
    if (!ucan.ok) return ucan;
    if (ucan.value?.inv === undefined) {
      // `dlg` alone authenticates nothing, and is a token all the same: no downgrade.
      if (ucan.value !== undefined || !isListed(incoming.sender, rules)) return err('NO_AUTHORITY');
      const principal: Principal = { id: unsignedPrincipalId(incoming.sender), did: null, matrixUserId: incoming.sender, tier: 'listed' };
      return ok({ incoming, principal, token: null, promptId: incoming.eventId });
    }
    const gated = gateInvocation(ucan.value.inv);
    if (!gated.ok) return gated;
    const verified = await verify(gated.value);
    if (!verified.ok) return verified;
    const bound = bindToEvent(
      verified.value,
      {
        roomId: incoming.roomId,
        sender: incoming.sender,
        type: incoming.eventType,
        content: incoming.content,
        originServerTs: incoming.sentAt,
        threadRoot: incoming.threadRoot ?? undefined,
        editsTarget: incoming.editsTarget ?? undefined,
      },
      { oracleDid, now: now(), maxLatenessMs },
    );
    if (!bound.ok) return bound;
    const { principal: did, tokenId, expiresAt } = bound.value;
    if (isSpentOnAnother(store, store.read, tokenId, incoming.eventId)) return err('REPLAY');
    return ok({
      incoming,
      principal: { id: did, did, matrixUserId: incoming.sender, tier: 'signed' },
      token: { tokenId, keepUntil: keepUntil(expiresAt), bodyHash: null },
      promptId: incoming.eventId,
    });
  }

  function authenticateRequest(incoming: HttpIncoming): Result<Authenticated, ErrorCode> {
    const { method, path, bodyHash, sessionId, invocation } = incoming;
    const bound = bindToRequest(invocation, { method, path, bodySha256: bodyHash, sessionId }, { oracleDid, now: now() });
    if (!bound.ok) return bound;
    if (bound.value.kind !== 'write') return err('BAD_CAPABILITY');
    const { principal: did, tokenId, expiresAt, claims } = bound.value;
    const link = checkLink(bound.value, links.of(did, claims.sender));
    if (!link.ok) return link;
    if (link.value.userId !== incoming.sender || link.value.directRoom !== incoming.roomId) return err('NOT_LINKED');
    return ok({
      incoming,
      principal: { id: did, did, matrixUserId: incoming.sender, tier: 'signed' },
      token: { tokenId, keepUntil: keepUntil(expiresAt), bodyHash },
      promptId: `http:${tokenId}`,
    });
  }

  /** A mark must outlive every moment at which the token could still be judged valid (DESIGN §5 "Single use"). */
  const keepUntil = (expiresAt: number): number => expiresAt + LIMITS.clockSkewS * 1_000 + maxLatenessMs;

  return async (incoming) => {
    const result = incoming.via === 'matrix' ? await authenticateEvent(incoming) : authenticateRequest(incoming);
    return result.ok ? result : err(refusal(result.error));
  };
}
