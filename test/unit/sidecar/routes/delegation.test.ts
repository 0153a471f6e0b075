/** Grants over HTTP: handed in with a signed request, with a nonce, or in a header; listed without what proves anything; taken back at once. */
import { afterEach, beforeEach, expect, test } from 'vitest';
import type { Did, UserId } from '../../../../src/ids.ts';
import { LIMITS } from '../../../../src/limits.ts';
import { gateDelegation } from '../../../../src/ucan/gate.ts';
import { mintGrant, mintRequestInvocation, newNonce } from '../../../../src/ucan/mint.ts';
import { generateKey, type SigningKey } from '../../../../src/ucan/signing-key.ts';
import { alice, mallory, oracle, TS } from '../../ucan/tokens.ts';
import { ALICE, createWorld, DM, MALLORY, SESSION, say, signed, type World } from '../world.ts';

let world: World;
beforeEach(async () => {
  world = createWorld();
  await world.prepare();
});
afterEach(() => world.close());

const DAY_MS = 24 * 3_600_000;
const MEMORY = { can: 'memory/*', with: 'ixo:memory' };

interface Asked {
  readonly key?: SigningKey;
  readonly audience?: Did;
  readonly link?: string;
  readonly sender?: UserId;
  readonly expiresAt?: number;
}
function grant({ key = alice, audience = oracle.did, link, sender, expiresAt = TS + DAY_MS }: Asked = {}): string {
  const nb = { ...(link === undefined ? {} : { link }), ...(sender === undefined ? {} : { sender }) };
  const chat = { can: 'oracle/chat', with: key.did, ...(Object.keys(nb).length === 0 ? {} : { nb }) };
  return mintGrant({ key, audience, capabilities: [MEMORY, chat], expiresAt, nonce: newNonce() });
}
const post = (raw: string, more = {}) => world.inject(signed({ method: 'POST', path: '/delegation', body: { raw }, ...more }));
const postUnsigned = (raw: string) =>
  world.inject({ method: 'POST', url: '/delegation', headers: { 'content-type': 'application/json' }, payload: JSON.stringify({ raw }) });
const list = async (more = {}) => (await world.inject(signed({ method: 'GET', path: '/delegation', ...more }))).json();
const revoke = (body: unknown, more = {}) => world.inject(signed({ method: 'DELETE', path: '/delegation', body, ...more }));
const nonceFor = (user: UserId) =>
  world.store.write((tx) => world.authoriseLinks.issue(tx, { user, room: DM }, world.clock.now())) as Promise<string>;

test('a portal hands in a grant, sees it, and takes it back', async () => {
  const stored = await post(grant());
  expect([stored.statusCode, stored.json()]).toMatchObject([201, { ok: true, kind: 'acting', pending: false, expires_at: TS + DAY_MS }]);

  const before = await list();
  expect(before).toMatchObject({ authorized: true, expiration: (TS + DAY_MS) / 1_000 });
  expect(before.grants).toMatchObject([
    { token_id: stored.json().token_id, kind: 'acting', source: 'http', revoked: false, pending: false },
  ]);
  // Neither the CAR nor a nonce: a list is the wrong place for what proves something (G12).
  expect(JSON.stringify(before)).not.toContain('"nb"');

  expect((await revoke({ token_id: stored.json().token_id })).json()).toEqual({ ok: true, revoked: [stored.json().token_id] });
  expect((await list()).authorized).toBe(false);
});

test('the same request again stores once and answers the same', async () => {
  const raw = grant();
  const request = signed({ method: 'POST', path: '/delegation', body: { raw } });
  const [first, again] = [await world.inject(request), await world.inject(request)];

  expect([first.statusCode, again.statusCode]).toEqual([201, 201]);
  expect(again.json()).toEqual(first.json());
  expect(world.rows('grants')).toHaveLength(1);
});

test("somebody else's grant is refused, whoever hands it in (G13)", async () => {
  const reply = await post(grant({ key: mallory }));

  expect([reply.statusCode, reply.json().code]).toEqual([401, 'BAD_ISSUER']);
  expect(world.rows('grants')).toEqual([]);
});

test.each([
  ['no base64', '!!!!', 'UCAN_MALFORMED'],
  ['for another oracle', () => grant({ audience: generateKey().did }), 'BAD_GRANT'],
  ['ended', () => grant({ expiresAt: TS - 120_000 }), 'GRANT_EXPIRED'],
  ['for longer than is accepted', () => grant({ expiresAt: TS + 31 * DAY_MS }), 'GRANT_LIVES_TOO_LONG'],
])('a grant that is %s is refused with its code', async (_name, raw, code) => {
  expect((await post(typeof raw === 'string' ? raw : raw())).json().code).toBe(code);
});

