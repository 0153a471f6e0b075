import { deflateSync, gzipSync } from 'node:zlib';
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { LIMITS } from '../../../src/limits.ts';
import { readStateGrant } from '../../../src/ucan/read-state-grant.ts';

const pack = (text: string | Buffer): string => deflateSync(text).toString('base64');
const superjson = (json: unknown): string => pack(JSON.stringify({ json, meta: { values: { expiration: ['undefined'] } } }));

test('the token is read from base64 of zlib of superjson, and nothing else that stands there', () => {
  expect(readStateGrant(superjson({ raw: 'CAR', issuer: 'did:key:liar', expiration: 9e9 }))).toEqual({ ok: true, value: 'CAR' });
});

test('a few bytes that unpack to more than the limit are refused without being unpacked (G14)', () => {
  const bomb = pack(Buffer.alloc(50 * 1024 * 1024));
  expect(bomb.length).toBeGreaterThan(LIMITS.stateGrantBytes);
  const small = pack(`{"json":{"raw":"${'a'.repeat(LIMITS.stateGrantBytes)}"}}`);
  expect(small.length).toBeLessThan(1_000);

  for (const data of [bomb, small]) expect(readStateGrant(data)).toEqual({ ok: false, error: 'UCAN_TOO_LARGE' });
});

test.each([
  ['nothing', ''],
  ['no base64', '{"raw":"CAR"}'],
  ['loose base64', ` ${superjson({ raw: 'CAR' })}`],
  ['no zlib', Buffer.from('{"json":{"raw":"CAR"}}').toString('base64')],
  ['gzip', gzipSync('{"json":{"raw":"CAR"}}').toString('base64')],
  ['zlib cut off', deflateSync('{"json":{"raw":"CAR"}}').subarray(0, -5).toString('base64')],
  ['no JSON', pack('{')],
  ['no UTF-8', pack(Buffer.from([0x22, 0xff, 0x22]))],
  ['plain JSON', pack('{"raw":"CAR"}')],
  ['no token', superjson({ issuer: 'did:key:x' })],
  ['an empty token, as a revoked one is kept', superjson({ raw: '' })],
  ['a token that is no text', superjson({ raw: ['CAR'] })],
  ['null', pack('null')],
])('%s is refused with a code', (_, data) => {
  expect(readStateGrant(data)).toEqual({ ok: false, error: 'UCAN_MALFORMED' });
});

test('any text gives a value, never an exception', () => {
  fc.assert(fc.property(fc.string({ maxLength: 200 }), (text) => void readStateGrant(text)));
  fc.assert(fc.property(fc.uint8Array({ maxLength: 200 }), (bytes) => void readStateGrant(Buffer.from(bytes).toString('base64'))));
  fc.assert(fc.property(fc.json(), (json) => void readStateGrant(pack(json))));
});
