import { describe, expect, test } from 'vitest';
import type { Did } from '../../../src/ids.ts';
import { err, ok } from '../../../src/result.ts';
import type { ChainPorts } from '../../../src/ucan/chain.ts';
import { type GatedToken, gateDelegation } from '../../../src/ucan/gate.ts';
import { mintMessageInvocation } from '../../../src/ucan/mint.ts';
import {
  codeOf,
  grant,
  HOUR,
  type InvokeFrom,
  invocation,
  ixoPerson,
  ixoUser,
  NOW,
  person,
  phone,
  rawKeyOf,
  right,
  session,
  stranger,
  user,
  verifierIn,
  type World,
} from './chains.ts';
import { CONTENT, gated, MESSAGE, NB, oracle, TS } from './tokens.ts';

const DAY = 24 * HOUR;
const sessionGrant = grant({ from: user, to: session });
const invoke = (change: Partial<InvokeFrom> = {}) => invocation({ by: session, of: user, proofs: [sessionGrant], ...change });
const outcome = async (token: GatedToken, world: World = {}, beside?: readonly GatedToken[]) =>
  codeOf(await verifierIn(world).invocation(token, beside));
const outcomeOf = async (proof: GatedToken, change: Partial<InvokeFrom> = {}) => outcome(invoke({ proofs: [proof], ...change }));
const grantOutcome = async (token: GatedToken, world: World = {}) => codeOf(await verifierIn(world).grant(token));
const value = <T>(result: { ok: true; value: T } | { ok: false; error: unknown }): T => {
  if (!result.ok) throw new Error(String(result.error));
  return result.value;
};
const ref = ({ leaf: { tokenId, cid, issuer, audience, expiration } }: GatedToken) => ({
  ...{ tokenId, cid, issuer, audience },
  expiresAt: expiration * 1000,
});

describe('an invocation', () => {
  test('signed by the owner of the right rests on no grant', async () => {
    const token = invocation({ by: user });

    expect(value(await verifierIn().invocation(token))).toMatchObject({
      ...{ principal: user.did, grants: [], grantsUntil: null, carried: [] },
      tokenId: token.leaf.tokenId,
    });
  });

  test('of a session key speaks for whoever granted it, as long as the grant lasts', async () => {
    const verified = value(await verifierIn().invocation(invoke()));

    expect(verified).toMatchObject({ issuer: session.did, principal: user.did, grantsUntil: NOW + HOUR - 500 });
    expect(verified.grants).toEqual([ref(sessionGrant)]);
  });

  test('over three links names its grants nearest first, and the earliest end counts', async () => {
    const far = grant({ from: user, to: phone, expiresAt: NOW + 2 * HOUR });
    const near = grant({
      from: phone,
      to: session,
      capabilities: [right('oracle/message', user)],
      expiresAt: NOW + 3 * HOUR,
      proofs: [far],
    });

    const verified = value(await verifierIn().invocation(invoke({ proofs: [near] })));

    expect(verified.principal).toBe(user.did);
    expect(verified.grants).toEqual([ref(near), ref(far)]);
    expect(verified.grantsUntil).toBe(far.leaf.expiration * 1000);
  });

  test('as clients make it passes: a session key with its grant in the file, or only named', async () => {
    const message = { ...MESSAGE, key: session.key, as: user.did, content: CONTENT };
    const whole = gated(mintMessageInvocation({ ...message, proofs: [sessionGrant] }));
    const named = gated(mintMessageInvocation({ ...message, proofLinks: [sessionGrant.leaf.cid] }));

    expect(await outcome(whole)).toBe('verified');
    expect(await outcome(named, { stored: [sessionGrant] })).toBe('verified');
    expect(await outcome(named, {}, [sessionGrant])).toBe('verified');
    expect(await outcome(named)).toBe('MISSING_PROOF');
  });

  test('rests on a proof that is stored together with what that rests on', async () => {
    const far = grant({ from: user, to: phone });
    const near = grant({ from: phone, to: session, capabilities: [right('oracle/message', user)], proofs: [far] });
    const token = invoke({ proofs: [], proofLinks: [near.leaf.cid] });

    expect(await outcome(token, { stored: [near] })).toBe('verified');
  });

  test('without proofs is left to the binding, whatever it asks for: nobody but its issuer is its principal', async () => {
    const token = invocation({ by: stranger, of: user });

    expect(value(await verifierIn().invocation(token)).principal).toBe(stranger.did);
  });

  test('by the owner is not made longer by proofs nobody needs', async () => {
    const useless = grant({ from: stranger, to: user });
    const { asked, ...verifier } = verifierIn();

    const verified = value(await verifier.invocation(invocation({ by: user, proofs: [useless] })));

    expect(verified).toMatchObject({ principal: user.did, grants: [] });
    expect(asked.count.signatures).toBe(1);
  });

  test('with two capabilities and a proof is refused: a program could check one and obey the other (G8)', async () => {
    const two = [right('oracle/message', user, NB), right('oracle/read', user)];

    expect(await outcome(invoke({ capabilities: two }))).toBe('BAD_CAPABILITY');
  });

  test('asking with a proof for something that is no DID is refused (G8)', async () => {
    const proof = grant({ from: user, to: session, capabilities: [{ can: '*', with: 'ixo:oracle' }] });

    expect(await outcome(invoke({ proofs: [proof], capabilities: [{ can: '*', with: 'ixo:oracle' }] }))).toBe('NOT_DELEGATED');
  });
});

