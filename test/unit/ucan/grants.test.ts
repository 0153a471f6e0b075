import fc from 'fast-check';
import { expect, test } from 'vitest';
import type { Did, TokenId, UserId } from '../../../src/ids.ts';
import { LIMITS } from '../../../src/limits.ts';
import type { GrantRef } from '../../../src/ucan/chain.ts';
import { createGrants, revokersOf } from '../../../src/ucan/grants.ts';
import { fileStore } from '../../fakes/memory-store.ts';
import {
  ALICE,
  alice,
  DAY_MS,
  gatedGrant,
  grantsWorld,
  HOUR_MS,
  keyOf,
  MEMORY,
  mallory,
  oracle,
  pageCapabilities,
  session,
} from './grants-world.ts';

const BOB = '@bob:example.org' as UserId;
const ids = (list: readonly { tokenId: TokenId }[]) => list.map(({ tokenId }) => tokenId);

test('a grant is stored once, with what was verified of it, and found again by its CID', async () => {
  const world = grantsWorld();
  const car = world.mint();
  const { leaf } = gatedGrant(car);

  expect(await world.tryStore(car)).toBe(true);
  expect(await world.tryStore(car)).toBe(false);

  expect(world.count('grants')).toBe(1);
  expect(world.grants.byTokenId(leaf.tokenId)).toMatchObject({
    cid: leaf.cid,
    kind: 'acting',
    did: alice.did,
    audience: oracle.did,
    capabilities: [MEMORY],
    path: [{ tokenId: leaf.tokenId, issuer: alice.did, audience: oracle.did }],
    car,
    source: 'http',
    matrixUserId: null,
    revokedAt: null,
  });
  expect(world.grants.findToken(leaf.cid)?.car).toBe(car);
  expect(world.grants.findToken('00'.repeat(36))).toBeUndefined();
});

test('a second process finds what the first one stored', async () => {
  const file = fileStore();
  const first = grantsWorld(file.open());
  const car = first.mint();
  const tokenId = await first.stored(car);
  await first.revoke(tokenId, alice.did);
  first.store.close();

  const store = file.open();
  const grants = createGrants({ store });
  const { cid } = gatedGrant(car).leaf;

  expect(grants.findToken(cid)?.leaf.tokenId).toBe(tokenId);
  expect(grants.isRevoked({ tokenId, cid }, [alice.did])).toBe(true);
  store.close();
});

test('acting grants count until their end, session grants are no acting ones', async () => {
  const world = grantsWorld();
  const older = await world.stored(world.mint({ expiresAt: world.clock.now() + HOUR_MS }));
  world.clock.advance(1_000);
  const newer = await world.stored(world.mint());
  const client = await world.stored(world.mintSession());
  await world.stored(world.mint({ key: mallory }));

  expect(ids(world.grants.actingOf(alice.did, world.clock.now()))).toEqual([newer, older]);
  expect(ids(world.grants.list({ did: alice.did }, world.clock.now())).sort()).toEqual([older, newer, client].sort());
  world.clock.advance(HOUR_MS);
  expect(ids(world.grants.actingOf(alice.did, world.clock.now()))).toEqual([newer]);
});

test('a grant ends with the earliest end of its chain', async () => {
  const world = grantsWorld();
  const deputy = keyOf('deputy');
  const root = world.mint({ audience: deputy.did, expiresAt: world.clock.now() + HOUR_MS });
  const car = world.mint({ key: deputy, proofs: [gatedGrant(root)], expiresAt: world.clock.now() + DAY_MS });
  const tokenId = await world.stored(car);

  expect(world.grants.byTokenId(tokenId)).toMatchObject({ did: alice.did, path: [{ issuer: deputy.did }, { issuer: alice.did }] });
  expect(ids(world.grants.actingOf(alice.did, world.clock.now()))).toEqual([tokenId]);
  world.clock.advance(HOUR_MS);
  expect(world.grants.actingOf(alice.did, world.clock.now())).toEqual([]);
});

test('a page grant counts for nobody before it was shown and confirmed; then the account is bound to its DID', async () => {
  const world = grantsWorld();
  const { grants, clock } = world;
  const tokenId = await world.stored(world.mint({ capabilities: pageCapabilities(alice.did, world.newNonce()) }), {
    source: 'page',
    matrixUserId: ALICE,
  });

  expect(grants.pendingOf(ALICE, clock.now())?.tokenId).toBe(tokenId);
  expect(grants.actingOf(alice.did, clock.now())).toEqual([]);
  expect(grants.boundTo(ALICE, clock.now())).toBeUndefined();
  expect(await world.store.write((tx) => grants.activate(tx, tokenId, clock.now()))).toBe(false);
  await world.store.write((tx) => grants.markShown(tx, tokenId, clock.now()));
  expect(await world.store.write((tx) => grants.activate(tx, tokenId, clock.now()))).toBe(true);

  expect(grants.pendingOf(ALICE, clock.now())).toBeUndefined();
  expect(grants.boundTo(ALICE, clock.now())?.did).toBe(alice.did);
  expect(grants.boundTo(BOB, clock.now())).toBeUndefined();
  expect(ids(grants.actingOf(alice.did, clock.now()))).toEqual([tokenId]);
  expect(ids(grants.list({ user: ALICE }, clock.now()))).toEqual([tokenId]);
});

