import fc from 'fast-check';
import { base58btc } from 'multiformats/bases/base58';
import { expect, test } from 'vitest';
import { buildIxoQuery, readIxoAnswer } from '../../../../src/ucan/did/ixo.ts';
import { readDidKey } from '../../../../src/ucan/did/key.ts';
import { isAcceptablePublicKey, SMALL_ORDER_POINTS } from '../../../../src/ucan/ed25519-points.ts';
import { generateKey } from '../../../../src/ucan/signing-key.ts';

const DID = 'did:ixo:ixo1qqqsyqcyq5rqwzqfpg9scrgwpugpzysn';
const newKey = () => {
  const multibase = generateKey().did.slice('did:key:'.length);
  const hex = Buffer.from(readDidKey(`did:key:${multibase}`) ?? []).toString('hex');
  return { multibase, hex, base58: base58btc.encode(Buffer.from(hex, 'hex')).slice(1), x: Buffer.from(hex, 'hex').toString('base64url') };
};
const KEY = newKey();
const SMALL = SMALL_ORDER_POINTS[1] ?? '';
const bytes58 = (hex: string): string => base58btc.encode(Buffer.from(hex, 'hex'));

const answerOf = (node: object): string => JSON.stringify({ data: { iids: { nodes: [node] } } });
const read = (verificationMethod: unknown, service: unknown = [], id: unknown = DID) =>
  readIxoAnswer(answerOf({ id, verificationMethod, service }), DID);
const keysOf = (verificationMethod: unknown): string[] | string => {
  const answer = read(verificationMethod);
  return answer.kind === 'keys' ? answer.value.keys.map((key) => Buffer.from(key).toString('hex')) : answer.kind;
};

test('the query carries the DID as a variable', () => {
  const { query, variables } = JSON.parse(buildIxoQuery(DID, 'all')) as { query: string; variables: unknown };

  expect(query).toContain('iids(filter: { id: { equalTo: $id } }) { nodes { id verificationMethod service } }');
  expect(query).not.toContain(DID);
  expect(variables).toEqual({ id: DID });
  expect(buildIxoQuery(DID, 'keys-only')).not.toContain('service');
});

test.each<[string, object]>([
  ['a multibase key', { type: 'Ed25519VerificationKey2020', publicKeyMultibase: KEY.multibase }],
  ['a multibase key without header', { type: 'Ed25519VerificationKey2018', publicKeyMultibase: bytes58(KEY.hex) }],
  ['a hex key', { type: 'Ed25519VerificationKey2018', publicKeyHex: KEY.hex }],
  ['a hex key in capitals with header', { type: 'Ed25519VerificationKey2018', publicKeyHex: `ED01${KEY.hex.toUpperCase()}` }],
  ['a base58 key', { type: 'Ed25519VerificationKey2018', publicKeyBase58: KEY.base58 }],
  ['a base58 key named as signing', { id: `${DID}#signing`, type: 'Custom', publicKeyBase58: KEY.base58 }],
  ['a JWK', { type: 'JsonWebKey2020', publicKeyJwk: { kty: 'OKP', crv: 'Ed25519', x: KEY.x } }],
  ['a multibase key of type JsonWebKey2020', { type: 'JsonWebKey2020', publicKeyMultibase: KEY.multibase }],
])('%s is read', (_name, method) => {
  expect(keysOf([method])).toEqual([KEY.hex]);
});

