import { expect, test } from 'vitest';
import { decideNotice, type NoticeFacts } from '../../../src/admission/decide-notice.ts';
import { type ErrorCode, refusal } from '../../../src/errors.ts';
import type { RoomId, UserId } from '../../../src/ids.ts';
import { LIMITS } from '../../../src/limits.ts';
import { ALICE, BOB, OTHER_ROOM, ROOM } from '../../fakes/events.ts';

/** Somebody who is refused again and again; remembers what was said as `Notices` does. */
function listener() {
  const stamps = new Map<string, number>();
  return (code: ErrorCode, now: number, change: Partial<NoticeFacts> & { sender?: UserId; roomId?: RoomId } = {}) => {
    const decision = decideNotice({
      refusal: refusal(code),
      sender: ALICE,
      roomId: ROOM,
      direct: true,
      now,
      stampedAt: (stamp) => stamps.get(stamp) ?? null,
      ...change,
    });
    if (decision.kind === 'say') stamps.set(decision.stamp, now);
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

test('who has no authority is told once in 6 h, in every room together, and sees a lock in between', () => {
  const hear = listener();
  expect(hear('NO_AUTHORITY', 0)).toMatchObject({ kind: 'say', text: refusal('NO_AUTHORITY').message });

  expect(hear('NO_AUTHORITY', 1, { roomId: OTHER_ROOM }).kind).toBe('lock');
  expect(hear('NO_AUTHORITY', LIMITS.authorityNoticeRepeatMs - 1).kind).toBe('lock');
  expect(hear('NO_AUTHORITY', LIMITS.authorityNoticeRepeatMs).kind).toBe('say');
});

test('in a group the notice asks for a direct chat, and one there does not use up the one in the direct chat', () => {
  const hear = listener();

  const inGroup = hear('NO_AUTHORITY', 0, { direct: false });

  expect(inGroup).toMatchObject({ kind: 'say', text: expect.stringContaining('direct chat') });
  expect(hear('NO_AUTHORITY', 1, { direct: false }).kind).toBe('lock');
  expect(hear('NO_AUTHORITY', 2).kind).toBe('say');
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
