/** research/ucan.md §3.2 G (keys and signatures) to O, the replay matrix of §3.4, and honest tokens. */
import {
  actingGrant,
  alice,
  altered,
  bob,
  DAY,
  EVENT,
  hex,
  ixoAlice,
  ixoDocument,
  mallory,
  message,
  NB,
  nonce,
  oracle,
  other,
  ROOM,
  rows,
  S,
  SENDER,
  session,
  sessionGrant,
  spoken,
  stored,
  TS,
  type Vector,
} from '../cast.ts';
import {
  absentee,
  base58btc,
  car,
  cidOf,
  didCore,
  didKey,
  didSigner,
  encode,
  file,
  keySigner,
  type Model,
  type Signer,
  section,
  sha256,
  type Ucan,
  ucan,
  variant,
  varint,
} from '../wire.ts';

const SMALL_ORDER = [
  '0000000000000000000000000000000000000000000000000000000000000000',
  '0100000000000000000000000000000000000000000000000000000000000000',
  'ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f',
  '26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05',
  '26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc85',
  'c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a',
  'c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03fa',
  '0000000000000000000000000000000000000000000000000000000000000080',
];
const NOT_CANONICAL = [
  'edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f',
  'eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff',
];
const ORDER = 2n ** 252n + 27742317777372353535851937790883648493n;

/** R = the identity and S = 0 verify under a key of small order, whatever the message. */
function weakSigner(publicKey: string): Signer {
  const key = Buffer.from(publicKey, 'hex');
  const principal = Buffer.concat([Buffer.from('ed01', 'hex'), key]);
  const signature = Buffer.concat([Buffer.from('eda10340', 'hex'), Buffer.from(SMALL_ORDER[1] as string, 'hex'), Buffer.alloc(32)]);
  return { did: didKey(principal), principal, publicKey: key, algorithm: 'EdDSA', varsig: () => signature };
}
/** A did:key of another kind of key. */
function foreign(code: number, key: Uint8Array): Signer {
  const principal = Buffer.concat([varint(code), key]);
  return { ...keySigner('alice'), did: didKey(principal), principal };
}
const signed = (change: (signature: Buffer) => Buffer): Ucan =>
  altered(message, (m: Model) => (m['s'] = change(Buffer.from(m['s'] as Buffer))));
function plusOrder(s: Buffer): Buffer {
  let n = BigInt(`0x${Buffer.from(s.subarray(36)).reverse().toString('hex')}`) + ORDER;
  const bytes = Buffer.alloc(32);
  for (let at = 0; at < 32; at += 1, n >>= 8n) bytes[at] = Number(n & 255n);
  return Buffer.concat([s.subarray(0, 36), bytes]);
}
const document = (keys: readonly string[]) => ({ didDocuments: { [ixoAlice.did]: { keys, homeserver: 'example.org' } } });
const IXO_SENDER = '@did-ixo-ixo1alice:example.org';
const ixoEvent = (sender = IXO_SENDER) => ({ event: { ...EVENT, sender } });
const ixoMessage = (change = {}, sender = IXO_SENDER): Ucan => message({ issuer: ixoAlice, nb: { ...NB, sender }, ...change });

