import * as dagCbor from '@ipld/dag-cbor';
import { format } from '@ipld/dag-ucan';
import * as DID from '@ipld/dag-ucan/did';
import { Delegation, delegate, UCAN } from '@ucanto/core';
import { ed25519, Verifier } from '@ucanto/principal';
import { access, capability, Schema } from '@ucanto/validator';
import fc from 'fast-check';
import { CID } from 'multiformats/cid';
import { describe, expect, test } from 'vitest';
import { LIMITS } from '../../../src/limits.ts';
import { buildCar, cidOf, readCar } from '../../../src/ucan/car.ts';
import { gate as gateBytes, gateInvocation } from '../../../src/ucan/gate.ts';
import { alice, carBytes, custom, gated, honest, leafOf, NB, outcome, reEncoded, TS, variantOf, wrap } from './tokens.ts';

const token = honest();
const leaf = leafOf(token);
const root = variantOf(leaf);
const linkTo = (block: Uint8Array) => CID.decode(Uint8Array.from(cidOf(block)));

describe('honest tokens', () => {
  test('a token of our own passes the gate and its signature fits', async () => {
    expect(await outcome(token)).toBe('accepted');
  });

  test('a token minted and archived by ucanto passes, as base64url and as padded base64', async () => {
    const issuer = await ed25519.generate();
    const minted = await delegate({
      ...{ issuer, audience: DID.parse('did:ixo:ixo1oracle'), expiration: TS / 1000, notBefore: TS / 1000 - 60, nonce: 'n' },
      capabilities: [{ can: 'oracle/message', with: issuer.did(), nb: { room: '!r:x', list: [1, 'a', true, null] } }],
      facts: [{ note: 'x' }],
    });
    const bytes = Buffer.from((await minted.archive()).ok!);

    expect(await outcome(bytes.toString('base64url'))).toBe('accepted');
    expect(await outcome(bytes.toString('base64'))).toBe('accepted');
    expect(gated(bytes.toString('base64url')).leaf).toMatchObject({
      issuer: issuer.did(),
      audience: 'did:ixo:ixo1oracle',
      facts: [{ note: 'x' }],
    });
  });

  test('ucanto extracts and authorises what we mint', async () => {
    const fresh = custom({ expiration: 4_000_000_000 });
    const extracted = await Delegation.extract(carBytes(fresh));
    const Message = capability({ can: 'oracle/message', with: Schema.did(), nb: Schema.unknown() as never });

    const result = await access(extracted.ok as never, {
      ...{ capability: Message as never, authority: Verifier.parse(alice.did as `did:key:${string}`), principal: Verifier },
      validateAuthorization: () => ({ ok: {} }),
      resolveDIDKey: () => ({ error: new Error('none') }) as never,
    });

    expect(result.ok).toBeTruthy();
  });

  test('the token id is the hash of what was signed, so it does not change with the spelling of the text', () => {
    const padded = carBytes(token).toString('base64');

    expect(gated(padded).leaf.tokenId).toBe(gated(token).leaf.tokenId);
    expect(gated(token).leaf.tokenId).toMatch(/^[A-Za-z0-9_-]{43}$/u);
    expect(gated(honest({ nonce: 'AAECAwQFBgcICQoLDA0ODx' })).leaf.tokenId).not.toBe(gated(token).leaf.tokenId);
  });
});

