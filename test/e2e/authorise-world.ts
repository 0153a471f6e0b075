/** The sidecar with the real page, real grants and a real store, as far as the authorise page goes; Matrix is two functions that say what the person did there. */
import type { AddressInfo } from 'node:net';
import { onTestFinished } from 'vitest';
import type { Did, RoomId, TokenId, UserId } from '../../src/ids.ts';
import { ok } from '../../src/result.ts';
import type { SidecarDeps } from '../../src/sidecar/deps.ts';
import { readAuthorisePage } from '../../src/sidecar/pages/read-pages.ts';
import { createSidecar } from '../../src/sidecar/sidecar.ts';
import { openStore } from '../../src/store/store.ts';
import { systemClock } from '../../src/system-clock.ts';
import type { Clock } from '../../src/time.ts';
import { createLinks } from '../../src/turn/links.ts';
import { createAuthoriseLinks } from '../../src/ucan/authorise-links.ts';
import { createVerifier } from '../../src/ucan/chain.ts';
import { createGrants, type StoredGrant } from '../../src/ucan/grants.ts';
import { newNonce } from '../../src/ucan/mint.ts';
import { createRegisterGrant } from '../../src/ucan/register-grant.ts';
import { generateKey } from '../../src/ucan/signing-key.ts';
import { fakeLogger } from '../fakes/fake-logger.ts';

export const ALICE = '@alice:example.org' as UserId;
export const DM = '!dm:example.org' as RoomId;
export const ABILITIES = [
  { can: 'fs/read', with: 'ixo:filesystem', title: 'Read your files' },
  { can: 'memory/*', with: 'ixo:memory', title: 'Remember things for you' },
];

export async function startAuthoriseWorld({ built = true } = {}) {
  let skew = 0;
  let sent = 0;
  const clock: Clock = { ...systemClock, now: () => systemClock.now() + skew };
  const store = openStore({ path: ':memory:', now: clock.now() });
  const identity = { name: 'Testy', did: generateKey().did, entityDid: null };
  const grants = createGrants({ store });
  const links = createLinks({ store });
  const authoriseLinks = createAuthoriseLinks({ store, newNonce });
  const verifier = createVerifier({
    findToken: grants.findToken,
    // Nobody here has an identity that must be looked up.
    keysOf: async () => ok({ keys: [], homeserver: null }),
    isRevoked: grants.isRevoked,
    now: clock.now,
  });
  const registerGrant = createRegisterGrant({
    ...{ store, grants, links, authoriseLinks, verify: verifier.grant },
    oracleDids: () => [identity.did],
    isTrustedServer: () => true,
    now: clock.now,
  });
  const revoked: TokenId[] = [];
  let ids = 0;
  const authorisePage = built ? readAuthorisePage() : null;
  if (built && authorisePage === null) throw new Error('The authorise page is not built: run `npm run build:pages`.');
  const needed: Partial<SidecarDeps> = {
    ...{ identity, store, links, grants, registerGrant, authoriseLinks, authorisePage, clock },
    abilitiesToAsk: () => ABILITIES,
    verify: verifier.invocation,
    mayUse: () => true,
    onRevoked: (tokens) => void revoked.push(...tokens),
    observeRefusal: () => undefined,
    logger: fakeLogger(),
    newRequestId: () => `made-${++ids}`,
    options: { corsOrigins: ['*'] },
  };
  // Of the rest the routes that are used here read nothing.
  const app = createSidecar(needed as SidecarDeps);
  await app.listen({ host: '127.0.0.1', port: 0 });
  const { port } = app.server.address() as AddressInfo;
  onTestFinished(async () => {
    await app.close();
    store.close();
  });

  return {
    oracle: identity,
    port,
    url: `http://127.0.0.1:${port}/authorise`,
    revoked,
    /** A fresh nonce, as the oracle sends it to this account in its direct room. */
    async sendLink(user: UserId = ALICE): Promise<string> {
      // One a minute: the next is one of a minute later.
      const at = clock.now() + sent++ * 61_000;
      const nonce = await store.write((tx) => authoriseLinks.issue(tx, { user, room: DM }, at));
      if (nonce === null) throw new Error('no link was sent');
      return nonce;
    },
    pending: (user: UserId = ALICE): StoredGrant | undefined => grants.pendingOf(user, clock.now()),
    /** What `!authorise` and `!authorise confirm` do. */
    async confirm(user: UserId = ALICE): Promise<StoredGrant> {
      const grant = grants.pendingOf(user, clock.now());
      if (grant === undefined) throw new Error('nothing is pending');
      await store.write((tx) => {
        grants.markShown(tx, grant.tokenId, clock.now());
        if (!grants.activate(tx, grant.tokenId, clock.now())) throw new Error('not activated');
        links.prove(tx, { did: grant.did, userId: user, directRoom: DM }, clock.now());
      });
      return grant;
    },
    active: (did: Did): StoredGrant[] => grants.actingOf(did, clock.now()),
    pass: (ms: number) => {
      skew += ms;
    },
    now: clock.now,
  };
}
export type AuthoriseWorld = Awaited<ReturnType<typeof startAuthoriseWorld>>;
