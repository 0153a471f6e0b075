import { createHash } from 'node:crypto';
import * as dagCbor from '@ipld/dag-cbor';
import { Delegation } from '@ucanto/core';
import { ed25519, Verifier as UcantoVerifier } from '@ucanto/principal';
import { access, capability, URI } from '@ucanto/validator';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import type { Did } from '../../../src/ids.ts';
import { LIMITS } from '../../../src/limits.ts';
import { err, ok } from '../../../src/result.ts';
import { systemClock } from '../../../src/system-clock.ts';
import { buildFile } from '../../../src/ucan/build-file.ts';
import { cidOf } from '../../../src/ucan/car.ts';
import { createVerifier, type VerifiedGrant } from '../../../src/ucan/chain.ts';
import { createDownstream, type DelegationRequest, type Downstream, type DownstreamOptions } from '../../../src/ucan/downstream.ts';
import { type GatedToken, gateDelegation } from '../../../src/ucan/gate.ts';
import type { StoredGrant } from '../../../src/ucan/grants.ts';
import { mintGrant, newNonce } from '../../../src/ucan/mint.ts';
import { createOracleKeys, type OracleKeys } from '../../../src/ucan/oracle-keys.ts';
import type { UcanCapability } from '../../../src/ucan/read-ucan.ts';
import { keyFromSeed, type SigningKey } from '../../../src/ucan/signing-key.ts';

const keyOf = (name: string): SigningKey => keyFromSeed(createHash('sha256').update(name).digest());
const [alice, bob, mallory, oracle, oldOracle] = ['alice', 'bob', 'mallory', 'oracle', 'old oracle'].map(keyOf) as [
  SigningKey,
  SigningKey,
  SigningKey,
  SigningKey,
  SigningKey,
];
const SERVICE = 'did:web:memory.example.org' as Did;
const URL = 'https://memory.example.org/api';
const READ = { can: 'memory/read', with: 'ixo:memory' };
const DAY_MS = 24 * 60 * 60_000;

/** Whole seconds, and now: the other implementation reads the clock itself. */
const START = Math.floor(systemClock.now() / 1_000) * 1_000;

interface World extends Downstream {
  at: number;
  readonly revoked: Set<string>;
  readonly verify: (car: string) => Promise<VerifiedGrant>;
  readonly grant: (car: string) => Promise<StoredGrant>;
}
function setUp(more: Partial<DownstreamOptions> & { keys?: OracleKeys; stored?: readonly GatedToken[] } = {}): World {
  const keys = more.keys ?? createOracleKeys({ did: oracle.did, current: oracle, old: [] });
  const findToken = (cid: string) => more.stored?.find(({ leaf }) => leaf.cid === cid);
  const revoked = new Set<string>();
  const world = { at: START };
  const verifier = createVerifier({
    findToken,
    keysOf: async () => err('DID_NOT_RESOLVED'),
    isRevoked: ({ tokenId }) => revoked.has(tokenId),
    now: () => world.at,
  });
  const downstream = createDownstream({
    services: { didOf: async (url) => (url === URL ? ok(SERVICE) : err('SERVICE_NOT_RESOLVED')) },
    reusable: [],
    verify: verifier.grant,
    findToken,
    now: () => world.at,
    newNonce,
    ...more,
    keys,
  });
  const verify = async (car: string): Promise<VerifiedGrant> => {
    const verified = await verifier.grant(gated(car));
    if (!verified.ok) throw new Error(verified.error);
    return verified.value;
  };
  return Object.assign(world, downstream, {
    revoked,
    verify,
    grant: async (car: string) => storedOf(await verify(car)),
  });
}