export const keys = (): Vector[] =>
  rows(
    'G',
    {
      ...{ name: 'document-of-many-keys', what: 'the key that signed stands behind others', token: ixoMessage(), expect: 'ok' },
      context: { ...ixoEvent(), ...document([hex(keySigner('a').publicKey), hex(keySigner('b').publicKey), hex(ixoAlice.publicKey)]) },
    },
    {
      ...{ name: 'document-without-the-key', what: 'none of its keys signed', token: ixoMessage(), expect: 'BAD_SIGNATURE' },
      context: { ...ixoEvent(), ...document([hex(keySigner('a').publicKey), hex(keySigner('b').publicKey)]) },
    },
    {
      ...{ name: 'document-with-a-weak-key', what: 'a key of small order in the document signs everything', expect: 'BAD_SIGNATURE' },
      token: ixoMessage({ issuer: { ...weakSigner(SMALL_ORDER[1] as string), did: ixoAlice.did, principal: ixoAlice.principal } }),
      context: { ...ixoEvent(), ...document([SMALL_ORDER[1] as string]) },
    },
    {
      name: 'did-key-p256',
      what: 'an issuer with a P-256 key',
      token: message({ issuer: foreign(0x1200, Buffer.alloc(33, 2)) }),
      expect: 'BAD_ISSUER',
    },
    {
      name: 'did-key-secp256k1',
      what: 'an issuer with a secp256k1 key',
      token: message({ issuer: foreign(0xe7, Buffer.alloc(33, 2)) }),
      expect: 'BAD_ISSUER',
    },
    {
      name: 'did-key-bls',
      what: 'an issuer with a BLS key',
      token: message({ issuer: foreign(0xea, Buffer.alloc(48, 2)) }),
      expect: 'BAD_ISSUER',
    },
    {
      name: 'did-key-rsa',
      what: 'an issuer with an RSA key, which the stock verifier takes',
      token: message({ issuer: foreign(0x1205, Buffer.alloc(270, 2)) }),
      expect: 'BAD_ISSUER',
    },
    {
      name: 'did-key-x25519',
      what: 'an issuer with a key for key agreement',
      token: message({ issuer: foreign(0xec, Buffer.alloc(32, 2)) }),
      expect: 'UCAN_MALFORMED',
    },
    {
      name: 'did-key-short',
      what: 'a key of 31 bytes',
      token: message({ issuer: foreign(0xed, Buffer.alloc(31, 2)) }),
      expect: 'BAD_ISSUER',
    },
    {
      name: 'did-key-long',
      what: 'a key of 33 bytes',
      token: message({ issuer: foreign(0xed, Buffer.alloc(33, 2)) }),
      expect: 'BAD_ISSUER',
    },
    {
      name: 'audience-p256',
      what: 'an audience with a P-256 key',
      token: message({ audience: foreign(0x1200, Buffer.alloc(33, 2)) }),
      expect: 'BAD_AUDIENCE',
    },
    { name: 's-plus-l', what: 'the second S of the same signature', token: signed(plusOrder), expect: 'BAD_SIGNATURE' },
    {
      name: 's-all-ones',
      what: 'an S far past L',
      token: signed((s) => Buffer.concat([s.subarray(0, 36), Buffer.alloc(32, 0xff)])),
      expect: 'BAD_SIGNATURE',
    },
    { name: 'signature-truncated', what: 'half a signature', token: signed((s) => s.subarray(0, 36)), expect: 'UCAN_MALFORMED' },
    {
      name: 'signature-63-bytes',
      what: 'a byte short, and it says so',
      token: signed((s) => Buffer.concat([Buffer.from('eda1033f', 'hex'), s.subarray(4, 67)])),
      expect: 'BAD_SIGNATURE',
    },
    {
      name: 'signature-zeros',
      what: 'a signature of zeros',
      token: signed((s) => Buffer.concat([s.subarray(0, 4), Buffer.alloc(64)])),
      expect: 'BAD_SIGNATURE',
    },
    {
      name: 'signature-other-algorithm',
      what: 'the code of ES256K before it',
      token: signed((s) => Buffer.concat([Buffer.from('e7a10340', 'hex'), s.subarray(4)])),
      expect: 'BAD_SIGNATURE',
    },
    { name: 'signature-empty', what: 'no bytes', token: signed(() => Buffer.alloc(0)), expect: 'UCAN_MALFORMED' },
    {
      name: 'signature-of-another',
      what: "bob's signature under alice's name",
      token: message({ issuer: { ...alice, varsig: bob.varsig } }),
      expect: 'BAD_SIGNATURE',
    },
    {
      name: 'signature-bit',
      what: 'one bit of the signature',
      token: signed((s) => Buffer.concat([s.subarray(0, 40), Buffer.of((s[40] as number) ^ 1), s.subarray(41)])),
      expect: 'BAD_SIGNATURE',
    },
    {
      name: 'proof-signature-bit',
      what: 'one bit of the signature of a proof',
      token: spoken(altered(sessionGrant, (m) => ((m['s'] as Buffer)[40]! ^= 1))),
      expect: 'BAD_SIGNATURE',
    },
    ...SMALL_ORDER.map((key, n) => ({
      ...{
        name: `small-order-${n}`,
        what: 'a public key under which every message has a signature',
        token: message({ issuer: weakSigner(key) }),
        expect: 'BAD_ISSUER',
      },
    })),
    ...SMALL_ORDER.slice(0, 3).map((key, n) => ({
      ...{ name: `small-order-proof-${n}`, what: 'the same one link up', expect: 'BAD_ISSUER' },
      token: spoken(sessionGrant({ issuer: weakSigner(key) }), { with: weakSigner(key).did }),
    })),
    ...NOT_CANONICAL.map((key, n) => ({
      ...{
        name: `not-canonical-key-${n}`,
        what: 'a y past p: a second spelling of a key',
        token: message({ issuer: weakSigner(key) }),
        expect: 'BAD_ISSUER',
      },
    })),
  );

export const nonStandard = (): Vector[] =>
  rows(
    'H',
    {
      name: 'absentee-did-ixo',
      what: 'a did:ixo that signs nothing',
      token: ixoMessage({ issuer: absentee(ixoAlice) }),
      context: { ...ixoEvent(), ...ixoDocument() },
      expect: 'BAD_SIGNATURE',
    },
    {
      name: 'absentee-did-mailto',
      what: 'a did:mailto that signs nothing',
      token: message({ issuer: absentee(didSigner('did:mailto:example.org:alice', 'x')) }),
      expect: 'BAD_SIGNATURE',
    },
    {
      name: 'absentee-did-key',
      what: 'a did:key that signs nothing',
      token: message({ issuer: absentee(alice) }),
      expect: 'BAD_SIGNATURE',
    },
    {
      name: 'absentee-authority',
      what: 'the oracle itself, absent',
      token: message({ issuer: absentee(oracle) }),
      expect: 'BAD_SIGNATURE',
    },
    {
      name: 'absentee-proof',
      what: 'alice, absent, grants mallory',
      token: message({ issuer: mallory, with: alice.did, prf: [sessionGrant({ issuer: absentee(alice), audience: mallory })] }),
      expect: 'BAD_SIGNATURE',
    },
    {
      name: 'did-mailto-signed',
      what: 'a did:mailto with a signature',
      token: message({ issuer: didSigner('did:mailto:example.org:alice', 'x') }),
      expect: 'BAD_ISSUER',
    },
  );

