/** `POST /delegation` is open to everybody: what a stranger without a live nonce may make us do. */
import { expect, test } from 'vitest';
import type { Did, UserId } from '../../../src/ids.ts';
import { createRegisterGrant } from '../../../src/ucan/register-grant.ts';
import { ALICE, alice, grantsWorld, mallory, oracle, pageCapabilities } from './grants-world.ts';

function countingWorld() {
  const world = grantsWorld();
  let verified = 0;
  const register = createRegisterGrant({
    ...{ store: world.store, grants: world.grants, links: world.links, authoriseLinks: world.authoriseLinks, now: () => world.clock.now() },
    verify: (token) => {
      verified += 1;
      return world.verifier.grant(token);
    },
    oracleDids: () => [oracle.did],
    isTrustedServer: () => true,
  });
  return { ...world, register, verified: () => verified };
}

test.each([
  ['no nonce at all', undefined, ALICE],
  ['a nonce that nobody was sent', 'AAAAAAAAAAAAAAAAAAAAAA', ALICE],
  ["somebody else's nonce", 'live', '@mallory:example.org' as UserId],
])('a grant from the page with %s costs no signature and asks nobody for a DID (G14)', async (_name, nonce, sender) => {
  const world = countingWorld();
  const live = await world.nonceFor();
  const capabilities =
    nonce === undefined
      ? [{ can: 'oracle/chat', with: 'did:ixo:ixo1mallory' as Did }]
      : pageCapabilities(mallory.did, nonce === 'live' ? live : nonce, sender);
  const raw = world.mint({ key: mallory, capabilities });
  expect([await world.register.fromPage({ raw }), world.verified()]).toEqual([{ ok: false, error: 'BAD_LINK' }, 0]);
});

test('a nonce that was used costs nothing either', async () => {
  const world = countingWorld();
  const raw = world.mint({ capabilities: pageCapabilities(alice.did, await world.nonceFor()) });
  const planned = await world.register.fromPage({ raw });
  if (!planned.ok) throw new Error(planned.error);
  await world.write(planned.value);
  expect([await world.register.fromPage({ raw }), world.verified()]).toEqual([{ ok: false, error: 'BAD_LINK' }, 1]);
});