describe('what a grant covers (G8)', () => {
  const nb = (change: Record<string, unknown>) => ({ ...NB, ...change }) as typeof NB;
  test.each([
    ['the very ability', 'oracle/message', 'verified'],
    ['all of its kind', 'oracle/*', 'verified'],
    ['everything', '*', 'verified'],
    ['another ability', 'oracle/read', 'NOT_DELEGATED'],
    ['an ability that begins with the same letters', 'oracle/messages', 'NOT_DELEGATED'],
    ['a kind that begins with the same letters', 'orac/*', 'NOT_DELEGATED'],
    ['what is below it', 'oracle/message/*', 'NOT_DELEGATED'],
  ])('%s', async (_name, can, expected) => {
    expect(await outcomeOf(grant({ from: user, to: session, capabilities: [right(can, user)] }))).toBe(expected);
  });

  test.each([
    ['the same room', { room: NB.room }, 'verified'],
    ['the same room and time', { room: NB.room, ts: NB.ts }, 'verified'],
    ['another room', { room: '!other:example.org' }, 'NOT_DELEGATED'],
    ['a number given as text', { ts: String(NB.ts) }, 'NOT_DELEGATED'],
    ['a list around the text', { room: [NB.room] }, 'NOT_DELEGATED'],
    ['a caveat that the message does not have', { thread: '$root' }, 'NOT_DELEGATED'],
    ['a caveat that is null where the message has none', { thread: null }, 'NOT_DELEGATED'],
    ['a caveat nobody knows', { foo: 1 }, 'NOT_DELEGATED'],
    ['a caveat named like something of every object', { constructor: 1 }, 'NOT_DELEGATED'],
  ])('a message only with %s', async (_name, caveat, expected) => {
    const proof = grant({ from: user, to: session, capabilities: [right('oracle/message', user, caveat)] });

    expect(await outcomeOf(proof)).toBe(expected);
  });

  test('a caveat nobody knows is not covered by the same one in the message: the binding refuses that', async () => {
    const proof = grant({ from: user, to: session, capabilities: [right('oracle/message', user, { foo: 1 })] });

    expect(await outcomeOf(proof, { capabilities: [right('oracle/message', user, nb({ foo: 1 }))] })).toBe('NOT_DELEGATED');
    expect(await outcome(invoke({ capabilities: [right('oracle/message', user, nb({ foo: 1 }))] }))).toBe('verified');
  });

  test('one right among several is enough', async () => {
    const capabilities = [right('oracle/read', user), right('memory/read', user), right('oracle/message', user)];

    expect(await outcomeOf(grant({ from: user, to: session, capabilities }))).toBe('verified');
  });

  test('a right on somebody else is none, also when that somebody is the one who signs', async () => {
    expect(await outcomeOf(grant({ from: user, to: session, capabilities: [right('oracle/*', stranger)] }))).toBe('NOT_DELEGATED');
    expect(await outcomeOf(grant({ from: stranger, to: session, capabilities: [right('oracle/*', user)] }))).toBe('NOT_DELEGATED');
    expect(await outcomeOf(grant({ from: stranger, to: session }))).toBe('NOT_DELEGATED');
  });

  test('a link in the middle cannot widen what it was given', async () => {
    const narrow = grant({ from: user, to: phone, capabilities: [right('oracle/read', user)] });
    const wide = grant({ from: phone, to: session, capabilities: [right('oracle/*', user)], proofs: [narrow] });

    expect(await outcomeOf(wide)).toBe('NOT_DELEGATED');
  });

  test('a right that one proof allows by another of its rights is not mixed together', async () => {
    const far = grant({
      ...{ from: user, to: phone },
      capabilities: [right('oracle/message', user, { room: '!other:example.org' }), right('oracle/read', user)],
    });
    const near = grant({ from: phone, to: session, capabilities: [right('oracle/message', user)], proofs: [far] });

    expect(await outcomeOf(near)).toBe('NOT_DELEGATED');
  });

  test('a forged grant of the victim beside an own one is never the one that counts', async () => {
    const own = grant({ from: stranger, to: session });
    const forged = grant({ from: { did: user.did, key: stranger.key }, to: session });

    const token = invoke({ proofs: [own, forged] });

    expect(await outcome(token)).toBe('BAD_SIGNATURE');
  });
});