function gated(car: string): GatedToken {
  const token = gateDelegation(car);
  if (!token.ok) throw new Error(token.error);
  return token.value;
}
const storedOf = (verified: VerifiedGrant): StoredGrant => ({
  tokenId: verified.tokenId,
  cid: verified.cid,
  kind: 'acting',
  did: verified.principal,
  audience: verified.audience,
  capabilities: verified.capabilities,
  path: verified.path,
  car: verified.car,
  expiresAt: verified.expiresAt,
  source: 'http',
  storedAt: START,
  matrixUserId: null,
  shownAt: null,
  activatedAt: null,
  revokedAt: null,
});
const grantCar = (more: Partial<Parameters<typeof mintGrant>[0]> = {}): string =>
  mintGrant({ key: alice, audience: oracle.did, capabilities: [READ], expiresAt: START + DAY_MS, nonce: newNonce(), ...more });
/** alice → bob → oracle. */
function twoLinks(): { car: string; above: GatedToken } {
  const above = gated(grantCar({ audience: bob.did, capabilities: [{ can: 'memory/*', with: 'ixo:memory' }] }));
  return { car: grantCar({ key: bob, proofs: [above] }), above };
}

const request = (world: World, grants: readonly StoredGrant[], more: { capability?: string; did?: string; skipCache?: boolean } = {}) =>
  world.mint({
    grants,
    did: alice.did,
    target: { did: more.did ?? SERVICE, capability: more.capability ?? 'memory/read ixo:memory' },
    skipCache: more.skipCache,
  });
async function mint(world: World, grants: readonly StoredGrant[], more?: Parameters<typeof request>[2]): Promise<string> {
  const minted = await request(world, grants, more);
  if (!minted.ok) throw new Error(`${minted.error.code}: ${minted.error.message}`);
  return minted.value;
}
const leafOf = (invocation: string) => gated(invocation).leaf;

/** A service of another implementation: its own descriptor, its own root rule (alice owns `ixo:memory` there), its own audience check. */
async function serve(invocation: string, can = 'memory/read', resolve: Record<string, string> = {}): Promise<string> {
  const key = await ed25519.generate();
  const service = key.withDID(SERVICE as `did:web:${string}`);
  const extracted = await Delegation.extract(Buffer.from(invocation, 'base64'));
  if (extracted.error) return 'unreadable';
  const delegation = extracted.ok;
  try {
    if (delegation.audience.did() !== service.did()) return 'wrong audience';
    const result = await access(delegation as never, {
      capability: capability({ can: can as `${string}/${string}`, with: URI.match({ protocol: 'ixo:' }) }),
      authority: service.verifier,
      principal: UcantoVerifier,
      canIssue: (_capability, issuer) => issuer === alice.did,
      resolveDIDKey: async (did) => {
        const found = resolve[did];
        return found === undefined
          ? { error: { name: 'DIDKeyResolutionError', did, message: 'unknown' } as never }
          : { ok: [found as `did:key:${string}`] };
      },
      validateAuthorization: async () => ({ ok: {} }),
    });
    return result.ok ? 'accepted' : 'refused';
  } catch {
    return 'refused';
  }
}

