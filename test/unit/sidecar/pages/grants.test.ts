/** What the page signs, held against the oracle's own gate and verifier. */
import { describe, expect, test } from 'vitest';
import type { Did } from '../../../../src/ids.ts';
import { sha256Base64Url } from '../../../../src/json.ts';
import { LIMITS } from '../../../../src/limits.ts';
import { ok } from '../../../../src/result.ts';
import { createSessionKey, openAccount } from '../../../../src/sidecar/pages/authorise/account.ts';
import {
  type Asking,
  newNonce,
  signActingGrant,
  signChange,
  signRead,
  signSessionGrant,
} from '../../../../src/sidecar/pages/authorise/grants.ts';
import { MAX_EXTRA } from '../../../../src/sidecar/pages/authorise/limits.ts';
import { bindToRequest, checkLink } from '../../../../src/ucan/bind-request.ts';
import { createVerifier } from '../../../../src/ucan/chain.ts';
import { gateDelegation, gateInvocation } from '../../../../src/ucan/gate.ts';
import { ALICE, DM, ORACLE } from './people.ts';

const NOW = 1_800_000_000_000;
const LINK = 'AAECAwQFBgcICQoLDA0ODw';
const DAY = 24 * 60 * 60_000;

const verifier = createVerifier({
  findToken: () => undefined,
  keysOf: async () => ok({ keys: [], homeserver: null }),
  isRevoked: () => false,
  now: () => NOW,
});
const account = await openAccount('legal winner thank year wave sausage worth useful legal winner thank yellow');

const acting = (change: Partial<Parameters<typeof signActingGrant>[0]> = {}) =>
  signActingGrant({
    ...{ account, oracle: ORACLE, matrixUserId: ALICE, link: LINK, abilities: [], days: 30, now: NOW, nonce: newNonce() },
    ...change,
  });
async function verifiedGrant(raw: string) {
  const gated = gateDelegation(raw);
  if (!gated.ok) throw new Error(gated.error);
  const grant = await verifier.grant(gated.value);
  if (!grant.ok) throw new Error(grant.error);
  return grant.value;
}

describe('the grant to the oracle', () => {
  test('passes gate and chain, and says account, link and end', async () => {
    const grant = await verifiedGrant(await acting());

    expect(grant).toMatchObject({ principal: account.did, issuer: account.did, audience: ORACLE, expiresAt: NOW + 30 * DAY });
    expect(grant.capabilities).toEqual([{ can: 'oracle/chat', with: account.did, nb: { link: LINK, sender: ALICE } }]);
  });

  test('holds the chosen abilities and no other, up to as many as a token may name', async () => {
    const abilities = Array.from({ length: MAX_EXTRA }, (_, n) => ({ can: `fs/read${n}`, with: 'ixo:filesystem', title: 'x', more: 1 }));

    const grant = await verifiedGrant(await acting({ abilities }));

    expect(grant.capabilities.slice(1)).toEqual(abilities.map(({ can, with: resource }) => ({ can, with: resource })));
  });

  test('the control: one ability more is refused', async () => {
    const abilities = Array.from({ length: MAX_EXTRA + 1 }, (_, n) => ({ can: `fs/read${n}`, with: 'ixo:filesystem' }));

    await expect(acting({ abilities }).then(verifiedGrant)).rejects.toThrow('BAD_CAPABILITY');
  });

  test('never lives longer than the oracle takes', async () => {
    const grant = await verifiedGrant(await acting({ days: 30, now: NOW + 999 }));

    expect(grant.expiresAt).toBeLessThanOrEqual(NOW + 999 + LIMITS.actingGrantLifetimeS * 1_000);
  });
});

describe('requests of this browser', () => {
  async function asking(change: Partial<Asking> = {}): Promise<Asking> {
    const session = await createSessionKey();
    const grant = await signSessionGrant({ account, session: session.did, now: NOW, nonce: newNonce() });
    return { session, account: account.did, grant, oracle: ORACLE, now: NOW, nonce: newNonce(), ...change };
  }
  async function verified(token: string) {
    const gated = gateInvocation(token);
    if (!gated.ok) throw new Error(gated.error);
    const invocation = await verifier.invocation(gated.value);
    if (!invocation.ok) throw new Error(invocation.error);
    return invocation.value;
  }
  const facts = (method: string, body = '') => ({ method, path: '/delegation', bodySha256: sha256Base64Url(body) });
  const binding = { oracleDid: ORACLE as Did, now: NOW + 200 };

  test('a read is the account’s, by the session key, for a day at most', async () => {
    const invocation = await verified(await signRead(await asking()));

    expect(invocation.principal).toBe(account.did);
    expect(invocation.grantsUntil).toBe(NOW + DAY);
    expect(bindToRequest(invocation, facts('GET'), binding)).toMatchObject({ ok: true, value: { kind: 'read', principal: account.did } });
  });

  test('taking back is bound to its body, account and room', async () => {
    const body = '{"token_id":"x"}';
    const token = await signChange(await asking(), { method: 'DELETE', path: '/delegation', body, sender: ALICE, room: DM });

    const bound = bindToRequest(await verified(token), facts('DELETE', body), binding);

    if (!bound.ok) throw new Error(bound.error);
    expect(checkLink(bound.value, { userId: ALICE, directRoom: DM }).ok).toBe(true);
    expect(bindToRequest(await verified(token), facts('DELETE', '{}'), binding)).toEqual({ ok: false, error: 'WRONG_CONTENT' });
  });

  test('a read cannot be used to take back', async () => {
    const invocation = await verified(await signRead(await asking()));

    expect(bindToRequest(invocation, facts('DELETE'), binding).ok).toBe(false);
  });

  test('another browser’s key does not stand on this grant', async () => {
    const thief = await createSessionKey();

    const token = await signRead(await asking({ session: thief }));

    await expect(verified(token)).rejects.toThrow('BROKEN_CHAIN');
  });
});
