/**
 * What the user of a test runtime has granted, and an oracle that can sign: real tokens with the host's own rules, so that a plugin's test sees what
 * a service would get. Only the network is missing: a service's DID is taken from its address.
 */
import { type Did, parseDid } from './ids.ts';
import { err, ok } from './result.ts';
import { createVerifier } from './ucan/chain.ts';
import { readWebDid } from './ucan/did/web.ts';
import { createDownstream, type Downstream } from './ucan/downstream.ts';
import { gateDelegation } from './ucan/gate.ts';
import type { StoredGrant } from './ucan/grants.ts';
import { mintGrant, newNonce } from './ucan/mint.ts';
import { createOracleKeys } from './ucan/oracle-keys.ts';
import type { UcanCapability } from './ucan/read-ucan.ts';
import { keyFromSeed } from './ucan/signing-key.ts';

/** Everybody knows these keys: they are worth nothing outside a test. */
const user = keyFromSeed(new Uint8Array(32).fill(1));
const oracle = keyFromSeed(new Uint8Array(32).fill(2));
export const TEST_USER: Did = user.did;
const HOUR_MS = 60 * 60_000;

export interface TestAuthority {
  readonly grants: readonly StoredGrant[];
  readonly downstream: Downstream;
}

export function createTestAuthority({
  granted,
  canSign,
  now,
}: {
  readonly granted: readonly UcanCapability[];
  readonly canSign: boolean;
  readonly now: () => number;
}): TestAuthority {
  const verifier = createVerifier({
    findToken: () => undefined,
    // A did:key needs no document.
    keysOf: async () => err('DID_NOT_RESOLVED'),
    isRevoked: () => false,
    now,
  });
  return {
    grants: granted.length === 0 ? [] : [buildGrant(granted, now())],
    downstream: createDownstream({
      keys: createOracleKeys({ did: oracle.did, current: canSign ? oracle : null, old: [] }),
      services: {
        async didOf(serviceUrl) {
          const did = parseDid(readWebDid(serviceUrl));
          return did.ok ? ok(did.value) : err('SERVICE_NOT_RESOLVED');
        },
      },
      reusable: [],
      verify: verifier.grant,
      findToken: () => undefined,
      now,
      newNonce,
    }),
  };
}

function buildGrant(capabilities: readonly UcanCapability[], now: number): StoredGrant {
  const expiresAt = now + HOUR_MS;
  const token = gateDelegation(mintGrant({ key: user, audience: oracle.did, capabilities, expiresAt, nonce: newNonce() }));
  if (!token.ok) throw new Error(`these capabilities cannot be granted: ${token.error}`);
  const { tokenId, cid, issuer, audience } = token.value.leaf;
  return {
    ...{ tokenId, cid, audience, capabilities, expiresAt },
    kind: 'acting',
    did: issuer,
    path: [{ tokenId, cid, issuer, audience, expiresAt }],
    car: token.value.car,
    source: 'event',
    storedAt: now,
    matrixUserId: null,
    shownAt: null,
    activatedAt: null,
    revokedAt: null,
  };
}
