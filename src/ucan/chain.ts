/**
 * From "has the form of a token" to "the owner of this right said so": signatures of every link, alignment, attenuation, time and revocation
 * of the grants, up to the root issuer (DESIGN §5 "Chain"). Everything after this file reads a `VerifiedInvocation` or a `VerifiedGrant`, which only
 * this file makes (G8). Work is bounded by counts: signatures, resolver calls, paths (src/limits.ts).
 */
import type { ErrorCode } from '../errors.ts';
import type { Did, TokenId } from '../ids.ts';
import { LIMITS } from '../limits.ts';
import { err, ok, type Result } from '../result.ts';
import { hasKnownCaveats } from './attenuation.ts';
import { buildFile } from './build-file.ts';
import { isSignedBy } from './check-signature.ts';
import type { DidKeys, ResolveKeys } from './did/resolve-keys.ts';
import { isAcceptablePublicKey } from './ed25519-points.ts';
import { findWays, followWay, type Way } from './find-ways.ts';
import { type GatedToken, type GatedUcan, gate } from './gate.ts';
import type { UcanCapability } from './read-ucan.ts';

/** One grant of a verified path, as runs keep it frozen. */
export interface GrantRef {
  readonly tokenId: TokenId;
  /** Hex. */
  readonly cid: string;
  readonly issuer: Did;
  readonly audience: Did;
  /** Wall clock ms. */
  readonly expiresAt: number;
}

declare const verified: unique symbol;

export interface VerifiedInvocation extends GatedUcan {
  readonly [verified]: 'invocation';
  /** Root issuer of the authority: the only DID the capability's `with` may name. */
  readonly principal: Did;
  /** The grants it rests on, nearest first; empty when the principal signed himself. */
  readonly grants: readonly GrantRef[];
  /** Earliest end of those in wall clock ms; null without grants: then the run is bounded by its deadline only. */
  readonly grantsUntil: number | null;
  /** Grants of the path that came inside the token, as tokens of their own, so that `open` can store them. */
  readonly carried: readonly VerifiedGrant[];
}

export interface VerifiedGrant extends GatedUcan {
  readonly [verified]: 'grant';
  /** Root issuer of all its capabilities. */
  readonly principal: Did;
  /** This token first, then what it rests on. */
  readonly path: readonly GrantRef[];
  readonly expiresAt: number;
  /** Canonical CAR, unpadded base64url. */
  readonly car: string;
}

export interface ChainPorts {
  /** A stored grant by the hex of its CID. */
  readonly findToken: (cid: string) => GatedToken | undefined;
  readonly keysOf: ResolveKeys;
  readonly isRevoked: (token: { tokenId: TokenId; cid: string }, issuers: readonly Did[]) => boolean;
  /** Wall clock ms. */
  readonly now: () => number;
}

/** Grants in `beside` (the `dlg` of the event) count as proofs by CID, too. The invocation's own window is not judged here but where it is bound. */
export type VerifyInvocation = (token: GatedToken, beside?: readonly GatedToken[]) => Promise<Result<VerifiedInvocation, ErrorCode>>;
export type VerifyGrant = (token: GatedToken) => Promise<Result<VerifiedGrant, ErrorCode>>;

export interface Verifier {
  readonly invocation: VerifyInvocation;
  readonly grant: VerifyGrant;
}

/** Work done, for tests and the bench. */
export interface ChainCount {
  /** Signature checks, each key tried being one. */
  signatures: number;
}

/**
 * What can be wrong with one way to a root, the worst first. A way fails with the worst of its failures; a token with the best of its ways, so
 * that REVOKED or GRANT_EXPIRED is said only when nothing else is wrong with some way, and DID_NOT_RESOLVED when trying again can help.
 */
const WORST_FIRST = [
  'BROKEN_CHAIN',
  'NOT_DELEGATED',
  'MISSING_PROOF',
  'BAD_ISSUER',
  'BAD_SIGNATURE',
  'DID_NOT_RESOLVED',
  'GRANT_NOT_YET_VALID',
  'GRANT_LIVES_TOO_LONG',
  'GRANT_EXPIRED',
  'REVOKED',
] as const satisfies readonly ErrorCode[];

/**
 * Nothing is remembered between calls: every answer is about now. Both promises are kept for any input; only a port of the store that fails
 * (`findToken`, `isRevoked`) rejects them, because then nobody knows, and the door that caught it tries the whole message again.
 * @returns BAD_SIGNATURE, BAD_ISSUER, BAD_CAPABILITY (an invocation with proofs and several capabilities), TOO_MANY_PROOFS, or one of WORST_FIRST.
 */