const ZERO_KEY = Uint8Array.from(Buffer.concat([Buffer.from('ed01', 'hex'), Buffer.alloc(32)]));
const IDENTITY_KEY = Uint8Array.from(Buffer.concat([Buffer.from('ed0101', 'hex'), Buffer.alloc(31)]));
const P256_KEY = Uint8Array.from(Buffer.concat([Buffer.from('802403', 'hex'), Buffer.alloc(32, 7)]));
const didCore = (text: string) => Uint8Array.from(Buffer.concat([Buffer.from('9d1a', 'hex'), Buffer.from(text)]));
const otherAlgorithm = (signature: Uint8Array) => Uint8Array.from([0xe7, ...signature.slice(1)]);
const half = (signature: Uint8Array) => signature.slice(0, 36);
const nested = (depth: number): any => (depth === 0 ? 1 : { a: nested(depth - 1) });
const withNb = (nb: unknown) => reEncoded(token, (m) => (m['att'][0].nb = nb));
const withCap = (cap: Record<string, unknown>) => reEncoded(token, (m) => (m['att'] = [cap]));
/** The bytes of the block with one hex sequence replaced, lengths equal or fixed by the caller. */
const patched = (from: string, to: string) => {
  const hex = Buffer.from(leaf).toString('hex');
  if (!hex.includes(from)) throw new Error(`nothing to patch: ${from}`);
  return wrap(Buffer.from(hex.replace(from, to), 'hex'));
};
/** A token with `aaproto__` where `__proto__` shall stand: our own tools cannot write that key. */
const disguised = (change: (model: Record<string, any>) => void) => {
  const hex = Buffer.from(leafOf(reEncoded(token, change))).toString('hex');
  if (!hex.includes(hexText('aaproto__'))) throw new Error('nothing to disguise');
  return wrap(Buffer.from(hex.replace(hexText('aaproto__'), hexText('__proto__')), 'hex'));
};
const hexText = (text: string) => Buffer.from(text).toString('hex');
const expHex = `1a${(TS / 1000 + 300).toString(16)}`;

/** The only proof of this one is itself: its label is made up, because no hash can name the block it stands in. */
function selfReferencing(): string {
  const label = cidOf(Buffer.from('made up'));
  const model = dagCbor.decode(leaf) as Record<string, unknown>;
  const block = dagCbor.encode({ ...model, att: [{ can: 'a/b', with: alice.did }], prf: [CID.decode(Uint8Array.from(label))] });
  const variant = Buffer.concat([root.subarray(0, root.length - 36), label]);
  const car = carBytes(token);
  const section = (cid: Buffer, bytes: Uint8Array) => {
    const length = 36 + bytes.length;
    return Buffer.concat([length < 128 ? Buffer.of(length) : Buffer.of((length & 0x7f) | 0x80, length >> 7), cid, bytes]);
  };
  const header = Buffer.concat([car.subarray(0, 14), cidOf(variant), car.subarray(50, 59)]);
  return Buffer.concat([header, section(label, block), section(cidOf(variant), variant)]).toString('base64url');
}

/** Two proofs a level, each shared: paths double with every level. */
function diamond(levels: number): string {
  const model = dagCbor.decode(leaf) as Record<string, unknown>;
  const blocks: Uint8Array[] = [];
  let below: Uint8Array[] = [];
  for (let level = 0; level < levels; level += 1) {
    below = ['l', 'r'].map((side) => dagCbor.encode({ ...model, nnc: `${level}${side}`, prf: below.map(linkTo) }));
    blocks.push(...below);
  }
  return wrap(dagCbor.encode({ ...model, prf: below.map(linkTo) }), blocks);
}

