/** research/ucan.md §3.2 E (encoding and CID) and F (what takes too long). */
import {
  actingGrant,
  alice,
  altered,
  bob,
  CONTENT,
  capabilityOf,
  DAY,
  EVENT,
  hex,
  mallory,
  message,
  NB,
  nonce,
  oracle,
  rows,
  S,
  session,
  sessionGrant,
  spoken,
  stored,
  type Vector,
} from '../cast.ts';
import {
  base64url,
  car,
  carHeader,
  carSection,
  cbor,
  cidOf,
  didCore,
  didSigner,
  encode,
  entries,
  file,
  fileOf,
  float,
  head,
  link,
  type Model,
  raw,
  type Signer,
  section,
  sha256,
  type Ucan,
  ucan,
  type Value,
  variant,
  varint,
} from '../wire.ts';

const BAD = 'UCAN_MALFORMED';
const identityCid = (bytes: Uint8Array): Buffer => Buffer.concat([Buffer.from('017100', 'hex'), varint(bytes.length), bytes]);
const rawCid = (bytes: Uint8Array): Buffer => Buffer.concat([Buffer.from('01551220', 'hex'), sha256(bytes)]);
/** An honest message whose block is changed behind its signature. */
const after = (change: (model: Model) => void): Ucan => altered(message, change);
const inNb = (change: (nb: Model) => void): Ucan => after((m) => change(capabilityOf(m)['nb'] as Model));
/** `bytes` of one kind in `nb` replaced by another that the signed text cannot tell from it. */
const asRoom = (value: any, other: any): Ucan =>
  altered(
    (c) => message({ nb: { ...NB, room: value }, ...c }),
    (m) => ((capabilityOf(m)['nb'] as Model)['room'] = other),
  );

