/**
 * What other suites ask of a UCAN implementation, by their names: ucan-wg/conformance-tests 0.10.0 (JWT of another version, so every case is made anew
 * as a 0.9.1 file) and the validator and session suites of ucanto. Only behaviour is taken over. Where we answer differently on purpose the row says so.
 */
import { describe, expect, test } from 'vitest';
import {
  actingGrant,
  alice,
  altered,
  bob,
  capabilityOf,
  DAY,
  EVENT,
  hex,
  ixoAlice,
  mallory,
  message,
  NB,
  oracle,
  rows,
  S,
  service,
  session,
  sessionGrant,
  spoken,
  stored,
  TS,
  type Vector,
} from '../../vectors/ucan/cast.ts';
import { runVector } from '../../vectors/ucan/run.ts';
import { absentee, bare, didSigner, encode, keySigner, type Model, type Signer, type Ucan } from '../../vectors/ucan/wire.ts';

const [EMAIL, MARKETING] = ['mailto:alice@email.com', 'mailto:marketing@email.com'];
const email = (change: Parameters<typeof actingGrant>[0] = {}): Ucan => actingGrant({ can: 'email/send', with: EMAIL, ...change });
const afterwards = (change: (model: Model) => void): Ucan => altered(email, change);
const set = (key: string, value: Model[string]) => afterwards((model) => Object.assign(model, { [key]: value }));
const without = (key: string) => afterwards((model) => void Reflect.deleteProperty(model, key));
/** Alice to bob, bob to the oracle. */
const through = (proof: Parameters<typeof email>[0], change: Parameters<typeof email>[0] = {}): Ucan =>
  email({ issuer: bob, prf: [email({ audience: bob, ...proof })], ...change });

type Case = {
  name: string;
  token: Ucan;
  expect: string;
  differs?: string;
  as?: Vector['as'];
  context?: Partial<Vector['context']>;
  gives?: NonNullable<Vector['gives']>;
};
function check(list: readonly Case[]): void {
  const vectors = list.map(
    ({ differs: _differs, ...row }) => rows('valid', { as: 'grant', what: row.name, gives: {}, ...row })[0] as Vector,
  );
  test.each(
    vectors.map((vector, n) => [list[n]?.differs === undefined ? vector.name : `${vector.name} [${list[n]?.differs}]`, vector] as const),
  )('%s', async (_name, vector) => {
    const result = await runVector(vector);

    expect(result.ok ? 'ok' : result.error).toBe(vector.expect);
    if (result.ok) expect(result.value).toMatchObject(vector.gives ?? {});
  });
}

describe('conformance-tests 0.10.0, verify', () => {
  const sender = { sender: '@alice:example.org' };
  check([
    { name: 'UCAN has not expired', token: email({ exp: S + 60 }), expect: 'ok' },
    { name: 'UCAN is ready to be used', token: email({ nbf: 1 }), expect: 'ok' },
    { name: 'UCAN has same time bounds as proof', token: through({ nbf: 1, exp: S + DAY }, { nbf: 1, exp: S + DAY }), expect: 'ok' },
    {
      name: 'UCAN expires before proof',
      token: through({ exp: S + DAY }, { exp: S + 60 }),
      expect: 'ok',
      gives: { expiresAt: TS + 60_000 },
    },
    { name: 'UCAN active after proof', token: through({ nbf: 1 }, { nbf: 2 }), expect: 'ok' },
    { name: 'UCAN has a well-formed capability', token: email(), expect: 'ok' },
    { name: 'UCAN has a well-formed capability with a caveat', token: email({ nb: sender }), expect: 'ok' },
    {
      name: 'UCAN has multiple well-formed capabilities',
      token: email({
        att: [
          { can: 'email/send', with: EMAIL },
          { can: 'email/send', with: MARKETING, nb: sender },
        ],
      }),
      expect: 'ok',
    },
    { name: 'UCAN issuer matches proof audience', token: through({}), expect: 'ok', gives: { principal: alice.did } },
    { name: 'UCAN has a delegated capability', token: through({}), expect: 'ok', gives: { path: 2 } },
    {
      name: 'UCAN merges delegated capabilities',
      token: email({
        issuer: bob,
        att: [
          { can: 'email/send', with: EMAIL },
          { can: 'email/send', with: MARKETING },
        ],
        prf: [email({ audience: bob }), email({ audience: bob, with: MARKETING })],
      }),
      expect: 'ok',
      gives: { principal: alice.did, path: 3 },
    },
    { name: 'UCAN capability caveats equal to proof caveats', token: through({ nb: sender }, { nb: sender }), expect: 'ok' },
    {
      name: 'UCAN capability attenuates existing caveats',
      token: through({ nb: { link: ['newsletter', 'marketing'] } }, { nb: { link: ['newsletter'] } }),
      expect: 'NOT_DELEGATED',
      differs: 'stricter: a caveat is kept as it is or the right is gone',
    },
    { name: 'UCAN capability attenuates from no caveats', token: through({}, { nb: sender }), expect: 'ok' },
    { name: 'UCAN has a fact', token: email({ fct: [{ challenge: 'abcdef' }] }), expect: 'ok' },
  ]);
});

