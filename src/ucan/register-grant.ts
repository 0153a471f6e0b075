/**
 * The ways a grant can come in, and who may bring it (DESIGN §5, research/ucan.md §3.4.3). A grant is readable by whoever sees the event it came
 * in, so that it is signed is not enough: an event needs the account that the grant names or a proven link, a request its own DID, the page
 * the nonce that the oracle sent to that very account. Planning verifies and reads; `write` asks again inside the transaction whatever may have
 * changed since (nonce, revocation, the account's other DID), so that a race or a crash leaves a grant stored whole or not at all.
 */
import type { ErrorCode } from '../errors.ts';
import type { Did, RoomId, TokenId, UserId } from '../ids.ts';
import { LIMITS } from '../limits.ts';
import { err, ok, type Result } from '../result.ts';
import type { Store, Tx } from '../store/store.ts';
import { grantEntry, writeAudit } from '../turn/audit.ts';
import type { Links } from '../turn/links.ts';
import { countRate, isOverRate, type RateRule } from '../turn/throttle.ts';
import type { AuthoriseLinks } from './authorise-links.ts';
import type { VerifiedGrant, VerifyGrant } from './chain.ts';
import { type DecidedGrant, decideGrant, type GrantLink, readGrantLink } from './decide-grant.ts';
import { type GatedToken, gateDelegation } from './gate.ts';
import { type GrantKind, type GrantSource, type Grants, revokersOf } from './grants.ts';
import { isIxoDid, isIxoName } from './ixo-account.ts';
import { readStateGrant } from './read-state-grant.ts';
import type { UcanCapability } from './read-ucan.ts';

export interface GrantReceipt {
  readonly tokenId: TokenId;
  readonly did: Did;
  readonly kind: GrantKind;
  /** Wall clock ms. */
  readonly expiresAt: number;
  readonly capabilities: readonly UcanCapability[];
  /** It waits for `!authorise confirm` of `matrixUserId`. */
  readonly pending: boolean;
  readonly matrixUserId: UserId | null;
}

export interface PlannedGrant {
  readonly receipt: GrantReceipt;
  /** Stores it, with its row in the audit log; a grant that is there already is stored once. @returns the receipt as of now. */
  write(tx: Tx, now: number): Result<GrantReceipt, ErrorCode>;
}

type Planned = Promise<Result<PlannedGrant, ErrorCode>>;
export interface RegisterGrant {
  /** An `ixo.oracle.grant` event. @returns WRONG_SENDER when the grant names another account; NOT_LINKED when nothing ties its DID to this one. */
  fromEvent(event: { dlg: string; sender: UserId; roomId: RoomId }): Planned;
  /** `dlg` beside the invocation of `principal`. The whole message is refused when one of them fails. */
  fromMessage(message: { dlg: readonly GatedToken[]; principal: Did }): Promise<Result<PlannedGrant[], ErrorCode>>;
  /** Handed in with a signed request. @returns BAD_ISSUER unless its root issuer is the caller. */
  fromCaller(request: { raw: string; caller: Did; source: 'http' | 'header' }): Planned;
  /** From the authorise page, without any other proof than its nonce. @returns BAD_LINK unless the nonce went to the account that it names. */
  fromPage(page: { raw: string }): Planned;
  /** Room state of another oracle in a direct room of `person`. */
  fromState(state: { data: string; roomId: RoomId; person: UserId }): Planned;
}

export interface RegisterGrantOptions {
  readonly store: Store;
  readonly grants: Grants;
  readonly links: Links;
  readonly authoriseLinks: AuthoriseLinks;
  readonly verify: VerifyGrant;
  /** The oracle's DID, and old ones whose grants still count. */
  readonly oracleDids: () => readonly Did[];
  readonly isTrustedServer: (user: UserId) => boolean;
  readonly now: () => number;
}

/** Who brings it, as far as that is bounded nowhere else: a turn has its own throttle, and a nonce is sent once a minute. */
type Payer = `grants:${string}` | null;
const PACE: RateRule = { limit: LIMITS.grantsStoredPerHour, windowMs: 60 * 60_000 };

interface Checked extends DecidedGrant {
  readonly verified: VerifiedGrant;
}