describe('a service of another implementation', () => {
  test('accepts what is minted on a grant of one link, for this ability and at this service only', async () => {
    const world = setUp();
    const invocation = await mint(world, [await world.grant(grantCar())]);

    expect(await serve(invocation)).toBe('accepted');
    expect(await serve(invocation, 'memory/write')).toBe('refused');
    const elsewhere = await mint(world, [await world.grant(grantCar())], { did: 'did:web:other.example.org' });
    expect(await serve(elsewhere)).toBe('wrong audience');
  });

  test('accepts a grant of two links, embedded with all its proofs, also when a proof was only stored beside', async () => {
    const { car, above } = twoLinks();
    const world = setUp({ stored: [above] });
    const whole = await world.grant(car);

    expect(await serve(await mint(world, [whole]))).toBe('accepted');
    const linked = bareGrant(bob, above);
    expect(gated(linked).links.size).toBe(1);
    expect(await serve(await mint(world, [{ ...whole, car: linked }]))).toBe('accepted');
  });

  test('accepts an invocation of the old DID after a rotation, on a grant to the old DID, for 30 days', async () => {
    const until = START + LIMITS.oldKeyMs;
    const keys = createOracleKeys({ did: oracle.did, current: oracle, old: [{ did: oldOracle.did, key: oldOracle, until }] });
    const world = setUp({ keys });
    const grant = await world.grant(grantCar({ audience: oldOracle.did, expiresAt: until }));
    const invocation = await mint(world, [grant]);

    expect(leafOf(invocation).issuer).toBe(oldOracle.did);
    expect(await serve(invocation)).toBe('accepted');
    world.at = until;
    expect(await request(world, [{ ...grant, expiresAt: until + DAY_MS }])).toMatchObject({ error: { code: 'NEEDS_GRANT' } });
  });

  test('accepts a did:ixo oracle by the key of its document', async () => {
    const did = 'did:ixo:entity1oracle' as Did;
    const world = setUp({ keys: createOracleKeys({ did, current: oracle, old: [] }) });
    const invocation = await mint(world, [await world.grant(grantCar({ audience: did }))]);

    expect(leafOf(invocation).issuer).toBe(did);
    expect(await serve(invocation, 'memory/read', { [did]: oracle.did })).toBe('accepted');
    expect(await serve(invocation, 'memory/read', { [did]: mallory.did })).toBe('refused');
  });

  test('refuses what was changed on the way, also with every hash put right', async () => {
    const world = setUp();
    const invocation = await mint(world, [await world.grant(grantCar())]);
    const changed = (change: (model: Record<string, unknown>) => void): string => {
      const { leaf, links } = gated(invocation);
      const model = dagCbor.decode<Record<string, unknown>>(leaf.block);
      change(model);
      const block = dagCbor.encode(model);
      const car = buildFile({ cid: cidOf(block).toString('hex'), block, proofs: leaf.proofs }, links);
      return Buffer.from(car, 'base64url').toString('base64');
    };

    expect(await serve(changed(() => undefined))).toBe('accepted');
    expect(await serve(changed((model) => Object.assign(model, { exp: START / 1_000 + 3_600 })))).toBe('refused');
    expect(await serve(changed((model) => Object.assign(model, { nnc: 'another' })))).toBe('refused');
    expect(
      await serve(
        changed((model) => Object.assign(model, { att: [{ can: 'memory/write', with: 'ixo:memory' }] })),
        'memory/write',
      ),
    ).toBe('refused');
  });

  test('refuses an invocation on a grant of somebody else', async () => {
    const world = setUp();
    const swapped = { ...(await world.grant(grantCar())), car: grantCar({ key: mallory }) };

    expect(await serve(await mint(world, [swapped]))).toBe('refused');
  });
});

/** bob → oracle, its proof named only. */
function bareGrant(key: SigningKey, above: GatedToken): string {
  return mintGrant({
    ...{ key, audience: oracle.did, capabilities: [READ], expiresAt: START + DAY_MS, nonce: newNonce() },
    proofs: [{ ...above, links: new Map() }],
  });
}

