import { afterEach, beforeEach, expect, test } from 'vitest';
import { type Did, parseDid } from '../../../../src/ids.ts';
import { createGuardedFetch, type GuardedFetch } from '../../../../src/net/guarded-fetch.ts';
import { createResolveKeys, type ResolveKeys } from '../../../../src/ucan/did/resolve-keys.ts';
import { generateKey } from '../../../../src/ucan/signing-key.ts';
import { type BlocksyncFault, type BlocksyncServer, buildIxoDocument, startBlocksync } from '../../../../synapse-dev/blocksync/server.ts';
import { type FakeClock, fakeClock } from '../../../fakes/fake-clock.ts';

const didOf = (text: string): Did => {
  const did = parseDid(text);
  if (!did.ok) throw new Error(text);
  return did.value;
};
const ALICE = didOf('did:ixo:ixo1alice');
const KEY = generateKey().did;
const NOT_RESOLVED = { ok: false, error: 'DID_NOT_RESOLVED' };

let clock: FakeClock;
let fetch: GuardedFetch;
let blocksync: BlocksyncServer;
let keysOf: ResolveKeys;
beforeEach(async () => {
  clock = fakeClock();
  fetch = createGuardedFetch({ clock });
  await start();
});
afterEach(async () => {
  await fetch.close();
  await blocksync.close();
});
async function start(options: Parameters<typeof startBlocksync>[0] = {}): Promise<void> {
  await blocksync?.close();
  blocksync = await startBlocksync(options);
  blocksync.put(ALICE, buildIxoDocument({ keys: [KEY], homeserver: 'https://mx.ixo.earth' }));
  keysOf = createResolveKeys({ blocksyncUrl: blocksync.url, fetch, clock });
}

test('a did:key is itself, without asking anybody', async () => {
  const answer = await keysOf(KEY);

  expect(answer).toMatchObject({ ok: true, value: { homeserver: null } });
  expect(answer.ok && answer.value.keys.map((key) => key.length)).toEqual([32]);
  expect(blocksync.asked).toEqual([]);
});

test.each([{}, { jsonAsText: true }])('a did:ixo has the keys and the homeserver of its document (%j)', async (options) => {
  await start(options);
  const self = await keysOf(KEY);

  expect(await keysOf(ALICE)).toEqual({ ok: true, value: { keys: self.ok ? self.value.keys : [], homeserver: 'mx.ixo.earth' } });
  expect(clock.pending()).toBe(0);
});

test('an indexer that does not know services is asked without them, from then on', async () => {
  await start({ knowsService: false });
  const bob = didOf('did:ixo:ixo1bob');
  blocksync.put(bob, buildIxoDocument({ keys: [KEY] }));

  expect(await keysOf(ALICE)).toMatchObject({ ok: true, value: { homeserver: null } });
  expect(await keysOf(bob)).toMatchObject({ ok: true });
  expect(blocksync.asked).toEqual([ALICE, ALICE, bob]);
});

test.each([
  'did:web:example.org',
  'did:web:127.0.0.1%3A8008',
  'did:ixo:IXO1ALICE',
  'did:ixo:',
  'did:ixo:a::b',
  'did:ixo:a.b',
  'did:ixo:__proto__',
  'did:mailto:example.org:alice',
  'did:plc:abc',
  'did:key:zDnaerDaTF5BXEavCrfRZEk316dpbLsfPDZ3WJ5hRTPFU2169',
  'did:key:z6MkaBc',
])('%s may not sign, and nobody is asked about it', async (text) => {
  expect(await keysOf(text as Did)).toEqual({ ok: false, error: 'BAD_ISSUER' });
  expect(blocksync.asked).toEqual([]);
});

test('without an indexer no did:ixo is known', async () => {
  expect(await createResolveKeys({ blocksyncUrl: null, fetch, clock })(ALICE)).toEqual(NOT_RESOLVED);
});

test.each<[string, BlocksyncFault]>([
  ['an error', { status: 500, text: JSON.stringify({ data: { iids: { nodes: [{ id: ALICE, verificationMethod: [] }] } } }) }],
  ['a redirect', { status: 302, text: '' }],
  ['a page', { status: 200, text: '<html>' }],
  ['errors', { status: 200, text: '{"errors":[{"message":"timeout"}]}' }],
  ['a body without end', { status: 200, text: ' '.repeat(65 * 1024) }],
  ['the document of another DID', { status: 200, text: JSON.stringify({ data: { iids: { nodes: [{ id: 'did:ixo:ixo1bob' }] } } }) }],
  ['a closed connection', 'cut'],
])('an indexer that answers with %s resolves nothing, and the next question is asked anew', async (_name, fault) => {
  blocksync.fail(fault);
  const failed = await keysOf(ALICE);
  blocksync.fail(undefined);

  expect(failed).toEqual(NOT_RESOLVED);
  expect(await keysOf(ALICE)).toMatchObject({ ok: true });
});

test('nobody there is no answer', async () => {
  await blocksync.close();

  expect(await keysOf(ALICE)).toEqual(NOT_RESOLVED);
});

test('an unknown DID and one without a usable key do not resolve', async () => {
  blocksync.put(ALICE, { verificationMethod: [{ type: 'CosmosAccountAddress', blockchainAccountID: 'ixo1alice' }] });

  expect(await keysOf(ALICE)).toEqual(NOT_RESOLVED);
  expect(await keysOf(didOf('did:ixo:ixo1nobody'))).toEqual(NOT_RESOLVED);
});

test('a silent indexer is left after 3 s', async () => {
  blocksync.fail('silent');
  const call = keysOf(ALICE);
  await expect.poll(() => blocksync.asked.length).toBe(1);
  await clock.advanceAsync(3_000);

  expect(await call).toEqual(NOT_RESOLVED);
  expect(clock.pending()).toBe(0);
});

test('a key that left its document stops counting within a minute', async () => {
  await keysOf(ALICE);
  blocksync.remove(ALICE);
  clock.advance(59_999);
  const kept = await keysOf(ALICE);
  clock.advance(1);

  expect(kept.ok).toBe(true);
  expect(await keysOf(ALICE)).toEqual(NOT_RESOLVED);
  expect(blocksync.asked).toHaveLength(2);
});

test('twenty questions about one DID are one, also when they fail', async () => {
  const together = await Promise.all(Array.from({ length: 20 }, () => keysOf(ALICE)));
  blocksync.remove(ALICE);
  clock.advance(60_000);
  await Promise.all(Array.from({ length: 20 }, () => keysOf(ALICE)));

  expect(together.every(({ ok }) => ok)).toBe(true);
  expect(blocksync.asked).toHaveLength(2);
});
