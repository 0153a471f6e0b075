/**
 * Acting at other services in a person's name: an invocation signed by the oracle that rests on what this person granted, for one ability, one
 * service and five minutes at most. What it must never be is wider than the grant, usable at another service, or resting on somebody else's
 * grant (DESIGN §5 "Downstream", G8, G13). Everything here is text or values: a plugin that asks in the wrong way learns why.
 * Cost: one signature (0.1 ms with its encoding); nothing is asked of the network but the DID document of a service.
 */
import { LRUCache } from 'lru-cache';
import { ERRORS, type ErrorCode, type Refusal, refusal } from '../errors.ts';
import { type Did, type PrincipalId, parseDid, type TokenId } from '../ids.ts';
import type { JsonObject } from '../json.ts';
import { LIMITS } from '../limits.ts';
import { err, ok, type Result } from '../result.ts';
import { coversAbility } from './attenuation.ts';
import type { VerifyGrant } from './chain.ts';
import { type GatedToken, type GatedUcan, gateDelegation } from './gate.ts';
import type { StoredGrant } from './grants.ts';
import { mintUcan } from './mint.ts';
import type { OracleKeys, Signer } from './oracle-keys.ts';
import { isMintable, parseCapability, type RequestedCapability } from './parse-capability.ts';
import type { UcanCapability } from './read-ucan.ts';

export interface DownstreamOptions {
  readonly keys: OracleKeys;
  /** Looks a service's did:web up; the DID of that very host only. */
  readonly services: { didOf(serviceUrl: string): Promise<Result<Did, ErrorCode>> };
  /** REUSABLE_SERVICES. */
  readonly reusable: readonly Did[];
  readonly verify: VerifyGrant;
  /** A stored token by CID: what a grant rests on without carrying it. */
  readonly findToken: (cid: string) => GatedToken | undefined;
  /** Wall clock ms. */
  readonly now: () => number;
  readonly newNonce: () => string;
}

export interface MintRequest {
  /** Acting grants that count now. */
  readonly grants: readonly StoredGrant[];
  /** Whose run it is. */
  readonly did: PrincipalId;
  /** `did` is the service's did:web; `capability` is `<can> <with>`, or a `with` on which exactly one ability is granted. */
  readonly target: { readonly did: string; readonly capability: string };
  readonly skipCache?: boolean | undefined;
}
export interface DelegationRequest {
  readonly did: PrincipalId;
  readonly car: string;
  readonly serviceUrl: string;
  readonly capability: RequestedCapability;
  /** Default 60; never more than LIMITS.downstreamLifetimeS. */
  readonly maxTtlSeconds?: number | undefined;
}

export interface Downstream {
  hasSigningKey(): boolean;
  /** The DID of a service, or null when nobody can say it. */
  resolveServiceDid(serviceUrl: string): Promise<string | null>;
  /** Padded base64 CAR with all its proofs. @returns NO_SIGNING_KEY, BAD_REQUEST, NEEDS_GRANT. */
  mint(request: MintRequest): Promise<Result<string, Refusal>>;
  /** Never rejects. */
  fromDelegation(request: DelegationRequest): Promise<{ invocation: string } | { error: string }>;
}

const INVOCATIONS_KEPT = 1_000;
/** A kept invocation must reach the service and be looked at there before it ends. */
const REUSE_MARGIN_MS = 30_000;
const DEFAULT_TTL_S = 60;

interface Kept {
  readonly invocation: string;
  readonly tokenId: TokenId;
  /** Wall clock ms. */
  readonly until: number;
}
/** A grant, or a delegation that was handed over, as far as minting looks at it. */
interface Source {
  readonly capability: UcanCapability;
  readonly signer: Signer;
  readonly expiresAt: number;
}