/** Texts that begin like a DID and are none that may sign. */
export const DID_STRINGS: readonly (readonly [name: string, did: string])[] = [
  ['fragment', 'did:ixo:ixo1alice#key-1'],
  ['query', 'did:ixo:ixo1alice?a=b'],
  ['path', 'did:ixo:ixo1alice/x'],
  ['capitals', 'did:ixo:IXO1ALICE'],
  ['trailing-space', 'did:ixo:ixo1alice '],
  ['leading-space', 'did: ixo:ixo1alice'],
  ['nul', 'did:ixo:ixo1alice\0'],
  ['line-break', 'did:ixo:ixo1alice\n'],
  ['no-id', 'did:ixo:'],
  ['empty-part', 'did:ixo:a::b'],
  ['no-method', 'did:'],
  ['only-method', 'did:ixo'],
  ['homoglyph', 'did:ixo:іxo1alice'],
  ['proto', 'did:__proto__:x'],
  ['percent', 'did:ixo:ixo1%61lice'],
  ['key-in-other-case', `did:KEY:${base58btc(alice.principal)}`],
  ['did-in-did', 'did:did:ixo:ixo1alice'],
  ['graphql', 'did:ixo:ixo1"}}){nodes{id}}'],
  ['long', `did:ixo:${'a'.repeat(300)}`],
  ['pkh', 'did:pkh:eip155:1:0xab16a96D359eC26a11e2C2b3d8f8B8942d5Bfcdb'],
];
export const didStrings = (): Vector[] =>
  rows(
    'I',
    ...DID_STRINGS.flatMap(([name, did]) => [
      {
        name: `issuer-${name}`,
        what: `issuer ${JSON.stringify(did.slice(0, 60))}`,
        token: message({ issuer: didSigner(did, 'x') }),
        expect: 'BAD_ISSUER',
      },
      {
        name: `audience-${name}`,
        what: `audience ${JSON.stringify(did.slice(0, 60))}`,
        token: message({ audience: didSigner(did, 'x') }),
        expect: 'BAD_AUDIENCE',
      },
    ]),
    {
      name: 'issuer-did-url',
      what: 'the key of a did:key with its fragment',
      token: message({ issuer: didSigner(`${alice.did}#${alice.did.slice(8)}`, 'alice') }),
      expect: 'BAD_ISSUER',
    },
    {
      name: 'issuer-empty',
      what: 'no issuer bytes',
      token: altered(message, (m) => (m['iss'] = Buffer.alloc(0))),
      expect: 'UCAN_MALFORMED',
    },
    { name: 'issuer-text', what: 'an issuer as text', token: altered(message, (m) => (m['iss'] = alice.did)), expect: 'UCAN_MALFORMED' },
    {
      name: 'issuer-invalid-utf8',
      what: 'a DID that is no UTF-8',
      token: altered(message, (m) => (m['iss'] = Buffer.concat([didCore('did:ixo:a'), Buffer.of(0xc3, 0x28)]))),
      expect: 'BAD_ISSUER',
    },
    {
      name: 'issuer-did-ixo',
      what: 'the honest twin',
      token: ixoMessage(),
      context: { ...ixoEvent(), ...ixoDocument() },
      expect: 'ok',
      gives: { principal: ixoAlice.did },
    },
  );

export const WEB_DIDS: readonly (readonly [name: string, did: string])[] = [
  ['loopback', 'did:web:127.0.0.1%3A8008'],
  ['metadata', 'did:web:169.254.169.254'],
  ['parents', 'did:web:evil.com:..:..:secret'],
  ['dot', 'did:web:evil.com:.'],
  ['slash', 'did:web:evil.com:%2f%2fetc'],
  ['upper-percent', 'did:web:EVIL.com'],
  ['localhost', 'did:web:localhost'],
  ['ipv6', 'did:web:[::1]'],
  ['decimal-address', 'did:web:2130706433'],
  ['user', 'did:web:user@evil.com'],
  ['host', 'did:web:evil.example.org'],
  ['path', 'did:web:evil.example.org:users:alice'],
];
export const didWeb = (): Vector[] =>
  rows(
    'J',
    ...WEB_DIDS.map(([name, did]) => ({
      ...{
        name: `issuer-${name}`,
        what: `${did} is never asked: no person is a did:web`,
        token: message({ issuer: didSigner(did, 'x') }),
        expect: 'BAD_ISSUER',
      },
    })),
    {
      ...{ name: 'proof-issuer', what: 'one link up', expect: 'BAD_ISSUER' },
      token: spoken(sessionGrant({ issuer: didSigner('did:web:evil.example.org', 'x'), with: 'did:web:evil.example.org' }), {
        with: 'did:web:evil.example.org',
      }),
    },
    {
      ...{ name: 'grant-issuer', what: 'in a grant', as: 'grant', expect: 'BAD_ISSUER' },
      token: actingGrant({ issuer: didSigner('did:web:evil.example.org', 'x') }),
    },
    {
      name: 'audience-other-service',
      what: 'a service as audience',
      token: message({ audience: didSigner('did:web:evil.example.org', 'x') }),
      expect: 'BAD_AUDIENCE',
    },
    {
      name: 'audience-parents',
      what: 'a path as audience',
      token: message({ audience: didSigner('did:web:evil.com:..:secret', 'x') }),
      expect: 'BAD_AUDIENCE',
    },
  );

