import * as dagCbor from '@ipld/dag-cbor';
import { Delegation, delegate } from '@ucanto/core';
import { ed25519 } from '@ucanto/principal';
import fc from 'fast-check';
import { CID } from 'multiformats/cid';
import { describe, expect, test } from 'vitest';
import { LIMITS } from '../../../src/limits.ts';
import { buildCar, cidOf, readCar } from '../../../src/ucan/car.ts';
import { type GateCount, type GatedToken, gate, gateDelegation, gateInvocation } from '../../../src/ucan/gate.ts';
import { mintUcan } from '../../../src/ucan/mint.ts';
import { keyFromSeed } from '../../../src/ucan/signing-key.ts';
import { grant, invocation, ixoUser, phone, right, session, stranger, user } from './chains.ts';
import { carBytes, gatedGrant, NONCE, oracle, TS, variantOf } from './tokens.ts';

const far = grant({ from: user, to: phone });
const near = grant({ from: phone, to: session, capabilities: [right('oracle/message', user)], proofs: [far] });
const token = invocation({ by: session, of: user, proofs: [near] });
const outcome = (car: string | Uint8Array) => {
  const result = gateDelegation(typeof car === 'string' ? car : Buffer.from(car).toString('base64url'));
  return result.ok ? 'gated' : result.error;
};
const blocksOf = (car: string): Uint8Array[] => {
  const read = readCar(carBytes(car));
  if (!read.ok) throw new Error(read.error);
  return read.value.blocks.map(({ bytes }) => bytes);
};
/** The blocks of the file put together in another way; the root stays the same. */
const rearranged = (car: string, change: (blocks: Uint8Array[]) => Uint8Array[]): string => {
  const blocks = blocksOf(car);
  return outcome(buildCar(blocks.at(-1)!, change(blocks)));
};
const fresh = (n: number) => grant({ from: user, to: phone, nonce: `${NONCE}${n}` });

describe('a token with proofs', () => {
  test('gives its leaf, all links of the file, and the file in its one spelling', () => {
    expect(token.leaf).toMatchObject({ issuer: session.did, proofs: [near.leaf.cid] });
    expect([...token.links.keys()]).toEqual([far.leaf.cid, near.leaf.cid, token.leaf.cid]);
    expect(gateInvocation(carBytes(token.car).toString('base64'))).toEqual({ ok: true, value: token });
  });

  test('names proofs that are not in the file', () => {
    const named = invocation({ by: session, of: user, proofLinks: [near.leaf.cid, far.leaf.cid] });

    expect(named.leaf.proofs).toEqual([near.leaf.cid, far.leaf.cid]);
    expect(named.links.size).toBe(1);
  });

  test('of a did:ixo has no key of its own', () => {
    expect(grant({ from: ixoUser, to: session }).leaf).toMatchObject({ issuer: ixoUser.did, issuerKey: null });
    expect(far.leaf.issuerKey?.length).toBe(32);
  });

  test('signed by another method than did:key and did:ixo is refused', () => {
    const web = (did: string) => mintUcan({ ...bare, issuer: did as typeof user.did, key: user.key });

    expect(outcome(web('did:web:example.org'))).toBe('BAD_ISSUER');
    expect(outcome(web('did:ixo:IXO1user'))).toBe('BAD_ISSUER');
    expect(outcome(web('did:ixo:entity:abc'))).toBe('gated');
    expect(outcome(web('did:plc:abc'))).toBe('BAD_ISSUER');
  });
});

const END_S = TS / 1000 + 3600;
const bare = { audience: oracle.did, capabilities: [right('a/b', user)], expiration: END_S, nonce: NONCE };

describe('one spelling of a file (G14)', () => {
  test.each<[string, (blocks: Uint8Array[]) => Uint8Array[], string]>([
    ['as written', (blocks) => blocks, 'gated'],
    ['proofs in another order', ([a, b, ...rest]) => [b!, a!, ...rest], 'UCAN_MALFORMED'],
    ['the token before its proofs', ([a, b, c, root]) => [c!, a!, b!, root!], 'UCAN_MALFORMED'],
    ['the root first', ([a, b, c, root]) => [root!, a!, b!, c!], 'UCAN_MALFORMED'],
    ['a proof twice', ([a, ...rest]) => [a!, a!, ...rest], 'UCAN_MALFORMED'],
    ['a token nobody names', (blocks) => [blocksOf(fresh(1).car)[0]!, ...blocks], 'UCAN_MALFORMED'],
    ['something else nobody names', (blocks) => [dagCbor.encode({ a: 1 }), ...blocks], 'UCAN_MALFORMED'],
    ['without the proof in the middle, whose own proof is then not reached', ([a, , c, root]) => [a!, c!, root!], 'UCAN_MALFORMED'],
    ['without the proof at the end: that is another, shorter file', ([, b, c, root]) => [b!, c!, root!], 'gated'],
  ])('%s', (_name, change, expected) => {
    expect(rearranged(token.car, change)).toBe(expected);
  });

  test('any other arrangement of the same blocks is refused', () => {
    const blocks = blocksOf(token.car);
    fc.assert(
      fc.property(fc.shuffledSubarray(blocks, { minLength: blocks.length }), (shuffled) => {
        fc.pre(shuffled.some((block, n) => block !== blocks[n]));
        expect(outcome(buildCar(blocks.at(-1)!, shuffled))).toBe('UCAN_MALFORMED');
      }),
    );
  });

  test('a token that names one proof twice is refused', () => {
    const twice = mintUcan({ ...bare, key: phone.key, proofLinks: [far.leaf.cid, far.leaf.cid] });

    expect(outcome(twice)).toBe('UCAN_MALFORMED');
  });

  test.each([
    ['CIDv1 of raw bytes', '01551220'],
    ['of dag-pb', '01701220'],
    ['with sha2-512 cut to 32 bytes', '01711320'],
    ['with the identity hash', '01710020'],
  ])('a proof named by a CID %s is refused', (_name, prefix) => {
    const cid = Uint8Array.from([...Buffer.from(prefix, 'hex'), ...cidOf(Buffer.from('x')).subarray(4)]);
    const model = dagCbor.decode(blocksOf(far.car)[0]!) as Record<string, unknown>;
    const leaf = dagCbor.encode({ ...model, prf: [CID.decode(cid)] });

    expect(outcome(buildCar(variantOf(leaf), [leaf, variantOf(leaf)]))).toBe('UCAN_MALFORMED');
  });
});

