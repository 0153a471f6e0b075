import { describe, expect, test } from 'vitest';
import type { EventId, RoomId, UserId } from '../../../src/ids.ts';
import type { JsonObject } from '../../../src/json.ts';
import { bindToEvent, type EventBinding, type EventFacts } from '../../../src/ucan/bind-event.ts';
import { contentHash, UCAN_KEY } from '../../../src/ucan/content-hash.ts';
import { mintUcan, signContent } from '../../../src/ucan/mint.ts';
import { readUcanContent } from '../../../src/ucan/read-ucan-content.ts';
import {
  alice,
  BINDING,
  CONTENT,
  custom,
  EVENT,
  honest,
  MESSAGE,
  mallory,
  NB,
  NONCE,
  oracle,
  ROOT,
  reEncoded,
  TS,
  verified,
} from './tokens.ts';

const HASH = contentHash(CONTENT);
const GOOD_NB: JsonObject = { ...NB, hash: HASH.ok ? HASH.value : '' };
const withNb = (nb: JsonObject) => custom({ capabilities: [{ can: 'oracle/message', with: alice.did, nb }] });

async function bound(token: string, event: Partial<EventFacts> = {}, binding: Partial<EventBinding> = {}): Promise<unknown> {
  const result = bindToEvent(await verified(token), { ...EVENT, ...event }, { ...BINDING, ...binding });
  return result.ok ? 'bound' : result.error;
}

describe('an invocation that fits its event', () => {
  test('gives the principal, the token id, its end and what was signed', async () => {
    const ucan = await verified(honest());

    expect(bindToEvent(ucan, EVENT, BINDING)).toEqual({
      ok: true,
      value: { principal: alice.did, tokenId: ucan.tokenId, expiresAt: TS + 300_000, nb: GOOD_NB },
    });
  });

  test('a signed content carries its own token through the wire format', async () => {
    const content = signContent(MESSAGE, CONTENT);
    const read = readUcanContent(JSON.parse(JSON.stringify(content)));

    expect(read.ok && (await bound(read.value?.inv ?? '', { content }))).toBe('bound');
  });

  test('the relation of the event is not part of the hash', async () => {
    expect(await bound(honest(), { content: { ...CONTENT, 'm.relates_to': { score: 0.5 } } })).toBe('bound');
  });

  test('a thread and an edit target pass when they were signed', async () => {
    const edits = '$old' as EventId;

    expect(await bound(honest({ thread: ROOT, edits }), { threadRoot: ROOT, editsTarget: edits })).toBe('bound');
  });
});

describe('the replay matrix (G8)', () => {
  const cases: [string, string, Partial<EventFacts>, string][] = [
    ['by another member in the same room', honest(), { sender: '@mallory:example.org' as UserId }, 'WRONG_SENDER'],
    ['by a look-alike on another server', honest(), { sender: '@alice:evil.example' as UserId }, 'WRONG_SENDER'],
    ['in another room', honest(), { roomId: '!other:example.org' as RoomId }, 'WRONG_ROOM'],
    ['in another kind of event', honest(), { type: 'm.sticker' }, 'WRONG_TYPE'],
    ['with another text', honest(), { content: { ...CONTENT, body: 'delete everything' } }, 'WRONG_CONTENT'],
    ['with a field more', honest(), { content: { ...CONTENT, 'ixo.oracle.turn': { model: 'x' } } }, 'WRONG_CONTENT'],
    ['in a thread it does not name', honest(), { threadRoot: ROOT }, 'WRONG_THREAD'],
    ['outside the thread it names', honest({ thread: ROOT }), {}, 'WRONG_THREAD'],
    ['in another thread', honest({ thread: ROOT }), { threadRoot: '$other' as EventId }, 'WRONG_THREAD'],
    ['as an edit', honest(), { editsTarget: '$old' as EventId }, 'WRONG_EDIT'],
    ['as a new message though signed as an edit', honest({ edits: '$old' as EventId }), {}, 'WRONG_EDIT'],
    ['as an edit of another event', honest({ edits: '$old' as EventId }), { editsTarget: '$other' as EventId }, 'WRONG_EDIT'],
    ['a minute later', honest(), { originServerTs: TS + 60_001 }, 'WRONG_TIME'],
    ['in an event dated a minute earlier', honest(), { originServerTs: TS - 60_001 }, 'WRONG_TIME'],
    ['with a float in the content', honest(), { content: { ...CONTENT, n: 1.5 } }, 'BAD_CONTENT'],
    ['with an integer past 2^53', honest(), { content: { ...CONTENT, n: 2 ** 53 } }, 'BAD_CONTENT'],
    ['made for another oracle', honest({ audience: mallory.did }), {}, 'BAD_AUDIENCE'],
    [
      'signed by somebody else for this account: the DID is theirs, and so must be the resource',
      custom({ key: mallory }),
      {},
      'BAD_ISSUER',
    ],
    ['with another ability', custom({ capabilities: [{ can: 'oracle/read', with: alice.did, nb: GOOD_NB }] }), {}, 'BAD_CAPABILITY'],
    ['with a wildcard', custom({ capabilities: [{ can: '*', with: alice.did, nb: GOOD_NB }] }), {}, 'BAD_CAPABILITY'],
    ['a delegation passed off as a request', custom({ capabilities: [{ can: 'oracle/message', with: alice.did }] }), {}, 'BAD_CAPABILITY'],
    ['with an unknown claim', withNb({ ...GOOD_NB, foo: 1 }), {}, 'BAD_CAPABILITY'],
    ['with a time as text', withNb({ ...GOOD_NB, ts: String(TS) }), {}, 'BAD_CAPABILITY'],
    ['with a thread that is null', withNb({ ...GOOD_NB, thread: null }), {}, 'BAD_CAPABILITY'],
    ['with a room that is no room', withNb({ ...GOOD_NB, room: '#alias:example.org' }), {}, 'BAD_CAPABILITY'],
    ['without a sender', withNb({ room: GOOD_NB['room']!, type: GOOD_NB['type']!, hash: GOOD_NB['hash']!, ts: TS }), {}, 'BAD_CAPABILITY'],
    ['with a nonce of 90 bits', honest({ nonce: 'AAECAwQFBgcICQo' }), {}, 'WEAK_NONCE'],
    ['with a nonce of 16 hexadecimal digits', honest({ nonce: '0123456789abcdef' }), {}, 'WEAK_NONCE'],
    ['without a nonce', honest({ nonce: '' }), {}, 'WEAK_NONCE'],
    ['that lives longer than allowed', mintWith({ expiration: TS / 1000 + 301 }), {}, 'TOKEN_LIVES_TOO_LONG'],
    ['that starts after the event', mintWith({ notBefore: TS / 1000 + 62 }), {}, 'TOKEN_NOT_YET_VALID'],
    ['that had ended before the event', mintWith({ expiration: TS / 1000 - 60 }), {}, 'TOKEN_EXPIRED'],
  ];

  test.each(cases)('a token %s', async (_name, token, event, code) => {
    expect(await bound(token, event)).toBe(code);
  });

  test('two capabilities are refused, whichever stands first', async () => {
    const message = { can: 'oracle/message', with: alice.did, nb: GOOD_NB };
    const other = { can: 'other/thing', with: alice.did };

    expect(await bound(custom({ capabilities: [message, other] }))).toBe('BAD_CAPABILITY');
    expect(await bound(custom({ capabilities: [other, message] }))).toBe('BAD_CAPABILITY');
  });

  test('a resource of somebody else needs their authority', async () => {
    expect(await bound(custom({ capabilities: [{ can: 'oracle/message', with: mallory.did, nb: GOOD_NB }] }))).toBe('BAD_ISSUER');
  });

  test('the honest twins of the claims and times pass', async () => {
    expect(await bound(withNb(GOOD_NB))).toBe('bound');
    expect(await bound(honest(), { originServerTs: TS + 60_000 })).toBe('bound');
    expect(await bound(honest(), { originServerTs: TS - 60_000 })).toBe('bound');
    expect(await bound(mintWith({ notBefore: TS / 1000 + 60 }))).toBe('bound');
    expect(await bound(mintWith({ expiration: TS / 1000 - 59 }))).toBe('bound');
    expect(await bound(honest({ nonce: 'AAECAwQFBgcICQoL' }))).toBe('bound');
    expect(await bound(honest({ nonce: '000102030405060708090a0b' }))).toBe('bound');
  });
});