describe('what is minted', () => {
  test('is padded base64, for one concrete ability, five minutes, with a nonce of its own', async () => {
    const world = setUp();
    const grants = [await world.grant(grantCar({ capabilities: [{ can: 'memory/*', with: 'ixo:memory' }] }))];
    const [first, second] = [await mint(world, grants), await mint(world, grants)];

    expect(Buffer.from(first, 'base64').toString('base64')).toBe(first);
    expect(leafOf(first)).toMatchObject({
      issuer: oracle.did,
      audience: SERVICE,
      capabilities: [READ],
      expiration: START / 1_000 + LIMITS.downstreamLifetimeS,
      proofs: [grants[0]?.cid],
    });
    expect(leafOf(first).nonce.length).toBeGreaterThanOrEqual(16);
    expect(leafOf(first).nonce).not.toBe(leafOf(second).nonce);
  });

  test('ends with the earliest end of the chain, and is refused when that is now', async () => {
    const world = setUp();
    const grant = await world.grant(grantCar({ expiresAt: START + 90_000 }));

    expect(leafOf(await mint(world, [grant])).expiration).toBe(START / 1_000 + 90);
    world.at = START + 89_000;
    expect(leafOf(await mint(world, [grant])).expiration).toBe(START / 1_000 + 90);
    world.at = START + 90_000;
    expect(await request(world, [grant])).toMatchObject({ error: { code: 'NEEDS_GRANT' } });
  });

  test('keeps the caveats of the grant, and rests on one without when there is a choice', async () => {
    const world = setUp();
    const nb = { link: 'nonce', sender: '@alice:example.org' };
    const bound = await world.grant(grantCar({ capabilities: [{ ...READ, nb }], expiresAt: START + 2 * DAY_MS }));
    const free = await world.grant(grantCar());

    expect(leafOf(await mint(world, [bound])).capabilities).toEqual([{ ...READ, nb }]);
    expect(leafOf(await mint(world, [bound, free])).capabilities).toEqual([READ]);
  });

  test("rests on the run's own grants only (G13)", async () => {
    const world = setUp();
    const grant = await world.grant(grantCar({ key: mallory }));

    expect(await request(world, [grant])).toMatchObject({ ok: false, error: { code: 'NEEDS_GRANT' } });
    expect(await request(world, [{ ...(await world.grant(grantCar())), kind: 'session' }])).toMatchObject({
      error: { code: 'NEEDS_GRANT' },
    });
  });

  test('needs every proof: a service knows none of ours', async () => {
    const { above } = twoLinks();
    const world = setUp();
    const whole = await world.grant(twoLinks().car);

    expect(await request(world, [{ ...whole, car: bareGrant(bob, above) }])).toMatchObject({ error: { code: 'NEEDS_GRANT' } });
  });
});

describe('a capability as tools name it', () => {
  const granted: UcanCapability[] = [
    READ,
    { can: 'memory/write', with: 'ixo:memory' },
    { can: 'fs/*', with: 'ixo:filesystem' },
    { can: 'claims/submit', with: 'service:claims' },
    { can: 'oracle/chat', with: alice.did },
  ];
  test.each([
    ['memory/read ixo:memory', READ],
    [' memory/write  ixo:memory ', { can: 'memory/write', with: 'ixo:memory' }],
    ['fs/read ixo:filesystem', { can: 'fs/read', with: 'ixo:filesystem' }],
    ['service:claims', { can: 'claims/submit', with: 'service:claims' }],
  ])('%j is minted', async (text, minted) => {
    const world = setUp();
    const grant = { ...(await world.grant(grantCar())), capabilities: granted };
    const result = await request(world, [grant], { capability: text });

    expect(result.ok ? leafOf(result.value).capabilities : result.error.message).toEqual([minted]);
  });

  test.each([
    ['ixo:memory', 'BAD_REQUEST', 'memory/read, memory/write'],
    ['ixo:filesystem', 'BAD_REQUEST', 'fs/*'],
    ['fs/* ixo:filesystem', 'BAD_REQUEST', 'no wildcard'],
    ['* ixo:memory', 'BAD_REQUEST', 'no wildcard'],
    ['Memory/Read ixo:memory', 'BAD_REQUEST', 'concrete ability'],
    ['submit service:claims', 'BAD_REQUEST', 'concrete ability'],
    [`oracle/chat ${alice.did}`, 'BAD_REQUEST', 'none of the oracle itself'],
    ['ucan/attest ixo:memory', 'BAD_REQUEST', 'none of the oracle itself'],
    [alice.did, 'NEEDS_GRANT', 'granted'],
    ['', 'BAD_REQUEST', '`<ability> <resource>`'],
    ['memory/read ixo:memory more', 'BAD_REQUEST', '`<ability> <resource>`'],
    ['memory/delete ixo:memory', 'NEEDS_GRANT', 'granted'],
    ['memory/read ixo:memory2', 'NEEDS_GRANT', 'granted'],
    ['fsx/read ixo:filesystem', 'NEEDS_GRANT', 'granted'],
    ['ixo:nothing', 'NEEDS_GRANT', 'granted'],
  ])('%j is %s', async (text, code, said) => {
    const world = setUp();
    const result = await request(world, [{ ...(await world.grant(grantCar())), capabilities: granted }], { capability: text });

    expect(result).toMatchObject({ ok: false, error: { code, message: expect.stringContaining(said) } });
  });

  test.each(['did:key:z6MkhaXgBZDvotDkL5257faiztiGiC2QtKLGpbnnEGta2doK', 'did:ixo:ixo1abc', 'https://memory.example.org', '', 'did:web:'])(
    'the service %j is no did:web',
    async (did) => {
      const world = setUp();
      expect(await request(world, [await world.grant(grantCar())], { did })).toMatchObject({ error: { code: 'BAD_REQUEST' } });
    },
  );
});