test('without a signed request only a live nonce of that very account counts, and it makes a pending grant (G8)', async () => {
  const nonce = await nonceFor(ALICE);

  expect((await postUnsigned(grant())).statusCode).toBeGreaterThanOrEqual(400);
  expect((await postUnsigned(grant({ link: newNonce(), sender: ALICE }))).json().code).toBe('BAD_LINK');
  expect((await postUnsigned(grant({ key: mallory, link: nonce, sender: MALLORY }))).json().code).toBe('BAD_LINK');

  const stored = await postUnsigned(grant({ link: nonce, sender: ALICE }));
  expect([stored.statusCode, stored.json().pending]).toEqual([201, true]);
  // Used up: by the same grant as well as by another.
  expect((await postUnsigned(grant({ link: nonce, sender: ALICE }))).json().code).toBe('BAD_LINK');
  expect((await list()).grants).toMatchObject([{ pending: true }]);
});

test('a nonce that is older than 15 minutes is refused', async () => {
  const nonce = await nonceFor(ALICE);
  await world.clock.advanceAsync(LIMITS.authoriseLinkMs + 1);

  expect((await postUnsigned(grant({ link: nonce, sender: ALICE, expiresAt: world.clock.now() + DAY_MS }))).json().code).toBe('BAD_LINK');
});

test('a delegation in a header counts when its root issuer is the caller, and is as if absent otherwise', async () => {
  for (const raw of [grant({ key: mallory }), 'garbage']) {
    const reply = await world.inject(say('hello', { headers: { 'x-ucan-delegation': raw } }));
    expect(reply.statusCode).toBe(200);
  }
  expect(world.rows('grants')).toEqual([]);

  await world.inject(say('hello', { headers: { 'x-ucan-delegation': Buffer.from(grant(), 'base64url').toString('base64') } }));
  expect((await list()).grants).toMatchObject([{ kind: 'acting', source: 'header' }]);
});

test('a session key speaks for its owner under a session grant, until that is taken back (G8)', async () => {
  const key = generateKey();
  const raw = mintGrant({
    key: alice,
    audience: key.did,
    capabilities: [
      { can: 'oracle/message', with: alice.did },
      { can: 'oracle/read', with: alice.did },
    ],
    expiresAt: TS + DAY_MS / 2,
    nonce: newNonce(),
  });
  const proof = gateDelegation(raw);
  if (!proof.ok) throw new Error(proof.error);
  const path = `/messages/${encodeURIComponent(SESSION)}`;
  const speak = () => {
    const body = JSON.stringify({ message: 'hello' });
    const token = mintRequestInvocation({
      ...{ key, as: alice.did, proofs: [proof.value], audience: oracle.did, method: 'POST', path, body },
      ...{ sender: ALICE, room: DM, thread: SESSION, ts: TS, nonce: newNonce() },
    });
    const headers = { authorization: `Bearer ${token}`, 'x-auth-type': 'ucan', 'content-type': 'application/json' };
    return world.inject({ method: 'POST', url: path, headers, payload: body });
  };
  expect((await speak()).json()).toMatchObject({ message: { content: 'hello world' } });

  const { grants } = await list();
  expect(grants).toMatchObject([{ kind: 'session', source: 'proof' }]);
  await revoke({ token_id: grants[0].token_id });
  expect((await speak()).json().code).toBe('REVOKED');
});

test('a running answer stops with REVOKED when the grant it rests on is taken back; what it said stays (G8)', async () => {
  const key = generateKey();
  const capabilities = [{ can: 'oracle/message', with: alice.did }];
  const raw = mintGrant({ key: alice, audience: key.did, capabilities, expiresAt: TS + DAY_MS / 2, nonce: newNonce() });
  const proof = gateDelegation(raw);
  if (!proof.ok) throw new Error(proof.error);
  world.world.script = async ({ run, output, signal }) => {
    await output.promptsConsumed(run.prompts.map(({ id }) => id));
    output.text('so far');
    await new Promise((_resolve, reject) => signal.addEventListener('abort', () => reject(signal.reason)));
    throw new Error('not reached');
  };
  const path = `/messages/${encodeURIComponent(SESSION)}`;
  const body = JSON.stringify({ message: 'hello' });
  const token = mintRequestInvocation({
    ...{ key, as: alice.did, proofs: [proof.value], audience: oracle.did, method: 'POST', path, body },
    ...{ sender: ALICE, room: DM, thread: SESSION, ts: TS, nonce: newNonce() },
  });
  const headers = { authorization: `Bearer ${token}`, 'x-auth-type': 'ucan', 'content-type': 'application/json' };
  const speaking = world.app.inject({ method: 'POST', url: path, headers, payload: body });
  await world.clock.advanceAsync(200);
  await expect
    .poll(async () => {
      await world.clock.advanceAsync(20);
      return world.jobs.length;
    })
    .toBe(1);

  await revoke(undefined);
  const reply = await world.settle(Promise.resolve(speaking));

  expect([reply.statusCode, reply.json().code]).toEqual([401, 'REVOKED']);
  expect(world.rows('runs')).toMatchObject([{ status: 'failed' }]);
});

test("another person's token id is as unknown as one that nobody has (G13)", async () => {
  const stored = await post(grant());
  const sender = { key: mallory, sender: MALLORY, room: '!other:example.org' };

  for (const id of [stored.json().token_id, 'nobody-has-this'])
    expect((await revoke({ token_id: id }, sender)).json().code).toBe('NOT_FOUND');
  expect((await list()).authorized).toBe(true);
});