describe('a chain that does not hold together (G8)', () => {
  test('a proof made out to somebody else, beside the token', async () => {
    const elsewhere = grant({ from: user, to: stranger });

    expect(await outcome(invoke({ proofs: [], proofLinks: [elsewhere.leaf.cid] }), {}, [elsewhere])).toBe('BROKEN_CHAIN');
  });

  test('did:key and did:ixo of one key are two: identities are compared as text', async () => {
    const other = { did: 'did:ixo:ixo1session' as Did };
    const elsewhere = grant({ from: user, to: other });

    expect(await outcome(invoke({ proofs: [], proofLinks: [elsewhere.leaf.cid] }), { stored: [elsewhere] })).toBe('BROKEN_CHAIN');
  });

  test('a signature of another key, in the token and in its grant', async () => {
    const forged = grant({ from: { did: user.did, key: stranger.key }, to: session });

    expect(await outcomeOf(forged)).toBe('BAD_SIGNATURE');
    expect(await outcome(invoke({ by: { did: session.did, key: stranger.key } }))).toBe('BAD_SIGNATURE');
  });

  test('a token whose own signature is bad asks nobody anything (G14)', async () => {
    const { asked, ...verifier } = verifierIn();
    const token = invocation({ by: { did: session.did, key: stranger.key }, of: user, proofLinks: [sessionGrant.leaf.cid] });

    expect(codeOf(await verifier.invocation(token))).toBe('BAD_SIGNATURE');
    expect(asked.tokens).toEqual([]);
  });

  test('what the store gives under another CID is missing', async () => {
    const other = grant({ from: user, to: session, capabilities: [right('*', user)] });
    const token = invoke({ proofs: [], proofLinks: [sessionGrant.leaf.cid] });

    expect(codeOf(await verifierIn({}, { findToken: () => other }).invocation(token))).toBe('MISSING_PROOF');
  });
});