describe('conformance-tests 0.10.0, refute', () => {
  check([
    { name: 'UCAN has expired', token: email({ exp: 1 }), expect: 'GRANT_EXPIRED' },
    { name: 'UCAN is not ready to be used', token: email({ nbf: S + 3_600 }), expect: 'GRANT_NOT_YET_VALID' },
    {
      name: 'UCAN expires after proofs',
      token: through({ exp: S + 60 }, { exp: S + DAY }),
      expect: 'ok',
      differs: 'the earliest end of the chain counts, so that nothing is won by it',
      gives: { expiresAt: TS + 60_000 },
    },
    {
      name: 'UCAN ready before proofs',
      token: through({ nbf: S + 3_600 }, { nbf: S - 60 }),
      expect: 'GRANT_NOT_YET_VALID',
      differs: 'every link is judged now, so it begins when its proof begins',
    },
    { name: 'UCAN header is missing alg field', token: without('s'), expect: 'UCAN_MALFORMED' },
    {
      name: 'UCAN header is missing typ field',
      token: without('v'),
      expect: 'UCAN_MALFORMED',
      differs: '0.9.1 as CBOR has no typ: the version',
    },
    { name: 'UCAN payload is missing ucv field', token: without('v'), expect: 'UCAN_MALFORMED' },
    { name: 'UCAN payload is missing iss field', token: without('iss'), expect: 'UCAN_MALFORMED' },
    { name: 'UCAN payload is missing aud field', token: without('aud'), expect: 'UCAN_MALFORMED' },
    { name: 'UCAN payload is missing exp field', token: without('exp'), expect: 'UCAN_MALFORMED' },
    { name: 'UCAN payload is missing cap field', token: without('att'), expect: 'UCAN_MALFORMED' },
    { name: 'UCAN header alg field is not a string', token: set('s', 1), expect: 'UCAN_MALFORMED' },
    { name: 'UCAN header typ field is not a string', token: set('v', 1), expect: 'UCAN_MALFORMED' },
    { name: 'UCAN type is not JWT', token: set('v', 'NOT_UCAN'), expect: 'UCAN_MALFORMED' },
    { name: 'UCAN payload ucv field is not a string', token: set('v', 91), expect: 'UCAN_MALFORMED' },
    { name: 'UCAN payload ucv field is not semantically versioned', token: set('v', '0.9'), expect: 'UCAN_MALFORMED' },
    { name: 'UCAN payload iss field is not a DID', token: set('iss', alice.did.slice(8)), expect: 'UCAN_MALFORMED' },
    { name: 'UCAN payload aud field is not a DID', token: set('aud', alice.did.slice(8)), expect: 'UCAN_MALFORMED' },
    { name: 'UCAN payload nbf field is not a number', token: set('nbf', '1'), expect: 'UCAN_MALFORMED' },
    { name: 'UCAN payload exp field is not a number', token: set('exp', '9246211200'), expect: 'UCAN_MALFORMED' },
    { name: 'UCAN payload nnc field is not a string', token: set('nnc', 1), expect: 'UCAN_MALFORMED' },
    { name: 'UCAN payload fct field is not a JSON object', token: set('fct', [1]), expect: 'UCAN_MALFORMED' },
    { name: 'UCAN payload cap field is not a JSON object', token: set('att', 1), expect: 'UCAN_MALFORMED' },
    {
      name: 'UCAN payload cap field ability for resource is not a JSON object',
      token: afterwards((model) => void Object.assign(capabilityOf(model), { can: null })),
      expect: 'UCAN_MALFORMED',
    },
    {
      name: 'UCAN payload cap field caveat is not an array',
      token: afterwards((model) => void Object.assign(capabilityOf(model), { nb: null })),
      expect: 'UCAN_MALFORMED',
      differs: '0.9.1 has a map',
    },
    {
      name: 'UCAN payload cap field caveat is an empty array',
      token: afterwards((model) => void Object.assign(capabilityOf(model), { nb: [] })),
      expect: 'UCAN_MALFORMED',
    },
    { name: 'UCAN payload prf field is not an array', token: set('prf', 1), expect: 'UCAN_MALFORMED' },
    { name: 'UCAN payload prf field is not an array of CIDs', token: set('prf', ['we', 'prove', 'nothing']), expect: 'UCAN_MALFORMED' },
    { name: 'UCAN issuer does not match proof audience', token: through({}, { issuer: mallory }), expect: 'BROKEN_CHAIN' },
    {
      name: 'UCAN claims a capability that has not been delegated',
      token: through({}, { can: 'email/delete', with: alice.did }),
      expect: 'NOT_DELEGATED',
    },
    {
      name: 'UCAN escalates by adding a new caveat',
      token: through({ nb: { link: ['newsletter'] } }, { nb: { link: ['newsletter', 'marketing'] } }),
      expect: 'NOT_DELEGATED',
    },
    { name: 'UCAN escalates to no caveats', token: through({ nb: { link: ['newsletter'] } }), expect: 'NOT_DELEGATED' },
    {
      name: 'UCAN escalates by adding a different caveat',
      token: through({ nb: { link: ['newsletter'] } }, { nb: { link: ['marketing'] } }),
      expect: 'NOT_DELEGATED',
    },
  ]);
});