test('what was not confirmed within a quarter of an hour cannot be confirmed any more', async () => {
  const world = grantsWorld();
  const { grants, clock } = world;
  const tokenId = await world.stored(world.mint(), { source: 'page', matrixUserId: ALICE });
  await world.store.write((tx) => grants.markShown(tx, tokenId, clock.now()));
  clock.advance(LIMITS.authoriseLinkMs);

  expect(grants.pendingOf(ALICE, clock.now())).toBeUndefined();
  expect(await world.store.write((tx) => grants.activate(tx, tokenId, clock.now()))).toBe(false);
  expect(grants.list({ user: ALICE }, clock.now())).toEqual([]);
});

test('an account that acts for one DID is not moved to another by a confirmation (LINKED_TO_ANOTHER)', async () => {
  const world = grantsWorld();
  const { grants, clock } = world;
  const own = await world.activated(world.mint());
  const foreign = await world.stored(world.mint({ key: mallory }), { source: 'page', matrixUserId: ALICE });
  await world.store.write((tx) => grants.markShown(tx, foreign, clock.now()));

  expect(await world.store.write((tx) => grants.activate(tx, foreign, clock.now()))).toBe(false);
  expect(grants.boundTo(ALICE, clock.now())?.tokenId).toBe(own);
  await world.revoke(own, alice.did);
  expect(await world.store.write((tx) => grants.activate(tx, foreign, clock.now()))).toBe(true);
});

test('a grant that was known from a message and then comes from the page waits for its account', async () => {
  const world = grantsWorld();
  const car = world.mint();
  const tokenId = await world.stored(car, { source: 'dlg' });

  expect(await world.tryStore(car, { source: 'page', matrixUserId: ALICE })).toBe(true);
  expect(world.grants.pendingOf(ALICE, world.clock.now())?.tokenId).toBe(tokenId);
  expect(await world.tryStore(car, { source: 'page', matrixUserId: BOB })).toBe(false);
});

test('a revoked grant counts nowhere from that moment, cannot be activated, and is said to be ended once', async () => {
  const world = grantsWorld();
  const { grants, clock } = world;
  const tokenId = await world.activated(world.mint());
  const { cid } = grants.byTokenId(tokenId) ?? { cid: '' };

  expect(await world.revoke(tokenId, alice.did)).toEqual([tokenId]);
  expect(await world.revoke(tokenId, alice.did)).toEqual([]);

  expect(grants.isRevoked({ tokenId, cid }, [alice.did])).toBe(true);
  expect(grants.actingOf(alice.did, clock.now())).toEqual([]);
  expect(grants.boundTo(ALICE, clock.now())).toBeUndefined();
  expect(grants.list({ did: alice.did }, clock.now())).toEqual([]);
  expect(await world.store.write((tx) => grants.activate(tx, tokenId, clock.now()))).toBe(false);
  expect(world.count('revocations')).toBe(2);
});

test('a grant that was revoked before it came stays revoked, by token id and by CID', async () => {
  for (const name of ['tokenId', 'cid'] as const) {
    const world = grantsWorld();
    const car = world.mint();
    const { leaf } = gatedGrant(car);
    const verified = await world.verify(car);
    await world.revoke(leaf[name], alice.did);

    expect(await world.verifier.grant(gatedGrant(car))).toMatchObject({ ok: false, error: 'REVOKED' });
    const late = { verified, kind: 'acting', car, source: 'http', matrixUserId: null } as const;
    expect(await world.store.write((tx) => world.grants.store(tx, late, world.clock.now()))).toBe(false);
    expect(world.count('grants')).toBe(0);
  }
});

test('a revoked proof ends every stored grant that rests on it, and those that are not marked all the same', async () => {
  const world = grantsWorld();
  const deputy = keyOf('deputy');
  const root = world.mint({ audience: deputy.did });
  const resting = await world.stored(world.mint({ key: deputy, proofs: [gatedGrant(root)] }));
  const other = await world.stored(world.mint());

  expect(await world.revoke(gatedGrant(root).leaf.tokenId, alice.did)).toEqual([resting]);

  expect(ids(world.grants.actingOf(alice.did, world.clock.now()))).toEqual([other]);
  const ref = { tokenId: resting, cid: world.grants.byTokenId(resting)?.cid ?? '' };
  expect(world.grants.isRevoked(ref, [deputy.did, alice.did])).toBe(true);
});