describe('times of grants', () => {
  const lasting = (ms: number) => grant({ from: user, to: session, expiresAt: NOW + ms });
  test.each([
    ['ended a minute and a second ago', -61_000, 'GRANT_EXPIRED'],
    ['ended within the skew', -59_000, 'verified'],
    ['ends in 24 hours', DAY, 'verified'],
    ['ends in 24 hours and two minutes', DAY + 120_000, 'GRANT_LIVES_TOO_LONG'],
    ['ends in a year', 365 * DAY, 'GRANT_LIVES_TOO_LONG'],
  ])('a session grant that %s', async (_name, ms, expected) => {
    expect(await outcomeOf(lasting(ms))).toBe(expected);
  });

  test('what a session grant rests on may live for 30 days', async () => {
    const chain = (ms: number) => {
      const far = grant({ from: user, to: phone, expiresAt: NOW + ms });
      return grant({ from: phone, to: session, capabilities: [right('oracle/message', user)], proofs: [far] });
    };

    expect(await outcomeOf(chain(30 * DAY))).toBe('verified');
    expect(await outcomeOf(chain(30 * DAY + 120_000))).toBe('GRANT_LIVES_TOO_LONG');
    expect(await outcomeOf(chain(-61_000))).toBe('GRANT_EXPIRED');
  });

  test('a grant that begins later is not valid yet, give or take the skew', async () => {
    const from = (ms: number) => {
      const start = Math.floor((NOW + ms) / 1000);
      return invoke({ proofs: [gatedWithStart(start)] });
    };

    expect(await outcome(from(62_000))).toBe('GRANT_NOT_YET_VALID');
    expect(await outcome(from(58_000))).toBe('verified');
  });

  test('the window of the invocation itself is not judged here', async () => {
    expect(await outcome(invoke({ expiration: TS / 1000 - 10_000 }))).toBe('verified');
  });

  test('of two ways that hold, the one that lasts longer is taken', async () => {
    const short = grant({ from: user, to: session, expiresAt: NOW + HOUR });
    const long = grant({ from: user, to: session, expiresAt: NOW + 2 * HOUR });

    expect(value(await verifierIn().invocation(invoke({ proofs: [short, long] }))).grants).toEqual([ref(long)]);
  });
});

const gatedWithStart = (notBefore: number): GatedToken => grant({ from: user, to: session, notBefore });

describe('revocation', () => {
  const far = grant({ from: user, to: phone });
  const near = grant({ from: phone, to: session, capabilities: [right('oracle/message', user)], proofs: [far] });
  const token = invoke({ proofs: [near] });
  test.each([
    ['the nearest grant, by its issuer', `${near.leaf.tokenId} ${phone.did}`, 'REVOKED'],
    ['the nearest grant, by the issuer above it', `${near.leaf.tokenId} ${user.did}`, 'REVOKED'],
    ['by CID', `${near.leaf.cid} ${user.did}`, 'REVOKED'],
    ['the root grant, by its issuer', `${far.leaf.tokenId} ${user.did}`, 'REVOKED'],
    ['the root grant, by somebody below it', `${far.leaf.tokenId} ${phone.did}`, 'verified'],
    ['the nearest grant, by its audience', `${near.leaf.tokenId} ${session.did}`, 'verified'],
    ['the nearest grant, by a stranger', `${near.leaf.tokenId} ${stranger.did}`, 'verified'],
    ['the message itself, by its sender', `${token.leaf.tokenId} ${session.did}`, 'REVOKED'],
  ])('of %s', async (_name, revoked, expected) => {
    expect(await outcome(token, { revoked: [revoked] })).toBe(expected);
  });

  test('of one way leaves the other', async () => {
    const other = grant({ from: user, to: session });
    const both = invoke({ proofs: [sessionGrant, grant({ from: user, to: session, capabilities: [right('*', user)] })] });

    expect(await outcome(both, { revoked: [`${sessionGrant.leaf.tokenId} ${user.did}`] })).toBe('verified');
    expect(other.leaf.tokenId).toBe(sessionGrant.leaf.tokenId);
  });
});