export const alignment = (): Vector[] => {
  const sameKey = { ...keySigner('bob as ixo'), did: 'did:ixo:ixo1bob', principal: didCore('did:ixo:ixo1bob') };
  return rows(
    'K',
    {
      ...{ name: 'key-then-ixo', what: 'granted to the did:key, used by the did:ixo of that key', expect: 'BROKEN_CHAIN' },
      token: message({ issuer: sameKey, with: alice.did, prf: [sessionGrant({ audience: keySigner('bob as ixo') })] }),
      context: ixoDocument(sameKey),
    },
    {
      ...{ name: 'ixo-then-key', what: 'granted to the did:ixo, used by the did:key of that key', expect: 'BROKEN_CHAIN' },
      token: message({ issuer: keySigner('bob as ixo'), with: alice.did, prf: [sessionGrant({ audience: sameKey })] }),
      context: ixoDocument(sameKey),
    },
    {
      ...{ name: 'key-then-ixo-beside', what: 'the same with the proof in `dlg`', expect: 'BROKEN_CHAIN' },
      ...linked(sessionGrant({ audience: keySigner('bob as ixo') }), (links) => message({ issuer: sameKey, with: alice.did, links })),
      context: ixoDocument(sameKey),
    },
    {
      name: 'proof-for-another',
      what: 'a grant to the session key used by mallory',
      token: message({ issuer: mallory, with: alice.did, prf: [sessionGrant()] }),
      expect: 'BROKEN_CHAIN',
    },
    {
      ...{ name: 'proof-for-another-beside', what: 'the same with the proof in `dlg`', expect: 'BROKEN_CHAIN' },
      ...linked(sessionGrant(), (links) => message({ issuer: mallory, with: alice.did, links })),
    },
    {
      ...{ name: 'proof-for-another-stored', what: 'the same with the proof in the store', expect: 'BROKEN_CHAIN' },
      ...(() => {
        const grant = sessionGrant();
        return { token: message({ issuer: mallory, with: alice.did, links: [grant.cid] }), context: stored(grant) };
      })(),
    },
    {
      ...{ name: 'broken-in-the-middle', what: 'two links up the audience is somebody else', expect: 'BROKEN_CHAIN' },
      token: spoken(sessionGrant({ issuer: bob, with: alice.did, prf: [sessionGrant({ audience: mallory })] })),
    },
    {
      ...{ name: 'principal-is-the-did-that-was-granted', what: 'with did:ixo, signed by the did:key of that key', expect: 'BAD_ISSUER' },
      token: message({ issuer: keySigner('ixo alice'), with: ixoAlice.did }),
      context: ixoDocument(),
    },
  );
};
function linked(grant: Ucan, make: (links: readonly Buffer[]) => Ucan) {
  return { token: make([grant.cid]), beside: [encode(grant)] };
}

/** A statement of the oracle "this token is really of that account", as ucanto's validator takes it. */
const attest = (issuer: Signer, audience: Signer, of: Uint8Array, change = {}): Ucan =>
  ucan({
    ...{ issuer, audience, att: [{ can: 'ucan/attest', with: oracle.did, nb: { proof: hex(of) } }], exp: S + DAY, nnc: nonce() },
    ...change,
  });

export const attestation = (): Vector[] => {
  const forged = sessionGrant({ issuer: absentee(alice), audience: mallory });
  const wide = (can: string, resource: string): Ucan =>
    ucan({ issuer: oracle, audience: mallory, att: [{ can, with: resource }], exp: S + DAY, nnc: nonce() });
  const speak = (...proofs: Ucan[]) => message({ issuer: mallory, with: alice.did, prf: proofs });
  const relabelled = (() => {
    const genuine = sessionGrant({ audience: mallory, issuer: bob, with: bob.did });
    const said = message({ issuer: mallory, with: alice.did, links: [genuine.cid] });
    const v = variant(said.cid);
    return car([cidOf(v)], [section(forged.block, genuine.cid), section(said.block), section(v)]);
  })();
  return rows(
    'L',
    {
      name: 'attested-by-the-oracle',
      what: 'a real attestation of the oracle for a forged token',
      token: speak(forged, attest(oracle, mallory, forged.cid)),
      expect: 'BAD_SIGNATURE',
    },
    {
      name: 'attestation-first',
      what: 'the attestation before the forged token',
      token: speak(attest(oracle, mallory, forged.cid), forged),
      expect: 'BAD_CAPABILITY',
    },
    {
      name: 'attested-under-everything',
      what: 'the oracle granted mallory `*` on itself',
      token: speak(attest(mallory, mallory, forged.cid, { prf: [wide('*', oracle.did)] }), forged),
      expect: 'BAD_CAPABILITY',
    },
    {
      name: 'attested-under-ucan',
      what: 'the oracle granted mallory `ucan/*`',
      token: speak(attest(mallory, mallory, forged.cid, { prf: [wide('ucan/*', oracle.did)] }), forged),
      expect: 'BAD_CAPABILITY',
    },
    {
      name: 'attested-under-all-resources',
      what: 'the oracle granted mallory `*` on ucan:*',
      token: speak(attest(mallory, mallory, forged.cid, { prf: [wide('*', 'ucan:*')] }), forged),
      expect: 'BAD_CAPABILITY',
    },
    {
      name: 'attested-under-oracle',
      what: 'the oracle granted mallory `oracle/*`',
      token: speak(attest(mallory, mallory, forged.cid, { prf: [wide('oracle/*', oracle.did)] }), forged),
      expect: 'BAD_CAPABILITY',
    },
    { name: 'attestation-alone', what: 'an attestation as `inv`', token: attest(mallory, oracle, forged.cid), expect: 'BAD_CAPABILITY' },
    {
      name: 'attestation-as-grant',
      what: 'an attestation as a grant',
      as: 'grant',
      token: attest(alice, oracle, forged.cid),
      expect: 'BAD_CAPABILITY',
    },
    {
      name: 'ucan-wildcard-grant',
      what: '`ucan/*` granted to the oracle',
      as: 'grant',
      token: actingGrant({ can: 'ucan/*' }),
      expect: 'BAD_CAPABILITY',
    },
    { name: 'ucan-in-capitals', what: 'UCAN/attest', as: 'grant', token: actingGrant({ can: 'UCAN/attest' }), expect: 'UCAN_MALFORMED' },
    { name: 'relabelled-body', what: 'a forged body under the CID that was attested', token: relabelled, expect: 'UCAN_MALFORMED' },
    {
      name: 'bogus-attestation-beside-a-good-grant',
      what: 'a good chain and a bad attestation in one file',
      token: message({ issuer: session, with: alice.did, prf: [sessionGrant(), attest(mallory, session, forged.cid)] }),
      expect: 'BAD_CAPABILITY',
    },
    {
      name: 'wide-grant-of-the-oracle',
      what: "the oracle's own `*` does not reach alice",
      token: speak(wide('*', oracle.did)),
      expect: 'NOT_DELEGATED',
    },
    { name: 'wide-grant-on-alice', what: 'the oracle grants `*` on alice', token: speak(wide('*', alice.did)), expect: 'NOT_DELEGATED' },
  );
};