export function createVerifier(ports: ChainPorts, count: ChainCount = { signatures: 0 }): Verifier {
  return {
    invocation: (token, beside = []) => new Chain(ports, [token, ...beside], count).invocation(token.leaf),
    grant: (token) => new Chain(ports, [token], count).grant(token.leaf),
  };
}

interface Known {
  readonly link: GatedUcan;
  readonly file: GatedToken;
  readonly stored: boolean;
}

/** The ways that carry one right to its owner; which of them holds is not known yet. */
type Candidates = readonly (readonly GatedUcan[])[];

/** One token being verified: what is known about its links, each found out once. */
class Chain {
  readonly #ports: ChainPorts;
  readonly #known = new Map<string, Known | undefined>();
  readonly #keys = new Map<Did, Result<DidKeys, ErrorCode>>();
  readonly #signed = new Map<string, boolean>();
  readonly #count: ChainCount;
  #signatures = 0;

  constructor(ports: ChainPorts, files: readonly GatedToken[], count: ChainCount) {
    this.#ports = ports;
    this.#count = count;
    for (const file of files) this.#learn(file, { stored: false });
  }

  async invocation(leaf: GatedUcan): Promise<Result<VerifiedInvocation, ErrorCode>> {
    if (!this.#mayBeSigned(leaf)) return err('BAD_SIGNATURE');
    const candidates = this.#waysOfInvocation(leaf);
    if (!candidates.ok) return candidates;
    if (!(await this.#resolve(candidates.value.flat()))) return err('TOO_MANY_PROOFS');
    const way = this.#firstThatHolds(candidates.value, (n) =>
      n === 0 ? null : n === 1 ? LIMITS.sessionGrantLifetimeS : LIMITS.actingGrantLifetimeS,
    );
    if (!way.ok) return way;

    const grants = way.value.slice(1);
    const principal = (way.value.at(-1) ?? leaf).issuer;
    const carried: VerifiedGrant[] = [];
    for (const link of grants.filter(({ cid }) => this.#known.get(cid)?.stored === false)) {
      // A grant whose other rights do not hold carries this message, but is not kept.
      const grant = await this.grant(link);
      if (grant.ok && grant.value.principal === principal) carried.push(grant.value);
    }
    const grantsUntil = grants.length === 0 ? null : endOf(grants);
    return ok({ ...leaf, principal, grants: grants.map(refOf), grantsUntil, carried } as unknown as VerifiedInvocation);
  }

  /** A token without proofs stands for its issuer, whatever it asks for; what it is good for is the binding's question. */
  #waysOfInvocation(leaf: GatedUcan): Result<Candidates, ErrorCode> {
    if (leaf.proofs.length === 0) return ok([[leaf]]);
    const [claim, ...more] = leaf.capabilities;
    if (claim === undefined || more.length > 0) return err('BAD_CAPABILITY');
    if (claim.with === leaf.issuer) return ok([[leaf]]);
    const ways = findWays(leaf, (cid) => this.#find(cid)?.link);
    // Only a DID can be asked for here; its name is its owner.
    return ways.ok ? waysFor(ways.value, claim, claim.with as Did) : ways;
  }

  /** Which kind of grant it is, and so whether it lives too long for that kind, is asked when it is stored. */
  async grant(leaf: GatedUcan): Promise<Result<VerifiedGrant, ErrorCode>> {
    if (!this.#mayBeSigned(leaf)) return err('BAD_SIGNATURE');
    const ways = findWays(leaf, (cid) => this.#find(cid)?.link);
    if (!ways.ok) return ways;
    if (!leaf.capabilities.every(hasKnownCaveats)) return err('NOT_DELEGATED');
    const owners = ownersOf(leaf, ways.value);
    if (owners.length === 0) return err(bestOf(ways.value.map(({ end }) => (end === 'root' ? 'NOT_DELEGATED' : end))));
    const failures: ErrorCode[] = [];
    for (const owner of owners) {
      const links = await this.#linksOfGrant(leaf, { ways: ways.value, owner });
      if (links.ok) return ok(this.#buildGrant(leaf, links.value, owner));
      if (links.error === 'TOO_MANY_PROOFS') return links;
      failures.push(links.error);
    }
    return err(bestOf(failures));
  }

  /** The links that all of the grant's rights rest on, the grant first. */
  async #linksOfGrant(
    leaf: GatedUcan,
    { ways, owner }: { ways: readonly Way[]; owner: Did },
  ): Promise<Result<readonly GatedUcan[], ErrorCode>> {
    const candidates = allOf(leaf.capabilities.map((claim) => waysFor(ways, claim, owner)));
    if (!candidates.ok) return candidates;
    if (!(await this.#resolve(candidates.value.flat(2)))) return err('TOO_MANY_PROOFS');
    const held = allOf(candidates.value.map((some) => this.#firstThatHolds(some, () => LIMITS.actingGrantLifetimeS)));
    return held.ok ? ok([...new Set(held.value.flat())]) : held;
  }

  #buildGrant(leaf: GatedUcan, links: readonly GatedUcan[], principal: Did): VerifiedGrant {
    const car = this.#fileOf(leaf, links);
    return { ...leaf, principal, path: links.map(refOf), expiresAt: endOf(links), car } as unknown as VerifiedGrant;
  }

  /** A file of what was verified. Links from several files may not fit into one that the gate takes: then those of the grant's own. */
  #fileOf(leaf: GatedUcan, links: readonly GatedUcan[]): string {
    const file = this.#known.get(leaf.cid)?.file;
    const own = links.filter(({ cid }) => this.#known.get(cid)?.file === file);
    if (own.length < links.length) {
      const all = buildFile(leaf, byCid(links));
      if (gate(Buffer.from(all, 'base64url'), LIMITS.delegationBytes).ok) return all;
    }
    return file?.leaf === leaf && own.length === file.links.size ? file.car : buildFile(leaf, byCid(own));
  }

  #learn(file: GatedToken, { stored }: { stored: boolean }): void {
    for (const [cid, link] of file.links) if (this.#known.get(cid) === undefined) this.#known.set(cid, { link, file, stored });
  }

  #find(cid: string): Known | undefined {
    if (!this.#known.has(cid)) {
      const file = this.#ports.findToken(cid);
      if (file !== undefined) this.#learn(file, { stored: true });
      // Kept as unknown too, so that a CID is asked for once.
      if (!this.#known.has(cid)) this.#known.set(cid, undefined);
    }
    return this.#known.get(cid);
  }

  /** Keys of all issuers that have to be asked for, at the same time. @returns false when they are more than LIMITS.issuersPerToken. */
  async #resolve(links: readonly GatedUcan[]): Promise<boolean> {
    const open = new Set(links.filter((link) => link.issuerKey === null && !this.#keys.has(link.issuer)).map((link) => link.issuer));
    if (this.#keys.size + open.size > LIMITS.issuersPerToken) return false;
    await Promise.all([...open].map(async (did) => void this.#keys.set(did, await this.#keysOf(did))));
    return true;
  }

  async #keysOf(did: Did): Promise<Result<DidKeys, ErrorCode>> {
    try {
      const found = await this.#ports.keysOf(did);
      return found.ok || found.error === 'BAD_ISSUER' ? found : err('DID_NOT_RESOLVED');
    } catch {
      return err('DID_NOT_RESOLVED');
    }
  }

  /** The way that lasts longest among those that hold. `lifetimeS` of the n-th link; null for an invocation, whose window is judged where it is bound. */
  #firstThatHolds(candidates: Candidates, lifetimeS: (n: number) => number | null): Result<readonly GatedUcan[], ErrorCode> {
    const failures: ErrorCode[] = [];
    for (const way of candidates.toSorted((a, b) => endOf(b.slice(1)) - endOf(a.slice(1)))) {
      const failure = this.#failureOf(way, lifetimeS);
      if (failure === undefined) return ok(way);
      if (failure === 'TOO_MANY_PROOFS') return err(failure);
      failures.push(failure);
    }
    return err(bestOf(failures));
  }

  #failureOf(way: readonly GatedUcan[], lifetimeS: (n: number) => number | null): ErrorCode | undefined {
    const now = this.#ports.now();
    const failures: ErrorCode[] = [];
    for (const [n, link] of way.entries()) {
      const signature = this.#failureOfSignature(link);
      if (signature === 'TOO_MANY_PROOFS') return signature;
      const time = failureOfTime(link, lifetimeS(n), now);
      // Whoever gave a right, or any part of what it rests on, can take it back.
      const above = [...new Set(way.slice(n).map(({ issuer }) => issuer))];
      const revoked: ErrorCode | undefined = this.#ports.isRevoked(link, above) ? 'REVOKED' : undefined;
      failures.push(...[signature, time, revoked].filter((code) => code !== undefined));
    }
    return failures.length === 0 ? undefined : worstOf(failures);
  }

  #failureOfSignature(link: GatedUcan): ErrorCode | undefined {
    if (this.#signed.has(link.cid)) return this.#signed.get(link.cid) === true ? undefined : 'BAD_SIGNATURE';
    const keys = link.issuerKey === null ? this.#keys.get(link.issuer) : ok({ keys: [link.issuerKey] });
    if (keys === undefined) return 'DID_NOT_RESOLVED';
    if (!keys.ok) return keys.error;
    for (const key of keys.value.keys) {
      if (!isAcceptablePublicKey(key)) continue;
      if (this.#signatures >= LIMITS.signaturesPerToken) return 'TOO_MANY_PROOFS';
      this.#signatures += 1;
      this.#count.signatures += 1;
      if (isSignedBy(key, link)) {
        this.#signed.set(link.cid, true);
        return undefined;
      }
    }
    this.#signed.set(link.cid, false);
    return 'BAD_SIGNATURE';
  }

  /** A did:key says at once whether its token is worth asking the store and the network for. */
  #mayBeSigned(leaf: GatedUcan): boolean {
    return leaf.issuerKey === null || this.#failureOfSignature(leaf) === undefined;
  }
}

/** All ways on which `claim` reaches a link of `owner`, each once; or how the best of the others ends. */
function waysFor(ways: readonly Way[], claim: UcanCapability, owner: Did): Result<Candidates, ErrorCode> {
  const found = new Map<string, readonly GatedUcan[]>();
  const failures: ErrorCode[] = [];
  for (const way of ways) {
    const followed = followWay(way, claim, owner);
    if (followed.ok) found.set(followed.value.map(({ cid }) => cid).join(), followed.value);
    else failures.push(followed.error);
  }
  return found.size > 0 ? ok([...found.values()]) : err(bestOf(failures));
}

/** Who can be the one root issuer of all rights of a grant: the DID it names, else whoever stands at the end of a way. */
function ownersOf(leaf: GatedUcan, ways: readonly Way[]): readonly Did[] {
  const named = leaf.capabilities.map((capability) => capability.with).filter((resource) => resource.startsWith('did:'));
  if (named.length > 0) return named.slice(0, 1) as Did[];
  const ends = ways.filter(({ end }) => end === 'root').map(({ links }) => (links.at(-1) ?? leaf).issuer);
  return [...new Set(ends)];
}

function failureOfTime({ expiration, notBefore = 0 }: GatedUcan, lifetimeS: number | null, now: number): ErrorCode | undefined {
  if (lifetimeS === null) return undefined;
  const skewMs = LIMITS.clockSkewS * 1000;
  if (notBefore * 1000 > now + skewMs) return 'GRANT_NOT_YET_VALID';
  if (expiration * 1000 > now + lifetimeS * 1000 + skewMs) return 'GRANT_LIVES_TOO_LONG';
  return expiration * 1000 + skewMs <= now ? 'GRANT_EXPIRED' : undefined;
}

const rankOf = (code: ErrorCode): number => WORST_FIRST.indexOf(code as (typeof WORST_FIRST)[number]);
const worstOf = (codes: readonly ErrorCode[]): ErrorCode => codes.reduce((a, b) => (rankOf(b) < rankOf(a) ? b : a));
const bestOf = (codes: readonly ErrorCode[]): ErrorCode => codes.reduce((a, b) => (rankOf(b) > rankOf(a) ? b : a), 'BROKEN_CHAIN');

/** All values, or the worst failure. */
function allOf<T>(results: readonly Result<T, ErrorCode>[]): Result<readonly T[], ErrorCode> {
  const failures = results.flatMap((result) => (result.ok ? [] : [result.error]));
  if (failures.includes('TOO_MANY_PROOFS')) return err('TOO_MANY_PROOFS');
  return failures.length > 0 ? err(worstOf(failures)) : ok(results.flatMap((result) => (result.ok ? [result.value] : [])));
}

const byCid = (links: readonly GatedUcan[]): Map<string, GatedUcan> => new Map(links.map((link) => [link.cid, link]));
/** Milliseconds; the earliest. */
const endOf = (links: readonly GatedUcan[]): number => Math.min(...links.map(({ expiration }) => expiration * 1000));
const refOf = ({ tokenId, cid, issuer, audience, expiration }: GatedUcan): GrantRef => ({
  ...{ tokenId, cid, issuer, audience },
  expiresAt: expiration * 1000,
});
