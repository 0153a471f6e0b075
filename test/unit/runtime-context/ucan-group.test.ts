import { describe, expect, test } from 'vitest';
import { ERRORS, OracleError } from '../../../src/errors.ts';
import type { ToolCapability } from '../../../src/plugin-api/define-tool.ts';
import type { Run } from '../../../src/runs/run.ts';
import { buildUcanGroup } from '../../../src/runtime-context/ucan-group.ts';
import { buildUserGroup } from '../../../src/runtime-context/user-group.ts';
import { createTestAuthority, TEST_USER } from '../../../src/testing-authority.ts';
import { gateDelegation } from '../../../src/ucan/gate.ts';
import type { StoredGrant } from '../../../src/ucan/grants.ts';
import { fakeRun } from '../agent/turn-fixture.ts';

const NOW = 1_796_000_000_000;
const GRANTED = [
  { can: 'memory/*', with: 'ixo:memory' },
  { can: 'fs/read', with: 'ixo:filesystem' },
];
const SERVICE = 'did:web:memory.example.org';
const URL = 'https://memory.example.org';

interface SetUp {
  tier?: Run['tier'];
  canSign?: boolean;
  tainted?: boolean;
  declared?: ToolCapability;
}
function setUp({ tier = 'signed', canSign = true, tainted = false, declared }: SetUp = {}) {
  const { grants, downstream } = createTestAuthority({ granted: GRANTED, canSign, now: () => NOW });
  const live: StoredGrant[] = [...grants];
  const ucan = buildUcanGroup({ did: TEST_USER, tier, actingGrants: () => live, downstream, isTainted: () => tainted, declared });
  return { ucan, live, grants };
}
const refusalOf = async (work: Promise<unknown>) => {
  const error = await work.catch((thrown: unknown) => thrown);
  if (!(error instanceof OracleError)) throw new Error('it was not refused');
  return error.refusal;
};

describe('a capability', () => {
  test.each([
    ['ixo:memory', 'memory/read', true],
    ['ixo:memory', 'memory/a/b', true],
    ['ixo:memory', 'memory/*', true],
    ['ixo:memory', 'memory', false],
    ['ixo:memory', 'memoryx/read', false],
    ['ixo:memory', '*', false],
    ['ixo:memory2', 'memory/read', false],
    ['ixo:filesystem', 'fs/read', true],
    ['ixo:filesystem', 'fs/*', false],
    ['ixo:filesystem', 'fs/read/deep', false],
  ])('%s %s: %s', (resource, action, has) => {
    expect(setUp().ucan.hasCapability(resource, action)).toBe(has);
  });

  test('that is missing is said as the seed says it, with what to do', () => {
    const { ucan } = setUp();

    expect(() => ucan.requireCapability('ixo:memory', 'memory/read')).not.toThrow();
    expect(() => ucan.requireCapability('ixo:memory', 'fs/read')).toThrow(
      /^UCAN capability missing: fs\/read on ixo:memory\. .*!authorise/u,
    );
    expect(() => ucan.requireCapability('ixo:memory', 'fs/read')).toThrow(
      expect.objectContaining({
        refusal: expect.objectContaining({ code: 'NEEDS_GRANT', details: { ability: 'fs/read', resource: 'ixo:memory' } }),
      }),
    );
  });

  test('is gone in the very moment its grant is (G8)', async () => {
    const { ucan, live } = setUp();
    const { hasCapability } = ucan;
    live.length = 0;

    expect(hasCapability('ixo:memory', 'memory/read')).toBe(false);
    expect(await refusalOf(ucan.mintInvocation({ did: SERVICE, capability: 'memory/read ixo:memory' }))).toMatchObject({
      code: 'NEEDS_GRANT',
    });
  });
});