export const roots = (): Vector[] => {
  const forged = sessionGrant({ issuer: { ...alice, varsig: mallory.varsig }, audience: mallory });
  return rows(
    'M',
    {
      name: 'forged-stapled-proof',
      what: 'mallory staples a grant that names alice and that alice never signed',
      token: message({ issuer: mallory, with: alice.did, prf: [forged] }),
      expect: 'BAD_SIGNATURE',
    },
    {
      ...{
        name: 'forged-proof-on-own-did',
        what: 'stapled to a message on her own DID: she is herself, and nobody else',
        token: message({ issuer: mallory, prf: [forged] }),
        expect: 'ok',
      },
      gives: { principal: mallory.did, grantsUntil: null },
    },
    {
      name: 'own-proof',
      what: 'mallory grants herself a right on alice',
      token: message({ issuer: mallory, with: alice.did, prf: [sessionGrant({ issuer: mallory, audience: mallory, with: alice.did })] }),
      expect: 'NOT_DELEGATED',
    },
    {
      name: 'did-prefix',
      what: 'did:ixo:ixo1a on a resource that begins like it',
      token: message({ issuer: didSigner('did:ixo:ixo1a', 'short'), with: 'did:ixo:ixo1abcdef' }),
      context: ixoDocument(didSigner('did:ixo:ixo1a', 'short')),
      expect: 'BAD_ISSUER',
    },
    {
      name: 'did-contained',
      what: 'a resource that contains the issuer',
      as: 'grant',
      token: actingGrant({ issuer: mallory, with: `did:ixo:x:${mallory.did.slice(8)}` }),
      expect: 'NOT_DELEGATED',
    },
    {
      name: 'root-in-the-middle',
      what: 'alice granted bob, mallory stands above',
      token: spoken(
        sessionGrant({ issuer: bob, with: alice.did, prf: [sessionGrant({ issuer: mallory, audience: bob, with: alice.did })] }),
      ),
      expect: 'NOT_DELEGATED',
    },
    {
      name: 'owner-without-proofs-needed',
      what: 'alice with a proof she does not need',
      token: message({ prf: [sessionGrant({ issuer: bob, audience: alice })] }),
      expect: 'ok',
      gives: { principal: alice.did },
    },
    {
      ...{ name: 'two-ways-one-forged', what: 'a forged proof beside an honest one: the honest one carries', expect: 'ok' },
      token: message({
        issuer: session,
        with: alice.did,
        prf: [sessionGrant({ issuer: { ...alice, varsig: mallory.varsig } }), sessionGrant()],
      }),
      gives: { principal: alice.did },
    },
    {
      ...{ name: 'two-principals-in-one-grant', what: 'one capability of alice, one of bob', as: 'grant', expect: 'NOT_DELEGATED' },
      token: actingGrant({
        att: [
          { can: 'a/b', with: alice.did },
          { can: 'a/b', with: bob.did },
        ],
      }),
    },
    {
      ...{ name: 'two-principals-both-proven', what: 'each with a proof of its own', as: 'grant', expect: 'NOT_DELEGATED' },
      token: ucan({
        ...{
          issuer: session,
          audience: oracle,
          att: [
            { can: 'a/b', with: alice.did },
            { can: 'a/b', with: bob.did },
          ],
          exp: S + DAY,
          nnc: nonce(),
        },
        prf: [actingGrant({ audience: session, can: 'a/b' }), actingGrant({ issuer: bob, audience: session, can: 'a/b' })],
      }),
    },
  );
};

