/** research/ucan.md §3.2 A (time), B (audience and kind), C (abilities and resources), D (caveats). */
import {
  actingGrant,
  alice,
  altered,
  bob,
  capabilityOf,
  DAY,
  EVENT,
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
  service,
  sessionGrant,
  spoken,
  TS,
  type Vector,
} from '../cast.ts';
import { float, ucan } from '../wire.ts';

const grant = sessionGrant;
/** Alice's client hands something on to a second key, which hands it to the oracle: a chain of two for a service's ability. */
const handedOn = (of: { can: string; with: string; nb?: any }, to: { can: string; with: string; nb?: any }) =>
  ucan({
    ...{ issuer: bob, audience: oracle, att: [to], exp: S + DAY, nnc: nonce() },
    prf: [ucan({ issuer: alice, audience: bob, att: [of], exp: S + DAY, nnc: nonce() })],
  });

export const time = (): Vector[] =>
  rows(
    'A',
    { name: 'exp-now', what: 'expires this second: within the skew of 60 s', token: message({ exp: S }), expect: 'ok' },
    { name: 'exp-now-plus-1', what: 'expires in a second', token: message({ exp: S + 1 }), expect: 'ok' },
    { name: 'exp-59-s-ago', what: 'the last second of the skew', token: message({ exp: S - 59 }), expect: 'ok' },
    { name: 'exp-60-s-ago', what: 'the skew is over', token: message({ exp: S - 60 }), expect: 'TOKEN_EXPIRED' },
    { name: 'exp-1', what: 'expired in 1970', token: message({ exp: 1 }), expect: 'TOKEN_EXPIRED' },
    { name: 'exp-0', what: 'zero is no date', token: message({ exp: 0 }), expect: 'UCAN_MALFORMED' },
    { name: 'exp-negative', what: 'before 1970', token: message({ exp: -1 }), expect: 'UCAN_MALFORMED' },
    { name: 'nbf-now', what: 'valid from this second', token: message({ nbf: S }), expect: 'ok' },
    { name: 'nbf-now-plus-5', what: 'valid in 5 s: within the skew', token: message({ nbf: S + 5 }), expect: 'ok' },
    { name: 'nbf-in-60-s', what: 'the last second of the skew', token: message({ nbf: S + 60 }), expect: 'ok' },
    { name: 'nbf-in-61-s', what: 'not valid yet', token: message({ nbf: S + 61 }), expect: 'TOKEN_NOT_YET_VALID' },
    { name: 'nbf-in-milliseconds', what: 'a start in milliseconds', token: message({ nbf: TS }), expect: 'UCAN_MALFORMED' },
    { name: 'nbf-negative', what: 'a start before 1970', token: message({ nbf: -5 }), expect: 'UCAN_MALFORMED' },
    { name: 'exp-null', what: 'never expires', token: message({ exp: null }), expect: 'TOKEN_LIVES_TOO_LONG' },
    {
      name: 'exp-infinity',
      what: 'the float Infinity',
      token: message({ exp: float(Number.POSITIVE_INFINITY) }),
      expect: 'UCAN_MALFORMED',
    },
    { name: 'exp-1e300', what: 'a float past every date', token: message({ exp: float(1e300) }), expect: 'UCAN_MALFORMED' },
    {
      name: 'exp-2-53',
      what: 'the largest safe integer',
      token: message({ exp: Number.MAX_SAFE_INTEGER }),
      expect: 'TOKEN_LIVES_TOO_LONG',
    },
    { name: 'exp-milliseconds', what: 'milliseconds for seconds', token: message({ exp: TS + 300_000 }), expect: 'TOKEN_LIVES_TOO_LONG' },
    { name: 'exp-2100', what: 'the end of time', token: message({ exp: 4_102_444_800 }), expect: 'TOKEN_LIVES_TOO_LONG' },
    { name: 'exp-nan', what: 'the float NaN', token: message({ exp: float(Number.NaN) }), expect: 'UCAN_MALFORMED' },
    { name: 'exp-float', what: 'half a second', token: message({ exp: float(S + 300.5) }), expect: 'UCAN_MALFORMED' },
    { name: 'exp-text', what: 'a date as text', token: message({ exp: String(S + 300) }), expect: 'UCAN_MALFORMED' },
    { name: 'exp-missing', what: 'no exp at all', token: altered(message, (m) => delete m['exp']), expect: 'UCAN_MALFORMED' },
    {
      name: 'invocation-lives-301-s',
      what: 'a second longer than an invocation may',
      token: message({ exp: S + 301 }),
      expect: 'TOKEN_LIVES_TOO_LONG',
    },
    { name: 'invocation-lives-30-days', what: 'as long as a grant', token: message({ exp: S + 30 * DAY }), expect: 'TOKEN_LIVES_TOO_LONG' },
    {
      ...{ name: 'late-event', what: 'seen 14 minutes late: judged at origin_server_ts', token: message(), expect: 'ok' },
      context: { now: TS + 14 * 60_000 },
    },
    {
      ...{ name: 'too-late-event', what: 'seen 16 minutes late: judged now', token: message(), expect: 'TOKEN_EXPIRED' },
      context: { now: TS + 16 * 60_000 },
    },
    {
      ...{ name: 'event-from-the-future', what: 'a homeserver that dates its events ahead', expect: 'TOKEN_NOT_YET_VALID' },
      token: message({ exp: S + 900, nb: { ...NB, ts: TS + 600_000 } }),
      context: { event: { ...EVENT, originServerTs: TS + 600_000 } },
    },
    {
      ...{ name: 'back-dated-event', what: 'an old token in an event dated to its time', token: message(), expect: 'TOKEN_EXPIRED' },
      context: { now: TS + 3_600_000 },
    },
    {
      ...{
        name: 'child-outlives-parent',
        what: 'the invocation ends after its grant: the grant counts',
        token: spoken(grant({ exp: S + 100 })),
        expect: 'ok',
      },
      gives: { principal: alice.did, grantsUntil: TS + 100_000 },
    },
    {
      ...{ name: 'grant-outlives-its-proof', what: 'a handed-on grant ends when its proof ends', as: 'grant', expect: 'ok' },
      token: actingGrant({ issuer: bob, with: alice.did, prf: [actingGrant({ audience: bob, exp: S + 500 })] }),
      gives: { principal: alice.did, expiresAt: TS + 500_000, path: 2 },
    },
    {
      name: 'proof-expired',
      what: 'the grant ended, the invocation did not',
      token: spoken(grant({ exp: S - 60 })),
      expect: 'GRANT_EXPIRED',
    },
    { name: 'proof-expired-within-skew', what: 'the grant ended 59 s ago', token: spoken(grant({ exp: S - 59 })), expect: 'ok' },
    { name: 'proof-not-yet-valid', what: 'the grant begins in 61 s', token: spoken(grant({ nbf: S + 61 })), expect: 'GRANT_NOT_YET_VALID' },
    { name: 'session-grant-of-a-day', what: 'a day and the skew', token: spoken(grant({ exp: S + DAY + 60 })), expect: 'ok' },
    {
      name: 'session-grant-of-a-day-and-more',
      what: 'a session grant of more than a day',
      token: spoken(grant({ exp: S + DAY + 61 })),
      expect: 'GRANT_LIVES_TOO_LONG',
    },
    {
      name: 'session-grant-without-end',
      what: 'a grant that never expires',
      token: spoken(grant({ exp: null })),
      expect: 'TOKEN_LIVES_TOO_LONG',
    },
    {
      name: 'session-grant-in-milliseconds',
      what: 'a grant with milliseconds for seconds',
      token: spoken(grant({ exp: TS })),
      expect: 'TOKEN_LIVES_TOO_LONG',
    },
    {
      name: 'acting-grant-of-30-days',
      what: 'as long as an acting grant may live',
      as: 'grant',
      token: actingGrant(),
      expect: 'ok',
      gives: { principal: alice.did },
    },
    {
      name: 'acting-grant-of-31-days',
      what: 'longer',
      as: 'grant',
      token: actingGrant({ exp: S + 31 * DAY }),
      expect: 'GRANT_LIVES_TOO_LONG',
    },
    { name: 'acting-grant-without-end', what: 'for ever', as: 'grant', token: actingGrant({ exp: null }), expect: 'TOKEN_LIVES_TOO_LONG' },
    { name: 'acting-grant-expired', what: 'over', as: 'grant', token: actingGrant({ exp: S - 60 }), expect: 'GRANT_EXPIRED' },
    {
      name: 'acting-grant-not-yet-valid',
      what: 'begins in 61 s',
      as: 'grant',
      token: actingGrant({ nbf: S + 61 }),
      expect: 'GRANT_NOT_YET_VALID',
    },
    {
      ...{ name: 'grant-is-judged-now', what: 'a late event: its own window at its time, the grant now', expect: 'GRANT_EXPIRED' },
      token: spoken(grant({ exp: S + 600 })),
      context: { now: TS + 14 * 60_000 },
    },
  );

