/** People, grants and the ports of a verifier, for tests of chains. */
import { createHash } from 'node:crypto';
import type { Did } from '../../../src/ids.ts';
import { err, ok } from '../../../src/result.ts';
import { type ChainCount, type ChainPorts, createVerifier } from '../../../src/ucan/chain.ts';
import type { GatedToken } from '../../../src/ucan/gate.ts';
import { type GrantToSign, mintGrant, mintUcan, type UcanToMint } from '../../../src/ucan/mint.ts';
import type { UcanCapability } from '../../../src/ucan/read-ucan.ts';
import { keyFromSeed, type SigningKey } from '../../../src/ucan/signing-key.ts';
import { gated, gatedGrant, NB, NONCE, oracle, TS } from './tokens.ts';

/** Who signs: a did:key by itself, a did:ixo through its document. */
export interface Person {
  readonly did: Did;
  readonly key: SigningKey;
}
const keyNamed = (name: string): SigningKey => keyFromSeed(createHash('sha256').update(name).digest());
export const person = (name: string): Person => {
  const key = keyNamed(name);
  return { did: key.did, key };
};
export const ixoPerson = (name: string): Person => ({ did: `did:ixo:ixo1${name}` as Did, key: keyNamed(`ixo ${name}`) });

export const NOW = TS + 500;
export const HOUR = 3_600_000;
export const user = person('user');
export const phone = person('phone');
export const session = person('session');
export const stranger = person('stranger');
export const ixoUser = ixoPerson('user');

/** base64url of the raw key that a did:key names. */
export const rawKeyOf = ({ key }: Person): Uint8Array => {
  const { x } = key.privateKey.export({ format: 'jwk' });
  return Uint8Array.from(Buffer.from(String(x), 'base64url'));
};

export const right = (can: string, of: Person, nb?: UcanCapability['nb']): UcanCapability =>
  nb === undefined ? { can, with: of.did } : { can, with: of.did, nb };

export interface GrantFrom extends Omit<Partial<GrantToSign>, 'issuer' | 'key' | 'audience'> {
  readonly from: Person;
  readonly to: { readonly did: Did };
}
/** A grant of `oracle/*` on the giver's own DID for an hour, unless said otherwise. */
export const grantText = ({ from, to, ...change }: GrantFrom): string =>
  mintGrant({
    ...{ key: from.key, issuer: from.did, audience: to.did, nonce: NONCE, expiresAt: NOW + HOUR },
    capabilities: [right('oracle/*', from)],
    ...change,
  });
export const grant = (options: GrantFrom): GatedToken => gatedGrant(grantText(options));

export interface InvokeFrom extends Partial<Omit<UcanToMint, 'issuer' | 'key'>> {
  readonly by: Person;
  /** Whose right is used. */
  readonly of?: Person;
}
export const invocationText = ({ by, of = by, ...change }: InvokeFrom): string =>
  mintUcan({
    ...{ key: by.key, issuer: by.did, audience: oracle.did, nonce: NONCE, expiration: TS / 1000 + 300 },
    capabilities: [right('oracle/message', of, NB)],
    ...change,
  });
export const invocation = (options: InvokeFrom): GatedToken => gated(invocationText(options));

export interface World {
  readonly stored?: readonly GatedToken[];
  /** Keys of did:ixo issuers; one that is not here does not resolve. */
  readonly keys?: Readonly<Record<string, readonly Uint8Array[]>>;
  /** `<token id or CID> <did>`. */
  readonly revoked?: readonly string[];
  readonly now?: number;
}
export interface Asked {
  readonly tokens: string[];
  readonly dids: Did[];
  readonly count: ChainCount;
}

/** A verifier in a small world, and what it asked of it. */
export function verifierIn({ stored = [], keys = {}, revoked = [], now = NOW }: World = {}, ports: Partial<ChainPorts> = {}) {
  const asked: Asked = { tokens: [], dids: [], count: { signatures: 0 } };
  const verifier = createVerifier(
    {
      findToken: (cid) => {
        asked.tokens.push(cid);
        return stored.find((token) => token.leaf.cid === cid);
      },
      keysOf: async (did) => {
        asked.dids.push(did);
        const found = Object.hasOwn(keys, did) ? keys[did] : undefined;
        return found === undefined ? err('DID_NOT_RESOLVED') : ok({ keys: found, homeserver: null });
      },
      isRevoked: ({ tokenId, cid }, issuers) =>
        issuers.some((did) => revoked.includes(`${tokenId} ${did}`) || revoked.includes(`${cid} ${did}`)),
      now: () => now,
      ...ports,
    },
    asked.count,
  );
  return { ...verifier, asked };
}

export const codeOf = (result: { ok: boolean; error?: unknown }): unknown => (result.ok ? 'verified' : result.error);
