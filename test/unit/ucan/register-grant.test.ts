import { deflateSync } from 'node:zlib';
import { expect, test } from 'vitest';
import type { Did, UserId } from '../../../src/ids.ts';
import { LIMITS } from '../../../src/limits.ts';
import {
  ALICE,
  alice,
  DAY_MS,
  DM,
  gatedGrant,
  grantsWorld,
  HOUR_MS,
  keyOf,
  MEMORY,
  mallory,
  must,
  oracle,
  pageCapabilities,
  publicKeyOf,
  session,
  talkAs,
  type World,
} from './grants-world.ts';

const BOB = '@bob:example.org' as UserId;
const named = (sender: string) => [{ ...MEMORY, nb: { sender } }];
const fromEvent = (world: World, dlg: string, sender: UserId = ALICE) => world.register.fromEvent({ dlg, sender, roomId: DM });
const errorOf = async (result: Promise<{ ok: boolean; error?: string }>) => (await result).error;
const auditRows = (world: World) => world.store.read.all(world.store.sql.selectFrom('audit').selectAll());

test('an event registers a grant that names its sender; the receipt says what and until when', async () => {
  const world = grantsWorld();
  const car = world.mint({ capabilities: named(ALICE) });

  const planned = must(await fromEvent(world, car));
  expect(world.count('grants')).toBe(0);
  const receipt = must(await world.write(planned));

  const { tokenId } = gatedGrant(car).leaf;
  expect(receipt).toEqual({
    ...{ tokenId, did: alice.did, kind: 'acting', capabilities: named(ALICE) },
    ...{ expiresAt: world.clock.now() + DAY_MS, pending: false, matrixUserId: null },
  });
  expect(world.grants.byTokenId(tokenId)).toMatchObject({ source: 'event', matrixUserId: null });
  expect(world.grants.boundTo(ALICE, world.clock.now())).toBeUndefined();
});

test('a grant registered by one user that names another is refused (WRONG_SENDER)', async () => {
  const world = grantsWorld();
  await world.link(alice.did, BOB);

  expect(await errorOf(fromEvent(world, world.mint({ capabilities: named(ALICE) }), BOB))).toBe('WRONG_SENDER');
});

test('a grant that names nobody needs a link of its DID and this account (NOT_LINKED)', async () => {
  const world = grantsWorld();
  const car = world.mint();

  expect(await errorOf(fromEvent(world, car))).toBe('NOT_LINKED');
  await world.link(alice.did, BOB);
  await world.link(mallory.did, ALICE);
  expect(await errorOf(fromEvent(world, car))).toBe('NOT_LINKED');
  await world.link(alice.did, ALICE);
  expect((await fromEvent(world, car)).ok).toBe(true);
});

test.each([
  ['its own name', '@did-ixo-ixo1abc:example.org', undefined],
  ['the same name on a server that is not trusted', '@did-ixo-ixo1abc:evil.example', 'NOT_LINKED'],
  ["another's name", '@did-ixo-ixo1abd:example.org', 'NOT_LINKED'],
])('a did:ixo needs no link for %s', async (_, sender, error) => {
  const world = grantsWorld();
  const key = keyOf('key of the did:ixo');
  const did = 'did:ixo:ixo1abc' as Did;
  world.documents.set(did, { keys: [publicKeyOf(key)], homeserver: null });

  expect(await errorOf(fromEvent(world, world.mint({ key, issuer: did }), sender as UserId))).toBe(error);
});

