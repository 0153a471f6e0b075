import { expect, test } from 'vitest';
import { decideNotice, type NoticeFacts, needsGrant, OPEN_A_DIRECT_CHAT } from '../../../src/admission/decide-notice.ts';
import { type ErrorCode, refusal } from '../../../src/errors.ts';
import type { RoomId, UserId } from '../../../src/ids.ts';
import { LIMITS } from '../../../src/limits.ts';
import { ALICE, BOB, OTHER_ROOM, ROOM } from '../../fakes/events.ts';

const DIRECT_ROOM = '!direct:example.org' as RoomId;
const GRANT_CODES: readonly ErrorCode[] = ['NO_AUTHORITY', 'GRANT_EXPIRED', 'REVOKED', 'EXPIRES_TOO_SOON'];

/** Somebody who is refused again and again; remembers what was said as `Notices` does. */
function listener() {
  const stamps = new Map<string, number>();
  return (code: ErrorCode, now: number, change: Partial<NoticeFacts> & { sender?: UserId; roomId?: RoomId } = {}) => {
    const decision = decideNotice({
      refusal: refusal(code),
      sender: ALICE,
      roomId: ROOM,
      direct: true,
      signed: false,
      directRoom: null,
      now,
      stampedAt: (stamp) => stamps.get(stamp) ?? null,
      ...change,
    });
    if (decision.kind === 'say' || decision.kind === 'authorise') stamps.set(decision.stamp, now);
    return decision;
  };
}

test('a refusal is said once per person, room and code in 60 s', () => {
  const hear = listener();
  const kinds = (now: number) => [
    hear('REPLAY', now).kind,
    hear('RATE_LIMITED', now).kind,
    hear('REPLAY', now, { sender: BOB }).kind,
    hear('REPLAY', now, { roomId: OTHER_ROOM }).kind,
  ];

  expect(kinds(0)).toEqual(['say', 'say', 'say', 'say']);
  expect(kinds(LIMITS.refusalNoticeRepeatMs - 1)).toEqual(['silent', 'silent', 'silent', 'silent']);
  expect(kinds(LIMITS.refusalNoticeRepeatMs)).toEqual(['say', 'say', 'say', 'say']);
});

test.each(GRANT_CODES)(
  '%s: an ordinary client gets the way to authorise once in 6 h, in all direct rooms together, and a lock in between',
  (code) => {
    const hear = listener();
    expect(hear(code, 0)).toMatchObject({ kind: 'authorise', room: ROOM, lock: false });

    expect(hear(code, 1, { roomId: OTHER_ROOM }).kind).toBe('lock');
    expect(hear(code, LIMITS.authorityNoticeRepeatMs - 1).kind).toBe('lock');
    expect(hear(code, LIMITS.authorityNoticeRepeatMs).kind).toBe('authorise');
  },
);

test('the four share one notice, so that nobody gets four links at once', () => {
  const hear = listener();

  expect(GRANT_CODES.map((code, at) => hear(code, at).kind)).toEqual(['authorise', 'lock', 'lock', 'lock']);
});

test('in a group the link goes to the direct chat of that person, and the message gets a lock', () => {
  const hear = listener();

  expect(hear('NO_AUTHORITY', 0, { direct: false, directRoom: DIRECT_ROOM })).toMatchObject({
    kind: 'authorise',
    room: DIRECT_ROOM,
    lock: true,
  });
  expect(hear('NO_AUTHORITY', 1, { direct: false, directRoom: DIRECT_ROOM }).kind).toBe('lock');
  expect(hear('NO_AUTHORITY', 2, { roomId: DIRECT_ROOM }).kind).toBe('lock');
});

test('somebody known from a group only is asked once in 6 h to open a direct chat, and that does not use up the link there', () => {
  const hear = listener();

  expect(hear('REVOKED', 0, { direct: false })).toEqual({ kind: 'say', text: OPEN_A_DIRECT_CHAT, stamp: expect.any(String) });
  expect(hear('REVOKED', 1, { direct: false }).kind).toBe('lock');
  expect(hear('NO_AUTHORITY', 2).kind).toBe('authorise');
});

test('a client that signs is told what is wrong with its token, and gets no link for ordinary clients', () => {
  const hear = listener();

  expect(hear('GRANT_EXPIRED', 0, { signed: true })).toMatchObject({ kind: 'say', text: refusal('GRANT_EXPIRED').message });
  expect(needsGrant(refusal('NO_AUTHORITY'), true)).toBe(true);
  expect(GRANT_CODES.slice(1).map((code) => needsGrant(refusal(code), true))).toEqual([false, false, false]);
});

test('a foreign server gets no link', () => {
  expect(listener()('UNTRUSTED_SERVER', 0)).toMatchObject({ kind: 'say', text: refusal('UNTRUSTED_SERVER').message });
});

test('that it was offline is said once per room in 15 min, whoever wrote', () => {
  const hear = listener();
  expect(hear('TOO_LATE', 0).kind).toBe('say');

  expect(hear('TOO_LATE', LIMITS.lateNoticePerRoomMs - 1, { sender: BOB }).kind).toBe('silent');
  expect(hear('TOO_LATE', 5, { roomId: OTHER_ROOM }).kind).toBe('say');
  expect(hear('TOO_LATE', LIMITS.lateNoticePerRoomMs, { sender: BOB }).kind).toBe('say');
});

test('two oracles that refuse each other say one sentence each', () => {
  const [one, two] = [listener(), listener()];
  let said = 0;
  for (let turn = 0; turn < 100; turn += 1) if ((turn % 2 === 0 ? one : two)('NOT_ALLOWED', turn * 200).kind === 'say') said += 1;

  expect(said).toBe(2);
});
