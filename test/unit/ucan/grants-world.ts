/** A store of grants with the real gate and chain around it: tests mint honest grants and ask what becomes of them. */
import { createHash, createPublicKey } from 'node:crypto';
import type { Did, RoomId, TokenId, UserId } from '../../../src/ids.ts';
import { err, ok, type Result } from '../../../src/result.ts';
import { createLinks } from '../../../src/turn/links.ts';
import { createAuthoriseLinks } from '../../../src/ucan/authorise-links.ts';
import { createVerifier, type VerifiedGrant } from '../../../src/ucan/chain.ts';
import { decideGrant } from '../../../src/ucan/decide-grant.ts';
import type { DidKeys } from '../../../src/ucan/did/resolve-keys.ts';
import { type GatedToken, gateDelegation } from '../../../src/ucan/gate.ts';
import { createGrants, type GrantSource } from '../../../src/ucan/grants.ts';
import { mintGrant } from '../../../src/ucan/mint.ts';
import type { UcanCapability } from '../../../src/ucan/read-ucan.ts';
import { createRegisterGrant, type PlannedGrant } from '../../../src/ucan/register-grant.ts';
import { keyFromSeed } from '../../../src/ucan/signing-key.ts';
import { fakeClock } from '../../fakes/fake-clock.ts';
import { memoryStore } from '../../fakes/memory-store.ts';

export const keyOf = (name: string) => keyFromSeed(createHash('sha256').update(name).digest());
export const alice = keyOf('alice');
export const mallory = keyOf('mallory');
export const session = keyOf('session of alice');
export const oracle = keyOf('oracle');
export const ALICE = '@alice:example.org' as UserId;
export const DM = '!dm:example.org' as RoomId;
export const HOUR_MS = 3_600_000;
export const DAY_MS = 24 * HOUR_MS;
export const MEMORY: UcanCapability = { can: 'memory/*', with: 'ixo:memory' };
export const talkAs = (did: Did): UcanCapability[] => [
  { can: 'oracle/message', with: did },
  { can: 'oracle/read', with: did },
];
/** As the authorise page makes it. */
export const pageCapabilities = (did: Did, nonce: string, sender: string = ALICE): UcanCapability[] => [
  { can: 'oracle/chat', with: did, nb: { link: nonce, sender } },
  MEMORY,
];

export function gatedGrant(car: string): GatedToken {
  const gated = gateDelegation(car);
  if (!gated.ok) throw new Error(gated.error);
  return gated.value;
}
/** The value, or the code as an exception: for what must work. */
export function must<T>(result: Result<T, string>): T {
  if (!result.ok) throw new Error(result.error);
  return result.value;
}

/** The raw public key: what a DID document lists. */
export function publicKeyOf({ privateKey }: ReturnType<typeof keyOf>): Uint8Array {
  const { x = '' } = createPublicKey(privateKey).export({ format: 'jwk' });
  return new Uint8Array(Buffer.from(x, 'base64url'));
}

export type World = ReturnType<typeof grantsWorld>;
export function grantsWorld(store = memoryStore()) {
  const clock = fakeClock();
  const now = () => clock.now();
  const grants = createGrants({ store });
  const links = createLinks({ store });
  const documents = new Map<string, DidKeys>();
  const verifier = createVerifier({
    findToken: grants.findToken,
    keysOf: async (did) => {
      const found = documents.get(did);
      return found === undefined ? err('DID_NOT_RESOLVED') : ok(found);
    },
    isRevoked: grants.isRevoked,
    now,
  });
  let nonces = 0;
  const newNonce = () => createHash('sha256').update(`nonce ${++nonces}`).digest().subarray(0, 16).toString('base64url');
  const authoriseLinks = createAuthoriseLinks({ store, newNonce });
  const register = createRegisterGrant({
    ...{ store, grants, links, authoriseLinks, now },
    verify: verifier.grant,
    oracleDids: () => [oracle.did],
    isTrustedServer: (user) => user.endsWith(':example.org'),
  });
  const mint = (change: Partial<Parameters<typeof mintGrant>[0]> = {}): string =>
    mintGrant({ key: alice, audience: oracle.did, capabilities: [MEMORY], expiresAt: clock.now() + DAY_MS, nonce: newNonce(), ...change });
  const mintSession = (change: Partial<Parameters<typeof mintGrant>[0]> = {}): string =>
    mint({ audience: session.did, capabilities: talkAs((change.key ?? alice).did), ...change });
  const verify = async (car: string): Promise<VerifiedGrant> => must(await verifier.grant(gatedGrant(car)));
  async function store_(car: string, change: { source?: GrantSource; matrixUserId?: UserId | null } = {}): Promise<boolean> {
    const verified = await verify(car);
    const { kind } = must(decideGrant(verified, { oracleDids: [oracle.did], now: clock.now() }));
    const { source = 'http', matrixUserId = null } = change;
    return store.write((tx) => grants.store(tx, { verified, kind, car: verified.car, source, matrixUserId }, clock.now()));
  }
  /** Its token id, once it is stored. */
  async function stored(car: string, change: Parameters<typeof store_>[1] = {}): Promise<TokenId> {
    if (!(await store_(car, change))) throw new Error('it was not stored');
    return gatedGrant(car).leaf.tokenId;
  }
  return {
    store,
    clock,
    grants,
    links,
    documents,
    verifier,
    authoriseLinks,
    register,
    newNonce,
    mint,
    mintSession,
    verify,
    tryStore: store_,
    stored,
    revoke: (tokenId: string, by: Did) => store.write((tx) => grants.revoke(tx, { tokenId: tokenId as TokenId, by }, clock.now())),
    write: (planned: PlannedGrant) => store.write((tx) => planned.write(tx, clock.now())),
    /** A nonce that went to this account. */
    async nonceFor(user: UserId = ALICE): Promise<string> {
      const nonce = await store.write((tx) => authoriseLinks.issue(tx, { user, room: DM }, clock.now()));
      if (nonce === null) throw new Error('no link so soon');
      return nonce;
    },
    link: (did: Did, user: UserId) => store.write((tx) => links.prove(tx, { did, userId: user, directRoom: DM }, clock.now())),
    /** Stored by the page, shown and confirmed. */
    async activated(car: string, user: UserId = ALICE): Promise<TokenId> {
      const tokenId = await stored(car, { source: 'page', matrixUserId: user });
      const done = await store.write((tx) => {
        grants.markShown(tx, tokenId, clock.now());
        return grants.activate(tx, tokenId, clock.now());
      });
      if (!done) throw new Error('it was not activated');
      return tokenId;
    },
    count: (table: 'grants' | 'revocations' | 'audit' | 'authorise_links'): number =>
      store.read.get(store.sql.selectFrom(table).select((eb) => eb.fn.countAll<number>().as('n')))?.n ?? -1,
  };
}