const asEvent = { as: 'event' } as const;
const said = (change: Parameters<typeof message>[0]): Ucan => message({ issuer: session, with: alice.did, ...change });
const badSignature = (make: typeof sessionGrant, change = {}) => make({ issuer: { ...alice, varsig: mallory.varsig }, ...change });

describe('ucanto validator', () => {
  const grant = sessionGrant();
  check([
    { ...asEvent, name: 'authorize self-issued invocation', token: message(), expect: 'ok', gives: { principal: alice.did } },
    { ...asEvent, name: 'unauthorized / expired invocation', token: message({ exp: S - 120 }), expect: 'TOKEN_EXPIRED' },
    { ...asEvent, name: 'unauthorized / not valid before invocation', token: message({ nbf: S + 500 }), expect: 'TOKEN_NOT_YET_VALID' },
    { ...asEvent, name: 'unauthorized / invalid signature', token: badSignature(message), expect: 'BAD_SIGNATURE' },
    { ...asEvent, name: 'unauthorized / unknown capability', token: message({ can: 'store/write' }), expect: 'BAD_CAPABILITY' },
    { ...asEvent, name: 'authorize / delegated invocation', token: spoken(grant), expect: 'ok', gives: { principal: alice.did } },
    {
      ...asEvent,
      name: 'authorize / delegation chain',
      token: spoken(sessionGrant({ issuer: bob, with: alice.did, prf: [sessionGrant({ audience: bob })] })),
      expect: 'ok',
      gives: { principal: alice.did },
    },
    { ...asEvent, name: 'invalid claim / no proofs', token: said({}), expect: 'BAD_ISSUER' },
    { ...asEvent, name: 'invalid claim / expired', token: spoken(sessionGrant({ exp: S - 120 })), expect: 'GRANT_EXPIRED' },
    { ...asEvent, name: 'invalid claim / not valid before', token: spoken(sessionGrant({ nbf: S + 500 })), expect: 'GRANT_NOT_YET_VALID' },
    { ...asEvent, name: 'invalid claim / invalid signature', token: spoken(badSignature(sessionGrant)), expect: 'BAD_SIGNATURE' },
    { ...asEvent, name: 'invalid claim / unknown capability', token: spoken(sessionGrant({ can: 'store/pin' })), expect: 'NOT_DELEGATED' },
    {
      ...asEvent,
      name: 'invalid claim / malformed capability',
      token: spoken(sessionGrant({ with: 'not a uri' })),
      expect: 'UCAN_MALFORMED',
    },
    { ...asEvent, name: 'invalid claim / unavailable proof', token: said({ links: [grant.cid] }), expect: 'MISSING_PROOF' },
    {
      ...asEvent,
      name: 'invalid claim / failed to resolve',
      token: said({ links: [grant.cid] }),
      context: { stored: [{ token: encode(sessionGrant()), cid: hex(grant.cid) }] },
      expect: 'MISSING_PROOF',
    },
    { ...asEvent, name: 'invalid claim / invalid audience', token: spoken(sessionGrant({ audience: bob })), expect: 'BROKEN_CHAIN' },
    { ...asEvent, name: 'invalid claim / invalid claim', token: spoken(grant, { with: bob.did }), expect: 'NOT_DELEGATED' },
    {
      ...asEvent,
      name: 'invalid claim / invalid sub delegation',
      token: spoken(sessionGrant({ issuer: bob, with: alice.did, prf: [sessionGrant({ issuer: service, audience: bob })] })),
      expect: 'NOT_DELEGATED',
    },
    { ...asEvent, name: 'authorize / resolve external proof', token: said({ links: [grant.cid] }), context: stored(grant), expect: 'ok' },
    {
      ...asEvent,
      name: 'invalid claim / principal alignment',
      token: message({ issuer: mallory, with: alice.did, prf: [grant] }),
      expect: 'BROKEN_CHAIN',
    },
    {
      ...asEvent,
      name: 'invalid claim / invalid delegation chain',
      token: spoken(sessionGrant({ issuer: bob, with: alice.did, prf: [sessionGrant({ audience: mallory })] })),
      expect: 'BROKEN_CHAIN',
    },
    { ...asEvent, name: 'claim without a proof', token: bare(spoken(grant)), expect: 'MISSING_PROOF' },
    {
      ...asEvent,
      name: 'mismatched signature',
      token: message({ issuer: didSigner('did:ixo:ixo1alice', 'somebody else'), nb: { ...NB, sender: '@did-ixo-ixo1alice:example.org' } }),
      context: known([ixoAlice]),
      expect: 'BAD_SIGNATURE',
    },
    {
      ...asEvent,
      name: 'revoked capability does not validate',
      token: spoken(grant),
      context: { revoked: [{ id: grant.tokenId, by: alice.did }] },
      expect: 'REVOKED',
    },
    {
      name: 'revoked proof does not validate',
      ...(() => {
        const proof = email({ audience: bob });
        return { token: email({ issuer: bob, prf: [proof] }), context: { revoked: [{ id: hex(proof.cid), by: alice.did }] } };
      })(),
      expect: 'REVOKED',
    },
  ]);
});