export const kind = (): Vector[] => {
  const invocation = message();
  return rows(
    'B',
    { name: 'other-audience', what: 'addressed to another oracle', token: message({ audience: other }), expect: 'BAD_AUDIENCE' },
    { name: 'audience-is-self', what: 'addressed to the signer', token: message({ audience: alice }), expect: 'BAD_AUDIENCE' },
    { name: 'delegation-as-invocation', what: 'an acting grant pasted as `inv`', token: actingGrant(), expect: 'BAD_CAPABILITY' },
    {
      name: 'message-grant-as-invocation',
      what: 'a grant of oracle/message without `nb`',
      token: grant({ audience: oracle }),
      expect: 'BAD_CAPABILITY',
    },
    { name: 'session-grant-as-invocation', what: 'a session grant pasted as `inv`', token: grant(), expect: 'BAD_AUDIENCE' },
    {
      name: 'invocation-as-acting-grant',
      what: 'an invocation registered as a grant',
      as: 'grant',
      token: invocation,
      expect: 'GRANT_TOO_WIDE',
    },
    {
      ...{ name: 'invocation-as-proof', what: 'mallory rests on the invocation of alice that she copied', expect: 'BROKEN_CHAIN' },
      token: message({ issuer: mallory, with: alice.did, prf: [invocation] }),
    },
    {
      ...{
        name: 'invocation-reused-by-the-oracle',
        what: 'an oracle rests on the invocation to speak at another oracle',
        expect: 'BAD_AUDIENCE',
      },
      token: message({ issuer: oracle, with: alice.did, audience: service, prf: [invocation] }),
    },
    {
      ...{ name: 'two-capabilities-unproven-first', what: 'one that is proven hides behind one that is not', expect: 'BAD_CAPABILITY' },
      token: message({
        att: [
          { can: 'oracle/message', with: bob.did, nb: NB },
          { can: 'oracle/message', with: alice.did, nb: NB },
        ],
      }),
    },
    {
      ...{ name: 'two-capabilities-with-proof', what: 'the same under a grant', expect: 'BAD_CAPABILITY' },
      token: spoken(grant(), {
        att: [
          { can: 'oracle/message', with: alice.did, nb: NB },
          { can: 'oracle/read', with: alice.did },
        ],
      }),
    },
    { name: 'no-capability', what: 'asks for nothing', token: message({ att: [] }), expect: 'BAD_CAPABILITY' },
    {
      name: 'read-token-for-a-message',
      what: 'an invocation for reading',
      token: message({ can: 'oracle/read', nb: {} }),
      expect: 'BAD_CAPABILITY',
    },
    {
      ...{
        name: 'message-token-for-reading',
        what: 'an invocation for a message in a GET',
        as: 'request',
        token: message(),
        expect: 'BAD_CAPABILITY',
      },
      context: { request: { method: 'GET', path: '/sessions', body: '' } },
    },
    { name: 'no-nonce', what: 'two equal calls in one second would be one token', token: unNonced(), expect: 'WEAK_NONCE' },
    { name: 'short-nonce', what: '90 bits of base64', token: message({ nnc: 'abcdefghijklmno' }), expect: 'WEAK_NONCE' },
    {
      name: 'short-hex-nonce',
      what: '92 bits of hexadecimal digits',
      token: message({ nnc: '0123456789abcdef0123456' }),
      expect: 'WEAK_NONCE',
    },
    { name: 'enough-nonce', what: '96 bits', token: message({ nnc: 'abcdefghijklmnop' }), expect: 'ok' },
    { name: 'nonce-with-nul', what: 'a NUL in the nonce', token: message({ nnc: 'abcdefghijklmnop\0' }), expect: 'UCAN_MALFORMED' },
    { name: 'long-nonce', what: '200 characters', token: message({ nnc: 'x'.repeat(200) }), expect: 'UCAN_MALFORMED' },
    { name: 'nonce-is-a-number', what: 'a number for a nonce', token: altered(message, (m) => (m['nnc'] = 7)), expect: 'UCAN_MALFORMED' },
    ...(
      [
        ['everything', '*'],
        ['every-oracle-ability', 'oracle/*'],
        ['messages', 'oracle/message'],
        ['reads', 'oracle/read'],
      ] as const
    ).map(([name, can]) => ({
      ...{ name: `acting-grant-of-${name}`, what: 'the oracle could write its own orders', as: 'grant' as const, expect: 'GRANT_TOO_WIDE' },
      token: actingGrant({ can }),
    })),
    {
      name: 'grant-to-a-third',
      what: 'a grant of a service ability to somebody else',
      as: 'grant',
      token: actingGrant({ audience: bob }),
      expect: 'BAD_GRANT',
    },
    {
      ...{ name: 'session-grant-of-everything', what: 'a session key that may do all', as: 'grant', expect: 'BAD_GRANT' },
      token: grant({ can: '*' }),
    },
    {
      ...{ name: 'session-grant-on-another-did', what: 'a session key for two people', as: 'grant', expect: 'NOT_DELEGATED' },
      token: grant({
        att: [
          { can: 'oracle/message', with: alice.did },
          { can: 'oracle/message', with: bob.did },
        ],
      }),
    },
  );
};
const unNonced = () => {
  const { issuer, audience } = { issuer: alice, audience: oracle };
  return ucan({ issuer, audience, att: [{ can: 'oracle/message', with: alice.did, nb: NB }], exp: S + 300 });
};