export const encoding = (): Vector[] => {
  const token = message();
  const bytes = file(token);
  const root = variant(token.cid);
  const [leaf, top] = [section(token.block), section(root)];
  const other = message({ issuer: mallory });
  const put = (...sections: Parameters<typeof car>[1]) => car([cidOf(root)], sections);
  const grant = sessionGrant();
  const twisted: Ucan = { ...grant, ...reblocked({ ...grant.model, junk: 1 }) };
  const text = base64url(bytes);
  const honestKeys = Object.entries(token.model) as [string, any][];
  const order = (pairs: [string, any][]) => pairs.sort(([a], [b]) => a.length - b.length || (a < b ? -1 : 1));
  return rows(
    'E',
    {
      name: 'cid-of-another-block',
      what: 'the leaf under the CID of something else',
      token: put(section(token.block, cidOf(other.block)), top),
      expect: BAD,
    },
    {
      ...{
        name: 'leaf-swapped-under-its-label',
        what: "mallory's token under the CID of alice's",
        token: put(section(other.block, token.cid), top),
        expect: BAD,
      },
    },
    {
      ...{ name: 'root-mislabelled', what: 'the root block under another CID', expect: BAD },
      token: car([cidOf(Buffer.from('x'))], [leaf, section(root, cidOf(Buffer.from('x')))]),
    },
    {
      ...{ name: 'cid-of-zeros', what: 'a digest of zeros', expect: BAD },
      token: put(section(token.block, Buffer.concat([Buffer.from('01711220', 'hex'), Buffer.alloc(32)])), top),
    },
    {
      name: 'identity-cid-root',
      what: 'the root inline in its CID',
      token: car([identityCid(root)], [leaf, section(root, identityCid(root))]),
      expect: BAD,
    },
    {
      ...{ name: 'identity-cid-leaf', what: 'the leaf inline in its CID', expect: BAD },
      token: (() => {
        const v = variant(identityCid(token.block));
        return car([cidOf(v)], [section(token.block, identityCid(token.block)), section(v)]);
      })(),
    },
    {
      ...{ name: 'raw-codec', what: 'a CID of codec raw', expect: BAD },
      token: (() => {
        const v = variant(rawCid(token.block));
        return car([cidOf(v)], [section(token.block, rawCid(token.block)), section(v)]);
      })(),
    },
    {
      name: 'cid-v0',
      what: 'a CIDv0',
      token: put(section(token.block, Buffer.concat([Buffer.from('1220', 'hex'), sha256(token.block)])), top),
      expect: BAD,
    },
    {
      name: 'same-cid-last-right',
      what: 'one CID twice, the last body fits',
      token: put(section(other.block, token.cid), leaf, top),
      expect: BAD,
    },
    {
      name: 'same-cid-first-right',
      what: 'one CID twice, the first body fits',
      token: put(leaf, section(other.block, token.cid), top),
      expect: BAD,
    },
    { name: 'block-twice', what: 'the same block twice', token: put(leaf, leaf, top), expect: BAD },
    { name: 'root-twice', what: 'the root twice', token: put(leaf, top, top), expect: BAD },
    { name: 'root-first', what: 'the root before the leaf', token: put(top, leaf), expect: BAD },
    { name: 'no-root-block', what: 'the root is not there', token: put(leaf), expect: BAD },
    { name: 'no-leaf-block', what: 'the leaf is not there', token: put(top), expect: BAD },
    { name: 'leaf-as-root', what: 'no root block, the header names the leaf', token: car([token.cid], [leaf]), expect: BAD },
    {
      ...{ name: 'proof-after-leaf', what: 'the blocks of a chain in another order', expect: BAD },
      token: (() => {
        const said = spoken(grant);
        const v = variant(said.cid);
        return car([cidOf(v)], [section(said.block), section(grant.block), section(v)]);
      })(),
    },
    { name: 'proof-twice', what: 'a proof twice in the file', token: twice(grant), expect: BAD },
    {
      name: 'same-proof-named-twice',
      what: '`prf` names one proof twice',
      token: message({ issuer: session, with: alice.did, prf: [grant, grant] }),
      expect: BAD,
    },
    { name: 'unrelated-block', what: 'a block that nothing names', token: put(section(cbor({ a: 1 })), leaf, top), expect: BAD },
    { name: 'unrelated-token', what: 'a second token in the file', token: put(section(other.block), leaf, top), expect: BAD },
    {
      ...{ name: 'a-thousand-unrelated-blocks', what: 'blocks that nothing names, until the file is full', expect: 'UCAN_TOO_LARGE' },
      token: put(...Array.from({ length: 1_000 }, (_, n) => section(cbor(n))), leaf, top),
    },
    {
      ...{ name: 'unrelated-blocks-within-size', what: 'as many as fit', expect: BAD },
      token: put(...Array.from({ length: 60 }, (_, n) => section(cbor(n))), leaf, top),
    },
    {
      ...{ name: 'identity-cids-within-size', what: 'as many identity CIDs as fit', as: 'grant', expect: BAD },
      token: put(...Array.from({ length: 1_500 }, (_, n) => section(Buffer.alloc(0), identityCid(cbor(n)))), leaf, top),
    },
    {
      name: 'empty-blocks',
      what: 'sections without a body',
      as: 'grant',
      token: put(...Array.from({ length: 400 }, () => section(Buffer.alloc(0))), leaf, top),
      expect: BAD,
    },
    { name: 'two-roots', what: 'two roots in the header', token: car([cidOf(root), token.cid], [leaf, top]), expect: BAD },
    { name: 'no-roots', what: 'no root in the header', token: car([], [leaf, top]), expect: BAD },
    {
      name: 'car-version-2',
      what: 'version 2 in the header',
      token: Buffer.concat([carHeader([cidOf(root)], 2), carSection(leaf), carSection(top)]),
      expect: BAD,
    },
    {
      ...{ name: 'car-v2-wrapper', what: 'a CARv2 around the file', expect: BAD },
      token: Buffer.concat([Buffer.from('0aa16776657273696f6e02', 'hex'), Buffer.alloc(16), le64(51), le64(bytes.length), le64(0), bytes]),
    },
    { name: 'truncated', what: 'a byte short', token: bytes.subarray(0, bytes.length - 1), expect: BAD },
    { name: 'trailing-zero', what: 'a zero byte behind', token: Buffer.concat([bytes, Buffer.of(0)]), expect: BAD },
    { name: 'two-files', what: 'the file twice', token: Buffer.concat([bytes, bytes]), expect: BAD },
    { name: 'garbage', what: 'bytes that are nothing', token: sha256('garbage'), expect: BAD },
    { name: 'empty', what: 'no bytes', token: '', expect: BAD },
    {
      name: 'ten-byte-varint',
      what: 'a section length in ten bytes',
      token: Buffer.concat([carHeader([cidOf(root)]), Buffer.alloc(9, 0xff), Buffer.of(1)]),
      expect: BAD,
    },
    {
      name: 'four-gib-section',
      what: 'a section of 4 GiB',
      token: Buffer.concat([carHeader([cidOf(root)]), varint(2 ** 32)]),
      expect: BAD,
    },
    {
      ...{ name: 'long-section-length', what: 'a section length in more bytes than it needs', expect: BAD },
      token: Buffer.concat([carHeader([cidOf(root)]), longer(36 + token.block.length), token.cid, token.block, carSection(top)]),
    },
    { name: 'header-of-zeros', what: 'a header of the limit in zeros', token: Buffer.alloc(4_096), expect: BAD },
    { name: 'one-byte-too-large', what: 'one byte past 4 KiB', token: Buffer.alloc(4_097), expect: 'UCAN_TOO_LARGE' },
    { name: 'grant-too-large', what: 'a grant past 16 KiB', as: 'grant', token: Buffer.alloc(16_385), expect: 'UCAN_TOO_LARGE' },
    {
      ...{ name: 'block-too-large', what: 'one block of more than 4,000 bytes', as: 'grant', expect: BAD },
      token: fileOf(
        ucan({ issuer: alice, audience: oracle, att: [], exp: S + 1, fct: Array.from({ length: 8 }, () => ({ a: 'x'.repeat(510) })) })
          .block,
      ),
    },
    { name: 'variant-0.9.2', what: 'a root of another version', token: variantFile(token, 'ucan@0.9.2'), expect: BAD },
    { name: 'variant-invocation', what: 'a root of another kind', token: variantFile(token, 'inv@0.9.1'), expect: BAD },
    {
      ...{ name: 'variant-with-a-second-key', what: 'a root with a field more', expect: BAD },
      token: (() => {
        const v = cbor({ 'ucan@0.9.1': link(token.cid), x: 1 });
        return car([cidOf(v)], [leaf, section(v)]);
      })(),
    },
    // Spellings of one signed text
    { name: 'extra-field', what: 'a top-level field that nobody reads', token: after((m) => (m['junk'] = 1)), expect: BAD },
    { name: 'nbf-zero', what: '`nbf: 0` is left out of the signed text', token: after((m) => (m['nbf'] = 0)), expect: BAD },
    { name: 'empty-facts', what: '`fct: []` is left out of the signed text', token: after((m) => (m['fct'] = [])), expect: BAD },
    {
      ...{ name: 'empty-nonce-added', what: '`nnc: ""` is left out of the signed text', expect: BAD },
      token: unNonced({ can: 'oracle/message', with: alice.did, nb: NB }, S + 300),
    },
    {
      ...{ name: 'empty-nonce-added-to-a-grant', what: 'the same: a second CID for one signed grant', as: 'grant', expect: BAD },
      token: unNonced({ can: 'memory/read', with: alice.did }, S + DAY),
    },
    { name: 'no-prf', what: '`prf` missing is `prf: []`', token: after((m) => delete m['prf']), expect: BAD },
    {
      name: 'bytes-after-signature',
      what: 'a byte behind the signature',
      token: after((m) => (m['s'] = Buffer.concat([m['s'] as Buffer, Buffer.of(0)]))),
      expect: 'BAD_SIGNATURE',
    },
    {
      name: 'issuer-as-did-core',
      what: 'the did:key spelled as text',
      token: after((m) => (m['iss'] = didCore(alice.did))),
      expect: 'BAD_ISSUER',
    },
    {
      name: 'audience-as-did-core',
      what: 'the audience spelled as text',
      token: after((m) => (m['aud'] = didCore(oracle.did))),
      expect: 'BAD_AUDIENCE',
    },
    {
      name: 'jwt-form',
      what: 'the JWT text for the block',
      token: fileOf(Buffer.from(`${token.payload}.${base64url((token.model['s'] as Buffer).subarray(4))}`)),
      expect: BAD,
    },
    { name: 'float-for-integer', what: '1.0 for 1', token: after((m) => (m['exp'] = float(S + 300))), expect: BAD },
    {
      name: 'integer-in-eight-bytes',
      what: 'a number longer than it needs',
      token: after((m) => (m['exp'] = raw(`1b00000000${(S + 300).toString(16)}`))),
      expect: BAD,
    },
    {
      name: 'text-length-in-two-bytes',
      what: 'a length longer than it needs',
      token: after((m) => (m['v'] = raw(`7805${Buffer.from('0.9.1').toString('hex')}`))),
      expect: BAD,
    },
    { name: 'indefinite-text', what: 'a text in pieces', token: after((m) => (m['v'] = raw('7f63302e39622e31ff'))), expect: BAD },
    { name: 'indefinite-list', what: 'a list without a length', token: after((m) => (m['prf'] = raw('9fff'))), expect: BAD },
    {
      name: 'keys-in-another-order',
      what: 'map keys in another order',
      token: fileOf(cbor(entries(...order(honestKeys).reverse()))),
      expect: BAD,
    },
    { name: 'key-twice', what: 'a map key twice', token: fileOf(cbor(entries(...order([...honestKeys, ['exp', S + 200]])))), expect: BAD },
    { name: 'another-version', what: '`v: 0.9.2`', token: message({ version: '0.9.2' }), expect: BAD },
    {
      name: 'bytes-as-map',
      what: 'bytes signed, their DAG-JSON map sent',
      token: asRoom(Buffer.from('room'), { '/': { bytes: 'cm9vbQ' } }),
      expect: BAD,
    },
    {
      name: 'map-as-bytes',
      what: 'the map signed, bytes sent',
      token: asRoom({ '/': { bytes: 'cm9vbQ' } }, Buffer.from('room')),
      expect: BAD,
    },
    { name: 'link-as-map', what: 'a link signed, its map sent', token: asRoom(link(token.cid), { '/': 'bafyreib' }), expect: BAD },
    { name: 'map-as-link', what: 'a map signed, a link sent', token: asRoom({ '/': 'bafyreib' }, link(token.cid)), expect: BAD },
    { name: 'bytes-in-nb', what: 'honestly signed bytes', token: message({ nb: { ...NB, room: Buffer.from('x') } }), expect: BAD },
    { name: 'link-in-nb', what: 'an honestly signed link', token: message({ nb: { ...NB, room: link(token.cid) } }), expect: BAD },
    { name: 'proto-in-nb', what: '`__proto__` in nb: readable, not signed', token: inNbProto({ room: '!other:example.org' }), expect: BAD },
    {
      name: 'proto-is-all-of-nb',
      what: 'everything that binds comes from `__proto__`',
      token: after((m) => (capabilityOf(m)['nb'] = entries(['__proto__', NB]))),
      expect: BAD,
    },
    {
      name: 'proto-in-a-fact',
      what: '`__proto__` in a fact',
      token: after((m) => (m['fct'] = [entries(['__proto__', { sha256: 'x' }])])),
      expect: BAD,
    },
    {
      name: 'proto-in-the-capability',
      what: '`__proto__` in the capability',
      token: after((m) => (m['att'] = [entries(['nb', NB], ['can', 'oracle/message'], ['with', alice.did], ['__proto__', { nb: NB }])])),
      expect: BAD,
    },
    {
      name: 'proto-at-the-top',
      what: '`__proto__` beside `iss`',
      token: fileOf(cbor(entries(...order(honestKeys), ['__proto__', { exp: null }]))),
      expect: BAD,
    },
    {
      name: 'proto-nested',
      what: '`__proto__` two maps down',
      token: inNb((nb) => (nb['sender'] = entries(['__proto__', { a: 1 }]))),
      expect: BAD,
    },
    {
      name: 'constructor-in-nb',
      what: 'a key called constructor',
      token: message({ nb: { ...NB, constructor: { prototype: 1 } } }),
      expect: 'BAD_CAPABILITY',
    },
    { name: 'slash-key', what: 'a key that DAG-JSON gives a meaning', token: message({ nb: { ...NB, '/': 'x' } }), expect: BAD },
    { name: 'wide-integer', what: 'an integer past 2^53', token: message({ nb: { ...NB, ts: 2n ** 60n } }), expect: BAD },
    { name: 'bignum', what: 'a bignum tag', token: inNb((nb) => (nb['ts'] = raw('c249010000000000000000'))), expect: BAD },
    { name: 'undefined-in-nb', what: 'undefined', token: inNb((nb) => (nb['thread'] = raw('f7'))), expect: BAD },
    { name: 'number-as-key', what: 'a map with a number for a key', token: inNb((nb) => (nb['thread'] = raw('a10101'))), expect: BAD },
    {
      name: 'tag-in-nb',
      what: 'a date tag',
      token: inNb((nb) => (nb['thread'] = raw('c074323032362d30312d30315430303a30303a30305a'))),
      expect: BAD,
    },
    { name: 'invalid-utf8', what: 'a text that is no UTF-8', token: inNb((nb) => (nb['thread'] = raw('62c328'))), expect: BAD },
    { name: 'half-a-surrogate', what: 'half a surrogate pair', token: inNb((nb) => (nb['thread'] = raw('63eda080'))), expect: BAD },
    {
      name: 'nested-lists',
      what: 'lists in lists, 3,000 deep',
      token: fileOf(Buffer.concat([Buffer.alloc(3_000, 0x81), Buffer.of(1)])),
      expect: BAD,
    },
    {
      name: 'nested-maps-in-nb',
      what: 'maps in maps, 600 deep',
      token: inNb((nb) => (nb['room'] = raw(`${'a16161'.repeat(600)}01`))),
      expect: BAD,
    },
    { name: 'nested-tags', what: 'tags on tags', token: fileOf(Buffer.concat([Buffer.alloc(2_000, 0xc1), Buffer.of(1)])), expect: BAD },
    { name: 'length-2-32', what: 'a list that says it has 2^32 items', token: fileOf(head(4, 2n ** 32n - 1n)), expect: BAD },
    { name: 'length-2-53', what: 'a map that says it has 2^53 items', token: fileOf(head(5, 2n ** 53n)), expect: BAD },
    { name: 'length-2-64', what: 'bytes that say they are 2^64', token: fileOf(head(2, 2n ** 64n - 1n)), expect: BAD },
    { name: 'many-items', what: '3,000 numbers', token: fileOf(Buffer.concat([head(4, 3_000), Buffer.alloc(3_000, 1)])), expect: BAD },
    { name: 'a-list', what: 'a list for the token', token: fileOf(cbor([1])), expect: BAD },
    { name: 'null', what: 'null for the token', token: fileOf(cbor(null)), expect: BAD },
    {
      name: 'bytes-behind-the-item',
      what: 'a second item behind the token',
      token: fileOf(Buffer.concat([token.block, Buffer.of(0xf6)])),
      expect: BAD,
    },
    // base64
    { name: 'text-with-spaces', what: 'a space that decoders skip', token: `${text.slice(0, 40)} ${text.slice(40)}`, expect: BAD },
    { name: 'text-with-exclamation', what: 'a character that decoders skip', token: `${text.slice(0, 40)}!${text.slice(40)}`, expect: BAD },
    { name: 'text-with-line-break', what: 'a line break behind', token: `${text}\n`, expect: BAD },
    { name: 'text-in-two-alphabets', what: 'base64 and base64url in one text', token: mixed(), expect: BAD },
    { name: 'text-with-trailing-bits', what: 'bits behind the last byte', token: trailingBits(), expect: BAD },
    { name: 'text-padded-base64url', what: 'base64url with padding', token: paddedUrl(), expect: BAD },
    { name: 'text-with-multibase', what: 'a multibase prefix', token: `u${text}`, expect: BAD },
    { name: 'text-of-a-megabyte', what: 'a megabyte of text', token: 'A'.repeat(20_000), expect: 'UCAN_TOO_LARGE' },
    { name: 'padded-base64', what: 'as IXO spells it: the second accepted spelling', token: bytes.toString('base64'), expect: 'ok' },
    // What a CID is good for
    {
      ...{
        name: 're-encoded-after-use',
        what: 'a used token with a field more, its hash right',
        token: after((m) => (m['junk'] = 2)),
        expect: BAD,
      },
    },
    {
      ...{ name: 'revoked-proof-re-encoded', what: 'a revoked grant with a field more, its hash right', expect: BAD },
      token: message({ issuer: session, with: alice.did, prf: [twisted] }),
      context: {
        revoked: [
          { id: grant.tokenId, by: alice.did },
          { id: hex(grant.cid), by: alice.did },
        ],
      },
    },
    {
      ...{ name: 'store-answers-another', what: 'the store holds another token under the CID that is asked for', expect: 'MISSING_PROOF' },
      token: message({ issuer: session, with: alice.did, links: [sha256Cid('a proof of mine')] }),
      context: { stored: [{ token: encode(grant), cid: hex(sha256Cid('a proof of mine')) }] },
    },
    {
      name: 'proof-not-known',
      what: 'a proof by CID that nobody has',
      token: message({ issuer: session, with: alice.did, links: [grant.cid] }),
      expect: 'MISSING_PROOF',
    },
    {
      ...{ name: 'proof-beside-re-encoded', what: 'the proof in `dlg` is another spelling', expect: BAD },
      token: message({ issuer: session, with: alice.did, links: [grant.cid] }),
      beside: [encode(twisted)],
    },
    {
      name: 'proof-link-of-another-codec',
      what: 'a proof by a CID of codec raw',
      token: message({ issuer: session, with: alice.did, links: [rawCid(grant.block)] }),
      expect: BAD,
    },
    {
      name: 'proof-link-by-identity',
      what: 'a proof inline in its CID',
      token: message({ issuer: session, with: alice.did, links: [identityCid(cbor({}))] }),
      expect: BAD,
    },
    {
      name: 'proof-stored',
      what: 'the honest twin',
      token: message({ issuer: session, with: alice.did, links: [grant.cid] }),
      context: stored(grant),
      expect: 'ok',
      gives: { principal: alice.did },
    },
  );
};