export const revocation = (): Vector[] => {
  const grant = sessionGrant();
  const said = spoken(grant);
  const upper = sessionGrant({ audience: bob });
  const lower = sessionGrant({ issuer: bob, with: alice.did, prf: [upper] });
  const deep = spoken(lower);
  const taken = (id: string, by: Signer) => ({ revoked: [{ id, by: by.did }] });
  const acting = actingGrant();
  return rows(
    'N',
    {
      name: 'grant-by-token-id',
      what: 'the grant taken back by who gave it',
      token: said,
      context: taken(grant.tokenId, alice),
      expect: 'REVOKED',
    },
    { name: 'grant-by-cid', what: 'named by its CID', token: said, context: taken(hex(grant.cid), alice), expect: 'REVOKED' },
    {
      name: 'invocation-itself',
      what: 'the invocation taken back by its signer',
      token: said,
      context: taken(said.tokenId, session),
      expect: 'REVOKED',
    },
    {
      name: 'invocation-by-the-principal',
      what: 'the invocation taken back by the owner above',
      token: said,
      context: taken(said.tokenId, alice),
      expect: 'REVOKED',
    },
    {
      name: 'own-invocation',
      what: 'without proofs',
      token: ((own) => own)(ownMessage),
      context: taken(ownMessage.tokenId, alice),
      expect: 'REVOKED',
    },
    {
      name: 'by-a-stranger',
      what: 'mallory takes back what is not hers: nothing happens',
      token: said,
      context: taken(grant.tokenId, mallory),
      expect: 'ok',
    },
    {
      name: 'by-the-audience',
      what: 'the session key takes back the grant that it was given: not its to take',
      token: said,
      context: taken(grant.tokenId, session),
      expect: 'ok',
    },
    { name: 'upper-by-root', what: 'two links up, by the root', token: deep, context: taken(upper.tokenId, alice), expect: 'REVOKED' },
    { name: 'lower-by-root', what: 'the middle one, by the root', token: deep, context: taken(lower.tokenId, alice), expect: 'REVOKED' },
    {
      name: 'lower-by-its-issuer',
      what: 'the middle one, by who handed on',
      token: deep,
      context: taken(lower.tokenId, bob),
      expect: 'REVOKED',
    },
    {
      name: 'upper-by-who-is-below',
      what: 'the upper one by who stands below it: not his to take',
      token: deep,
      context: taken(upper.tokenId, bob),
      expect: 'ok',
    },
    {
      name: 'stored-proof',
      what: 'a stored grant',
      token: message({ issuer: session, with: alice.did, links: [grant.cid] }),
      context: { ...stored(grant), ...taken(grant.tokenId, alice) },
      expect: 'REVOKED',
    },
    {
      name: 'proof-beside',
      what: 'a grant in `dlg`',
      ...linked(grant, (links) => message({ issuer: session, with: alice.did, links })),
      context: taken(grant.tokenId, alice),
      expect: 'REVOKED',
    },
    {
      name: 'acting-grant',
      what: 'an acting grant brought again',
      as: 'grant',
      token: acting,
      context: taken(acting.tokenId, alice),
      expect: 'REVOKED',
    },
    {
      ...{ name: 'one-of-two-ways', what: 'another grant of the same right is left', expect: 'ok' },
      token: message({ issuer: session, with: alice.did, prf: [grant, sessionGrant()] }),
      context: taken(grant.tokenId, alice),
    },
    {
      name: 'revoked-and-expired',
      what: 'expired and revoked: the person can cure only one',
      token: spoken(expiredGrant),
      context: taken(expiredGrant.tokenId, alice),
      expect: 'GRANT_EXPIRED',
    },
  );
};
const ownMessage = message({ nnc: 'revoked-by-its-own-signer' });
const expiredGrant = sessionGrant({ exp: S - 3_600, nnc: 'revoked-and-expired' });

/** Checked and fine in the library; pinned, because they would be bad if they changed. */
export const fine = (): Vector[] =>
  rows(
    'O',
    {
      name: 'no-global-pollution',
      what: '`__proto__` leaves Object.prototype alone',
      token: altered(message, (m) => (m['fct'] = [{ constructor: { prototype: { polluted: true } } }])),
      expect: 'BAD_SIGNATURE',
    },
    {
      name: 'locale-independent',
      what: 'capital I with the rules of Turkish',
      token: message({ can: 'oracle/MIssage' }),
      expect: 'UCAN_MALFORMED',
    },
    { name: 'locale-independent-dotted', what: 'İ', token: message({ can: 'oracle/mİssage' }), expect: 'UCAN_MALFORMED' },
  );