test.each<[string, unknown]>([
  ['a blockchain address', { type: 'CosmosAccountAddress', blockchainAccountID: 'ixo1abc' }],
  ['a secp256k1 key', { type: 'EcdsaSecp256k1VerificationKey2019', publicKeyMultibase: `F${'02'.repeat(33)}` }],
  ['a secp256k1 key named as signing', { id: '#signing', type: 'EcdsaSecp256k1VerificationKey2019', publicKeyHex: KEY.hex }],
  ['an agreement key', { type: 'X25519KeyAgreementKey2020', publicKeyMultibase: bytes58(`ec01${KEY.hex}`) }],
  ['an agreement key named as signing', { id: '#signing', type: 'X25519KeyAgreementKey2019', publicKeyBase58: KEY.base58 }],
  ['a P-256 JWK', { type: 'JsonWebKey2020', publicKeyJwk: { kty: 'EC', crv: 'P-256', x: KEY.x, y: KEY.x } }],
  ['an X25519 JWK', { type: 'JsonWebKey2020', publicKeyJwk: { kty: 'OKP', crv: 'X25519', x: KEY.x } }],
  ['a JWK that is padded', { type: 'JsonWebKey2020', publicKeyJwk: { kty: 'OKP', crv: 'Ed25519', x: `${KEY.x}=` } }],
  ['bare bytes of type JsonWebKey2020', { type: 'JsonWebKey2020', publicKeyHex: KEY.hex }],
  ['31 bytes', { type: 'Ed25519VerificationKey2018', publicKeyHex: KEY.hex.slice(2) }],
  ['33 bytes', { type: 'Ed25519VerificationKey2018', publicKeyHex: `00${KEY.hex}` }],
  ['odd hex', { type: 'Ed25519VerificationKey2018', publicKeyHex: KEY.hex.slice(1) }],
  ['a point of small order', { type: 'Ed25519VerificationKey2018', publicKeyHex: SMALL }],
  ['a point of small order with header', { type: 'Ed25519VerificationKey2020', publicKeyMultibase: bytes58(`ed01${SMALL}`) }],
  ['letters outside base58', { type: 'Ed25519VerificationKey2020', publicKeyMultibase: `z${'0'.repeat(44)}` }],
  ['an endless key', { type: 'Ed25519VerificationKey2020', publicKeyMultibase: `z${'6'.repeat(10_000)}` }],
  ['a number as key', { type: 'Ed25519VerificationKey2020', publicKeyMultibase: 7 }],
  ['null', null],
  ['a text', 'Ed25519'],
  ['a list', []],
])('%s is skipped, and locks nobody out: the good key beside it counts', (_name, method) => {
  const other = newKey();

  expect(keysOf([method])).toBe('no_keys');
  expect(
    keysOf([
      method,
      { type: 'Ed25519VerificationKey2020', publicKeyMultibase: KEY.multibase },
      method,
      { type: 'Ed25519', publicKeyHex: other.hex },
    ]),
  ).toEqual([KEY.hex, other.hex]);
});

test('every key is tried once, sixteen at most (G14)', () => {
  const twice = { type: 'Ed25519VerificationKey2020', publicKeyMultibase: KEY.multibase, publicKeyHex: KEY.hex };
  const many = Array.from({ length: 20 }, () => ({ type: 'Ed25519VerificationKey2018', publicKeyHex: newKey().hex }));

  expect(keysOf([twice, twice])).toEqual([KEY.hex]);
  expect(keysOf([twice, ...many])).toHaveLength(16);
});

const GOOD = [{ type: 'Ed25519VerificationKey2020', publicKeyMultibase: KEY.multibase }];

test('JSON columns may come as text', () => {
  const answer = read(JSON.stringify(GOOD), JSON.stringify([{ type: 'MatrixHomeServer', serviceEndpoint: 'mx.ixo.earth' }]));

  expect(answer).toMatchObject({ kind: 'keys', value: { homeserver: 'mx.ixo.earth' } });
});

test.each<[string, unknown, string | null]>([
  ['an address', [{ type: 'MatrixHomeServer', serviceEndpoint: 'https://MX.ixo.earth/' }], 'mx.ixo.earth'],
  ['an address with a port', [{ type: 'MatrixHomeServer', serviceEndpoint: 'https://mx.ixo.earth:8448' }], 'mx.ixo.earth:8448'],
  ['a bare name', [{ type: 'MatrixHomeServer', serviceEndpoint: 'Mx.Ixo.Earth' }], 'mx.ixo.earth'],
  ['the same twice', Array.from({ length: 2 }, () => ({ type: 'MatrixHomeServer', serviceEndpoint: 'mx.ixo.earth' })), 'mx.ixo.earth'],
  ['two that differ', ['a.org', 'b.org'].map((serviceEndpoint) => ({ type: 'MatrixHomeServer', serviceEndpoint })), null],
  ['another kind', [{ type: 'LinkedDomains', serviceEndpoint: 'https://mx.ixo.earth' }], null],
  ['a name with a path', [{ type: 'MatrixHomeServer', serviceEndpoint: 'mx.ixo.earth/x' }], null],
  ['a name with a user', [{ type: 'MatrixHomeServer', serviceEndpoint: '@a:mx.ixo.earth' }], null],
  ['another scheme', [{ type: 'MatrixHomeServer', serviceEndpoint: 'ftp://mx.ixo.earth' }], null],
  ['no endpoint', [{ type: 'MatrixHomeServer' }], null],
  ['no services', null, null],
  ['services that are none', 'x', null],
])('of services, %s names the homeserver %j', (_name, service, homeserver) => {
  expect(read(GOOD, service)).toMatchObject({ kind: 'keys', value: { homeserver } });
});