const sha256Cid = (text: string): Buffer => cidOf(Buffer.from(text));
function addEmptyNonce(model: Model): void {
  model['nnc'] = '';
}
/** Signed without a nonce, sent with an empty one. */
const unNonced = (capability: any, exp: number): Ucan =>
  ucan({ issuer: alice, audience: oracle, att: [capability], exp, after: addEmptyNonce });
function reblocked(model: Model): Pick<Ucan, 'block' | 'cid' | 'blocks' | 'model'> {
  const block = cbor(model);
  return { model, block, cid: cidOf(block), blocks: [block] };
}
const le64 = (n: number): Buffer => {
  const bytes = Buffer.alloc(8);
  bytes.writeBigUInt64LE(BigInt(n));
  return bytes;
};
const longer = (n: number): Buffer => Buffer.of((n & 0x7f) | 0x80, (n >> 7) | 0x80, 0);
const inNbProto = (value: any): Ucan =>
  altered(message, (m) => (capabilityOf(m)['nb'] = entries(...(Object.entries(NB) as [string, any][]), ['__proto__', value])));
function twice(grant: Ucan): Buffer {
  const said = spoken(grant);
  const v = variant(said.cid);
  return car([cidOf(v)], [section(grant.block), section(grant.block), section(said.block), section(v)]);
}
function variantFile(token: Ucan, name: string): Buffer {
  const v = variant(token.cid, name);
  return car([cidOf(v)], [section(token.block), section(v)]);
}
/** A token whose text has a character that the two alphabets spell differently, twice. */
function withText(fits: (standard: string) => boolean): string {
  for (;;) {
    const standard = file(message()).toString('base64');
    if (fits(standard)) return standard;
  }
}
function mixed(): string {
  const standard = withText((text) => text.includes('+') && text.includes('/'));
  return standard.replaceAll('+', '-').replaceAll('=', '');
}
function trailingBits(): string {
  const token = message({ nnc: `${nonce()}x` });
  let text = encode(token);
  for (let n = 0; text.length % 4 === 0; n += 1) text = encode(message({ nnc: `${nonce()}${'x'.repeat(n % 3)}` }));
  const last = text.at(-1) as string;
  const alphabet = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_';
  return `${text.slice(0, -1)}${alphabet[alphabet.indexOf(last) + 1]}`;
}
function paddedUrl(): string {
  let text = '';
  for (let n = 0; text.length % 4 === 0 || !/[-_]/u.test(text); n += 1) text = encode(message({ nnc: `${nonce()}${'x'.repeat(n % 3)}` }));
  return text.padEnd(Math.ceil(text.length / 4) * 4, '=');
}

