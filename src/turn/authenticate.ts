/**
 * Who speaks, proven (DESIGN §5). The event's UCAN is gated before any decoder sees it, its chain verified, and it is bound to this very event; a
 * token that is present and fails is refused with its code, never treated as absent. Without one the homeserver's word has to do, which
 * only counts from servers that we trust: for accounts with an active grant, and for listed ones. Reads only: the token is spent, and grants that
 * came with it are stored, in `open` (G8, G14).
 */
import { type AccessRules, isListed, isTrustedServer } from '../admission/access.ts';
import { type ErrorCode, type Refusal, refusal } from '../errors.ts';
import { type Did, type UserId, unsignedPrincipalId } from '../ids.ts';
import { LIMITS } from '../limits.ts';
import { err, ok, type Result } from '../result.ts';
import type { Store } from '../store/store.ts';
import { bindToEvent } from '../ucan/bind-event.ts';
import { bindToRequest, checkLink } from '../ucan/bind-request.ts';
import type { VerifiedGrant, VerifiedInvocation, VerifyInvocation } from '../ucan/chain.ts';
import type { ResolveKeys } from '../ucan/did/resolve-keys.ts';
import { type GatedToken, gateDelegation, gateInvocation } from '../ucan/gate.ts';
import type { Grants } from '../ucan/grants.ts';
import { checkIxoAccount } from '../ucan/ixo-account.ts';
import { readUcanContent, type UcanContent } from '../ucan/read-ucan-content.ts';
import type { PlannedGrant, RegisterGrant } from '../ucan/register-grant.ts';
import { isSpentOnAnother } from '../ucan/replay.ts';
import type { UseGrants } from '../ucan/use-grants.ts';
import { createJudgeAccess } from './judge-access.ts';
import type { Links } from './links.ts';
import { NO_GRANTS, type Principal, type SenderTrust, type SpentToken } from './principal.ts';
import type { HttpIncoming, Incoming, LegacyProof, MatrixIncoming } from './prompt.ts';

export interface Authenticated {
  readonly incoming: Incoming;
  readonly principal: Principal;
  readonly token: SpentToken | null;
  /** Event id, or `http:<token id>`: what the prompt is called from here on, and what the token is spent on. */
  readonly promptId: string;
  /** What came in `dlg`, to be written when the turn opens. */
  readonly grants: readonly PlannedGrant[];
  /** Proofs that came inside the token, likewise. */
  readonly carried: readonly VerifiedGrant[];
}
export type Authenticate = (incoming: Incoming) => Promise<Result<Authenticated, Refusal>>;

export interface AuthenticateOptions {
  readonly oracleDid: Did;
  readonly rules: AccessRules;
  readonly maxLatenessMs: number;
  /** A run may last so long, and what it rests on must last as long. */
  readonly runDeadlineMs: number;
  readonly verify: VerifyInvocation;
  readonly keysOf: ResolveKeys;
  readonly grants: Pick<Grants, 'boundTo'>;
  readonly registerGrant: Pick<RegisterGrant, 'fromMessage'>;
  readonly useGrants: UseGrants;
  readonly links: Links;
  readonly store: Store;
  readonly now: () => number;
  /** Lets everything else that waits for the event loop go first. */
  readonly pause?: () => Promise<void>;
}