export const replay = (): Vector[] => {
  const copied = message({ nnc: 'copied-out-of-the-room' });
  const grant = sessionGrant();
  const said = spoken(grant);
  const text = { msgtype: 'm.text', body: 'hello' };
  const request = (change = {}) =>
    message({
      nb: {
        sender: SENDER,
        room: ROOM,
        type: 'POST /messages/$s',
        hash: sha256('{}').toString('base64url'),
        ts: TS,
        thread: '$s',
        ...change,
      },
    });
  const posted = { request: { method: 'POST', path: '/messages/$s', body: '{}', session: '$s' } };
  const thread = message({ nb: { ...NB, thread: '$root' } });
  const edit = message({ nb: { ...NB, edits: '$first' } });
  return rows(
    'replay',
    {
      name: 'other-member-same-room',
      what: 'another member copies the content',
      token: copied,
      context: { event: { ...EVENT, sender: '@mallory:example.org' } },
      expect: 'WRONG_SENDER',
    },
    {
      name: 'same-user-other-room',
      what: 'the content is sent again in another room',
      token: copied,
      context: { event: { ...EVENT, room: '!other:example.org' } },
      expect: 'WRONG_ROOM',
    },
    {
      name: 'same-content-again',
      what: 'the same content is sent again',
      token: copied,
      context: { eventId: '$second', spent: [{ tokenId: copied.tokenId, on: '$first' }] },
      expect: 'REPLAY',
    },
    {
      name: 'same-event-again',
      what: 'the homeserver delivers the event again: no replay',
      token: copied,
      context: { eventId: '$first', spent: [{ tokenId: copied.tokenId, on: '$first' }] },
      expect: 'ok',
    },
    {
      name: 're-encoded',
      what: 'the file is re-encoded',
      token: altered(message, (m) => (m['junk'] = 1)),
      context: { spent: [{ tokenId: copied.tokenId, on: '$first' }] },
      expect: 'UCAN_MALFORMED',
    },
    {
      name: 'padded-spelling',
      what: 'the other accepted spelling of the text',
      token: file(copied).toString('base64'),
      context: { eventId: '$second', spent: [{ tokenId: copied.tokenId, on: '$first' }] },
      expect: 'REPLAY',
    },
    {
      name: 'edited-body',
      what: 'another text under the same token',
      token: copied,
      context: { event: { ...EVENT, content: { ...text, body: 'transfer everything' } } },
      expect: 'WRONG_CONTENT',
    },
    {
      name: 'added-field',
      what: 'a field more in the content',
      token: copied,
      context: { event: { ...EVENT, content: { ...text, format: 'x' } } },
      expect: 'WRONG_CONTENT',
    },
    {
      name: 'relation-added',
      what: 'm.relates_to is not part of the hash',
      token: copied,
      context: { event: { ...EVENT, content: { ...text, 'm.relates_to': {} } } },
      expect: 'ok',
    },
    {
      name: 'into-a-thread',
      what: 'a message of the room in a thread',
      token: copied,
      context: { event: { ...EVENT, thread: '$root' } },
      expect: 'WRONG_THREAD',
    },
    {
      name: 'other-thread',
      what: 'a message of one thread in another',
      token: thread,
      context: { event: { ...EVENT, thread: '$other' } },
      expect: 'WRONG_THREAD',
    },
    { name: 'out-of-its-thread', what: 'a message of a thread in the room', token: thread, expect: 'WRONG_THREAD' },
    { name: 'in-its-thread', what: 'the honest twin', token: thread, context: { event: { ...EVENT, thread: '$root' } }, expect: 'ok' },
    {
      name: 'as-an-edit',
      what: 'a message used as an edit',
      token: copied,
      context: { event: { ...EVENT, edits: '$first' } },
      expect: 'WRONG_EDIT',
    },
    {
      name: 'edit-of-another',
      what: 'an edit of another message',
      token: edit,
      context: { event: { ...EVENT, edits: '$other' } },
      expect: 'WRONG_EDIT',
    },
    { name: 'edit-as-a-message', what: 'an edit sent as a message', token: edit, expect: 'WRONG_EDIT' },
    {
      name: 'other-type',
      what: 'another type of event',
      token: copied,
      context: { event: { ...EVENT, type: 'm.reaction' } },
      expect: 'WRONG_TYPE',
    },
    {
      name: 'other-oracle',
      what: 'a second oracle in the same room',
      token: copied,
      context: { oracle: other.did },
      expect: 'BAD_AUDIENCE',
    },
    {
      name: 'other-time',
      what: 'the event is two minutes younger',
      token: copied,
      context: { event: { ...EVENT, originServerTs: TS + 120_000 }, now: TS + 120_500 },
      expect: 'WRONG_TIME',
    },
    {
      name: 'look-alike-server',
      what: '@did-ixo-…:evil.example, DID document names another',
      token: ixoMessage({}, '@did-ixo-ixo1alice:evil.example'),
      context: { ...ixoEvent('@did-ixo-ixo1alice:evil.example'), ...ixoDocument() },
      expect: 'WRONG_ACCOUNT',
    },
    {
      name: 'look-alike-name',
      what: 'a did:ixo under the name of another',
      token: ixoMessage({}, '@did-ixo-ixo1alicex:example.org'),
      context: { ...ixoEvent('@did-ixo-ixo1alicex:example.org'), ...ixoDocument() },
      expect: 'WRONG_ACCOUNT',
    },
    {
      name: 'ixo-on-a-plain-account',
      what: 'a did:ixo through a plain account',
      token: ixoMessage({}, SENDER),
      context: ixoDocument(),
      expect: 'WRONG_ACCOUNT',
    },
    {
      name: 'ixo-on-its-documents-server',
      what: 'on the server that its document names',
      token: ixoMessage({}, '@did-ixo-ixo1alice:home.example'),
      context: {
        ...ixoEvent('@did-ixo-ixo1alice:home.example'),
        didDocuments: { [ixoAlice.did]: { keys: [hex(ixoAlice.publicKey)], homeserver: 'home.example' } },
      },
      expect: 'ok',
    },
    { name: 'delegation-pasted', what: 'a grant to the oracle pasted as `inv`', token: actingGrant(), expect: 'BAD_CAPABILITY' },
    {
      name: 'after-revocation',
      what: 'the grant was taken back',
      token: said,
      context: { revoked: [{ id: grant.tokenId, by: alice.did }] },
      expect: 'REVOKED',
    },
    {
      name: 'after-expiry',
      what: 'an hour later, in an event of that time',
      token: copied,
      context: { event: { ...EVENT, originServerTs: TS + 3_600_000 }, now: TS + 3_600_500 },
      expect: 'WRONG_TIME',
    },
    {
      name: 'after-expiry-back-dated',
      what: 'an hour later, in an event dated back',
      token: copied,
      context: { now: TS + 3_600_500 },
      expect: 'TOKEN_EXPIRED',
    },
    {
      name: 'event-token-over-http',
      what: 'the token of an event as bearer',
      as: 'request',
      token: copied,
      context: posted,
      expect: 'WRONG_TYPE',
    },
    { name: 'request-honest', what: 'the honest twin', as: 'request', token: request(), context: posted, expect: 'ok' },
    {
      name: 'request-other-path',
      what: 'another path',
      as: 'request',
      token: request({ type: 'POST /messages/$t' }),
      context: posted,
      expect: 'WRONG_TYPE',
    },
    {
      name: 'request-other-method',
      what: 'another method',
      as: 'request',
      token: request({ type: 'DELETE /messages/$s' }),
      context: posted,
      expect: 'WRONG_TYPE',
    },
    {
      name: 'request-other-body',
      what: 'another body',
      as: 'request',
      token: request(),
      context: { request: { ...posted.request, body: '{"message":"x"}' } },
      expect: 'WRONG_CONTENT',
    },
    {
      name: 'request-other-session',
      what: 'another session',
      as: 'request',
      token: request({ thread: '$t' }),
      context: posted,
      expect: 'WRONG_THREAD',
    },
    {
      name: 'request-late',
      what: 'over HTTP there is no lateness',
      as: 'request',
      token: request(),
      context: { ...posted, now: TS + 400_000 },
      expect: 'TOKEN_EXPIRED',
    },
    { name: 'request-token-in-a-room', what: 'the bearer of a request as `inv`', token: request(), expect: 'WRONG_TYPE' },
  );
};