export function createDownstream(options: DownstreamOptions): Downstream {
  const { keys, services, verify, findToken, now, newNonce } = options;
  const reusable = new Set<string>(options.reusable);
  const kept = new LRUCache<string, Kept>({ max: INVOCATIONS_KEPT });
  const hasSigningKey = (): boolean => keys.current !== null;

  async function lookUp(serviceUrl: unknown): Promise<Did | null> {
    const service = typeof serviceUrl === 'string' ? await services.didOf(serviceUrl) : null;
    return service?.ok === true ? service.value : null;
  }

  function sign(
    { capability, signer }: Source,
    { can, proof, audience, expiration }: { can: string; proof: GatedToken; audience: Did; expiration: number },
  ): string {
    const { with: resource, nb } = capability;
    const invocation = mintUcan({
      key: signer.key,
      issuer: signer.did,
      audience,
      capabilities: [nb === undefined ? { can, with: resource } : { can, with: resource, nb }],
      expiration,
      nonce: newNonce(),
      proofs: [proof],
    });
    // IXO's services read standard base64 with padding (research/ucan.md §1.3).
    return Buffer.from(invocation, 'base64url').toString('base64');
  }

  async function mint({ grants, did, target, skipCache }: MintRequest): Promise<Result<string, Refusal>> {
    if (!hasSigningKey()) return err(refusal('NO_SIGNING_KEY'));
    const audience = readService(target.did);
    if (audience === undefined) return err(refusal('BAD_REQUEST', { message: 'The DID of a service is a did:web.' }));
    const at = now();
    const live = grants.filter((grant) => grant.did === did && isLive(grant, at));
    const asked = parseCapability(
      target.capability,
      live.flatMap(({ capabilities }) => capabilities),
    );
    if (!asked.ok) return err(refusal('BAD_REQUEST', { message: asked.error }));
    const key = JSON.stringify([did, audience, asked.value.can, asked.value.with]);
    const mayReuse = reusable.has(audience) && skipCache !== true;
    const old = mayReuse ? kept.get(key) : undefined;
    // A grant that was taken back since then takes the invocation with it.
    if (old !== undefined && at < old.until - REUSE_MARGIN_MS && live.some(({ tokenId }) => tokenId === old.tokenId))
      return ok(old.invocation);

    for (const [grant, source] of planSources(live, asked.value, (named) => keys.signerOf(named, at))) {
      const proof = completeToken(grant.car, findToken);
      if (proof === undefined) continue;
      const expiration = Math.floor(Math.min(at + LIMITS.downstreamLifetimeS * 1_000, source.expiresAt) / 1_000);
      const invocation = sign(source, { can: asked.value.can, proof, audience, expiration });
      if (mayReuse) kept.set(key, { invocation, tokenId: grant.tokenId, until: expiration * 1_000 });
      return ok(invocation);
    }
    return err(refusal('NEEDS_GRANT', { details: { ability: asked.value.can, resource: asked.value.with } }));
  }

  /** In the order of the seed (research/ixo.md §2.6), so that a tool's words about the first thing missing fit. */
  async function fromDelegation(request: DelegationRequest): Promise<Result<string, string>> {
    const { car, serviceUrl, capability, did, maxTtlSeconds = DEFAULT_TTL_S } = request;
    if (!hasSigningKey())
      return err('This oracle has no signing key (ORACLE_KEY_FILE or SIGNING_MNEMONIC), so it cannot mint invocations.');
    if (typeof car !== 'string' || car.trim() === '') return err('A delegation CAR is required.');
    if (!isRequest(capability)) return err('A capability { can, with } with one concrete ability of the service is required.');
    const service = await lookUp(serviceUrl);
    if (service === null) return err('The DID of the service cannot be resolved: its did:web document is unreachable or not of that host.');
    const token = gateDelegation(car.trim());
    if (!token.ok) return err(`The delegation CAR cannot be parsed (${token.error}).`);
    const signer = keys.signerOf(token.value.leaf.audience, now());
    if (signer === null) return err(`The delegation is not addressed to this oracle, which is ${keys.did} (audience mismatch).`);
    if (token.value.leaf.expiration * 1_000 <= now()) return err(EXPIRED);
    const verified = await verify(token.value);
    if (!verified.ok) return err(verified.error === 'GRANT_EXPIRED' ? EXPIRED : failed(ERRORS[verified.error].message));
    if (verified.value.principal !== did) return err(failed('the delegation comes from somebody else than the person this is done for.'));
    const { can, with: resource } = capability;
    const found = verified.value.capabilities.find((granted) => covers(granted, { can, with: resource }));
    if (found === undefined) return err(failed(`the delegation does not cover ${can} on ${resource}.`));
    if (!(maxTtlSeconds > 0)) return err(failed('maxTtlSeconds must be a positive number of seconds.'));
    // Looking keys up may have taken seconds.
    const at = now();
    const ttlMs = Math.min(maxTtlSeconds, LIMITS.downstreamLifetimeS) * 1_000;
    const expiration = Math.floor(Math.min(at + ttlMs, verified.value.expiresAt) / 1_000);
    if (expiration * 1_000 <= at) return err(EXPIRED);
    const proof = complete(token.value, findToken);
    if (proof === undefined) return err(failed(ERRORS.MISSING_PROOF.message));
    return ok(sign({ capability: found, signer, expiresAt: verified.value.expiresAt }, { can, proof, audience: service, expiration }));
  }

  return {
    hasSigningKey,
    resolveServiceDid: lookUp,
    mint,
    async fromDelegation(request) {
      try {
        const minted = await fromDelegation(request);
        return minted.ok ? { invocation: minted.value } : { error: minted.error };
      } catch {
        // Messages of decoders hold bytes of the token (G12).
        return { error: failed('an unexpected error.') };
      }
    },
  };
}