test.each<[string, string]>([
  ['another DID', answerOf({ id: `${DID}x`, verificationMethod: GOOD })],
  ['a DID in capitals', answerOf({ id: DID.toUpperCase(), verificationMethod: GOOD })],
  ['no DID', answerOf({ verificationMethod: GOOD })],
  ['two nodes', JSON.stringify({ data: { iids: { nodes: [1, 2].map(() => ({ id: DID, verificationMethod: GOOD })) } } })],
  ['null for the list', JSON.stringify({ data: { iids: null } })],
  ['null', 'null'],
  ['no JSON', '<html>'],
  ['nothing', ''],
  ['deep nesting', '['.repeat(60_000)],
])('an answer with %s holds no keys', (_name, text) => {
  expect(readIxoAnswer(text, DID)).toEqual({ kind: 'nothing' });
});

test.each<[string, string]>([
  ['no node', JSON.stringify({ data: { iids: { nodes: [] } } })],
  ['methods that are no list', answerOf({ id: DID, verificationMethod: { type: 'Ed25519' } })],
  ['methods as broken text', answerOf({ id: DID, verificationMethod: '[' })],
  ['methods under __proto__', `{"data":{"iids":{"nodes":[{"id":"${DID}","__proto__":{"verificationMethod":${JSON.stringify(GOOD)}}}]}}}`],
])('a DID with %s has no keys', (_name, text) => {
  expect(readIxoAnswer(text, DID)).toEqual({ kind: 'no_keys' });
});

test('an answer with errors holds no keys, whatever stands beside them', () => {
  const text = (message: unknown) =>
    JSON.stringify({ errors: [{ message }], data: { iids: { nodes: [{ id: DID, verificationMethod: GOOD }] } } });

  expect(readIxoAnswer(text('Cannot query field "service" on type "Iid".'), DID)).toEqual({ kind: 'errors', unknownService: true });
  expect(readIxoAnswer(text('Cannot query field "services".'), DID)).toEqual({ kind: 'errors', unknownService: false });
  expect(readIxoAnswer(text(1), DID)).toEqual({ kind: 'errors', unknownService: false });
});

const field = fc.oneof(
  fc.constantFrom(KEY.multibase, KEY.hex, KEY.base58, SMALL, bytes58(`ed01${SMALL}`), bytes58(KEY.hex), 'z', ''),
  fc.string(),
  fc.stringMatching(/^z[1-9A-HJ-NP-Za-km-z]{1,60}$/u),
  fc.stringMatching(/^(?:[0-9a-f]{2}){30,35}$/u),
  fc.jsonValue(),
);
const method = fc.record(
  {
    id: fc.oneof(fc.constant('#signing'), fc.string()),
    type: fc.oneof(fc.constantFrom('Ed25519VerificationKey2018', 'JsonWebKey2020', 'EcdsaSecp256k1VerificationKey2019'), fc.jsonValue()),
    publicKeyMultibase: field,
    publicKeyHex: field,
    publicKeyBase58: field,
    publicKeyJwk: fc.oneof(fc.record({ kty: fc.constant('OKP'), crv: fc.constant('Ed25519'), x: field }), fc.jsonValue()),
  },
  { requiredKeys: [] },
);

test('whatever a document holds, reading it throws nothing and gives only 32-byte keys of full order', () => {
  fc.assert(
    fc.property(fc.array(fc.oneof(method, fc.jsonValue()), { maxLength: 8 }), fc.jsonValue(), (methods, service) => {
      const answer = read(methods, service);
      if (answer.kind === 'keys') expect(answer.value.keys.length > 0 && answer.value.keys.every(isAcceptablePublicKey)).toBe(true);
    }),
    { numRuns: 1_000 },
  );
});

test('whatever the indexer sends, reading it throws nothing', () => {
  fc.assert(
    fc.property(
      fc.oneof(
        fc.string(),
        fc.json(),
        fc.jsonValue().map((node) => answerOf(node as object)),
      ),
      (text) => {
        expect(readIxoAnswer(text, DID).kind).not.toBe('keys');
      },
    ),
  );
});