export function createAuthenticate(options: AuthenticateOptions): Authenticate {
  const { oracleDid, rules, maxLatenessMs, runDeadlineMs, verify, keysOf, grants, registerGrant, useGrants, links, store, now } = options;
  const { pause = () => new Promise<void>((next) => setImmediate(next)) } = options;
  const isTrusted = (user: UserId): boolean => isTrustedServer(user, rules);
  const judgeAccess = createJudgeAccess({ rules, useGrants, links });

  let turn: Promise<void> = Promise.resolve();
  /** One token in one turn of the loop: a commit wakes up to 64 rooms at once, whose tokens together would hold it for a tenth of a second (G14). */
  function takeTurn(): Promise<void> {
    turn = turn.then(pause);
    return turn;
  }

  async function authenticateEvent(incoming: MatrixIncoming): Promise<Result<Authenticated, ErrorCode>> {
    const ucan = readUcanContent(incoming.content);
    if (!ucan.ok) return ucan;
    if (ucan.value?.inv === undefined) return authenticateAccount(incoming, ucan.value);
    await takeTurn();
    const gated = gateInvocation(ucan.value.inv);
    if (!gated.ok) return gated;
    const beside = gateBeside(ucan.value.dlg ?? []);
    if (!beside.ok) return beside;
    const verified = await verify(gated.value, beside.value);
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
    const account = await checkIxoAccount(did, incoming.sender, { isTrusted, keysOf });
    if (!account.ok) return account;
    if (isSpentOnAnother(store, store.read, tokenId, incoming.eventId)) return err('REPLAY');
    const principal = signedPrincipal(verified.value, incoming.sender, incoming.trust);
    const refused = judge(principal);
    if (refused !== null) return err(refused);
    const planned = beside.value.length === 0 ? ok([]) : await registerGrant.fromMessage({ dlg: beside.value, principal: did });
    if (!planned.ok) return planned;
    const token = { tokenId, keepUntil: keepUntil(expiresAt), bodyHash: null };
    return ok({ incoming, principal, token, promptId: incoming.eventId, grants: planned.value, carried: verified.value.carried });
  }

  /** Nothing is signed: the homeserver says who sent this. */
  async function authenticateAccount(incoming: MatrixIncoming, ucan: UcanContent | undefined): Promise<Result<Authenticated, ErrorCode>> {
    const { sender } = incoming;
    if (!isTrusted(sender)) return err('UNTRUSTED_SERVER');
    // `dlg` alone authenticates nothing, and is a token all the same: no downgrade.
    if (ucan !== undefined) return err('NO_AUTHORITY');
    const principal = await accountPrincipal(sender, incoming.trust);
    if (!principal.ok) return principal;
    const refused = judge(principal.value);
    if (refused !== null) return err(refused);
    return ok({ incoming, principal: principal.value, token: null, promptId: incoming.eventId, grants: [], carried: [] });
  }

  async function accountPrincipal(sender: UserId, trust: SenderTrust): Promise<Result<Principal, ErrorCode>> {
    const grant = grants.boundTo(sender, now());
    if (grant !== undefined) {
      const { did, path, expiresAt } = grant;
      const account = await checkIxoAccount(did, sender, { isTrusted, keysOf });
      if (!account.ok) return account;
      return ok({ id: did, did, matrixUserId: sender, tier: 'sender-bound', grants: { path, until: expiresAt }, trust });
    }
    if (!isListed(sender, rules)) return err('NO_AUTHORITY');
    return ok({ id: unsignedPrincipalId(sender), did: null, matrixUserId: sender, tier: 'listed', grants: NO_GRANTS, trust });
  }

  async function authenticateRequest(incoming: HttpIncoming): Promise<Result<Authenticated, ErrorCode>> {
    const { method, path, bodyHash, sessionId, proof } = incoming;
    if ('keepUntil' in proof) return authenticateBearer(incoming, proof);
    const bound = bindToRequest(proof, { method, path, bodySha256: bodyHash, sessionId }, { oracleDid, now: now() });
    if (!bound.ok) return bound;
    if (bound.value.kind !== 'write') return err('BAD_CAPABILITY');
    const { principal: did, tokenId, expiresAt, claims } = bound.value;
    const link = checkLink(bound.value, links.of(did, claims.sender));
    if (!link.ok) return link;
    if (link.value.userId !== incoming.sender || link.value.directRoom !== incoming.roomId) return err('NOT_LINKED');
    const account = await checkIxoAccount(did, incoming.sender, { isTrusted, keysOf });
    if (!account.ok) return account;
    const principal = signedPrincipal(proof, incoming.sender, null);
    const refused = judge(principal);
    if (refused !== null) return err(refused);
    const token = { tokenId, keepUntil: keepUntil(expiresAt), bodyHash };
    return ok({ incoming, principal, token, promptId: `http:${tokenId}`, grants: [], carried: proof.carried });
  }

  /** A bearer token speaks for the account that Matrix proved, and never as if that had signed this. */
  async function authenticateBearer(
    incoming: HttpIncoming,
    { did, tokenId, keepUntil }: LegacyProof,
  ): Promise<Result<Authenticated, ErrorCode>> {
    const { sender, roomId, bodyHash } = incoming;
    const link = links.of(did, sender);
    if (link === undefined || link.directRoom !== roomId) return err('NOT_LINKED');
    const account = await checkIxoAccount(did, sender, { isTrusted, keysOf });
    if (!account.ok) return account;
    const principal: Principal = { id: did, did, matrixUserId: sender, tier: 'sender-bound', grants: NO_GRANTS, trust: null };
    const refused = judge(principal);
    if (refused !== null) return err(refused);
    const token = { tokenId, keepUntil: keepUntil + maxLatenessMs, bodyHash };
    return ok({ incoming, principal, token, promptId: `http:${tokenId}`, grants: [], carried: [] });
  }

  const signedPrincipal = (
    { principal, grants: path, grantsUntil }: VerifiedInvocation,
    sender: UserId,
    trust: SenderTrust | null,
  ): Principal => ({
    id: principal,
    did: principal,
    matrixUserId: sender,
    tier: 'signed',
    grants: { path, until: grantsUntil },
    trust,
  });

  /** Whether this principal may begin a turn now. */
  function judge(principal: Principal): ErrorCode | null {
    const { until } = principal.grants;
    if (until !== null && until < now() + runDeadlineMs) return 'EXPIRES_TOO_SOON';
    return judgeAccess(principal);
  }

  /** A mark must outlive every moment at which the token could still be judged valid (DESIGN §5 "Single use"). */
  const keepUntil = (expiresAt: number): number => expiresAt + LIMITS.clockSkewS * 1_000 + maxLatenessMs;

  return async (incoming) => {
    const result = incoming.via === 'matrix' ? await authenticateEvent(incoming) : await authenticateRequest(incoming);
    return result.ok ? result : err(refusal(result.error));
  };
}

/** Of all of them; each may end in an incomplete group of its own. */
const maxCharsOf = (count: number): number => (Math.ceil(LIMITS.delegationBytes / 3) + count) * 4;

/** Grants beside an invocation, which are as large as one altogether (G14). */
function gateBeside(encoded: readonly string[]): Result<readonly GatedToken[], ErrorCode> {
  if (encoded.reduce((sum, one) => sum + one.length, 0) > maxCharsOf(encoded.length)) return err('UCAN_TOO_LARGE');
  const tokens: GatedToken[] = [];
  for (const one of encoded) {
    const gated = gateDelegation(one);
    if (!gated.ok) return gated;
    tokens.push(gated.value);
  }
  const bytes = tokens.reduce((sum, { car }) => sum + Buffer.byteLength(car, 'base64url'), 0);
  return bytes > LIMITS.delegationBytes ? err('UCAN_TOO_LARGE') : ok(tokens);
}