export const work = (): Vector[] => {
  const chain = (depth: number): Ucan => {
    let below: Ucan | undefined;
    for (let n = 0; n < depth; n += 1) {
      const [from, to] = [n === 0 ? alice : bob, n === depth - 1 ? session : bob];
      below = ucan({
        ...{ issuer: from, audience: to, att: [{ can: 'oracle/message', with: alice.did }], exp: S + DAY, nnc: nonce() },
        prf: below === undefined ? [] : [below],
      });
    }
    return below as Ucan;
  };
  return rows(
    'F',
    { name: 'self-cycle', what: 'the only proof of the token is itself: 445 bytes that never end', token: selfCycle(), expect: BAD },
    { name: 'two-cycle', what: 'two tokens that rest on each other', token: twoCycle(), expect: BAD },
    ...[8, 10, 12, 14].map((levels) => ({
      ...{ name: `diamond-${levels}`, what: `a diamond of proofs, ${levels} levels, two each: ${2 ** levels} ways`, as: 'grant' as const },
      token: diamond(levels),
      expect: levels * 390 * 2 > 16_384 ? 'UCAN_TOO_LARGE' : BAD,
    })),
    ...[8, 10, 12, 14].map((levels) => ({
      ...{ name: `diamond-${levels}-as-inv`, what: 'the same as `inv`', token: diamond(levels), expect: 'UCAN_TOO_LARGE' },
    })),
    {
      name: 'diamond-3',
      what: 'a diamond within the bounds: 8 links, 8 ways',
      as: 'grant',
      token: diamond(3),
      expect: 'ok',
      gives: { principal: alice.did },
    },
    { name: 'diamond-4', what: 'a diamond of one level more: ten blocks', as: 'grant', token: diamond(4), expect: BAD },
    {
      ...{
        name: 'diamond-over-the-store',
        what: 'each level in a file of its own: 16 ways are the most',
        as: 'grant',
        expect: 'TOO_MANY_PROOFS',
      },
      ...linkedDiamond(5),
    },
    {
      ...{ name: 'diamond-over-the-store-deep', what: 'deeper than 5', as: 'grant', expect: 'TOO_MANY_PROOFS' },
      ...linkedDiamond(9),
    },
    {
      ...{ name: 'fat-diamond-forged-roots', what: 'as much as fits into 16 KiB, right but for the last signatures', as: 'grant' },
      token: fatDiamond(oracle, 'a/b'),
      expect: 'BAD_SIGNATURE',
    },
    {
      ...{ name: 'fat-diamond-beside', what: 'the same in `dlg`, under a message', expect: 'BAD_SIGNATURE' },
      ...(() => {
        const grant = fatDiamond(session, 'oracle/message');
        return { token: message({ issuer: session, with: alice.did, links: [grant.cid] }), beside: [encode(grant)] };
      })(),
    },
    {
      ...{ name: 'fat-chain-forged-root', what: 'as much as fits into 4 KiB, right but for the last signature', expect: 'BAD_SIGNATURE' },
      token: fatChain(),
    },
    {
      name: 'same-capability-twice',
      what: 'one capability listed twice',
      token: message({ att: [cap(), cap()] }),
      expect: 'BAD_CAPABILITY',
    },
    {
      name: 'same-capability-30-times',
      what: 'one capability listed 30 times',
      as: 'grant',
      token: actingGrant({ att: Array.from({ length: 30 }, cap) }),
      expect: 'BAD_CAPABILITY',
    },
    {
      ...{ name: 'capabilities-8-deep-4', what: 'eight capabilities in each of four links', as: 'grant', expect: 'ok' },
      token: eightEach(4),
    },
    {
      ...{ name: 'proofs-150-wide', what: '150 proofs on one link', as: 'grant', expect: 'UCAN_TOO_LARGE' },
      token: actingGrant({ issuer: bob, with: alice.did, prf: Array.from({ length: 150 }, () => actingGrant({ audience: bob })) }),
    },
    {
      ...{ name: 'proofs-80-named', what: '80 proofs named, none there', expect: 'TOO_MANY_PROOFS' },
      token: message({ issuer: session, with: alice.did, links: Array.from({ length: 80 }, (_, n) => sha256Cid(`proof ${n}`)) }),
    },
    {
      ...{ name: 'proofs-3-wide', what: 'three proofs on one link', expect: 'TOO_MANY_PROOFS' },
      token: message({ issuer: session, with: alice.did, prf: [sessionGrant(), sessionGrant(), sessionGrant()] }),
    },
    {
      ...{ name: 'proofs-3-named', what: 'three proofs named', expect: 'TOO_MANY_PROOFS' },
      token: message({ issuer: session, with: alice.did, links: [1, 2, 3].map((n) => sha256Cid(`proof ${n}`)) }),
    },
    { name: 'proofs-150-deep', what: 'a chain of 150', as: 'grant', token: chain(150), expect: 'UCAN_TOO_LARGE' },
    { name: 'proofs-40-deep', what: 'a chain of 40 within 16 KiB', as: 'grant', token: chain(40), expect: BAD },
    { name: 'proofs-6-deep', what: 'six links', as: 'grant', token: chain(6), expect: 'TOO_MANY_PROOFS' },
    {
      name: 'proofs-5-deep',
      what: 'five links: the most',
      as: 'grant',
      token: chain(5),
      expect: 'ok',
      gives: { principal: alice.did, path: 5 },
    },
    {
      ...{ name: 'proofs-deep-over-the-store', what: 'six links, each in a file of its own', expect: 'TOO_MANY_PROOFS' },
      ...(() => {
        const links = chain(6);
        const all = linksOf(links);
        return {
          token: message({ issuer: session, with: alice.did, links: [links.cid] }),
          context: { stored: all.map((token) => ({ token: encode(token) })) },
        };
      })(),
    },
    {
      ...{ name: 'diamond-of-did-web', what: 'issuers that would have to be fetched from the web', as: 'grant', expect: 'BAD_ISSUER' },
      token: diamond(3, (n) => didSigner(`did:web:evil${n}.example.org`, `web ${n}`)),
    },
    {
      ...{
        name: 'diamond-of-did-ixo',
        what: 'six issuers to look up, within the bounds; nobody knows them',
        as: 'grant',
        expect: 'DID_NOT_RESOLVED',
      },
      token: diamond(3, (n) => didSigner(`did:ixo:ixo1evil${n}`, `ixo ${n}`)),
    },
    {
      ...{ name: 'many-issuers-to-look-up', what: 'nine issuers to look up, over the store', as: 'grant', expect: 'TOO_MANY_PROOFS' },
      ...linkedDiamond(5, (n) => didSigner(`did:ixo:ixo1evil${n}`, `ixo ${n}`)),
    },
    {
      ...{ name: 'look-up-fails', what: 'nobody can say which keys', token: message({ issuer: ixo() }), expect: 'DID_NOT_RESOLVED' },
      context: { didDocuments: { [ixo().did]: 'DID_NOT_RESOLVED' } },
    },
    {
      ...{ name: 'look-up-throws', what: 'the resolver breaks', token: message({ issuer: ixo() }), expect: 'DID_NOT_RESOLVED' },
      context: { didDocuments: { [ixo().did]: 'throws' } },
    },
    {
      ...{
        name: 'a-document-of-17-keys',
        what: 'more keys to try than signatures are checked',
        token: message({ issuer: ixo() }),
        expect: 'TOO_MANY_PROOFS',
      },
      context: {
        didDocuments: {
          [ixo().did]: {
            keys: [...Array.from({ length: 16 }, (_, n) => hex(didSigner('did:ixo:x', `key ${n}`).publicKey)), hex(ixo().publicKey)],
            homeserver: null,
          },
        },
      },
    },
    {
      ...{ name: 'content-that-has-no-canonical-form', what: 'a float in the content', token: message(), expect: 'BAD_CONTENT' },
      context: { event: { ...EVENT, content: { ...CONTENT, n: 1.5 } } },
    },
    {
      ...{ name: 'content-nested-deep', what: 'content nested past 64', token: message(), expect: 'BAD_CONTENT' },
      context: { event: { ...EVENT, content: { ...CONTENT, n: nested(80) } } },
    },
  );
};
const nested = (depth: number): unknown => (depth === 0 ? 1 : [nested(depth - 1)]);
const ixo = (): Signer => didSigner('did:ixo:ixo1alice', 'ixo alice');
const cap = () => ({ can: 'a/b', with: alice.did });
const linksOf = (of: Ucan): Ucan[] => of.blocks.map((block) => ({ ...of, block, cid: cidOf(block), blocks: [block] }));