export const abilities = (): Vector[] => {
  const leaf = (can: string) => message({ can });
  const proof = (can: string) => spoken(grant({ can }));
  const resource = 'ixo:oracle:bot';
  const claimed = (text: string) => handedOn({ can: 'ixo/use', with: resource }, { can: 'ixo/use', with: text });
  return rows(
    'C',
    { name: 'can-upper-case', what: 'ORACLE/MESSAGE signed as such', token: leaf('ORACLE/MESSAGE'), expect: 'UCAN_MALFORMED' },
    {
      ...{
        name: 'can-upper-case-same-signature',
        what: 'the bytes in capitals, the signature of the small letters',
        expect: 'UCAN_MALFORMED',
      },
      token: altered(message, (m) => (capabilityOf(m)['can'] = 'Oracle/Message')),
    },
    { name: 'can-longer', what: 'oracle/messageX', token: leaf('oracle/messagex'), expect: 'BAD_CAPABILITY' },
    { name: 'can-deeper', what: 'oracle/message/x', token: leaf('oracle/message/x'), expect: 'BAD_CAPABILITY' },
    { name: 'can-half-wildcard', what: 'oracle/m*', token: leaf('oracle/m*'), expect: 'BAD_CAPABILITY' },
    { name: 'can-trailing-space', what: 'a space behind', token: leaf('oracle/message '), expect: 'BAD_CAPABILITY' },
    { name: 'can-one-segment', what: 'oracle', token: leaf('oracle'), expect: 'UCAN_MALFORMED' },
    { name: 'can-empty-segment', what: 'oracle/', token: leaf('oracle/'), expect: 'UCAN_MALFORMED' },
    { name: 'can-leading-slash', what: '/oracle', token: leaf('/oracle'), expect: 'UCAN_MALFORMED' },
    { name: 'can-two-slashes', what: 'oracle//message', token: leaf('oracle//message'), expect: 'BAD_CAPABILITY' },
    { name: 'can-claims-wildcard', what: 'asks for oracle/*', token: leaf('oracle/*'), expect: 'BAD_CAPABILITY' },
    { name: 'can-claims-everything', what: 'asks for *', token: leaf('*'), expect: 'BAD_CAPABILITY' },
    { name: 'can-turkish', what: 'a dotless i, which some locales make of I', token: leaf('oracle/mıssage'), expect: 'BAD_CAPABILITY' },
    { name: 'can-cyrillic', what: 'a Cyrillic o', token: leaf('оracle/message'), expect: 'BAD_CAPABILITY' },
    {
      name: 'proof-wildcard-segment',
      what: 'oracle/* covers oracle/message',
      token: proof('oracle/*'),
      expect: 'ok',
      gives: { principal: alice.did },
    },
    { name: 'proof-half-wildcard', what: 'oracle/m* is no wildcard', token: proof('oracle/m*'), expect: 'BAD_CAPABILITY' },
    { name: 'proof-half-first-segment', what: 'orac/* covers orac only', token: proof('orac/*'), expect: 'NOT_DELEGATED' },
    { name: 'proof-leading-wildcard', what: '*/message', token: proof('*/message'), expect: 'BAD_CAPABILITY' },
    {
      name: 'proof-deeper-wildcard',
      what: 'oracle/message/* does not cover oracle/message',
      token: proof('oracle/message/*'),
      expect: 'NOT_DELEGATED',
    },
    { name: 'proof-prefix-of-ability', what: 'oracle/messages', token: proof('oracle/messages'), expect: 'NOT_DELEGATED' },
    { name: 'proof-other-ability', what: 'a grant for reading', token: proof('oracle/read'), expect: 'NOT_DELEGATED' },
    {
      ...{ name: 'with-prefix', what: 'delegated …bo*, asked …bot', as: 'grant', expect: 'NOT_DELEGATED' },
      token: handedOn({ can: 'ixo/use', with: 'ixo:oracle:bo*' }, { can: 'ixo/use', with: resource }),
    },
    {
      ...{ name: 'with-prefix-longer', what: 'delegated …bot*, asked …bottle', as: 'grant', expect: 'NOT_DELEGATED' },
      token: handedOn({ can: 'ixo/use', with: 'ixo:oracle:bot*' }, { can: 'ixo/use', with: 'ixo:oracle:bottle' }),
    },
    {
      ...{ name: 'with-path-prefix', what: 'delegated a path, asked one below', as: 'grant', expect: 'NOT_DELEGATED' },
      token: handedOn({ can: 'ixo/use', with: 'ixo:oracle/bot/*' }, { can: 'ixo/use', with: 'ixo:oracle/bot/x' }),
    },
    {
      name: 'with-same',
      what: 'the honest twin',
      as: 'grant',
      token: claimed(resource),
      expect: 'ok',
      gives: { principal: alice.did, path: 2 },
    },
    ...(
      [
        ['nul', 'ixo:oracle:bot\0', 'BAD_CAPABILITY'],
        ['trailing-space', 'ixo:oracle:bot ', 'BAD_CAPABILITY'],
        ['leading-space', ' ixo:oracle:bot', 'BAD_CAPABILITY'],
        ['line-break', 'i\nxo:oracle:bot', 'BAD_CAPABILITY'],
        ['scheme-in-capitals', 'IXO:oracle:bot', 'BAD_CAPABILITY'],
        ['percent-encoding', 'ixo:oracle:%62ot', 'NOT_DELEGATED'],
        ['cyrillic', 'ixo:оracle:bot', 'BAD_CAPABILITY'],
        ['nfd', 'ixo:oracle:bo\u0301t', 'BAD_CAPABILITY'],
        ['nfc', 'ixo:oracle:b\u00f3t', 'BAD_CAPABILITY'],
        ['fragment', 'ixo:oracle:bot#x', 'BAD_CAPABILITY'],
        ['query', 'ixo:oracle:bot?x', 'BAD_CAPABILITY'],
        ['path-in-capitals', 'ixo:oracle:BOT', 'NOT_DELEGATED'],
        ['not-a-uri', 'bot', 'UCAN_MALFORMED'],
        ['empty', '', 'UCAN_MALFORMED'],
        ['everything', 'ucan:*', 'BAD_CAPABILITY'],
        ['all-of-a-did', 'ucan:did:key:*', 'BAD_CAPABILITY'],
      ] as const
    ).map(([name, text, expect]) => ({
      ...{ name: `with-${name}`, what: 'another spelling of the resource that was delegated', as: 'grant' as const, expect },
      token: claimed(text),
    })),
    {
      name: 'claims-a-wildcard-resource',
      what: 'a star behind the own DID',
      token: message({ with: `${alice.did}*` }),
      expect: 'BAD_ISSUER',
    },
    { name: 'claims-another-did', what: 'speaks for bob without a proof', token: message({ with: bob.did }), expect: 'BAD_ISSUER' },
    { name: 'claims-no-did', what: 'on a resource that is no DID', token: message({ with: 'ixo:oracle' }), expect: 'BAD_ISSUER' },
    {
      ...{ name: 'proof-for-another-did', what: 'a grant of alice used to speak for bob', expect: 'NOT_DELEGATED' },
      token: spoken(grant(), { with: bob.did }),
    },
    {
      ...{ name: 'proof-on-a-did-not-its-own', what: 'mallory grants the session key a right on alice', expect: 'NOT_DELEGATED' },
      token: spoken(grant({ issuer: mallory, with: alice.did })),
    },
    {
      ...{ name: 'grant-on-anothers-did', what: 'mallory grants the oracle a right on alice', as: 'grant', expect: 'NOT_DELEGATED' },
      token: actingGrant({ issuer: mallory, with: alice.did }),
    },
    {
      ...{ name: 'nine-capabilities', what: 'more than eight', as: 'grant', expect: 'BAD_CAPABILITY' },
      token: actingGrant({ att: Array.from({ length: 9 }, (_, n) => ({ can: `a/b${n}`, with: alice.did })) }),
    },
    {
      ...{ name: 'capability-with-a-fourth-key', what: 'a key nobody reads', expect: 'BAD_CAPABILITY' },
      token: message({ att: [{ can: 'oracle/message', with: alice.did, nb: NB, x: 1 }] }),
    },
  );
};