describe('reuse', () => {
  const reusing = () => setUp({ reusable: [SERVICE] });

  test('is for services that allow it, and neither by default nor with skipCache', async () => {
    const [never, world] = [setUp(), reusing()];
    const grants = [await world.grant(grantCar())];
    const first = await mint(world, grants);

    expect(await mint(world, grants)).toBe(first);
    expect(await mint(world, grants, { skipCache: true })).not.toBe(first);
    expect(await mint(world, grants)).toBe(first);
    expect(await mint(never, grants)).not.toBe(await mint(never, grants));
  });

  test('is per person, service, ability and resource', async () => {
    const world = reusing();
    const capabilities = [READ, { can: 'memory/write', with: 'ixo:memory' }, { can: 'memory/read', with: 'ixo:other' }];
    const mine = await world.grant(grantCar({ capabilities }));
    const theirs = await world.grant(grantCar({ key: bob, capabilities }));
    const minted = [
      await mint(world, [mine]),
      await mint(world, [mine], { capability: 'memory/write ixo:memory' }),
      await mint(world, [mine], { capability: 'memory/read ixo:other' }),
      await world.mint({ grants: [theirs], did: bob.did, target: { did: SERVICE, capability: 'memory/read ixo:memory' } }),
    ];

    expect(new Set(minted.map((one) => (typeof one === 'string' ? one : one.ok && one.value))).size).toBe(4);
  });

  test('ends 30 s before the invocation does', async () => {
    const world = reusing();
    const grants = [await world.grant(grantCar())];
    const first = await mint(world, grants);
    world.at = START + 269_999;
    expect(await mint(world, grants)).toBe(first);
    world.at = START + 270_000;

    expect(await mint(world, grants)).not.toBe(first);
  });

  test('ends when its grant was taken back, though another covers the same (G8)', async () => {
    const world = reusing();
    const [one, other] = [await world.grant(grantCar({ expiresAt: START + 2 * DAY_MS })), await world.grant(grantCar())];
    const first = await mint(world, [one, other]);

    expect(leafOf(first).proofs).toEqual([one.cid]);
    expect(leafOf(await mint(world, [other])).proofs).toEqual([other.cid]);
    expect(await request(world, [])).toMatchObject({ error: { code: 'NEEDS_GRANT' } });
  });
});