function mintWith(change: { expiration?: number; notBefore?: number }): string {
  return mintUcan({
    ...{ key: alice, audience: oracle.did, expiration: TS / 1000 + 300, nonce: NONCE },
    capabilities: [{ can: 'oracle/message', with: alice.did, nb: GOOD_NB }],
    ...change,
  });
}

describe('time of judgement', () => {
  test('a message that waited while we were down is judged at the time it was sent', async () => {
    expect(await bound(honest(), {}, { now: TS + 14 * 60_000 })).toBe('bound');
  });

  test('past the allowed lateness it is judged now, and has expired', async () => {
    expect(await bound(honest(), {}, { now: TS + 200 + 15 * 60_000 + 1 })).toBe('TOKEN_EXPIRED');
  });

  test('with no lateness allowed it lives to its end and the skew', async () => {
    expect(await bound(honest(), {}, { now: TS + 359_999, maxLatenessMs: 0 })).toBe('bound');
    expect(await bound(honest(), {}, { now: TS + 360_000, maxLatenessMs: 0 })).toBe('TOKEN_EXPIRED');
  });

  test('an event dated into the future is not valid yet', async () => {
    expect(await bound(honest(), {}, { now: TS - 3_600_000 })).toBe('TOKEN_NOT_YET_VALID');
  });
});

test('a re-encoded token never reaches the binding (G8)', async () => {
  await expect(verified(reEncoded(honest(), (m) => (m['junk'] = 1)))).rejects.toThrow('UCAN_MALFORMED');
});

describe('readUcanContent', () => {
  const read = (value: unknown) => readUcanContent({ body: 'x', [UCAN_KEY]: value });

  test('absent is not broken', () => {
    expect(readUcanContent({ body: 'x' })).toEqual({ ok: true, value: undefined });
  });

  test('unknown fields are dropped, known ones kept', () => {
    expect(read({ v: 1, inv: 'abc', dlg: ['d'], later: true })).toEqual({ ok: true, value: { inv: 'abc', dlg: ['d'] } });
    expect(read({ v: 1 })).toEqual({ ok: true, value: {} });
  });

  test.each([
    ['null', null],
    ['text', 'abc'],
    ['a list', []],
    ['no version', { inv: 'abc' }],
    ['another version', { v: 2, inv: 'abc' }],
    ['a version as text', { v: '1', inv: 'abc' }],
    ['a number as inv', { v: 1, inv: 1 }],
    ['null as inv', { v: 1, inv: null }],
    ['an empty inv', { v: 1, inv: '' }],
    ['dlg that is text', { v: 1, dlg: 'abc' }],
    ['three delegations', { v: 1, dlg: ['a', 'b', 'c'] }],
  ])('%s is broken, not absent (G8)', (_name, value) => {
    expect(read(value)).toEqual({ ok: false, error: 'BAD_UCAN_CONTENT' });
  });
});