export function createRegisterGrant(options: RegisterGrantOptions): RegisterGrant {
  const { store, grants, links, authoriseLinks, verify, oracleDids, isTrustedServer, now } = options;

  async function check(token: GatedToken): Promise<Result<Checked, ErrorCode>> {
    const verified = await verify(token);
    if (!verified.ok) return verified;
    const decided = decideGrant(verified.value, { oracleDids: oracleDids(), now: now() });
    return decided.ok ? ok({ ...decided.value, verified: verified.value }) : decided;
  }

  async function checkText(encoded: string): Promise<Result<Checked, ErrorCode>> {
    const token = gateDelegation(encoded);
    return token.ok ? check(token.value) : token;
  }

  /** Its own word for this account, or a link that Matrix proved before, or the name that a did:ixo has. */
  function decideAccount({ verified, sender }: Checked, account: UserId): ErrorCode | null {
    const did = verified.principal;
    if (sender !== null) return sender === account ? null : 'WRONG_SENDER';
    if (isIxoDid(did) && isIxoName(did, account) && isTrustedServer(account)) return null;
    return links.of(did, account) === undefined ? 'NOT_LINKED' : null;
  }

  /** To whom the nonce went is asked again when it is used up. */
  function decidePage({ link, verified }: Checked, at: number): ErrorCode | null {
    if (link === null || authoriseLinks.holder(link.nonce, at)?.user !== link.sender) return 'BAD_LINK';
    if (!isTrustedServer(link.sender)) return 'UNTRUSTED_SERVER';
    if (isIxoDid(verified.principal) && !isIxoName(verified.principal, link.sender)) return 'WRONG_ACCOUNT';
    return isBoundToAnother(verified.principal, link.sender, at) ? 'LINKED_TO_ANOTHER' : null;
  }

  function isBoundToAnother(did: Did, user: UserId, at: number): boolean {
    const bound = grants.boundTo(user, at);
    return bound !== undefined && bound.did !== did;
  }

  function recheck({ verified }: Checked, at: number): ErrorCode | null {
    if (verified.expiresAt <= at) return 'GRANT_EXPIRED';
    return verified.path.some((link, n) => grants.isRevoked(link, revokersOf(verified.path, n))) ? 'REVOKED' : null;
  }

  /** `link`: it came by the page, so it is for that account, waits for a confirmation, and uses the nonce up. */
  function plan(checked: Checked, source: GrantSource, { link, payer }: { link: GrantLink | null; payer: Payer }): PlannedGrant {
    const { verified, kind } = checked;
    const receipt = (pending: boolean): GrantReceipt => ({
      tokenId: verified.tokenId,
      did: verified.principal,
      kind,
      expiresAt: verified.expiresAt,
      capabilities: verified.capabilities,
      pending,
      matrixUserId: link?.sender ?? null,
    });
    return {
      receipt: receipt(link !== null),
      write(tx, at) {
        const refused = recheck(checked, at) ?? (link === null ? null : decidePage(checked, at));
        if (refused !== null) return err(refused);
        const known = grants.byTokenId(verified.tokenId);
        if (known === undefined && payer !== null && isOverRate(store, tx, payer, PACE, at)) return err('RATE_LIMITED');
        const matrixUserId = link?.sender ?? null;
        const stored = grants.store(tx, { verified, kind, car: verified.car, source, matrixUserId }, at);
        // Nothing was written so far: what is refused from here on would leave half of it.
        if (!stored && known === undefined) return err('TOO_MANY_GRANTS');
        if (link !== null) authoriseLinks.use(tx, link.nonce, at);
        if (stored && payer !== null) countRate(store, tx, payer, PACE, at);
        if (stored) writeAudit(store, tx, grantEntry({ at, grant: receipt(link !== null) }));
        const row = grants.byTokenId(verified.tokenId);
        return ok({
          ...receipt(row !== undefined && row.matrixUserId !== null && row.activatedAt === null),
          matrixUserId: row?.matrixUserId ?? null,
        });
      },
    };
  }

  async function planFor(
    encoded: string,
    source: GrantSource,
    { payer = null, isPage = false, mayBring }: { payer?: Payer; isPage?: boolean; mayBring: (checked: Checked) => ErrorCode | null },
  ): Planned {
    const checked = await checkText(encoded);
    if (!checked.ok) return checked;
    const refused = mayBring(checked.value);
    return refused === null ? ok(plan(checked.value, source, { link: isPage ? checked.value.link : null, payer })) : err(refused);
  }

  return {
    fromEvent: ({ dlg, sender }) =>
      planFor(dlg, 'event', { payer: `grants:${sender}`, mayBring: (checked) => decideAccount(checked, sender) }),

    async fromMessage({ dlg, principal }) {
      const planned: PlannedGrant[] = [];
      // They may rest on each other, and none of them is stored yet.
      const together = new Map(dlg.flatMap(({ links }) => [...links]));
      for (const token of dlg) {
        const checked = await check({ ...token, links: new Map([...together, ...token.links]) });
        if (!checked.ok) return checked;
        if (checked.value.verified.principal !== principal) return err('BAD_ISSUER');
        planned.push(plan(checked.value, 'dlg', { link: null, payer: null }));
      }
      return ok(planned);
    },

    fromCaller: ({ raw, caller, source }) =>
      planFor(raw, source, {
        payer: `grants:${caller}`,
        mayBring: ({ verified }) => (verified.principal === caller ? null : 'BAD_ISSUER'),
      }),

    // Anybody may post one, so the nonce is looked at before any signature is checked or any DID asked for (G14).
    async fromPage({ raw }) {
      const token = gateDelegation(raw);
      if (!token.ok) return token;
      const claimed = readGrantLink(token.value.leaf);
      if (claimed === null || authoriseLinks.holder(claimed.nonce, now())?.user !== claimed.sender) return err('BAD_LINK');
      return planFor(raw, 'page', { isPage: true, mayBring: (checked) => decidePage(checked, now()) });
    },

    async fromState({ data, person }) {
      const raw = readStateGrant(data);
      if (!raw.ok) return raw;
      return planFor(raw.value, 'state', { payer: `grants:${person}`, mayBring: (checked) => decideAccount(checked, person) });
    },
  };
}