describe('from a delegation that a tool was handed', () => {
  const CALL: DelegationRequest = { did: alice.did, car: '', serviceUrl: URL, capability: READ };

  test('a service accepts it, for 60 s unless asked otherwise and never past five minutes or the delegation', async () => {
    const world = setUp();
    const ttl = async (more: Partial<DelegationRequest>) => {
      const result = await world.fromDelegation({ ...CALL, car: grantCar(), ...more });
      return 'invocation' in result ? leafOf(result.invocation).expiration - START / 1_000 : result.error;
    };
    const result = await world.fromDelegation({ ...CALL, car: Buffer.from(twoLinks().car, 'base64url').toString('base64') });

    expect('invocation' in result && (await serve(result.invocation))).toBe('accepted');
    expect(await ttl({})).toBe(60);
    expect(await ttl({ maxTtlSeconds: 10 })).toBe(10);
    expect(await ttl({ maxTtlSeconds: 86_400 })).toBe(300);
    expect(await ttl({ maxTtlSeconds: 300, car: grantCar({ expiresAt: START + 45_000 }) })).toBe(45);
    expect(await ttl({ maxTtlSeconds: Number.NaN })).toContain('maxTtlSeconds');
    expect(await ttl({ maxTtlSeconds: 0 })).toContain('maxTtlSeconds');
    expect(await ttl({ maxTtlSeconds: 0.2 })).toContain('expired');
  });

  test('what is missing is said in the order of the seed: each fault alone behind those that are mended', async () => {
    const keyless = setUp({ keys: createOracleKeys({ did: oracle.did, current: null, old: [] }) });
    const world = setUp();
    const expired = { key: mallory, expiresAt: START - 120_000 };
    const steps: [World, Partial<DelegationRequest>, string][] = [
      [keyless, { car: '', capability: { can: '', with: '' }, serviceUrl: 'x' }, 'no signing key'],
      [world, { car: '', capability: { can: '', with: '' }, serviceUrl: 'x' }, 'CAR is required'],
      [world, { car: 'x', capability: { can: '', with: '' }, serviceUrl: 'x' }, 'capability { can, with }'],
      [world, { car: 'x', serviceUrl: 'x' }, 'cannot be resolved'],
      [world, { car: 'x' }, 'cannot be parsed'],
      [world, { car: grantCar({ ...expired, audience: bob.did }) }, 'audience mismatch'],
      [world, { car: grantCar(expired) }, 'has expired'],
      [world, { car: grantCar({ key: mallory }) }, 'Failed to mint invocation: the delegation comes from somebody else'],
      [
        world,
        { car: grantCar(), capability: { can: 'memory/write', with: 'ixo:memory' } },
        'Failed to mint invocation: the delegation does not cover',
      ],
    ];
    for (const [where, change, said] of steps) {
      expect(await where.fromDelegation({ ...CALL, ...change })).toEqual({ error: expect.stringContaining(said) });
    }
    expect(await world.fromDelegation({ ...CALL, car: grantCar() })).toEqual({ invocation: expect.any(String) });
  });

  test.each<[string, unknown]>([
    ['nothing', undefined],
    ['null', null],
    ['a wildcard', { can: 'memory/*', with: 'ixo:memory' }],
    ['everything', { can: '*', with: 'ixo:memory' }],
    ['an ability of the oracle', { can: 'oracle/message', with: alice.did }],
    ['numbers', { can: 1, with: 2 }],
  ])('a capability that is %s is refused as text', async (_, asked) => {
    expect(await setUp().fromDelegation({ ...CALL, car: grantCar(), capability: asked as never })).toEqual({
      error: expect.stringContaining('one concrete ability'),
    });
  });

  test('a delegation that was taken back, is forged, or lacks a proof is refused as text, and nothing throws (G8)', async () => {
    const world = setUp();
    const car = grantCar();
    world.revoked.add(gated(car).leaf.tokenId);
    const lacking = bareGrant(bob, twoLinks().above);

    expect(await world.fromDelegation({ ...CALL, car })).toEqual({
      error: expect.stringMatching(/^Failed to mint invocation: .*taken back/u),
    });
    expect(await world.fromDelegation({ ...CALL, car: lacking })).toEqual({
      error: expect.stringMatching(/^Failed to mint invocation: /u),
    });
    const broken = setUp({ verify: async () => Promise.reject(new Error(`secret ${car}`)) });
    const result = await broken.fromDelegation({ ...CALL, car: grantCar() });
    expect(result).toEqual({ error: 'Failed to mint invocation: an unexpected error.' });
    expect(await world.fromDelegation({ ...CALL, car: 7 as never })).toEqual({ error: expect.stringContaining('CAR is required') });
    expect(await world.fromDelegation({ ...CALL, car: grantCar(), serviceUrl: undefined as never })).toEqual({
      error: expect.stringContaining('cannot be resolved'),
    });
  });

  test('a delegation to the old DID is used under the old DID', async () => {
    const old = [{ did: oldOracle.did, key: oldOracle, until: START + DAY_MS }];
    const world = setUp({ keys: createOracleKeys({ did: oracle.did, current: oracle, old }) });
    const result = await world.fromDelegation({ ...CALL, car: grantCar({ audience: oldOracle.did }) });

    expect('invocation' in result && leafOf(result.invocation).issuer).toBe(oldOracle.did);
    expect('invocation' in result && (await serve(result.invocation))).toBe('accepted');
  });
});