test.each([
  ['one that ended', { expiresAt: -HOUR_MS }, 'GRANT_EXPIRED'],
  ['one that lives too long', { expiresAt: 31 * DAY_MS }, 'GRANT_LIVES_TOO_LONG'],
  ['one that is too wide', { capabilities: [{ can: '*', with: alice.did, nb: { sender: ALICE } }] }, 'GRANT_TOO_WIDE'],
  ['one for another service', { audience: 'did:web:memory.example.org' as Did }, 'BAD_GRANT'],
  ["one on another's DID", { capabilities: [{ can: 'oracle/chat', with: mallory.did, nb: { sender: ALICE } }] }, 'NOT_DELEGATED'],
])('%s is refused with its code whoever brings it', async (_, change, error) => {
  const world = grantsWorld();
  const base = { capabilities: named(ALICE), ...change };
  const car = world.mint({ ...base, expiresAt: world.clock.now() + ('expiresAt' in change ? change.expiresAt : HOUR_MS) });

  expect(await errorOf(fromEvent(world, car))).toBe(error);
  expect(await errorOf(world.register.fromCaller({ raw: car, caller: alice.did, source: 'http' }))).toBe(error);
  expect(await errorOf(world.register.fromMessage({ dlg: [gatedGrant(car)], principal: alice.did }))).toBe(error);
});

test('bytes that are no token, and a token that is too large, are refused before anything is asked', async () => {
  const world = grantsWorld();

  expect(await errorOf(fromEvent(world, 'AAAA'))).toBe('UCAN_MALFORMED');
  expect(await errorOf(fromEvent(world, 'A'.repeat(LIMITS.delegationBytes * 2)))).toBe('UCAN_TOO_LARGE');
  expect(await errorOf(world.register.fromPage({ raw: '' }))).toBe('UCAN_MALFORMED');
});

test('a session grant comes in beside a message, for its principal only', async () => {
  const world = grantsWorld();
  const car = world.mintSession();

  const [planned, ...more] = must(await world.register.fromMessage({ dlg: [gatedGrant(car)], principal: alice.did }));
  expect(more).toEqual([]);
  expect(must(await world.write(planned!))).toMatchObject({ kind: 'session', pending: false });
  expect(world.grants.findToken(gatedGrant(car).leaf.cid)).toBeDefined();
  expect(await errorOf(world.register.fromMessage({ dlg: [gatedGrant(car)], principal: mallory.did }))).toBe('BAD_ISSUER');
});

test('grants beside a message may rest on each other, in either order, and each is stored with what it rests on', async () => {
  const world = grantsWorld();
  const deputy = keyOf('deputy');
  const root = world.mint({ audience: deputy.did, capabilities: talkAs(alice.did) });
  const named = gatedGrant(root);
  const onward = gatedGrant(
    world.mint({
      key: deputy,
      audience: session.did,
      capabilities: talkAs(alice.did),
      proofs: [named],
      expiresAt: world.clock.now() + HOUR_MS,
    }),
  );
  // Without what it rests on in its own file.
  const bare = { ...onward, links: new Map([[onward.leaf.cid, onward.leaf]]) };

  for (const dlg of [
    [named, bare],
    [bare, named],
  ]) {
    const planned = must(await world.register.fromMessage({ dlg, principal: alice.did }));
    expect(planned.map(({ receipt }) => receipt.did)).toEqual([alice.did, alice.did]);
  }
  expect(await errorOf(world.register.fromMessage({ dlg: [bare], principal: alice.did }))).toBe('MISSING_PROOF');
});

test('a request registers for its caller only, and never binds an account', async () => {
  const world = grantsWorld();
  const nonce = await world.nonceFor();
  const raw = world.mint({ capabilities: pageCapabilities(alice.did, nonce) });

  expect(await errorOf(world.register.fromCaller({ raw, caller: mallory.did, source: 'http' }))).toBe('BAD_ISSUER');
  const planned = must(await world.register.fromCaller({ raw, caller: alice.did, source: 'header' }));
  expect(must(await world.write(planned))).toMatchObject({ pending: false, matrixUserId: null });
  expect(world.grants.byTokenId(planned.receipt.tokenId)).toMatchObject({ source: 'header', matrixUserId: null });
  expect(world.grants.pendingOf(ALICE, world.clock.now())).toBeUndefined();
  expect(world.authoriseLinks.holder(nonce, world.clock.now())).toBeDefined();
});