test('a deputy takes back what he gave on, but not what he was given, and a stranger takes nothing', async () => {
  const world = grantsWorld();
  const deputy = keyOf('deputy');
  const root = world.mint({ audience: deputy.did });
  const given = await world.stored(world.mint({ key: deputy, proofs: [gatedGrant(root)] }));
  const own = await world.stored(world.mint());
  const { leaf } = gatedGrant(root);

  expect(await world.revoke(own, deputy.did)).toEqual([]);
  expect(await world.revoke(own, mallory.did)).toEqual([]);
  expect(await world.revoke(given, mallory.did)).toEqual([]);
  expect(await world.revoke(leaf.tokenId, deputy.did)).toEqual([]);
  expect(ids(world.grants.actingOf(alice.did, world.clock.now())).sort()).toEqual([given, own].sort());
  expect(await world.revoke(given, deputy.did)).toEqual([given]);
  expect(ids(world.grants.actingOf(alice.did, world.clock.now()))).toEqual([own]);
});

test('a DID has at most so many live grants: session grants give way, acting ones do not (G14)', async () => {
  const world = grantsWorld();
  const first = await world.stored(world.mintSession());
  for (let n = 1; n < LIMITS.grantsPerDid; n += 1) await world.stored(world.mint());

  const last = await world.stored(world.mint());
  expect(world.grants.byTokenId(first)).toBeUndefined();
  expect(world.grants.byTokenId(last)).toBeDefined();
  expect(await world.tryStore(world.mint())).toBe(false);
  expect(await world.tryStore(world.mint({ key: mallory }))).toBe(true);
  expect(world.count('grants')).toBe(LIMITS.grantsPerDid + 1);
});

test('storing and revoking without end leaves a bounded number of rows, and nothing becomes valid again (G14)', async () => {
  const world = grantsWorld();
  const cars: string[] = [];
  // Past LIMITS.revocationsPerDid: then only the marks of the rows say so.
  await world.store.write((tx) => {
    for (let n = 0; n < LIMITS.revocationsPerDid - 20; n += 1)
      tx.run(world.store.sql.insertInto('revocations').values({ id: `${n}`, did: alice.did, at: 0 }));
  });
  for (let n = 0; n < LIMITS.grantsPerDid + 30; n += 1) {
    const car = world.mint();
    if (!(await world.tryStore(car))) break;
    cars.push(car);
    await world.revoke(gatedGrant(car).leaf.tokenId, alice.did);
  }

  expect(world.count('revocations')).toBe(LIMITS.revocationsPerDid);
  expect(world.count('grants')).toBe(LIMITS.grantsPerDid);
  expect(cars).toHaveLength(LIMITS.grantsPerDid + 10);
  expect(await world.tryStore(world.mint())).toBe(false);
  for (const car of cars) expect(await world.verifier.grant(gatedGrant(car))).toMatchObject({ error: 'REVOKED' });
});

test('text that is no token id is not remembered as revoked (G14)', async () => {
  const world = grantsWorld();

  for (const id of ['', 'x', 'a'.repeat(10_000), '00'.repeat(36).toUpperCase().replaceAll('0', 'A')]) await world.revoke(id, alice.did);
  expect(world.count('revocations')).toBe(0);
});

test('of twenty stores and revocations at once each is one change, and revoked stays revoked', async () => {
  for (let round = 0; round < 5; round += 1) {
    const world = grantsWorld();
    const car = world.mint();
    const { tokenId, cid } = gatedGrant(car).leaf;
    const verified = await world.verify(car);
    const grant = { verified, kind: 'acting', car, source: 'http', matrixUserId: null } as const;

    const done = await Promise.all(
      Array.from({ length: 20 }, (_, n) =>
        world.store.write((tx) =>
          n % 2 === round % 2
            ? world.grants.store(tx, grant, world.clock.now())
            : world.grants.revoke(tx, { tokenId, by: alice.did }, world.clock.now()).length > 0,
        ),
      ),
    );

    // The first decides: stored and then ended once, or revoked before it came.
    expect(done.filter(Boolean)).toHaveLength(round % 2 === 0 ? 2 : 0);
    expect(world.count('grants')).toBe(round % 2 === 0 ? 1 : 0);
    expect(world.grants.isRevoked({ tokenId, cid }, [alice.did])).toBe(true);
    expect(world.grants.actingOf(alice.did, world.clock.now())).toEqual([]);
  }
});