test('without a key nothing is minted, and it is said', async () => {
  const world = setUp({ keys: createOracleKeys({ did: oracle.did, current: null, old: [] }) });

  expect(world.hasSigningKey()).toBe(false);
  expect(await request(world, [await world.grant(grantCar())])).toMatchObject({ ok: false, error: { code: 'NO_SIGNING_KEY' } });
});

test('a service is known by the DID of its own host, or not at all', async () => {
  const world = setUp();

  expect(await world.resolveServiceDid(URL)).toBe(SERVICE);
  expect([await world.resolveServiceDid('https://other'), await world.resolveServiceDid(undefined as never)]).toEqual([null, null]);
});

test('whatever is granted and asked, what is minted lies within a grant, and what lies within one is minted', async () => {
  const segment = fc.constantFrom('a', 'b', 'ab');
  const concrete = fc.array(segment, { minLength: 2, maxLength: 3 }).map((parts) => parts.join('/'));
  const ability = fc.oneof(
    concrete,
    fc.array(segment, { minLength: 1, maxLength: 2 }).map((parts) => `${parts.join('/')}/*`),
    fc.constant('*'),
  );
  const resource = fc.constantFrom('ixo:memory', 'ixo:memory2', 'ixo:m');
  const one = fc.record({ can: ability, with: resource });
  const grant = fc.record({
    capabilities: fc.uniqueArray(one, { minLength: 1, maxLength: 4, selector: ({ can, with: w }) => `${can} ${w}` }),
    // The service that judges it keeps real time, and a busy machine takes its own.
    ttlS: fc.integer({ min: 200, max: 900 }),
  });
  /** Told apart by whole segments: another way of saying what src/ucan/attenuation.ts says. */
  const within = (asked: UcanCapability, granted: UcanCapability): boolean => {
    const [have, want] = [granted.can.split('/'), asked.can.split('/')];
    if (granted.with !== asked.with) return false;
    if (have.at(-1) !== '*') return granted.can === asked.can;
    return want.length >= have.length && have.slice(0, -1).every((part, at) => part === want[at]);
  };

  await fc.assert(
    fc.asyncProperty(fc.array(grant, { maxLength: 3 }), fc.oneof(concrete, ability), resource, async (given, can, asked) => {
      const world = setUp();
      const grants = await Promise.all(
        given.map(({ capabilities, ttlS }) => world.grant(grantCar({ capabilities, expiresAt: START + ttlS * 1_000 }))),
      );
      const result = await request(world, grants, { capability: `${can} ${asked}` });
      const covering = grants.filter(({ capabilities }) => capabilities.some((granted) => within({ can, with: asked }, granted)));

      if (!result.ok) {
        expect(can.endsWith('*') ? 'BAD_REQUEST' : covering.length === 0 ? 'NEEDS_GRANT' : 'should be minted').toBe(result.error.code);
        return;
      }
      const leaf = leafOf(result.value);
      expect(leaf.capabilities).toEqual([{ can, with: asked }]);
      const used = covering.find(({ cid }) => leaf.proofs[0] === cid);
      expect(leaf.expiration).toBe(START / 1_000 + Math.min(300, ((used?.expiresAt ?? 0) - START) / 1_000));
      expect(await serve(result.value, can)).toBe('accepted');
    }),
    { numRuns: 150 },
  );
});
