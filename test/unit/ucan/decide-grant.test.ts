import fc from 'fast-check';
import { expect, test } from 'vitest';
import type { Did } from '../../../src/ids.ts';
import { LIMITS } from '../../../src/limits.ts';
import { decideGrant } from '../../../src/ucan/decide-grant.ts';
import type { UcanCapability } from '../../../src/ucan/read-ucan.ts';
import { ALICE, alice, MEMORY, mallory, oracle, pageCapabilities, session, talkAs } from './grants-world.ts';

const NOW = 1_800_000_000_000;
const NONCE = 'AAECAwQFBgcICQoLDA0ODw';
const DAY_S = 24 * 60 * 60;
const decide = (
  change: Partial<{ audience: Did; capabilities: UcanCapability[]; expiration: number }> = {},
  oracleDids: readonly Did[] = [oracle.did],
) =>
  decideGrant(
    { audience: oracle.did, principal: alice.did, capabilities: [MEMORY], expiration: NOW / 1_000 + DAY_S, ...change },
    { oracleDids, now: NOW },
  );
const toSession = { audience: session.did, capabilities: talkAs(alice.did), expiration: NOW / 1_000 + 60 };

test('a grant to the oracle is acting, one to a key of a client for talking only is a session', () => {
  expect(decide()).toEqual({ ok: true, value: { kind: 'acting', link: null, sender: null } });
  expect(decide({ audience: mallory.did }, [oracle.did, mallory.did])).toMatchObject({ value: { kind: 'acting' } });
  expect(decide(toSession)).toEqual({ ok: true, value: { kind: 'session', link: null, sender: null } });
  expect(decide({ ...toSession, capabilities: [{ can: 'oracle/*', with: alice.did }] })).toMatchObject({ value: { kind: 'session' } });
});

test('a grant from the page holds nonce and account, in whichever capability', () => {
  const link = { nonce: NONCE, sender: ALICE };
  expect(decide({ capabilities: pageCapabilities(alice.did, NONCE) })).toEqual({
    ok: true,
    value: { kind: 'acting', link, sender: ALICE },
  });
  const apart = [
    { ...MEMORY, nb: { link: NONCE } },
    { can: 'fs/read', with: 'ixo:fs', nb: { sender: ALICE } },
  ];
  expect(decide({ capabilities: apart })).toMatchObject({ value: { link } });
});

test('a nonce without an account, and an account without a nonce, make no page grant', () => {
  expect(decide({ capabilities: [{ ...MEMORY, nb: { link: NONCE } }] })).toMatchObject({ value: { link: null, sender: null } });
  expect(decide({ capabilities: [{ ...MEMORY, nb: { sender: ALICE } }] })).toMatchObject({ value: { link: null, sender: ALICE } });
  const session = talkAs(alice.did).map((capability) => ({ ...capability, nb: { link: NONCE, sender: ALICE } }));
  expect(decide({ ...toSession, capabilities: session })).toMatchObject({ value: { kind: 'session', link: null, sender: ALICE } });
});

test.each(['*', 'oracle/*', 'oracle/message', 'oracle/read'])(
  'the oracle is not granted %s, with which it could speak as the person',
  (can) => {
    expect(decide({ capabilities: [MEMORY, { can, with: alice.did }] })).toEqual({ ok: false, error: 'GRANT_TOO_WIDE' });
  },
);

test.each([
  ['another service', { audience: 'did:web:memory.example.org' as Did }],
  ['a did:ixo', { audience: 'did:ixo:ixo1bot' as Did }],
  ['another ability', { capabilities: [...talkAs(alice.did), MEMORY] }],
  ['everything', { capabilities: [{ can: '*', with: alice.did }] }],
  ["another's DID", { capabilities: talkAs(mallory.did) }],
  ['oracle/chat, which is the oracle’s', { capabilities: [{ can: 'oracle/chat', with: alice.did }] }],
])('a delegation to a client key for %s is not kept', (_, change) => {
  expect(decide({ ...toSession, ...change })).toEqual({ ok: false, error: 'BAD_GRANT' });
});

test.each([
  ['acting', {}, LIMITS.actingGrantLifetimeS],
  ['session', toSession, LIMITS.sessionGrantLifetimeS],
])('the longest life of a grant that is %s is exact, with the skew', (_, change, lifetimeS) => {
  const last = NOW / 1_000 + lifetimeS + LIMITS.clockSkewS;
  expect(decide({ ...change, expiration: last }).ok).toBe(true);
  expect(decide({ ...change, expiration: last + 1 })).toEqual({ ok: false, error: 'GRANT_LIVES_TOO_LONG' });
});

test.each([
  ['two nonces', [{ link: NONCE, sender: ALICE }, { link: NONCE.replace('A', 'B') }]],
  ['two accounts', [{ sender: ALICE }, { sender: '@bob:example.org' }]],
  ['an account that is none', [{ sender: 'alice' }, {}]],
  ['an account that is no text', [{ sender: 7 }, {}]],
  ['a nonce that is no text', [{ link: null }, {}]],
  ['a nonce that is too long', [{ link: `${NONCE}A` }, {}]],
])('%s in one grant are refused', (_, [first, second]) => {
  const capabilities = [
    { ...MEMORY, nb: first },
    { can: 'fs/read', with: 'ixo:fs', nb: second },
  ] as UcanCapability[];
  expect(decide({ capabilities })).toEqual({ ok: false, error: 'BAD_GRANT' });
});

test('no grant of any abilities lets the oracle write an invocation', () => {
  const ability = fc.constantFrom(
    '*',
    'oracle/*',
    'oracle/message',
    'oracle/read',
    'oracle/chat',
    'oracle/message/*',
    'memory/*',
    'oraclex/*',
  );
  fc.assert(
    fc.property(fc.uniqueArray(ability, { minLength: 1, maxLength: 8 }), fc.boolean(), (abilities, toOracle) => {
      const decided = decide({
        audience: toOracle ? oracle.did : session.did,
        capabilities: abilities.map((can) => ({ can, with: alice.did })),
        expiration: NOW / 1_000 + 60,
      });
      const covers = abilities.some((can) => ['*', 'oracle/*', 'oracle/message', 'oracle/read'].includes(can));
      if (decided.ok && decided.value.kind === 'acting') expect(covers).toBe(false);
      if (decided.ok && decided.value.kind === 'session') expect(abilities.every((can) => can.startsWith('oracle/'))).toBe(true);
    }),
  );
});