export const valid = (): Vector[] => {
  const grant = sessionGrant();
  const upper = sessionGrant({ audience: bob });
  const acting = actingGrant({
    att: [
      { can: 'memory/read', with: alice.did },
      { can: 'memory/write', with: alice.did, nb: { sender: SENDER } },
    ],
  });
  return rows(
    'valid',
    { name: 'signed-by-the-person', what: 'one link', token: message(), expect: 'ok', gives: { principal: alice.did, grantsUntil: null } },
    {
      name: 'session-key-proof-inside',
      what: 'two links, one file',
      token: spoken(grant),
      expect: 'ok',
      gives: { principal: alice.did, grantsUntil: (S + DAY) * 1_000 },
    },
    {
      name: 'session-key-proof-stored',
      what: 'two links, the grant known',
      token: message({ issuer: session, with: alice.did, links: [grant.cid] }),
      context: stored(grant),
      expect: 'ok',
      gives: { principal: alice.did },
    },
    {
      name: 'session-key-proof-beside',
      what: 'two links, the grant in `dlg`',
      ...linked(grant, (links) => message({ issuer: session, with: alice.did, links })),
      expect: 'ok',
      gives: { principal: alice.did },
    },
    {
      name: 'three-links',
      what: 'a grant handed on',
      token: spoken(sessionGrant({ issuer: bob, with: alice.did, prf: [upper] })),
      expect: 'ok',
      gives: { principal: alice.did },
    },
    {
      name: 'three-links-half-stored',
      what: 'the middle in the file, the top known',
      token: spoken(sessionGrant({ issuer: bob, with: alice.did, links: [upper.cid] })),
      context: stored(upper),
      expect: 'ok',
      gives: { principal: alice.did },
    },
    {
      name: 'did-ixo',
      what: 'a did:ixo signs itself',
      token: ixoMessage(),
      context: { ...ixoEvent(), ...ixoDocument() },
      expect: 'ok',
      gives: { principal: ixoAlice.did },
    },
    {
      name: 'did-ixo-session-key',
      what: 'the session key of a did:ixo',
      token: spoken(sessionGrant({ issuer: ixoAlice }), { with: ixoAlice.did, nb: { ...NB, sender: IXO_SENDER } }),
      context: { ...ixoEvent(), ...ixoDocument() },
      expect: 'ok',
      gives: { principal: ixoAlice.did },
    },
    {
      name: 'thread-and-edit',
      what: 'an edit in a thread',
      token: message({ nb: { ...NB, thread: '$root', edits: '$first' } }),
      context: { event: { ...EVENT, thread: '$root', edits: '$first' } },
      expect: 'ok',
    },
    {
      name: 'with-facts',
      what: 'facts that nobody reads',
      token: message({ fct: [{ note: 'é', list: [1, null, true, { a: 'b' }] }] }),
      expect: 'ok',
    },
    {
      name: 'read-request',
      what: 'a token for reading',
      as: 'request',
      token: message({ att: [{ can: 'oracle/read', with: alice.did }] }),
      context: { request: { method: 'GET', path: '/sessions', body: '' } },
      expect: 'ok',
    },
    {
      name: 'read-by-session-key',
      what: 'a session key reads',
      as: 'request',
      token: message({ issuer: session, att: [{ can: 'oracle/read', with: alice.did }], prf: [sessionGrant({ can: 'oracle/*' })] }),
      context: { request: { method: 'GET', path: '/sessions', body: '' } },
      expect: 'ok',
    },
    {
      name: 'acting-grant',
      what: 'two abilities for the oracle',
      as: 'grant',
      token: acting,
      expect: 'ok',
      gives: { principal: alice.did, path: 1 },
    },
    {
      name: 'acting-grant-service-resource',
      what: 'on a resource of a service',
      as: 'grant',
      token: actingGrant({ can: 'sandbox/*', with: 'ixo:sandbox' }),
      expect: 'ok',
      gives: { principal: alice.did },
    },
    {
      name: 'acting-grant-of-the-page',
      what: 'as the authorise page makes it',
      as: 'grant',
      token: actingGrant({
        att: [
          { can: 'oracle/chat', with: alice.did, nb: { link: 'AAECAwQFBgcICQoLDA0ODw', sender: SENDER } },
          { can: 'memory/read', with: alice.did },
        ],
      }),
      expect: 'ok',
    },
    {
      name: 'session-grant',
      what: 'a session grant',
      as: 'grant',
      token: sessionGrant({
        att: [
          { can: 'oracle/message', with: alice.did },
          { can: 'oracle/read', with: alice.did },
        ],
      }),
      expect: 'ok',
      gives: { principal: alice.did },
    },
    {
      name: 'session-grant-did-ixo',
      what: 'of a did:ixo',
      as: 'grant',
      token: sessionGrant({ issuer: ixoAlice }),
      context: ixoDocument(),
      expect: 'ok',
      gives: { principal: ixoAlice.did },
    },
  );
};
