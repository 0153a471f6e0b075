/** HTTP_LEGACY_AUTH: the bearer tokens of older portals say who and nothing of the request, so they are worth what an unsigned message is. */
import { afterEach, beforeEach, expect, test } from 'vitest';
import type { SidecarDeps } from '../../../src/sidecar/deps.ts';
import { verifyLegacy } from '../../../src/ucan/legacy-invocation.ts';
import { mintUcan, newNonce } from '../../../src/ucan/mint.ts';
import { generateKey, type SigningKey } from '../../../src/ucan/signing-key.ts';
import { alice, mallory, oracle, TS } from '../ucan/tokens.ts';
import { createWorld, SESSION, type World } from './world.ts';

let world: World;
async function start(change: Partial<SidecarDeps> = {}): Promise<void> {
  world = createWorld({
    verifyLegacy: (token) => verifyLegacy(token, { verify: world.verifier.grant, oracleDid: oracle.did, now: world.clock.now() }),
    ...change,
  });
  await world.prepare();
}
beforeEach(() => start());
afterEach(() => world.close());

interface Bearer {
  readonly key?: SigningKey;
  readonly can?: string;
  readonly lifetimeS?: number;
  readonly nb?: { readonly room: string };
  readonly audience?: typeof oracle.did;
}
const bearer = ({ key = alice, can = '*', lifetimeS = 900, nb, audience = oracle.did }: Bearer = {}) =>
  mintUcan({
    key,
    audience,
    capabilities: [{ can, with: 'ixo:oracle', ...(nb === undefined ? {} : { nb }) }],
    expiration: Math.floor(TS / 1_000) + lifetimeS,
    nonce: newNonce(),
  });
const path = `/messages/${encodeURIComponent(SESSION)}`;
const speak = (token: string, headers: Record<string, string> = {}, message = 'hello') =>
  world.inject({
    method: 'POST',
    url: path,
    headers: { authorization: `Bearer ${token}`, 'x-auth-type': 'ucan', 'content-type': 'application/json', ...headers },
    payload: JSON.stringify({ message }),
  });

test('one bearer token asks more than once, as sender-bound and never as signed (G8)', async () => {
  const token = bearer();

  expect((await speak(token)).statusCode).toBe(200);
  expect((await speak(token)).statusCode).toBe(200);
  expect(world.rows('runs')).toMatchObject([{ tier: 'sender-bound' }, { tier: 'sender-bound' }]);
});

test('the same x-request-id is the same request: one run, and another body is a conflict (G2)', async () => {
  const token = bearer();
  const headers = { 'x-request-id': 'my-request' };

  const [first, again] = [await speak(token, headers), await speak(token, headers)];
  expect(again.json().runId).toBe(first.json().runId);
  expect((await speak(token, headers, 'something else')).json().code).toBe('CONFLICT');
});

test.each<[string, Bearer, string]>([
  ['without a link', { key: generateKey() }, 'NOT_LINKED'],
  ['for longer than 900 s', { lifetimeS: 1_000 }, 'TOKEN_LIVES_TOO_LONG'],
  ['ended', { lifetimeS: -120 }, 'TOKEN_EXPIRED'],
  ['for another oracle', { audience: mallory.did }, 'BAD_AUDIENCE'],
  ['with caveats nobody looks at', { nb: { room: '!dm:example.org' } }, 'BAD_CAPABILITY'],
  ['of another ability', { can: 'oracle/message' }, 'BAD_ISSUER'],
])('a bearer token %s is refused', async (_name, asked, code) => {
  expect((await speak(bearer(asked))).json().code).toBe(code);
});

test("another person's session is as unknown as one that nobody has (G13)", async () => {
  expect((await speak(bearer({ key: mallory }))).json().code).toBe('NOT_FOUND');
});

test('the word of a server that is not trusted does not count', async () => {
  await world.close();
  await start({ isTrustedServer: () => false });

  expect((await speak(bearer())).json().code).toBe('UNTRUSTED_SERVER');
});

test('without HTTP_LEGACY_AUTH such a token is refused', async () => {
  await world.close();
  await start({ verifyLegacy: null });

  expect((await speak(bearer())).json().code).toBe('BAD_CAPABILITY');
});
