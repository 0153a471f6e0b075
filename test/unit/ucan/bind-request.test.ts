import { describe, expect, test } from 'vitest';
import type { RoomId, SessionId, UserId } from '../../../src/ids.ts';
import { sha256Base64Url } from '../../../src/json.ts';
import { bindToRequest, checkLink, type RequestFacts } from '../../../src/ucan/bind-request.ts';
import { mintReadInvocation, mintRequestInvocation, mintUcan, type RequestToSign } from '../../../src/ucan/mint.ts';
import { alice, honest, mallory, NONCE, oracle, TS, verified } from './tokens.ts';

const SESSION = '$session' as SessionId;
const BODY = '{"message":"hello"}';
const REQUEST: RequestToSign = {
  ...{ key: alice, audience: oracle.did, method: 'POST', path: '/messages/$session', body: BODY, thread: SESSION, ts: TS, nonce: NONCE },
  ...{ sender: '@alice:example.org' as UserId, room: '!dm:example.org' as RoomId },
};
const FACTS: RequestFacts = { method: 'POST', path: '/messages/$session', bodySha256: sha256Base64Url(BODY), sessionId: SESSION };
const LINK = { userId: '@alice:example.org' as UserId, directRoom: '!dm:example.org' as RoomId };

async function bind(token: string, facts: Partial<RequestFacts> = {}, now = TS + 100) {
  return bindToRequest(await verified(token), { ...FACTS, ...facts }, { oracleDid: oracle.did, now });
}
const code = async (...args: Parameters<typeof bind>) => {
  const result = await bind(...args);
  return result.ok ? result.value.kind : result.error;
};
const write = (change: Partial<RequestToSign> = {}) => mintRequestInvocation({ ...REQUEST, ...change });
const read = (change: Partial<RequestToSign> = {}) => mintReadInvocation({ ...REQUEST, ...change });
const GET = { method: 'GET', bodySha256: sha256Base64Url('') };

describe('a write', () => {
  test('gives the principal and what it claims to be', async () => {
    const result = await bind(write());

    expect(result).toMatchObject({
      ok: true,
      value: {
        kind: 'write',
        principal: alice.did,
        expiresAt: TS + 300_000,
        claims: { sender: REQUEST.sender, room: REQUEST.room, thread: SESSION },
      },
    });
  });

  test.each<[string, string, Partial<RequestFacts>, string]>([
    ['with another body', write(), { bodySha256: sha256Base64Url('{"message":"other"}') }, 'WRONG_CONTENT'],
    ['by another method', write(), { method: 'DELETE' }, 'WRONG_TYPE'],
    ['at another path', write(), { path: '/messages/$other' }, 'WRONG_TYPE'],
    ['in another session', write(), { sessionId: '$other' as SessionId }, 'WRONG_THREAD'],
    ['without its session', write({ thread: undefined }), {}, 'WRONG_THREAD'],
    ['for another oracle', write({ audience: mallory.did }), {}, 'BAD_AUDIENCE'],
    ['with a read token', read(), {}, 'BAD_CAPABILITY'],
    ['with a token made for an event', honest(), {}, 'WRONG_TYPE'],
    ['with a weak nonce', write({ nonce: 'abc' }), {}, 'WEAK_NONCE'],
  ])('%s is refused (G8)', async (_name, token, facts, expected) => {
    expect(await code(token, facts)).toBe(expected);
  });

  test('it may be tried again until its end and the skew, not longer', async () => {
    expect(await code(write(), {}, TS + 359_999)).toBe('write');
    expect(await code(write(), {}, TS + 360_000)).toBe('TOKEN_EXPIRED');
    expect(await code(write(), {}, TS - 60_000)).toBe('write');
    expect(await code(write(), {}, TS - 60_001)).toBe('TOKEN_NOT_YET_VALID');
  });

  test('a request without a body is bound to the hash of nothing', async () => {
    const token = write({ method: 'DELETE', path: '/sessions/$session', body: undefined });

    expect(await code(token, { method: 'DELETE', path: '/sessions/$session', bodySha256: sha256Base64Url('') })).toBe('write');
  });
});

describe('a read', () => {
  test('one token serves every path until it expires', async () => {
    expect(await code(read(), GET)).toBe('read');
    expect(await code(read(), { ...GET, path: '/sessions' }, TS + 300_000)).toBe('read');
    expect(await code(read(), GET, TS + 360_000)).toBe('TOKEN_EXPIRED');
  });

  test('a token for a message reads nothing, and one that lives too long neither', async () => {
    const long = mintUcan({ ...REQUEST, expiration: TS / 1000 + 3_600, capabilities: [{ can: 'oracle/read', with: alice.did }] });
    const withClaim = mintUcan({
      ...REQUEST,
      expiration: TS / 1000 + 300,
      capabilities: [{ can: 'oracle/read', with: alice.did, nb: { x: 1 } }],
    });
    const foreign = mintUcan({ ...REQUEST, expiration: TS / 1000 + 300, capabilities: [{ can: 'oracle/read', with: mallory.did }] });

    expect(await code(write(), GET)).toBe('BAD_CAPABILITY');
    expect(await code(long, GET)).toBe('TOKEN_LIVES_TOO_LONG');
    expect(await code(withClaim, GET)).toBe('BAD_CAPABILITY');
    expect(await code(foreign, GET)).toBe('BAD_ISSUER');
  });
});

describe('the proven link', () => {
  const linked = async (token: string, link: Parameters<typeof checkLink>[1], facts: Partial<RequestFacts> = {}) => {
    const bound = await bind(token, facts);
    return bound.ok ? checkLink(bound.value, link).ok : bound.error;
  };

  test('the own account and the own direct room pass', async () => {
    expect(await linked(write(), LINK)).toBe(true);
    expect(await linked(read(), LINK, GET)).toBe(true);
  });

  test('an own DID with the room or the account of a victim does not (G8)', async () => {
    expect(await linked(write({ room: '!victim:example.org' as RoomId }), LINK)).toBe(false);
    expect(await linked(write({ sender: '@victim:example.org' as UserId }), LINK)).toBe(false);
    expect(await linked(write(), undefined)).toBe(false);
    expect(await linked(read(), undefined, GET)).toBe(false);
  });

  test('the room may be left out only as long as there is none', async () => {
    expect(await linked(write({ room: undefined }), { userId: LINK.userId })).toBe(true);
    expect(await linked(write({ room: undefined }), LINK)).toBe(false);
    expect(await linked(write(), { userId: LINK.userId })).toBe(false);
  });
});