const car = carBytes(token);
const padding = { room: 'x'.repeat(400), b: 'x'.repeat(500) };
const hostile: [name: string, input: unknown, code: string][] = [
  ['not a string', 7, 'UCAN_MALFORMED'],
  ['nothing', '', 'UCAN_MALFORMED'],
  ['text that is no base64', 'hello world!', 'UCAN_MALFORMED'],
  ['base64url with padding', `${Buffer.from([0xfb, 0xff]).toString('base64url')}=`, 'UCAN_MALFORMED'],
  ['a space inside', `${token.slice(0, 40)} ${token.slice(40)}`, 'UCAN_MALFORMED'],
  ['a line break at the end', `${token}\n`, 'UCAN_MALFORMED'],
  [
    'a mixed alphabet',
    `${Buffer.from([0xfb, 0xff, 0xfe]).toString('base64')}${Buffer.from([0xfb, 0xff, 0xfe]).toString('base64url')}`,
    'UCAN_MALFORMED',
  ],
  ['a multibase prefix', `u${token}`, 'UCAN_MALFORMED'],
  ['more characters than the limit', 'A'.repeat(5_500), 'UCAN_TOO_LARGE'],
  ['a megabyte', 'A'.repeat(1_000_000), 'UCAN_TOO_LARGE'],
  ['one byte more than the limit', Buffer.alloc(LIMITS.invocationBytes + 1).toString('base64url'), 'UCAN_TOO_LARGE'],
  ['exactly the limit in zeros', Buffer.alloc(LIMITS.invocationBytes).toString('base64url'), 'UCAN_MALFORMED'],
  [
    'a CARv2 wrapper',
    Buffer.concat([Buffer.from('0aa16776657273696f6e02', 'hex'), Buffer.alloc(40), car]).toString('base64url'),
    'UCAN_MALFORMED',
  ],
  ['a self-referencing proof', selfReferencing(), 'UCAN_MALFORMED'],
  ['a diamond of proofs, 14 levels', diamond(14), 'UCAN_TOO_LARGE'],
  ['a diamond of proofs within the block limit', diamond(3), 'BROKEN_CHAIN'],
  ['a proof that is only linked, under the old signature', reEncoded(token, (m) => (m['prf'] = [linkTo(leaf)])), 'BAD_SIGNATURE'],
  [
    'more blocks than allowed',
    wrap(
      leaf,
      Array.from({ length: 8 }, (_, n) => dagCbor.encode(n)),
    ),
    'UCAN_MALFORMED',
  ],
  ['an unreachable block', wrap(leaf, [dagCbor.encode({ a: 1 })]), 'UCAN_MALFORMED'],
  ['the root block first', buildCar(root, [root, leaf]).toString('base64url'), 'UCAN_MALFORMED'],
  ['the leaf twice', buildCar(root, [leaf, leaf, root]).toString('base64url'), 'UCAN_MALFORMED'],
  ['the root twice', buildCar(root, [leaf, root, root]).toString('base64url'), 'UCAN_MALFORMED'],
  ['no root block', buildCar(root, [leaf]).toString('base64url'), 'UCAN_MALFORMED'],
  ['no leaf block', buildCar(root, [root]).toString('base64url'), 'UCAN_MALFORMED'],
  ['the leaf named as root', buildCar(leaf, [leaf, root]).toString('base64url'), 'UCAN_MALFORMED'],
  ['a block under another CID', Buffer.from(car).fill(1, 70, 80).toString('base64url'), 'UCAN_MALFORMED'],
  ['a trailing zero byte', Buffer.concat([car, Buffer.of(0)]).toString('base64url'), 'UCAN_MALFORMED'],
  ['a truncated file', car.subarray(0, car.length - 1).toString('base64url'), 'UCAN_MALFORMED'],
  [
    'a section length in three bytes',
    Buffer.concat([car.subarray(0, 59), Buffer.from('ffffff7f', 'hex')]).toString('base64url'),
    'UCAN_MALFORMED',
  ],
  [
    'another variant',
    (() => {
      const v = Buffer.from(root);
      v[11] = 0x38;
      return buildCar(v, [leaf, v]).toString('base64url');
    })(),
    'UCAN_MALFORMED',
  ],
  [
    'a root with a second key',
    (() => {
      const v = dagCbor.encode({ 'ucan@0.9.1': linkTo(leaf), x: 1 });
      return buildCar(v, [leaf, v]).toString('base64url');
    })(),
    'UCAN_MALFORMED',
  ],
  ['a JWT in place of the block', wrap(Buffer.from(format(UCAN.decode(Uint8Array.from(leaf) as never)))), 'UCAN_MALFORMED'],
  ['another version', reEncoded(token, (m) => (m['v'] = '0.9.2')), 'UCAN_MALFORMED'],
  // re-encodings that leave the signature valid
  ['an extra field', reEncoded(token, (m) => (m['junk'] = 1)), 'UCAN_MALFORMED'],
  ['an ability in capitals', withCap({ can: 'ORACLE/message', with: alice.did, nb: NB }), 'UCAN_MALFORMED'],
  ['nbf of zero', reEncoded(token, (m) => (m['nbf'] = 0)), 'UCAN_MALFORMED'],
  ['an empty list of facts', reEncoded(token, (m) => (m['fct'] = [])), 'UCAN_MALFORMED'],
  ['no prf at all', reEncoded(token, (m) => delete m['prf']), 'UCAN_MALFORMED'],
  ['bytes after the signature', reEncoded(token, (m) => (m['s'] = Uint8Array.from([...m['s'], 1]))), 'BAD_SIGNATURE'],
  ['an issuer in the form of another method', reEncoded(token, (m) => (m['iss'] = didCore(alice.did.slice(4)))), 'BAD_ISSUER'],
  ['an audience in the form of another method', reEncoded(token, (m) => (m['aud'] = didCore(alice.did.slice(4)))), 'BAD_AUDIENCE'],
  ['a timestamp as a float', withNb({ ...NB, ts: 1.5 }), 'UCAN_MALFORMED'],
  ['bytes in nb', withNb({ room: new Uint8Array(4) }), 'UCAN_MALFORMED'],
  ['bytes in nb, spelled as in DAG-JSON', withNb({ room: { '/': { bytes: 'AAAA' } } }), 'UCAN_MALFORMED'],
  ['a link in nb', withNb({ room: linkTo(leaf) }), 'UCAN_MALFORMED'],
  ['a __proto__ key in nb', patched(`64${hexText('room')}`, `69${hexText('__proto__')}`), 'UCAN_MALFORMED'],
  ['a __proto__ key with a map in nb', disguised((m) => (m['att'][0].nb = { aaproto__: NB })), 'UCAN_MALFORMED'],
  ['a __proto__ key in a fact', disguised((m) => (m['fct'] = [{ aaproto__: { room: 'x' } }])), 'UCAN_MALFORMED'],
  ['a number in a longer form', patched(expHex, `1b00000000${expHex.slice(2)}`), 'UCAN_MALFORMED'],
  ['a map key twice', patched(`64${hexText('type')}`, `64${hexText('room')}`), 'UCAN_MALFORMED'],
  ['arrays nested 3,000 deep', wrap(Buffer.alloc(3_000, 0x81)), 'UCAN_MALFORMED'],
  ['a length header of 2^32', wrap(Buffer.from('9affffffff', 'hex')), 'UCAN_MALFORMED'],
  ['a length header of 2^53', wrap(Buffer.from('bb0020000000000000', 'hex')), 'UCAN_MALFORMED'],
  ['an indefinite map', wrap(Buffer.from('bfff', 'hex')), 'UCAN_MALFORMED'],
  ['undefined', wrap(Buffer.from('f7', 'hex')), 'UCAN_MALFORMED'],
  ['a list instead of a map', wrap(dagCbor.encode([1])), 'UCAN_MALFORMED'],
  ['null', wrap(dagCbor.encode(null)), 'UCAN_MALFORMED'],
  // time
  ['no expiry', custom({ expiration: Infinity }), 'TOKEN_LIVES_TOO_LONG'],
  ['an expiry in milliseconds', custom({ expiration: TS }), 'TOKEN_LIVES_TOO_LONG'],
  ['an expiry in the year 2100', custom({ expiration: 4_102_444_800 }), 'TOKEN_LIVES_TOO_LONG'],
  ['an expiry of 1e300', reEncoded(token, (m) => (m['exp'] = 1e300)), 'UCAN_MALFORMED'],
  ['an expiry with a fraction', reEncoded(token, (m) => (m['exp'] = 1.5)), 'UCAN_MALFORMED'],
  ['an expiry before 1970', custom({ expiration: -1 }), 'UCAN_MALFORMED'],
  ['a missing expiry', reEncoded(token, (m) => delete m['exp']), 'UCAN_MALFORMED'],
  ['a start in milliseconds', custom({ notBefore: TS }), 'UCAN_MALFORMED'],
  // abilities and resources
  ['no capability', custom({ capabilities: [] }), 'BAD_CAPABILITY'],
  [
    'nine capabilities',
    custom({ capabilities: Array.from({ length: 9 }, (_, n) => ({ can: `a/b${n}`, with: alice.did })) }),
    'BAD_CAPABILITY',
  ],
  [
    'a capability twice',
    custom({
      capabilities: [
        { can: 'a/b', with: alice.did },
        { can: 'a/b', with: alice.did },
      ],
    }),
    'BAD_CAPABILITY',
  ],
  ['a fourth key in a capability', withCap({ can: 'a/b', with: alice.did, x: 1 }), 'BAD_CAPABILITY'],
  ['ucan/attest', custom({ capabilities: [{ can: 'ucan/attest', with: alice.did }] }), 'BAD_CAPABILITY'],
  ['ucan/*', custom({ capabilities: [{ can: 'ucan/*', with: alice.did }] }), 'BAD_CAPABILITY'],
  ['everything the issuer has', custom({ capabilities: [{ can: '*', with: 'ucan:*' }] }), 'BAD_CAPABILITY'],
  ['half a wildcard', custom({ capabilities: [{ can: 'oracle/c*', with: alice.did }] }), 'BAD_CAPABILITY'],
  ['a space after the ability', custom({ capabilities: [{ can: 'oracle/message ', with: alice.did }] }), 'BAD_CAPABILITY'],
  ['an ability without a segment', withCap({ can: 'oracle', with: alice.did }), 'UCAN_MALFORMED'],
  ['a NUL in the resource', custom({ capabilities: [{ can: 'a/b', with: 'ixo:oracle:bot\0' }] }), 'BAD_CAPABILITY'],
  ['a space before the resource', custom({ capabilities: [{ can: 'a/b', with: ' ixo:oracle:bot' }] }), 'BAD_CAPABILITY'],
  ['a line break in the scheme', custom({ capabilities: [{ can: 'a/b', with: 'i\nxo:oracle:bot' }] }), 'BAD_CAPABILITY'],
  ['a scheme in capitals', custom({ capabilities: [{ can: 'a/b', with: 'IXO:oracle:bot' }] }), 'BAD_CAPABILITY'],
  ['a Cyrillic letter', custom({ capabilities: [{ can: 'a/b', with: 'ixo:оracle:bot' }] }), 'BAD_CAPABILITY'],
  // nb, facts, nonce
  ['nb that is a list', withNb([1]), 'UCAN_MALFORMED'],
  ['nb that is null', withNb(null), 'UCAN_MALFORMED'],
  [
    'nb nested past the limit',
    custom({ capabilities: [{ can: 'a/b', with: alice.did, nb: nested(LIMITS.nbDepth + 1) }] }),
    'UCAN_MALFORMED',
  ],
  [
    'a string past the limit in nb',
    custom({ capabilities: [{ can: 'a/b', with: alice.did, nb: { a: 'x'.repeat(LIMITS.nbStringChars + 1) } }] }),
    'UCAN_MALFORMED',
  ],
  ['a number past 2^53 in nb', patched(`1b${TS.toString(16).padStart(16, '0')}`, '1bffffffffffffffff'), 'UCAN_MALFORMED'],
  ['nine facts', custom({ facts: Array.from({ length: 9 }, (_, n) => ({ n })) }), 'UCAN_MALFORMED'],
  ['a fact that is a list', reEncoded(token, (m) => (m['fct'] = [[1]])), 'UCAN_MALFORMED'],
  ['a nonce with a NUL', custom({ nonce: 'abc\0' }), 'UCAN_MALFORMED'],
  ['a nonce of 200 characters', custom({ nonce: 'x'.repeat(200) }), 'UCAN_MALFORMED'],
  ['an empty nonce, which the signed text leaves out', reEncoded(custom({ nonce: '' }), (m) => (m['nnc'] = '')), 'UCAN_MALFORMED'],
  ['a nonce that is a number', reEncoded(token, (m) => (m['nnc'] = 1)), 'UCAN_MALFORMED'],
  // keys and signatures
  ['an issuer whose key is the identity point', reEncoded(token, (m) => (m['iss'] = IDENTITY_KEY)), 'BAD_ISSUER'],
  ['an issuer whose key is zero', reEncoded(token, (m) => (m['iss'] = ZERO_KEY)), 'BAD_ISSUER'],
  ['an issuer with a P-256 key', reEncoded(token, (m) => (m['iss'] = P256_KEY)), 'BAD_ISSUER'],
  ['an issuer key with a byte more', reEncoded(token, (m) => (m['iss'] = Uint8Array.from([...m['iss'], 0]))), 'BAD_ISSUER'],
  ['an issuer of did:ixo that nobody resolves', reEncoded(token, (m) => (m['iss'] = didCore('ixo:ixo1abc'))), 'DID_NOT_RESOLVED'],
  ['an issuer of did:web', reEncoded(token, (m) => (m['iss'] = didCore('web:127.0.0.1%3A8008'))), 'BAD_ISSUER'],
  ['an empty issuer', reEncoded(token, (m) => (m['iss'] = new Uint8Array())), 'UCAN_MALFORMED'],
  ['an audience with a fragment', reEncoded(token, (m) => (m['aud'] = didCore('ixo:x#key-1'))), 'BAD_AUDIENCE'],
  ['an audience in capitals', reEncoded(token, (m) => (m['aud'] = didCore('ixo:IXO1'))), 'BAD_AUDIENCE'],
  ['an audience of method __proto__', reEncoded(token, (m) => (m['aud'] = didCore('__proto__:x'))), 'BAD_AUDIENCE'],
  ['an audience with a NUL', reEncoded(token, (m) => (m['aud'] = didCore('ixo:x\0'))), 'BAD_AUDIENCE'],
  ['an audience without an id', reEncoded(token, (m) => (m['aud'] = didCore('ixo:'))), 'BAD_AUDIENCE'],
  ['the signature of another algorithm', reEncoded(token, (m) => (m['s'] = otherAlgorithm(m['s']))), 'BAD_SIGNATURE'],
  ['a non-standard signature', reEncoded(token, (m) => (m['s'] = Uint8Array.from(Buffer.from('80a00300', 'hex')))), 'BAD_SIGNATURE'],
  ['half a signature', reEncoded(token, (m) => (m['s'] = half(m['s']))), 'UCAN_MALFORMED'],
  ['a signature that is text', reEncoded(token, (m) => (m['s'] = 'x')), 'UCAN_MALFORMED'],
  ['a signature of zeros', reEncoded(token, (m) => void m['s'].fill(0, 4)), 'BAD_SIGNATURE'],
  ['a signature with S + L', reEncoded(token, (m) => (m['s'] = plusOrder(m['s']))), 'BAD_SIGNATURE'],
  ['another nb under the same signature', withNb({ ...NB, ...padding }), 'BAD_SIGNATURE'],
  ['another audience under the same signature', reEncoded(token, (m) => (m['aud'] = didCore('ixo:ixo1other'))), 'BAD_SIGNATURE'],
];

