import { expect, test } from 'vitest';
import type { Did, RunId, SessionId, TokenId } from '../../../src/ids.ts';
import type { Run } from '../../../src/runs/run.ts';
import { createRunAuthority } from '../../../src/turn/run-authority.ts';
import type { GrantRef } from '../../../src/ucan/chain.ts';
import type { UcanCapability } from '../../../src/ucan/read-ucan.ts';
import { fakeRun } from '../agent/turn-fixture.ts';

const ref = (name: string, issuer: string, audience: string, expiresAt = 10_000): GrantRef => ({
  tokenId: `token-${name}` as TokenId,
  cid: `cid-${name}`,
  issuer: issuer as Did,
  audience: audience as Did,
  expiresAt,
});
/** A client's key under a device's grant under the owner's. */
const PATH = [ref('near', 'did:key:zDevice', 'did:key:zClient', 8_000), ref('far', 'did:key:zOwner', 'did:key:zDevice', 9_000)];
const resting = (more: Partial<Run> = {}): Run => fakeRun({ grants: { path: PATH, until: 8_000 }, deadlineAt: 5_000, ...more });

function setUp(revoked: readonly [string, string][] = [], running: Run[] = [], more: { acting?: readonly UcanCapability[] } = {}) {
  const cancelled: unknown[] = [];
  const asked: unknown[] = [];
  const authority = createRunAuthority({
    grants: {
      isRevoked: ({ tokenId, cid }, issuers) => revoked.some(([id, by]) => (id === tokenId || id === cid) && issuers.includes(by as Did)),
      actingOf: (did, now) => {
        asked.push([did, now]);
        return [{ tokenId: 'acting' as TokenId, capabilities: more.acting ?? [] } as never];
      },
    },
    runs: { running: () => running },
    scheduler: {
      cancel: (session, only, why) => {
        cancelled.push([session, only, why?.code]);
        return true;
      },
    },
  });
  return { authority, cancelled, asked };
}

test('a run without grants may act until its deadline, whatever the time', () => {
  const { authority } = setUp();

  expect(authority.judge(fakeRun(), 10 ** 15)).toBeNull();
  expect(authority.judgeStart(fakeRun({ deadlineAt: 5 }), 10 ** 15)).toBeNull();
});

test('what a run rests on ends at its very second, without skew (G8)', () => {
  const { authority } = setUp();

  expect(authority.judge(resting(), 7_999)).toBeNull();
  expect(authority.judge(resting(), 8_000)).toBe('GRANT_EXPIRED');
  expect(authority.judge(resting({ grants: { path: [], until: 0 } }), 1)).toBe('GRANT_EXPIRED');
});

test.each<[string, string, string | null]>([
  ['token-near', 'did:key:zDevice', 'REVOKED'],
  ['token-near', 'did:key:zOwner', 'REVOKED'],
  ['cid-far', 'did:key:zOwner', 'REVOKED'],
  ['token-far', 'did:key:zDevice', null],
  ['token-near', 'did:key:zClient', null],
  ['token-near', 'did:key:zMallory', null],
])('%s taken back by %s: %s, since only its issuer and those above it may', (id, by, expected) => {
  expect(setUp([[id, by]]).authority.judge(resting(), 1)).toBe(expected);
});

test('a run that would outlive what it rests on does not start', () => {
  const { authority } = setUp();

  expect(authority.judgeStart(resting({ deadlineAt: 8_000 }), 1)).toBeNull();
  expect(authority.judgeStart(resting({ deadlineAt: 8_001 }), 1)).toBe('EXPIRES_TOO_SOON');
  expect(authority.judgeStart(resting({ deadlineAt: 8_001 }), 8_000)).toBe('GRANT_EXPIRED');
});

test('only a signed run that may go on uses what its principal granted', () => {
  const { authority, asked } = setUp();

  expect(authority.actingGrants(fakeRun(), 7)).toHaveLength(1);
  expect(authority.actingGrants(fakeRun({ tier: 'sender-bound' }), 7)).toEqual([]);
  expect(authority.actingGrants(fakeRun({ tier: 'listed', did: null }), 7)).toEqual([]);
  expect(authority.actingGrants(resting(), 8_000)).toEqual([]);
  expect(asked).toEqual([['did:key:zAlice', 7]]);
});

test('taking a grant back stops the running runs that rest on it, and no other', () => {
  const near = resting({ id: 'R1' as RunId, sessionId: '$1' as SessionId });
  const free = fakeRun({ id: 'R2' as RunId, sessionId: '$2' as SessionId });
  const { authority, cancelled } = setUp([], [near, free]);

  authority.stopRestingOn(['token-other' as TokenId]);
  expect(cancelled).toEqual([]);
  authority.stopRestingOn(['token-far' as TokenId]);

  expect(cancelled).toEqual([['$1', 'R1', 'REVOKED']]);
});

test('also when the token was never stored, so that no list of ids holds it', () => {
  const { authority, cancelled } = setUp(
    [['token-near', 'did:key:zOwner']],
    [resting({ id: 'R1' as RunId, sessionId: '$1' as SessionId })],
  );

  authority.stopRestingOn([]);

  expect(cancelled).toEqual([['$1', 'R1', 'REVOKED']]);
});

test.each<[string, string | undefined, number]>([
  ['its own account', fakeRun().matrixUserId, 1],
  ['no account', undefined, 1],
  ['another account', '@other:example.org', 0],
])('a grant that names %s counts so often for a run of this account, whichever key of the DID signed', (_name, sender, count) => {
  const plain = { can: 'memory/read', with: 'ixo:memory' };
  const { authority } = setUp([], [], { acting: [plain, sender === undefined ? plain : { ...plain, nb: { sender } }] });

  expect(authority.actingGrants(fakeRun(), 7)).toHaveLength(count);
});
