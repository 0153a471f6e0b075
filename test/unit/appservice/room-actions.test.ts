import { beforeEach, describe, expect, test } from 'vitest';
import { createRoomActions, type OracleRoomActions, planFirstMessages } from '../../../appservice/room-actions.ts';
import type { DeviceId, EventId, RoomId, UserId } from '../../../src/ids.ts';
import type { IncomingEvent } from '../../../src/inbox/inbox.ts';
import { createLogger } from '../../../src/observe/logger.ts';
import { type FakeClock, fakeClock } from '../../fakes/fake-clock.ts';
import { createFakeHomeserver, type FakeHomeserver, registerOracle } from '../../fakes/fake-homeserver.ts';

const ORACLE = '@oracle:oracle.local' as UserId;
const ALICE = '@alice:oracle.local';
const BOB = '@bob:oracle.local';
let clock: FakeClock;
let homeserver: FakeHomeserver;
let actions: OracleRoomActions;
let received: IncomingEvent[];
let forgotten: string[];

beforeEach(async () => {
  clock = fakeClock();
  homeserver = createFakeHomeserver({ clock });
  await registerOracle(homeserver.connection());
  received = [];
  forgotten = [];
  actions = createRoomActions({
    api: homeserver.connection().as({ userId: ORACLE, deviceId: 'ORACLE' as DeviceId }),
    rooms: { forget: (room) => void forgotten.push(room) },
    oracle: ORACLE,
    clock,
    receive: async (events) => void received.push(...events),
    logger: createLogger({ level: 'silent', format: 'json' }),
  });
});
const open = (invite: readonly string[] = [ORACLE]) => homeserver.createRoom({ creator: ALICE, invite, direct: true }) as RoomId;
const texts = () => received.map(({ event }) => (event['content'] as { body?: string }).body);

test('joining twice is joining', async () => {
  const room = open();

  expect([await actions.join(room), await actions.join(room)]).toEqual(['joined', 'joined']);
  expect(forgotten).toContain(room);
});

test('an invite that was taken back, and a room that is gone, are values', async () => {
  expect(await actions.join(open([]))).toBe('gone');
  expect(await actions.join('!nowhere' as RoomId)).toBe('gone');
});

test('a homeserver that is down is no reason to forget an invite (G1)', async () => {
  const room = open();
  homeserver.stop();

  await expect(actions.join(room)).rejects.toMatchObject({ errcode: 'UNREACHABLE' });
});

test('a decline carries its words in the membership event and leaves no message', async () => {
  const room = open();

  await actions.leave(room, 'This oracle cannot read encrypted rooms yet.');

  expect(homeserver.timeline(room).at(-1)).toMatchObject({
    type: 'm.room.member',
    content: { membership: 'leave', reason: 'This oracle cannot read encrypted rooms yet.' },
  });
});

test('leaving a room one is not in is no failure', async () => {
  await expect(actions.leave(open([]), 'x')).resolves.toBeUndefined();
});

test('receipts and typing never fail for the caller', async () => {
  homeserver.stop();

  actions.markRead(open(), '$x' as EventId);
  actions.typing(open(), true);
  await clock.advanceAsync(1_000);
  await new Promise(setImmediate);
});

test('a burst of messages in a room gets one receipt, for the newest', async () => {
  const room = open();
  await actions.join(room);
  const events = ['one', 'two', 'three'].map((text) => homeserver.say(room, ALICE, text).event_id as EventId);
  const before = homeserver.requests.length;

  for (const event of events) actions.markRead(room, event);
  await clock.advanceAsync(1_000);
  await new Promise(setImmediate);

  const receipts = homeserver.requests.slice(before).filter(({ path }) => path.includes('/receipt/'));
  expect(receipts.map(({ path }) => decodeURIComponent(path.split('/').at(-1) ?? ''))).toEqual([events.at(-1)]);
});

describe('what was said between invite and join', () => {
  test('is read, oldest first, the inviter’s only', async () => {
    const room = open([]);
    homeserver.say(room, ALICE, 'long ago');
    homeserver.join(room, BOB);
    homeserver.invite(room, ALICE, ORACLE);
    homeserver.say(room, ALICE, 'hello');
    homeserver.say(room, BOB, 'me too');
    homeserver.say(room, ALICE, 'are you there?');
    await actions.join(room);
    homeserver.say(room, ALICE, 'pushed');

    expect(await actions.readBackToInvite(room)).toBe(true);
    expect(texts()).toEqual(['hello', 'are you there?']);
    expect(received.every(({ source }) => source === 'backfill')).toBe(true);
  });

  test('is found over several pages, and nothing is taken before the invite was seen', async () => {
    const room = open();
    for (let index = 0; index < 250; index += 1) homeserver.say(room, ALICE, `m${index}`);
    await actions.join(room);

    expect(await actions.readBackToInvite(room)).toBe(true);
    expect(texts()).toEqual(Array.from({ length: 250 }, (_, index) => `m${index}`));
  });

  test('is left alone past the page limit (G14)', async () => {
    const room = open();
    for (let index = 0; index < 2_100; index += 1) homeserver.say(room, ALICE, `m${index}`);
    await actions.join(room);

    expect(await actions.readBackToInvite(room)).toBe(false);
    expect(received).toEqual([]);
  });

  test('of a second invite is not mixed with the first stay', () => {
    const event = (sender: string, content: object, more: object = {}) => ({ type: 'm.room.message', sender, content, ...more });
    const own = (membership: string, sender = ORACLE as string) =>
      event(sender, { membership }, { type: 'm.room.member', state_key: ORACLE });
    const oldestFirst = [
      own('invite', ALICE),
      event(ALICE, { body: '1' }),
      own('join'),
      event(ALICE, { body: '2' }),
      own('leave'),
      own('invite', ALICE),
      event(ALICE, { body: '3' }),
      own('join'),
      event(ALICE, { body: '4' }),
    ];

    expect(planFirstMessages(oldestFirst.toReversed(), ORACLE)).toEqual([event(ALICE, { body: '3' })]);
    expect(planFirstMessages([event(ALICE, { body: '4' }), own('join')], ORACLE)).toBe(null);
  });
});

describe('the grant that an older client keeps in the state of the room', () => {
  test('is read into the inbox as the event it is, alone', async () => {
    const room = open();
    homeserver.setState(room, ALICE, 'ixo.room.state', { data: 'eJw=' }, 'other');
    const set = homeserver.setState(room, ALICE, 'ixo.room.state', { data: 'eJw=' }, 'ucan_delegation');
    await actions.join(room);

    await actions.readStateGrant(room);

    expect(received).toMatchObject([
      { eventId: set.event_id, roomId: room, sender: ALICE, source: 'backfill', event: { state_key: 'ucan_delegation' } },
    ]);
  });

  test('is none in most rooms, and a homeserver that is down is not taken for that (G1)', async () => {
    const room = open();
    await actions.join(room);

    await actions.readStateGrant(room);

    expect(received).toEqual([]);
    homeserver.stop();
    await expect(actions.readStateGrant(room)).rejects.toMatchObject({ errcode: 'UNREACHABLE' });
  });
});