describe('every block of a file is looked at (G14)', () => {
  test.each([
    ['an ability that nobody may hand on', { capabilities: [right('ucan/attest', user)] }, 'BAD_CAPABILITY'],
    ['no end', { expiration: Infinity }, 'TOKEN_LIVES_TOO_LONG'],
    ['facts past the limit', { facts: Array.from({ length: 9 }, (_, n) => ({ n })) }, 'UCAN_MALFORMED'],
  ])('a proof with %s', (_name, change, expected) => {
    const proof = mintUcan({ ...bare, key: user.key, audience: session.did, ...change });

    expect(outcome(resting(proof))).toBe(expected);
  });

  test('a proof that is no UCAN', () => {
    const block = dagCbor.encode({ a: 1 });
    const leaf = blocksOf(invocation({ by: session, of: user, proofLinks: [cidOf(block).toString('hex')] }).car)[0]!;

    expect(outcome(buildCar(variantOf(leaf), [block, leaf, variantOf(leaf)]))).toBe('UCAN_MALFORMED');
  });

  test('a proof made out to somebody else', () => {
    const proof = grant({ from: user, to: stranger });

    expect(outcome(mintUcan({ ...bare, key: session.key, proofs: [proof] }))).toBe('BROKEN_CHAIN');
    expect(outcome(mintUcan({ ...bare, key: session.key, proofLinks: [proof.leaf.cid] }))).toBe('gated');
  });
});

/** A token of the session key around a proof that the gate may not take. */
function resting(proof: string): string {
  const [block] = blocksOf(proof);
  const cid = cidOf(block!).toString('hex');
  const leaf = blocksOf(mintUcan({ ...bare, key: session.key, proofLinks: [cid] }))[0]!;
  return buildCar(variantOf(leaf), [block!, leaf, variantOf(leaf)]).toString('base64url');
}

const keys = Array.from({ length: 10 }, (_, n) => keyFromSeed(new Uint8Array(32).fill(n + 1)));
/** Links in one line, each resting on the one before. */
function line(length: number): string {
  let last: GatedToken | undefined;
  let text = '';
  for (let n = 0; n < length; n += 1) {
    text = mintUcan({
      ...{ ...bare, key: keys[n]!, audience: keys[n + 1]!.did },
      ...(last === undefined ? {} : { proofs: [last] }),
    });
    const gated = gateDelegation(text);
    if (!gated.ok) return text;
    last = gated.value;
  }
  return text;
}
/** `levels` times two links, each resting on both of the level below; all made out to one key. */
function diamond(levels: number): string {
  const everybody = keys[0]!;
  let below: GatedToken[] = [];
  const level = (nonce: string) => ({ ...bare, key: everybody, audience: everybody.did, nonce, proofs: below });
  for (let n = 0; n < levels; n += 1) below = ['l', 'r'].map((side) => gatedGrant(mintUcan(level(`${NONCE}${n}${side}`))));
  return mintUcan(level(NONCE));
}