/** `prf` names a CID that is made up, and the block is filed under it. */
function selfCycle(): Buffer {
  const label = sha256Cid('made up');
  const block = message({ issuer: bob, audience: bob, with: alice.did, links: [label] }).block;
  const root = variant(label);
  return car([cidOf(root)], [section(block, label), section(root)]);
}
function twoCycle(): Buffer {
  const [a, b] = [sha256Cid('a'), sha256Cid('b')];
  const make = (to: Buffer) => message({ issuer: bob, audience: bob, with: alice.did, links: [to] }).block;
  const root = variant(a);
  return car([cidOf(root)], [section(make(a), b), section(make(b), a), section(root)]);
}
type Party = (n: number) => Signer;
/** Two proofs a link, shared by both links of the level above: 2^levels ways. */
function diamondLevels(levels: number, party: Party, embedded: boolean): Ucan[][] {
  const all: Ucan[][] = [];
  for (let level = 0; level < levels; level += 1) {
    const below = all.at(-1) ?? [];
    all.push(
      [0, 1].map((side) =>
        ucan({
          ...{ issuer: level === 0 ? alice : party(level), audience: level === levels - 1 ? bob : party(level + 1) },
          ...{ att: [{ can: 'a/b', with: alice.did }], exp: S + DAY, nnc: `${nonce()}${side}` },
          ...(embedded ? { prf: below } : { links: below.map(({ cid }) => cid) }),
        }),
      ),
    );
  }
  return all;
}
/** 200 values that nobody reads. */
const ballast = (n: number, chars: number): Value[] => [
  { l: Array.from({ length: n }, (_, at) => at), t: 'x'.repeat(chars), u: 'y'.repeat(chars) },
];
const forger: Signer = { ...alice, varsig: mallory.varsig };
function fatDiamond(audience: Signer, can: string): Ucan {
  const att = Array.from({ length: 8 }, (_, n) => ({ can: n === 7 ? can : `a/b${n}/c`, with: alice.did }));
  const make = (issuer: Signer, to: Signer, prf: readonly Ucan[]) =>
    ucan({ issuer, audience: to, att, exp: S + DAY / 2, nnc: nonce(), fct: ballast(180, 380), prf });
  let below: Ucan[] = [];
  for (const issuer of [forger, mallory, mallory]) below = [make(issuer, mallory, below), make(issuer, mallory, below)];
  return ucan({ issuer: mallory, audience, att: [att[7] as Value], exp: S + DAY / 2, nnc: nonce(), fct: ballast(100, 100), prf: below });
}
function fatChain(): Ucan {
  const att = [{ can: 'oracle/message', with: alice.did }];
  const make = (issuer: Signer, to: Signer, prf: readonly Ucan[]) =>
    ucan({ issuer, audience: to, att, exp: S + DAY / 2, nnc: nonce(), fct: ballast(110, 40), prf });
  const root = make(forger, mallory, []);
  return spoken(make(mallory, session, [make(mallory, mallory, [make(mallory, mallory, [root])])]));
}
const diamond = (levels: number, party: Party = () => mallory): Ucan =>
  actingGrant({ issuer: bob, can: 'a/b', with: alice.did, prf: diamondLevels(levels, party, true).at(-1) as Ucan[] });
function linkedDiamond(levels: number, party: Party = () => mallory) {
  const all = diamondLevels(levels, party, false);
  const token = actingGrant({ issuer: bob, can: 'a/b', with: alice.did, links: (all.at(-1) as Ucan[]).map(({ cid }) => cid) });
  return { token, context: stored(...all.flat()) };
}
function eightEach(depth: number): Ucan {
  const att = Array.from({ length: 8 }, (_, n) => ({ can: `a/b${n}`, with: alice.did }));
  let below: Ucan | undefined;
  for (let n = 0; n < depth; n += 1) {
    below = ucan({
      ...{ issuer: n === 0 ? alice : bob, audience: n === depth - 1 ? oracle : bob, att, exp: S + DAY, nnc: nonce() },
      prf: below === undefined ? [] : [below],
    });
  }
  return below as Ucan;
}