describe('minting', () => {
  const target = { did: SERVICE, capability: 'memory/read ixo:memory' };

  test('gives a token for the service that its own host names', async () => {
    const { ucan } = setUp();
    const did = await ucan.resolveServiceDid(URL);
    const token = gateDelegation(await ucan.mintInvocation({ ...target, did: did ?? '' }));

    expect(did).toBe(SERVICE);
    expect(token.ok && token.value.leaf).toMatchObject({ audience: SERVICE, capabilities: [{ can: 'memory/read', with: 'ixo:memory' }] });
    expect(ucan.hasSigningKey()).toBe(true);
  });

  test.each(['sender-bound', 'listed'] as const)('is refused for tier %s, whatever was granted', async (tier) => {
    const { ucan, grants } = setUp({ tier });
    const car = grants[0]?.car ?? '';

    expect(await refusalOf(ucan.mintInvocation(target))).toMatchObject({ code: 'TIER_TOO_LOW' });
    expect(await ucan.createInvocationFromDelegation(car, URL, { can: 'memory/read', with: 'ixo:memory' })).toEqual({
      error: expect.stringContaining('signed yourself'),
    });
  });

  test.each([
    ['no key', { canSign: false }, target, 'NO_SIGNING_KEY'],
    ['no key, below signed', { canSign: false, tier: 'listed' as const }, target, 'NO_SIGNING_KEY'],
    ['another kind of DID', {}, { ...target, did: TEST_USER }, 'BAD_REQUEST'],
    ['a wildcard', {}, { ...target, capability: 'memory/* ixo:memory' }, 'BAD_REQUEST'],
    ['only a wildcard granted', {}, { ...target, capability: 'ixo:memory' }, 'BAD_REQUEST'],
    ['nothing granted', {}, { ...target, capability: 'memory/read ixo:other' }, 'NEEDS_GRANT'],
  ])('is refused for %s', async (_, more, asked, code) => {
    expect(await refusalOf(setUp(more).ucan.mintInvocation(asked))).toMatchObject({ code });
  });

  test('from a delegation answers with text, never a throw', async () => {
    const { ucan, grants } = setUp();
    const read = { can: 'memory/read', with: 'ixo:memory' };

    expect(await ucan.createInvocationFromDelegation(grants[0]?.car ?? '', URL, read)).toEqual({ invocation: expect.any(String) });
    expect(await ucan.createInvocationFromDelegation('x', URL, read)).toEqual({ error: expect.stringContaining('cannot be parsed') });
    expect(await setUp({ canSign: false }).ucan.createInvocationFromDelegation('', URL, read)).toEqual({
      error: expect.stringContaining('no signing key'),
    });
  });
});

describe('rtCtx.user', () => {
  const [grant] = createTestAuthority({ granted: GRANTED, canSign: true, now: () => NOW }).grants;
  if (grant === undefined) throw new Error('no grant');

  test('tells the newest grant that counts, in the encoding of the family, and none when there is none', () => {
    let live: StoredGrant[] = [grant, { ...grant, storedAt: NOW - 1, car: 'AAAA' }];
    const user = buildUserGroup({ run: fakeRun(), now: () => NOW, actingGrants: () => live, isTainted: () => false });

    expect(user.ucanDelegation).toEqual({
      raw: Buffer.from(grant.car, 'base64url').toString('base64'),
      issuer: TEST_USER,
      audience: grant.audience,
      expiration: NOW / 1_000 + 3_600,
      capabilities: GRANTED,
    });
    live = [];
    expect(user.ucanDelegation).toEqual({ raw: '' });
  });

  test('tells tier and taint as they are at this moment', () => {
    let tainted = false;
    const user = buildUserGroup({
      run: fakeRun({ tier: 'sender-bound' }),
      now: () => NOW,
      actingGrants: () => [],
      isTainted: () => tainted,
    });
    expect([user.tier, user.tainted]).toEqual(['sender-bound', false]);
    tainted = true;

    expect(user.tainted).toBe(true);
  });
});

describe('in a tainted run', () => {
  const declared = { action: 'memory/read', resource: 'ixo:memory' };
  const outcome = async (capability: string, more: SetUp) => {
    const minted = setUp({ tainted: true, ...more }).ucan.mintInvocation({ did: SERVICE, capability });
    return minted.then(
      () => 'minted',
      (error: unknown) => (error as OracleError).refusal.code,
    );
  };

  test.each<[string, string, SetUp, string]>([
    ['what the tool has declared', 'memory/read ixo:memory', { declared }, 'minted'],
    ['another ability', 'memory/write ixo:memory', { declared }, 'NEEDS_CONFIRMATION'],
    ['another resource', 'fs/read ixo:filesystem', { declared }, 'NEEDS_CONFIRMATION'],
    ['a resource whose ability is not said', 'ixo:memory', { declared }, 'NEEDS_CONFIRMATION'],
    ['anything, by a tool that has declared nothing', 'memory/read ixo:memory', {}, 'NEEDS_CONFIRMATION'],
    ['the same, untainted', 'memory/read ixo:memory', { tainted: false }, 'minted'],
  ])('%s (%s): %j gives %s', async (_name, capability, more, expected) => {
    expect(await outcome(capability, more)).toBe(expected);
  });

  test('a delegation that was handed over is used for nothing but what the tool has declared', async () => {
    const { ucan, grants } = setUp({ tainted: true });
    const car = grants[0]?.car ?? '';
    const made = await ucan.createInvocationFromDelegation(car, URL, { can: 'memory/write', with: 'ixo:memory' });

    expect(made).toEqual({ error: ERRORS.NEEDS_CONFIRMATION.message });
  });
});