test('a write that throws leaves neither mark nor revocation', async () => {
  const world = grantsWorld();
  const tokenId = await world.stored(world.mint());

  await expect(
    world.store.write((tx) => {
      world.grants.revoke(tx, { tokenId, by: alice.did }, world.clock.now());
      throw new Error('killed');
    }),
  ).rejects.toThrow('killed');
  expect(world.count('revocations')).toBe(0);
  expect(ids(world.grants.actingOf(alice.did, world.clock.now()))).toEqual([tokenId]);
});

test('the sweeper takes what ended more than a day ago and what nobody confirmed; a revoked row stays as long as its token may live', async () => {
  const world = grantsWorld();
  const ended = await world.stored(world.mint({ expiresAt: world.clock.now() + HOUR_MS }));
  const revoked = await world.stored(world.mint({ expiresAt: world.clock.now() + 2 * HOUR_MS }));
  await world.revoke(revoked, alice.did);
  const long = await world.stored(world.mint({ expiresAt: world.clock.now() + 29 * DAY_MS }));
  await world.stored(world.mint({ expiresAt: world.clock.now() + 29 * DAY_MS }), { source: 'page', matrixUserId: ALICE });

  expect(await world.grants.sweep(world.clock.now() + DAY_MS)).toBe(0);
  expect(await world.grants.sweep(world.clock.now() + DAY_MS + HOUR_MS + 1_000)).toBe(2);
  expect([ended, revoked, long].map((id) => world.grants.byTokenId(id) !== undefined)).toEqual([false, true, true]);
  expect(await world.grants.sweep(world.clock.now() + 40 * DAY_MS)).toBe(2);
  expect(world.count('revocations')).toBe(2);
});

test('thousands of ended grants are swept in steps that let others write in between', async () => {
  const world = grantsWorld();
  const verified = await world.verify(world.mint());
  await world.store.write((tx) => {
    for (let n = 0; n < 2_500; n += 1) {
      const did = `did:key:z${n}` as Did;
      const grant = { ...verified, tokenId: `${n}` as TokenId, cid: `${n}`, principal: did, path: [] };
      world.grants.store(tx, { verified: grant, kind: 'acting', car: '', source: 'http', matrixUserId: null }, world.clock.now());
    }
  });

  expect(await world.grants.sweep(world.clock.now() + 3 * DAY_MS)).toBe(2_500);
});

const ref = (issuer: string, audience: string): GrantRef =>
  ({ tokenId: `${issuer}>${audience}`, cid: '', issuer, audience, expiresAt: 0 }) as unknown as GrantRef;

test('a link may be taken back by its issuer and by those above it, not by another branch, in whatever order the links stand', () => {
  const links = [ref('d', 'oracle'), ref('b', 'd'), ref('a', 'b'), ref('c', 'd'), ref('a', 'c')];

  const revokers = links.map((_, at) => revokersOf(links, at).sort().join(''));
  expect(revokers).toEqual(['abcd', 'ab', 'a', 'ac', 'a']);
  expect(revokersOf(links, 9)).toEqual([]);
  fc.assert(
    fc.property(fc.shuffledSubarray(links, { minLength: links.length }), (shuffled) => {
      expect(shuffled.map((link, at) => revokersOf(shuffled, at).sort().join(''))).toEqual(
        shuffled.map((link) => revokers[links.indexOf(link)]),
      );
    }),
  );
});

test('no read of a grant looks at a whole table (G16)', async () => {
  const world = grantsWorld();
  const { store } = world;
  const statements = new Map<string, readonly unknown[]>();
  const watched = createGrants({
    store: {
      ...store,
      read: {
        ...store.read,
        all: (query) => {
          const { sql, parameters } = query.compile();
          statements.set(sql, parameters);
          return store.read.all(query);
        },
        get: (query) => {
          const { sql, parameters } = query.compile();
          statements.set(sql, parameters);
          return store.read.get(query);
        },
      },
    },
  });
  const tokenId = await world.activated(world.mint());
  const now = world.clock.now();
  watched.actingOf(alice.did, now);
  watched.boundTo(ALICE, now);
  watched.pendingOf(ALICE, now);
  watched.byTokenId(tokenId);
  watched.findToken('00');
  watched.isRevoked({ tokenId, cid: '' }, [session.did]);

  expect(statements.size).toBeGreaterThanOrEqual(6);
  for (const [sql, parameters] of statements) {
    const plan = store.read.all<{ detail: string }>({ compile: () => ({ sql: `EXPLAIN QUERY PLAN ${sql}`, parameters }) } as never);
    expect(plan.filter(({ detail }) => detail.startsWith('SCAN'))).toEqual([]);
  }
});