function plusOrder(signature: Uint8Array): Uint8Array {
  const order = 2n ** 252n + 27742317777372353535851937790883648493n;
  const s = [...signature.slice(36)].reduceRight((sum, byte) => sum * 256n + BigInt(byte), 0n) + order;
  return Uint8Array.from([...signature.slice(0, 36), ...Array.from({ length: 32 }, (_, n) => Number((s >> BigInt(8 * n)) & 255n))]);
}

describe('hostile tokens', () => {
  test.each(hostile)('%s is refused (G14)', async (_name, input, code) => {
    expect(await outcome(input as string)).toBe(code);
  });

  test('the self-reference is seen by its hash, before anything follows the link', () => {
    expect(readCar(carBytes(selfReferencing()))).toEqual({ ok: false, error: 'CID_MISMATCH' });
  });

  test('the honest twins of the patched tokens pass', async () => {
    expect(await outcome(wrap(leaf))).toBe('accepted');
    expect(await outcome(reEncoded(token, () => undefined))).toBe('accepted');
    expect(await outcome(custom({ facts: [{ a: 1 }], notBefore: TS / 1000 }))).toBe('accepted');
    expect(await outcome(custom({ expiration: 4_102_444_799 }))).toBe('accepted');
    expect(await outcome(custom({ nonce: '' }))).toBe('accepted');
    expect(await outcome(custom({ capabilities: [{ can: 'a/b', with: alice.did, nb: nested(LIMITS.nbDepth) }] }))).toBe('accepted');
    expect(await outcome(custom({ capabilities: [{ can: '*', with: 'ixo:oracle', nb: { a: 'x'.repeat(LIMITS.nbStringChars) } }] }))).toBe(
      'accepted',
    );
  });
});