const EXPIRED = 'The delegation has expired.';
const failed = (why: string): string => `Failed to mint invocation: ${why}`;

/** Less than a second is no time: the invocation would have ended when it is sent. */
const isLive = (grant: StoredGrant, at: number): boolean =>
  grant.kind === 'acting' && grant.revokedAt === null && Math.floor(grant.expiresAt / 1_000) * 1_000 > at;

export const covers = (granted: Pick<UcanCapability, 'can' | 'with'>, asked: RequestedCapability): boolean =>
  granted.with === asked.with && coversAbility(granted.can, asked.can);

/** A capability without caveats before one with; then the grant that lives longest; of equals the newest, as they come. */
function planSources(
  live: readonly StoredGrant[],
  asked: RequestedCapability,
  signerOf: (audience: Did) => Signer | null,
): (readonly [StoredGrant, Source])[] {
  if (!isMintable(asked.can)) return [];
  const found = live.flatMap((grant) => {
    const signer = signerOf(grant.audience);
    if (signer === null) return [];
    return grant.capabilities
      .filter((capability) => covers(capability, asked))
      .map((capability) => [grant, { capability, signer, expiresAt: grant.expiresAt }] as const);
  });
  const caveats = ({ nb }: { nb?: JsonObject }): number => Object.keys(nb ?? {}).length;
  return found.sort(([, a], [, b]) => caveats(a.capability) - caveats(b.capability) || b.expiresAt - a.expiresAt);
}

function readService(text: string): Did | undefined {
  const did = parseDid(text);
  return did.ok && /^did:web:[a-z0-9]/u.test(did.value) ? did.value : undefined;
}

/** Plugin code hands this over: nothing is taken for granted. */
function isRequest(capability: unknown): capability is RequestedCapability {
  if (typeof capability !== 'object' || capability === null) return false;
  const { can, with: resource } = capability as Record<string, unknown>;
  return typeof can === 'string' && isMintable(can) && typeof resource === 'string' && /^[a-z][a-z0-9+.-]*:\S{1,255}$/u.test(resource);
}

function completeToken(car: string, findToken: DownstreamOptions['findToken']): GatedToken | undefined {
  const token = gateDelegation(car);
  return token.ok ? complete(token.value, findToken) : undefined;
}

/** The token with everything it rests on: a service knows none of what is stored here. Undefined when a proof is nowhere. */
function complete(token: GatedToken, findToken: DownstreamOptions['findToken']): GatedToken | undefined {
  const links = new Map<string, GatedUcan>();
  const known = new Map(token.links);
  const visit = (ucan: GatedUcan, depth: number): boolean => {
    if (links.has(ucan.cid)) return true;
    if (depth > LIMITS.proofDepth) return false;
    for (const cid of ucan.proofs) {
      const proof = known.get(cid) ?? findToken(cid)?.leaf;
      if (proof === undefined) return false;
      // What came with a stored proof is at hand for what is above it.
      if (!known.has(cid)) for (const [at, link] of findToken(cid)?.links ?? []) known.set(at, link);
      if (!visit(proof, depth + 1)) return false;
    }
    // Proofs before what rests on them, each once: the one order of a file (src/ucan/gate.ts).
    links.set(ucan.cid, ucan);
    return true;
  };
  return visit(token.leaf, 1) ? { ...token, links } : undefined;
}
