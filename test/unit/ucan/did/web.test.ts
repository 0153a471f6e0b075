import fc from 'fast-check';
import { beforeEach, expect, test } from 'vitest';
import type { FetchAnswer, FetchOptions, FetchProblem } from '../../../../src/net/guarded-fetch.ts';
import { err, ok, type Result } from '../../../../src/result.ts';
import { createResolveService, readWebDid } from '../../../../src/ucan/did/web.ts';
import { type FakeClock, fakeClock } from '../../../fakes/fake-clock.ts';

let clock: FakeClock;
let asked: { url: string; options: FetchOptions | undefined }[];
let answer: Result<FetchAnswer, FetchProblem>;
const document = (id: unknown, status = 200): typeof answer => ok({ status, text: JSON.stringify({ '@context': [], id }) });
const NOT_RESOLVED = { ok: false, error: 'SERVICE_NOT_RESOLVED' };

beforeEach(() => {
  clock = fakeClock();
  asked = [];
});
const create = () =>
  createResolveService({
    clock,
    fetch: {
      get: async (url, options) => {
        asked.push({ url, options });
        return answer;
      },
    },
  });

test.each([
  ['https://memory.example.org', 'did:web:memory.example.org'],
  ['https://MEMORY.example.org:443/api/v1?x=1#y', 'did:web:memory.example.org'],
  ['https://memory.example.org:8443/api', 'did:web:memory.example.org%3A8443'],
  ['https://bücher.example', 'did:web:xn--bcher-kva.example'],
])('%s is asked for its document as a stranger, and is %s', async (url, did) => {
  answer = document(did);

  expect(await create().didOf(url)).toEqual({ ok: true, value: did });
  expect(asked).toEqual([{ url: `${new URL(url).origin}/.well-known/did.json`, options: { timeoutMs: 3_000, maxBytes: 65_536 } }]);
});

test.each([
  ['http', 'http://memory.example.org'],
  ['an IPv4 address', 'https://127.0.0.1'],
  ['a number', 'https://2130706433'],
  ['an IPv6 address', 'https://[::1]'],
  ['a name without a dot', 'https://localhost'],
  ['a trailing dot', 'https://memory.example.org.'],
  ['an underscore', 'https://a_b.example.org'],
  ['an outer hyphen', 'https://-a.example.org'],
  ['an empty label', 'https://a..example.org'],
  ['credentials', 'https://user:pw@memory.example.org'],
  ['another scheme', 'ftp://memory.example.org'],
  ['a DID', 'did:web:memory.example.org'],
  ['an endless name', `https://${'a.'.repeat(120)}org`],
  ['an endless address', `https://example.org/${'a'.repeat(3_000)}`],
  ['nothing', ''],
])('%s is no service, and nobody is asked', async (_name, url) => {
  expect(await create().didOf(url)).toEqual(NOT_RESOLVED);
  expect(asked).toEqual([]);
});

test.each<[string, () => typeof answer]>([
  ['the DID of another service', () => document('did:web:bank.example.org')],
  ['a DID with a path', () => document('did:web:memory.example.org:alice')],
  ['its DID in capitals', () => document('did:web:MEMORY.example.org')],
  ['a DID with its port written out', () => document('did:web:memory.example.org%3A443')],
  ['a DID with a fragment', () => document('did:web:memory.example.org#key')],
  ['a did:key', () => document('did:key:z6Mk')],
  ['no DID', () => document(undefined)],
  ['a list of DIDs', () => document(['did:web:memory.example.org'])],
  ['the right document under an error', () => document('did:web:memory.example.org', 404)],
  ['no JSON', () => ok({ status: 200, text: '<html>' })],
  ['JSON that is no document', () => ok({ status: 200, text: 'null' })],
  ['nothing', () => err('timeout')],
  ['a private address', () => err('refused_address')],
])('a host that answers with %s is not resolved, and is asked again', async (_name, said) => {
  answer = said();
  const services = create();

  expect(await services.didOf('https://memory.example.org')).toEqual(NOT_RESOLVED);
  answer = document('did:web:memory.example.org');
  expect(await services.didOf('https://memory.example.org')).toMatchObject({ ok: true });
});

test('a document is kept for a minute, whatever the path', async () => {
  answer = document('did:web:memory.example.org');
  const services = create();
  await services.didOf('https://memory.example.org/a');
  await services.didOf('https://memory.example.org/b');
  const within = asked.length;
  clock.advance(60_000);
  await services.didOf('https://memory.example.org/a');

  expect([within, asked.length]).toEqual([1, 2]);
});

test('any text has an answer, and a DID names a host without anything that a path or a port could hide in', () => {
  const urls = fc.oneof(fc.string(), fc.webUrl({ validSchemes: ['https'], withFragments: true, withQueryParameters: true }));
  fc.assert(
    fc.property(urls, (url) => {
      const did = readWebDid(url);
      expect(did === undefined || /^did:web:[a-z0-9.-]+(?:%3A\d{1,5})?$/u.test(did)).toBe(true);
    }),
  );
});