describe('bounds (G14)', () => {
  test.each([
    ['as many links in a line as allowed', line(LIMITS.proofDepth), 'gated'],
    ['one link more', line(LIMITS.proofDepth + 1), 'TOO_MANY_PROOFS'],
    ['three levels of a diamond', diamond(3), 'gated'],
    ['a proof only named at the end of the longest line', onTopOf(line(LIMITS.proofDepth)), 'TOO_MANY_PROOFS'],
  ])('%s', (_name, car, expected) => {
    expect(outcome(car)).toBe(expected);
  });

  test('two proofs of a link are allowed, three are not', () => {
    const proofs = [1, 2, 3].map((n) => fresh(n).leaf.cid);

    expect(outcome(mintUcan({ ...bare, key: phone.key, proofLinks: proofs.slice(0, 2) }))).toBe('gated');
    expect(outcome(mintUcan({ ...bare, key: phone.key, proofLinks: proofs }))).toBe('TOO_MANY_PROOFS');
  });

  test('a file of 16 KiB is a grant at most, and one of 4 KiB an invocation', () => {
    const large = gatedGrant(line(LIMITS.proofDepth));
    const wide = grant({ from: user, to: phone, capabilities: [right('a/b', user, { link: 'x'.repeat(500) })] });
    const long = ['a', 'b', 'c', 'd', 'e', 'f', 'g', 'h'].map((x) => right(`a/${x}`, user, { link: x.repeat(330) }));
    const huge = grant({ from: user, to: phone, capabilities: long });

    expect(gateInvocation(large.car).ok).toBe(true);
    expect(gateInvocation(wide.car).ok).toBe(true);
    expect(gateInvocation(grant({ from: phone, to: session, capabilities: long, proofs: [huge] }).car)).toEqual({
      ok: false,
      error: 'UCAN_TOO_LARGE',
    });
    expect(outcome(Buffer.alloc(LIMITS.delegationBytes))).toBe('UCAN_MALFORMED');
    expect(outcome(Buffer.alloc(LIMITS.delegationBytes + 1))).toBe('UCAN_TOO_LARGE');
  });

  test('a diamond costs its blocks, not its ways', () => {
    const count: GateCount = { blocks: 0, cborItems: 0, decoded: 0 };

    expect(gate(carBytes(diamond(3)), LIMITS.delegationBytes, count).ok).toBe(true);
    expect(count).toMatchObject({ blocks: 8, decoded: 7 });
    expect(count.cborItems).toBeLessThan(7 * 40);
  });

  test('a block that is refused ends the work', () => {
    const count: GateCount = { blocks: 0, cborItems: 0, decoded: 0 };
    const blocks = blocksOf(diamond(3));
    const unreached = dagCbor.encode({ ...(dagCbor.decode(blocks[6]!) as object), prf: [], nnc: 'other' });

    gate(buildCar(variantOf(unreached), [...blocks.slice(0, 6), unreached, variantOf(unreached)]), LIMITS.delegationBytes, count);

    expect(count).toMatchObject({ blocks: 8, decoded: 1 });
  });
});

function onTopOf(car: string): string {
  const [first, ...rest] = blocksOf(car);
  if (first === undefined) throw new Error('empty');
  let below = cidOf(Buffer.from('elsewhere'));
  const blocks = [first, ...rest.slice(0, -1)].map((block) => {
    const model = dagCbor.decode(block) as Record<string, unknown>;
    const again = dagCbor.encode({ ...model, prf: [CID.decode(Uint8Array.from(below))] });
    below = cidOf(again);
    return again;
  });
  const root = variantOf(blocks.at(-1)!);
  return buildCar(root, [...blocks, root]).toString('base64url');
}

describe('files of the real library', () => {
  test('chains archived by ucanto pass, and ours are the same bytes', async () => {
    const signers = await Promise.all(keys.slice(0, 6).map((_, n) => ed25519.derive(new Uint8Array(32).fill(n + 1))));
    let theirs: Awaited<ReturnType<typeof delegate>> | undefined;
    let ours: GatedToken | undefined;
    for (let n = 0; n < LIMITS.proofDepth; n += 1) {
      theirs = await delegate({
        ...{ issuer: signers[n]!, audience: signers[n + 1]!, capabilities: [{ can: 'a/b', with: user.did as `did:key:${string}` }] },
        ...{ expiration: END_S, nonce: NONCE, proofs: theirs === undefined ? [] : [theirs] },
      });
      ours = gatedGrant(
        mintUcan({
          ...{ ...bare, key: keys[n]!, audience: keys[n + 1]!.did },
          ...(ours === undefined ? {} : { proofs: [ours] }),
        }),
      );

      expect(Buffer.from((await theirs.archive()).ok!).toString('base64url')).toBe(ours.car);
    }
  });

  test('a diamond that shares proofs is archived in the order that we ask for', async () => {
    const one = await ed25519.derive(new Uint8Array(32).fill(1));
    const make = (nonce: string, proofs: Awaited<ReturnType<typeof delegate>>[]) =>
      delegate({ issuer: one, audience: one, capabilities: [{ can: 'a/b', with: one.did() }], expiration: END_S, nonce, proofs });
    const [a, b] = [await make('a', []), await make('b', [])];
    const [c, d] = [await make('c', [a, b]), await make('d', [b, a])];
    const bytes = Buffer.from((await (await make('e', [d, c])).archive()).ok!);

    expect(outcome(bytes)).toBe('gated');
  });

  test('what we write is what ucanto extracts', async () => {
    const extracted = await Delegation.extract(Uint8Array.from(carBytes(token.car)));

    expect(extracted.ok?.issuer.did()).toBe(session.did);
    expect(Buffer.from((await extracted.ok!.archive()).ok!).toString('base64url')).toBe(token.car);
  });
});