export const caveats = (): Vector[] => {
  const proof = (nb: any, change = {}) => spoken(grant({ nb }), change);
  const room = { room: ROOM };
  return rows(
    'D',
    { name: 'unknown-caveat-in-proof', what: '`foo: 1` would be dropped on the way', token: proof({ foo: 1 }), expect: 'NOT_DELEGATED' },
    {
      name: 'unknown-caveat-kept',
      what: 'the same caveat in grant and token',
      token: proof({ foo: 1 }, { nb: { ...NB, foo: 1 } }),
      expect: 'NOT_DELEGATED',
    },
    {
      name: 'unknown-key-in-invocation',
      what: 'a key of `nb` that is not known',
      token: message({ nb: { ...NB, foo: 1 } }),
      expect: 'BAD_CAPABILITY',
    },
    {
      ...{
        name: 'unknown-caveat-in-acting-grant',
        what: 'a restriction that the oracle cannot keep',
        as: 'grant',
        expect: 'NOT_DELEGATED',
      },
      token: actingGrant({ nb: { maxCost: 5 } }),
    },
    {
      ...{ name: 'unknown-caveat-deep-in-chain', what: 'two links up', expect: 'NOT_DELEGATED' },
      token: spoken(grant({ issuer: bob, with: alice.did, prf: [grant({ audience: bob, nb: { foo: 1 } })] })),
    },
    { name: 'room-caveat-kept', what: 'a grant for one room, in that room', token: proof(room), expect: 'ok' },
    { name: 'room-caveat-other', what: 'a grant for another room', token: proof({ room: '!other:example.org' }), expect: 'NOT_DELEGATED' },
    {
      name: 'sender-caveat-other',
      what: 'a grant for another account',
      token: proof({ sender: '@bob:example.org' }),
      expect: 'NOT_DELEGATED',
    },
    { name: 'number-for-text', what: '1 is not "1"', token: proof({ type: 1 }, { nb: { ...NB, type: '1' } }), expect: 'NOT_DELEGATED' },
    { name: 'text-for-number', what: '"1" is not 1', token: proof({ ts: String(TS) }), expect: 'NOT_DELEGATED' },
    { name: 'list-for-text', what: '["A"] is not "A"', token: proof({ room: [ROOM] }), expect: 'NOT_DELEGATED' },
    { name: 'null-for-missing', what: 'null is not nothing', token: proof({ thread: null }), expect: 'NOT_DELEGATED' },
    { name: 'true-for-1', what: 'true is not 1', token: proof({ ts: true }, { nb: { ...NB, ts: 1 } }), expect: 'NOT_DELEGATED' },
    {
      name: 'missing-caveat',
      what: 'a restriction to a thread, and no thread',
      token: proof({ thread: '$root' }),
      expect: 'NOT_DELEGATED',
    },
    {
      ...{ name: 'equal-lists', what: 'lists are equal by value', as: 'grant', expect: 'NOT_DELEGATED' },
      token: handedOn(
        { can: 'a/b', with: alice.did, nb: { link: ['a', { b: 1 }] } },
        { can: 'a/b', with: alice.did, nb: { link: ['a', { b: 2 }] } },
      ),
    },
    {
      ...{ name: 'caveat-dropped-on-the-way', what: 'restricted, then handed on without', as: 'grant', expect: 'NOT_DELEGATED' },
      token: handedOn({ can: 'a/b', with: alice.did, nb: { sender: SENDER } }, { can: 'a/b', with: alice.did }),
    },
    {
      ...{ name: 'caveat-kept-on-the-way', what: 'the honest twin', as: 'grant', expect: 'ok' },
      token: handedOn({ can: 'a/b', with: alice.did, nb: { sender: SENDER } }, { can: 'a/b', with: alice.did, nb: { sender: SENDER } }),
    },
    {
      ...{ name: 'caveat-under-wildcard', what: 'a restriction of `oracle/*` that only oracle/message knows', expect: 'NOT_DELEGATED' },
      token: spoken(grant({ can: 'oracle/*', nb: room })),
    },
    {
      ...{ name: 'contradicting-senders', what: 'a grant that names two accounts', as: 'grant', expect: 'BAD_GRANT' },
      token: actingGrant({
        att: [
          { can: 'a/b', with: alice.did, nb: { sender: SENDER } },
          { can: 'a/c', with: alice.did, nb: { sender: '@bob:example.org' } },
        ],
      }),
    },
    {
      ...{ name: 'nb-proto-as-caveat', what: 'a caveat called constructor', expect: 'NOT_DELEGATED' },
      token: proof({ constructor: 1 }),
    },
    {
      name: 'nb-is-a-list',
      what: '`nb` as a list',
      token: altered(message, (m) => (capabilityOf(m)['nb'] = [1])),
      expect: 'UCAN_MALFORMED',
    },
    { name: 'nb-is-null', what: '`nb` as null', token: altered(message, (m) => (capabilityOf(m)['nb'] = null)), expect: 'UCAN_MALFORMED' },
    {
      name: 'nb-five-deep',
      what: 'maps in maps past the limit',
      token: message({ nb: { a: { b: { c: { d: { e: 1 } } } } } }),
      expect: 'UCAN_MALFORMED',
    },
    {
      name: 'nb-long-text',
      what: 'text past the limit',
      token: message({ nb: { ...NB, room: `!${'x'.repeat(600)}` } }),
      expect: 'UCAN_MALFORMED',
    },
    { name: 'ts-is-a-float', what: 'a moment as a float', token: message({ nb: { ...NB, ts: float(TS) } }), expect: 'UCAN_MALFORMED' },
    { name: 'ts-is-text', what: 'a moment as text', token: message({ nb: { ...NB, ts: String(TS) } }), expect: 'BAD_CAPABILITY' },
    {
      name: 'no-hash',
      what: 'says nothing about the text',
      token: message({ nb: { room: ROOM, sender: SENDER, type: 'm.room.message', ts: TS } }),
      expect: 'BAD_CAPABILITY',
    },
  );
};