describe('did:ixo', () => {
  const proof = grant({ from: ixoUser, to: session });
  const token = invocation({ by: session, of: ixoUser, proofs: [proof] });
  const keys = { [ixoUser.did]: [rawKeyOf(stranger), rawKeyOf(ixoUser)] };

  test('signs with any key of its document', async () => {
    expect(await outcome(token, { keys })).toBe('verified');
    expect(await outcome(invocation({ by: ixoUser }), { keys })).toBe('verified');
  });

  test('whose key was taken out of the document has no say any more', async () => {
    expect(await outcome(token, { keys: { [ixoUser.did]: [rawKeyOf(stranger)] } })).toBe('BAD_SIGNATURE');
  });

  test('whose document lists a key of small order gains nothing by it', async () => {
    const identity = Uint8Array.from({ length: 32 }, (_, n) => (n === 0 ? 1 : 0));
    const forged = invocation({ by: { did: ixoUser.did, key: stranger.key } });

    expect(await outcome(forged, { keys: { [ixoUser.did]: [identity] } })).toBe('BAD_SIGNATURE');
  });

  test.each<[string, ChainPorts['keysOf'], string]>([
    ['does not resolve', async () => err('DID_NOT_RESOLVED'), 'DID_NOT_RESOLVED'],
    ['may not sign', async () => err('BAD_ISSUER'), 'BAD_ISSUER'],
    ['makes the resolver say something else', async () => err('INTERNAL'), 'DID_NOT_RESOLVED'],
    ['makes the resolver reject', () => Promise.reject(new Error('no')), 'DID_NOT_RESOLVED'],
    [
      'makes the resolver throw',
      () => {
        throw new Error('no');
      },
      'DID_NOT_RESOLVED',
    ],
    ['has no key at all', async () => ok({ keys: [], homeserver: null }), 'BAD_SIGNATURE'],
  ])('that %s', async (_name, keysOf, expected) => {
    expect(codeOf(await verifierIn({}, { keysOf }).invocation(token))).toBe(expected);
  });

  test('is asked for once, however many links it signed (G14)', async () => {
    const first = grant({ from: ixoUser, to: phone });
    const second = grant({ from: phone, to: ixoUser, capabilities: [right('oracle/message', ixoUser)], proofs: [first] });
    const third = grant({ from: stranger, to: session, capabilities: [right('oracle/message', ixoUser)] });
    const { asked, ...verifier } = verifierIn({ keys });

    await verifier.invocation(invocation({ by: session, of: ixoUser, proofs: [proof, third] }));
    await verifier.grant(second);

    expect(asked.dids).toEqual([ixoUser.did, ixoUser.did]);
  });

  test('issuers are asked for at the same time', async () => {
    const other = ixoPerson('other');
    const far = grant({ from: ixoUser, to: other });
    const near = grant({ from: other, to: session, capabilities: [right('oracle/message', ixoUser)], proofs: [far] });
    const waiting: (() => void)[] = [];
    const keysOf: ChainPorts['keysOf'] = (did) =>
      new Promise((resolve) => {
        waiting.push(() => resolve(ok({ keys: [rawKeyOf(did === other.did ? other : ixoUser)], homeserver: null })));
        if (waiting.length === 2) for (const go of waiting) go();
      });

    expect(codeOf(await verifierIn({}, { keysOf }).invocation(invocation({ by: session, of: ixoUser, proofs: [near] })))).toBe('verified');
  });
});

describe('the code of a token with several ways', () => {
  const other = (change: object) => grant({ from: user, to: session, ...change });
  const expired = other({ expiresAt: NOW - HOUR });
  const taken = other({ expiresAt: NOW + 2 * HOUR });
  const revoked = [`${taken.leaf.tokenId} ${user.did}`];
  const forged = grant({ from: { did: user.did, key: stranger.key }, to: session });
  const narrow = other({ capabilities: [right('oracle/read', user)] });
  const missing = other({ capabilities: [right('*', user)] });
  test.each([
    ['taken back, the other over', [taken, expired], 'REVOKED'],
    ['over, the other forged', [expired, forged], 'GRANT_EXPIRED'],
    ['forged, the other of another ability', [forged, narrow], 'BAD_SIGNATURE'],
  ])('one %s', async (_name, proofs, expected) => {
    expect(await outcome(invoke({ proofs }), { revoked })).toBe(expected);
  });

  test('one of another ability, the other missing', async () => {
    expect(await outcome(invoke({ proofs: [narrow], proofLinks: [missing.leaf.cid] }))).toBe('MISSING_PROOF');
  });
});