function known(signers: readonly Signer[]): Partial<Vector['context']> {
  return {
    event: { ...EVENT, sender: '@did-ixo-ixo1alice:example.org' },
    didDocuments: { [ixoAlice.did]: { keys: signers.map(({ publicKey }) => hex(publicKey)), homeserver: null } },
  };
}

describe('ucanto sessions: an account that signs nothing is nobody here, whoever attests', () => {
  const account = didSigner('did:mailto:web.mail:alice', 'unused');
  const attest = (issuer: Signer, of: Ucan, change = {}): Ucan =>
    actingGrant({ issuer, audience: session, att: [{ can: 'ucan/attest', with: oracle.did, nb: { proof: hex(of.cid) } }], ...change });
  const auth = sessionGrant({ issuer: absentee(account) });
  const speak = (...prf: Ucan[]): Ucan => message({ issuer: session, with: account.did, prf });
  const ixo = (change: Parameters<typeof message>[0] = {}): Ucan =>
    message({ issuer: ixoAlice, nb: { ...NB, sender: '@did-ixo-ixo1alice:example.org' }, ...change });
  const [a, b] = [keySigner('first key'), keySigner('second key')];
  check([
    { ...asEvent, name: 'validate mailto', token: speak(auth, attest(oracle, auth)), expect: 'BAD_SIGNATURE', differs: 'refused' },
    {
      ...asEvent,
      name: 'validate mailto attested by another service',
      token: speak(auth, attest(service, auth)),
      expect: 'BAD_SIGNATURE',
      differs: 'refused',
    },
    {
      ...asEvent,
      name: 'delegated ucan/attest',
      token: speak(attest(service, auth, { prf: [attest(oracle, auth, { audience: service })] }), auth),
      expect: 'BAD_CAPABILITY',
      differs: 'refused',
    },
    { ...asEvent, name: 'fail without proofs', token: message({ issuer: absentee(account) }), expect: 'BAD_SIGNATURE' },
    { ...asEvent, name: 'fail without session', token: speak(auth), expect: 'BAD_SIGNATURE' },
    { ...asEvent, name: 'fail invalid ucan/attest proof', token: speak(attest(mallory, auth), auth), expect: 'BAD_CAPABILITY' },
    { ...asEvent, name: 'fail unknown ucan/attest proof', token: speak(attest(oracle, sessionGrant()), auth), expect: 'BAD_CAPABILITY' },
    { ...asEvent, name: 'resolve key', token: ixo(), context: known([ixoAlice]), expect: 'ok', gives: { principal: ixoAlice.did } },
    {
      ...asEvent,
      name: 'service can not delegate access to account',
      token: message({ issuer: session, with: alice.did, prf: [sessionGrant({ issuer: oracle, with: alice.did })] }),
      expect: 'NOT_DELEGATED',
    },
    { ...asEvent, name: 'attest with an account did', token: speak(attest(absentee(account), auth), auth), expect: 'BAD_SIGNATURE' },
    {
      ...asEvent,
      name: 'service can not delegate account resource',
      token: message({ issuer: mallory, with: alice.did, prf: [sessionGrant({ issuer: service, audience: mallory, with: alice.did })] }),
      expect: 'NOT_DELEGATED',
    },
    {
      ...asEvent,
      name: 'redundant proofs have no impact',
      token: message({ issuer: session, with: alice.did, prf: [sessionGrant({ can: 'oracle/read' }), sessionGrant()] }),
      expect: 'ok',
      gives: { principal: alice.did },
    },
    { ...asEvent, name: 'fail when no verifiers found', token: ixo(), context: { event: known([])['event']! }, expect: 'DID_NOT_RESOLVED' },
    { ...asEvent, name: 'succeed with single valid verifier', token: ixo(), context: known([ixoAlice]), expect: 'ok' },
    { ...asEvent, name: 'succeed with multiple verifiers and one valid', token: ixo(), context: known([a, ixoAlice, b]), expect: 'ok' },
    { ...asEvent, name: 'fail with multiple invalid verifiers', token: ixo(), context: known([a, b]), expect: 'BAD_SIGNATURE' },
  ]);
});