describe('any input', () => {
  test('random bytes and random text are refused with a code, never thrown (G14)', () => {
    fc.assert(
      fc.property(
        fc.oneof(
          fc.uint8Array({ maxLength: 5_000 }).map((b) => Buffer.from(b).toString('base64url')),
          fc.string({ unit: 'binary' }),
        ),
        (text) => {
          expect(gateInvocation(text).ok).toBe(false);
        },
      ),
      { numRuns: 2_000 },
    );
  });

  test('any other bytes of the file are refused by the gate (G14)', () => {
    fc.assert(
      fc.property(fc.array(fc.tuple(fc.nat(car.length - 1), fc.integer({ min: 1, max: 255 })), { minLength: 1, maxLength: 4 }), (flips) => {
        const changed = Buffer.from(car);
        for (const [at, bits] of flips) changed[at]! ^= bits;
        fc.pre(!changed.equals(car));
        expect(gateInvocation(changed.toString('base64url')).ok).toBe(false);
      }),
      { numRuns: 3_000 },
    );
  });

  test('any other block under a fitting hash is refused by the gate or by its signature (G8, G14)', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(fc.tuple(fc.nat(leaf.length - 1), fc.integer({ min: 1, max: 255 })), { minLength: 1, maxLength: 3 }),
        fc.option(fc.tuple(fc.nat(leaf.length), fc.uint8Array({ minLength: 1, maxLength: 8 })), { nil: undefined }),
        async (flips, insert) => {
          let changed = Buffer.from(leaf);
          for (const [at, bits] of flips) changed[at]! ^= bits;
          if (insert !== undefined) changed = Buffer.concat([changed.subarray(0, insert[0]), insert[1], changed.subarray(insert[0])]);
          fc.pre(!changed.equals(leaf));
          expect(await outcome(wrap(changed))).not.toBe('accepted');
        },
      ),
      { numRuns: 3_000 },
    );
  });

  test('any CBOR value in place of a field is refused (G8, G14)', async () => {
    const value = fc.oneof(
      fc.jsonValue(),
      fc.uint8Array({ maxLength: 80 }),
      fc.maxSafeInteger(),
      fc.double({ noNaN: true, noDefaultInfinity: true }),
    );
    await fc.assert(
      fc.asyncProperty(
        fc.constantFrom('v', 's', 'iss', 'aud', 'att', 'prf', 'exp', 'fct', 'nnc', 'nbf', 'x'),
        value,
        async (field, replacement) => {
          const changed = reEncoded(token, (m) => (m[field] = replacement));
          fc.pre(changed !== token);
          expect(await outcome(changed)).not.toBe('accepted');
        },
      ),
      { numRuns: 2_000 },
    );
  });

  test('blocks in another order, twice or with others between are refused (G14)', () => {
    const extra = dagCbor.encode({ extra: true });
    fc.assert(
      fc.property(fc.array(fc.constantFrom<Uint8Array>(leaf, root, extra), { maxLength: 10 }), (blocks) => {
        fc.pre(!(blocks.length === 2 && blocks[0] === leaf && blocks[1] === root));
        expect(gateInvocation(buildCar(root, blocks).toString('base64url')).ok).toBe(false);
      }),
      { numRuns: 500 },
    );
  });
});

test.each<[string, unknown]>([
  ['nothing', undefined],
  ['null', null],
  ['a number', 7],
  ['text', 'text'],
  ['a list', [1, 2, 3]],
  ['something with a length', { length: 100 }],
  ['a buffer without a view', new ArrayBuffer(100)],
  ['a view of another kind', new Uint16Array(100)],
])('%s instead of bytes is refused, not thrown (G14)', (_name, value) => {
  expect(gateBytes(value as Uint8Array, 4_096)).toEqual({ ok: false, error: 'UCAN_MALFORMED' });
});