test('the page registers with the nonce that went to the account, once; then the grant waits for that account', async () => {
  const world = grantsWorld();
  const nonce = await world.nonceFor();
  const raw = world.mint({ capabilities: pageCapabilities(alice.did, nonce) });

  const receipt = must(await world.write(must(await world.register.fromPage({ raw }))));

  expect(receipt).toMatchObject({ did: alice.did, pending: true, matrixUserId: ALICE });
  expect(world.grants.pendingOf(ALICE, world.clock.now())?.tokenId).toBe(receipt.tokenId);
  expect(await errorOf(world.register.fromPage({ raw }))).toBe('BAD_LINK');
  const second = world.mint({ key: mallory, capabilities: pageCapabilities(mallory.did, nonce) });
  expect(await errorOf(world.register.fromPage({ raw: second }))).toBe('BAD_LINK');
});

test('the link of somebody else, an unknown one, an old one, and none at all are refused (BAD_LINK)', async () => {
  const world = grantsWorld();
  const nonce = await world.nonceFor(BOB);
  const page = (value: string, sender: UserId = ALICE) =>
    errorOf(world.register.fromPage({ raw: world.mint({ capabilities: pageCapabilities(alice.did, value, sender) }) }));

  expect(await page(nonce)).toBe('BAD_LINK');
  expect(await page(world.newNonce())).toBe('BAD_LINK');
  expect(await errorOf(world.register.fromPage({ raw: world.mint() }))).toBe('BAD_LINK');
  expect(await errorOf(world.register.fromPage({ raw: world.mint({ capabilities: named(BOB) }) }))).toBe('BAD_LINK');
  expect(await page(nonce, BOB)).toBeUndefined();
  world.clock.advance(LIMITS.authoriseLinkMs);
  expect(await page(nonce, BOB)).toBe('BAD_LINK');
});

test('of twenty posts of the page at once exactly one is stored', async () => {
  const world = grantsWorld();
  const nonce = await world.nonceFor();
  const keys = Array.from({ length: 20 }, (_, n) => keyOf(`key ${n}`));
  const planned = await Promise.all(
    keys.map(async (key) =>
      must(await world.register.fromPage({ raw: world.mint({ key, capabilities: pageCapabilities(key.did, nonce) }) })),
    ),
  );

  const written = await Promise.all(planned.map((one) => world.write(one)));

  expect(written.filter(({ ok }) => ok)).toHaveLength(1);
  expect(written.filter((one) => !one.ok && one.error === 'BAD_LINK')).toHaveLength(19);
  expect([world.count('grants'), world.count('audit')]).toEqual([1, 1]);
});

test('the page cannot bind an account of a server that is not trusted, nor a did:ixo to another name', async () => {
  const world = grantsWorld();
  const far = '@alice:elsewhere.net' as UserId;
  const nonce = await world.nonceFor(far);
  const raw = world.mint({ capabilities: pageCapabilities(alice.did, nonce, far) });
  expect(await errorOf(world.register.fromPage({ raw }))).toBe('UNTRUSTED_SERVER');

  const did = 'did:ixo:ixo1abc' as Did;
  const key = keyOf('key of the did:ixo');
  world.documents.set(did, { keys: [publicKeyOf(key)], homeserver: null });
  const other = world.mint({ key, issuer: did, capabilities: pageCapabilities(did, await world.nonceFor()) });
  expect(await errorOf(world.register.fromPage({ raw: other }))).toBe('WRONG_ACCOUNT');
});