describe('a grant', () => {
  const acting = (change: object = {}) =>
    grant({ from: user, to: oracle, capabilities: [right('memory/read', user), { can: 'sandbox/run', with: 'ixo:sandbox' }], ...change });

  test('names its principal, its path and its one spelling', async () => {
    const token = acting();
    const verified = value(await verifierIn().grant(token));

    expect(verified).toMatchObject({ principal: user.did, path: [ref(token)], car: token.car, expiresAt: token.leaf.expiration * 1000 });
  });

  test('over two links ends with the earlier one', async () => {
    const far = grant({ from: user, to: phone, capabilities: [right('memory/*', user)], expiresAt: NOW + HOUR });
    const near = grant({
      ...{ from: phone, to: oracle, capabilities: [right('memory/read', user)], proofs: [far] },
      expiresAt: NOW + 2 * HOUR,
    });

    const verified = value(await verifierIn().grant(near));

    expect(verified).toMatchObject({ principal: user.did, path: [ref(near), ref(far)], expiresAt: far.leaf.expiration * 1000 });
  });

  test('whose rights lead to two people is refused', async () => {
    expect(await grantOutcome(acting({ capabilities: [right('a/b', user), right('a/b', stranger)] }))).toBe('NOT_DELEGATED');
  });

  test('with one right that nobody gave is refused as a whole', async () => {
    const far = grant({ from: user, to: phone, capabilities: [right('memory/*', user)] });
    const near = grant({
      ...{ from: phone, to: oracle, proofs: [far] },
      capabilities: [right('memory/read', user), right('sandbox/run', user)],
    });

    expect(await grantOutcome(near)).toBe('NOT_DELEGATED');
  });

  test('on something that is no DID belongs to who stands at the end of its proofs, not to who hands it on', async () => {
    const sandbox = { can: 'sandbox/run', with: 'ixo:sandbox' };
    const far = grant({ from: user, to: phone, capabilities: [sandbox] });
    const near = grant({ from: phone, to: oracle, capabilities: [sandbox], proofs: [far] });

    expect(value(await verifierIn().grant(near)).principal).toBe(user.did);
  });

  test('on something that is no DID cannot borrow the name of a stranger who gave something else', async () => {
    const far = grant({ from: user, to: stranger, capabilities: [{ can: 'a/b', with: 'ixo:other' }] });
    const near = grant({ from: stranger, to: oracle, capabilities: [{ can: 'sandbox/run', with: 'ixo:sandbox' }], proofs: [far] });

    expect(await grantOutcome(near)).toBe('NOT_DELEGATED');
  });

  test('with a caveat nobody knows is refused', async () => {
    expect(await grantOutcome(acting({ capabilities: [right('memory/read', user, { ns: 'x' })] }))).toBe('NOT_DELEGATED');
    expect(await grantOutcome(acting({ capabilities: [right('memory/read', user, { link: 'x', sender: '@u:x' })] }))).toBe('verified');
  });

  test.each([
    ['ended', { expiresAt: NOW - 61_000 }, 'GRANT_EXPIRED'],
    ['for 30 days', { expiresAt: NOW + 30 * DAY }, 'verified'],
    ['for 31 days', { expiresAt: NOW + 31 * DAY }, 'GRANT_LIVES_TOO_LONG'],
  ])('%s', async (_name, change, expected) => {
    expect(await grantOutcome(acting(change))).toBe(expected);
  });

  test('taken back, resting on nothing, or with a proof that is not there', async () => {
    const token = acting();
    const missing = grant({ from: user, to: phone, capabilities: [right('a/b', user)] });
    const near = grant({ from: phone, to: oracle, capabilities: [right('a/b', user)], ...named(missing) });

    expect(await grantOutcome(token, { revoked: [`${token.leaf.cid} ${user.did}`] })).toBe('REVOKED');
    expect(await grantOutcome(acting({ capabilities: [right('a/b', stranger)] }))).toBe('NOT_DELEGATED');
    expect(await grantOutcome(near)).toBe('MISSING_PROOF');
    expect(await grantOutcome(near, { stored: [missing] })).toBe('verified');
  });

  test('resting on a stored one becomes a file that holds both, and passes the gate', async () => {
    const far = grant({ from: user, to: phone, capabilities: [right('a/b', user)] });
    const near = grant({ from: phone, to: oracle, capabilities: [right('a/b', user)], ...named(far) });

    const { car } = value(await verifierIn({ stored: [far] }).grant(near));
    const again = value(gateDelegation(car));

    expect([...again.links.keys()]).toEqual([far.leaf.cid, near.leaf.cid]);
    expect(codeOf(await verifierIn().grant(again))).toBe('verified');
  });

  test('is kept without proofs that nothing in it rests on', async () => {
    const used = grant({ from: user, to: phone, capabilities: [right('a/b', user)] });
    const useless = grant({ from: stranger, to: phone });
    const near = grant({ from: phone, to: oracle, capabilities: [right('a/b', user)], proofs: [useless, used] });

    const { car } = value(await verifierIn().grant(near));

    expect([...value(gateDelegation(car)).links.keys()]).toEqual([used.leaf.cid, near.leaf.cid]);
  });
});