describe('ucanto capability access', () => {
  check([
    {
      name: 'validates with patterns',
      token: through({ with: 'mailto:alice*' }, { with: EMAIL }),
      expect: 'NOT_DELEGATED',
      differs: 'stricter: resources are equal as text',
    },
    { name: 'validates with patterns in chain', token: through({ can: 'email/*' }), expect: 'ok' },
    { name: 'invalid proof chain', token: through({ can: 'email/read' }, { with: alice.did }), expect: 'NOT_DELEGATED' },
    {
      name: 'restrictions in chain are respected',
      token: through({ nb: { sender: '@bob:example.org' } }, { nb: { sender: '@alice:example.org' } }),
      expect: 'NOT_DELEGATED',
    },
    {
      name: 'unknown caveats do not apply',
      token: through({ nb: { size: 5 } }),
      expect: 'NOT_DELEGATED',
      differs: 'stricter: they stop the chain',
    },
    { name: 'with pattern requires delimiter', token: through({ with: 'mailto:ali*' }), expect: 'NOT_DELEGATED' },
    { name: 'can pattern requires delimiter', token: through({ can: 'emai/*' }), expect: 'NOT_DELEGATED' },
    { name: 'patterns do not escalate', token: through({ can: 'email/*' }, { can: 'oracle/chat' }), expect: 'NOT_DELEGATED' },
    { name: 'without nb', token: through({}), expect: 'ok' },
  ]);
});