test('a second DID for an account that has an active one is refused until that is taken back, also within the race', async () => {
  const world = grantsWorld();
  const nonce = await world.nonceFor();
  const raw = world.mint({ key: mallory, capabilities: pageCapabilities(mallory.did, nonce) });
  const before = must(await world.register.fromPage({ raw }));
  const active = await world.activated(world.mint());

  expect(await errorOf(world.register.fromPage({ raw }))).toBe('LINKED_TO_ANOTHER');
  expect(await world.write(before)).toEqual({ ok: false, error: 'LINKED_TO_ANOTHER' });
  // The nonce was not used up by what was refused.
  await world.revoke(active, alice.did);
  expect((await world.write(before)).ok).toBe(true);
});

test('what is revoked or ends between check and write is not stored', async () => {
  const world = grantsWorld();
  const car = world.mint({ capabilities: named(ALICE) });
  const planned = must(await fromEvent(world, car));
  await world.revoke(planned.receipt.tokenId, alice.did);
  expect(await world.write(planned)).toEqual({ ok: false, error: 'REVOKED' });

  const short = must(await fromEvent(world, world.mint({ capabilities: named(ALICE), expiresAt: world.clock.now() + 5_000 })));
  world.clock.advance(5_000);
  expect(await world.write(short)).toEqual({ ok: false, error: 'GRANT_EXPIRED' });
  expect(world.count('grants')).toBe(0);
});

test('a DID with as many grants as are kept is told so, and its nonce is not used up', async () => {
  const world = grantsWorld();
  for (let n = 0; n < LIMITS.grantsPerDid; n += 1) await world.stored(world.mint());
  const nonce = await world.nonceFor();
  const raw = world.mint({ capabilities: pageCapabilities(alice.did, nonce) });

  expect(await world.write(must(await world.register.fromPage({ raw })))).toEqual({ ok: false, error: 'TOO_MANY_GRANTS' });
  expect(world.authoriseLinks.holder(nonce, world.clock.now())).toBeDefined();
});

test('the same grant again is stored and recorded once, and the receipt says how it stands', async () => {
  const world = grantsWorld();
  const nonce = await world.nonceFor();
  const raw = world.mint({ capabilities: pageCapabilities(alice.did, nonce) });
  await world.write(must(await world.register.fromPage({ raw })));

  const again = must(await world.write(must(await world.register.fromCaller({ raw, caller: alice.did, source: 'http' }))));

  expect(again).toMatchObject({ pending: true, matrixUserId: ALICE });
  expect(auditRows(world)).toMatchObject([
    {
      ...{ decision: 'allowed', capability: 'grant/store', resource: `oracle/chat ${alice.did}, memory/* ixo:memory` },
      ...{ principal_id: alice.did, matrix_user_id: ALICE, token_id: again.tokenId },
    },
  ]);
});

test('the audit log never holds the token (G12)', async () => {
  const world = grantsWorld();
  const car = world.mint({ capabilities: named(ALICE) });
  await world.write(must(await fromEvent(world, car)));

  expect(JSON.stringify(auditRows(world))).not.toContain(car.slice(100, 140));
});

test('room state of another oracle is read for the person of the room, as strictly as an event', async () => {
  const world = grantsWorld();
  const pack = (raw: string) => deflateSync(JSON.stringify({ json: { raw, issuer: 'did:key:liar' } })).toString('base64');
  const padded = Buffer.from(world.mint({ capabilities: named(ALICE) }), 'base64url').toString('base64');
  const fromState = (raw: string, person: UserId = ALICE) => world.register.fromState({ data: pack(raw), roomId: DM, person });

  expect(must(await world.write(must(await fromState(padded))))).toMatchObject({ did: alice.did, pending: false, matrixUserId: null });
  expect(await errorOf(fromState(padded, BOB))).toBe('WRONG_SENDER');
  expect(await errorOf(fromState(world.mint()))).toBe('NOT_LINKED');
  expect(await errorOf(world.register.fromState({ data: 'eA==', roomId: DM, person: ALICE }))).toBe('UCAN_MALFORMED');
  expect(world.grants.list({ did: alice.did }, world.clock.now())).toMatchObject([{ source: 'state', audience: oracle.did }]);
});