const named = (token: GatedToken) => ({ proofLinks: [token.leaf.cid] });

describe('grants that come with a message', () => {
  const far = grant({ from: user, to: phone });
  const near = grant({ from: phone, to: session, capabilities: [right('oracle/message', user)], proofs: [far] });

  test('inside it are handed on as tokens of their own', async () => {
    const { carried } = value(await verifierIn().invocation(invoke({ proofs: [near] })));

    expect(carried.map(({ tokenId }) => tokenId)).toEqual([near.leaf.tokenId, far.leaf.tokenId]);
    expect(carried.map(({ car }) => car)).toEqual([near.car, far.car]);
    expect(carried.map(({ principal }) => principal)).toEqual([user.did, user.did]);
  });

  test('beside it are, and stored ones are not', async () => {
    const token = invoke({ proofs: [], proofLinks: [near.leaf.cid] });

    expect(value(await verifierIn().invocation(token, [near])).carried.length).toBe(2);
    expect(value(await verifierIn({ stored: [near] }).invocation(token)).carried).toEqual([]);
  });

  test('are not kept when one of their other rights does not hold, though the message passes', async () => {
    const greedy = grant({ from: user, to: session, capabilities: [right('oracle/*', user), right('a/b', stranger)] });

    const verified = value(await verifierIn().invocation(invoke({ proofs: [greedy] })));

    expect(verified).toMatchObject({ principal: user.did, carried: [] });
  });

  test('cost no second signature check (G14)', async () => {
    const { asked, ...verifier } = verifierIn();

    await verifier.invocation(invoke({ proofs: [near] }));

    expect(asked.count.signatures).toBe(3);
  });
});

test('a store that cannot be read is not an answer: the message is tried again', async () => {
  const broken = () => {
    throw new Error('locked');
  };
  const token = invoke({ proofs: [], proofLinks: [sessionGrant.leaf.cid] });

  await expect(verifierIn({}, { findToken: broken }).invocation(token)).rejects.toThrow('locked');
  await expect(verifierIn({}, { isRevoked: broken }).invocation(invoke())).rejects.toThrow('locked');
});

test('a person of a test has the key it says', () => {
  expect(person('user').did).toBe(user.did);
});
