import { expect, test } from 'vitest';
import { createKnownRooms } from '../../../src/admission/known-rooms.ts';
import { createOpenDirectRoom } from '../../../src/app/open-direct-room.ts';
import type { DeviceId, RoomId, UserId } from '../../../src/ids.ts';
import { fakeClock } from '../../fakes/fake-clock.ts';
import { createFakeHomeserver, registerOracle } from '../../fakes/fake-homeserver.ts';
import { memoryStore } from '../../fakes/memory-store.ts';

const ORACLE = '@oracle:oracle.local' as UserId;
const ALICE = '@alice:oracle.local' as UserId;
const BOB = '@bob:oracle.local' as UserId;
const CREATE = /createRoom$/u;

async function setUp() {
  const clock = fakeClock();
  const homeserver = createFakeHomeserver({ clock });
  await registerOracle(homeserver.connection());
  const api = homeserver.connection().as({ userId: ORACLE, deviceId: 'ORACLE' as DeviceId });
  const store = memoryStore();
  const known = createKnownRooms({ store });
  let ids = 0;
  /** A process; the next one knows what is on disk. */
  const process = () => createOpenDirectRoom({ store, api, known, clock, oracleName: 'Oracle', newId: () => `id-${++ids}` });
  const rooms = () => homeserver.requests.filter(({ path }) => CREATE.test(path)).length;
  const finish = (opener: ReturnType<typeof process>, user: UserId, room: RoomId) =>
    store.write((tx) => {
      known.invited(tx, room, { inviter: user, isDirect: true, at: clock.now() });
      known.joined(tx, room, clock.now());
      opener.opened(tx, user);
    });
  const memberOf = (room: RoomId, user: UserId) =>
    homeserver.timeline(room).findLast(({ type, state_key }) => type === 'm.room.member' && state_key === user)?.content;
  return { homeserver, process, rooms, finish, memberOf };
}

test('a room whose answer was lost is found by the next request, and no second one is made (G4)', async () => {
  const { homeserver, process, rooms, memberOf } = await setUp();
  homeserver.trouble(CREATE, { kind: 'lose_answer' });
  const opener = process();

  await expect(opener.open(ALICE)).rejects.toMatchObject({ errcode: 'CONNECTION_LOST' });
  const room = await opener.open(ALICE);

  expect(rooms()).toBe(1);
  expect(memberOf(room, ALICE)).toMatchObject({ membership: 'invite', is_direct: true });
});

test('a process that died before it wrote the room down finds it, and no second one is made (G4)', async () => {
  const { process, rooms } = await setUp();
  const first = await process().open(ALICE);

  expect(await process().open(ALICE)).toBe(first);
  expect(rooms()).toBe(1);
});

test('a room that was never made is made when it is asked for again', async () => {
  const { homeserver, process, rooms } = await setUp();
  homeserver.trouble(CREATE, { kind: 'answer', status: 502, body: 'Bad gateway' });

  await expect(process().open(ALICE)).rejects.toMatchObject({ status: 502 });
  await process().open(ALICE);

  expect(rooms()).toBe(1);
});

test('the room of one person is not given to another, and a finished one is not looked for', async () => {
  const { homeserver, process, finish } = await setUp();
  const opener = process();
  const first = await opener.open(ALICE);
  const second = await opener.open(BOB);
  await finish(opener, ALICE, first);
  const requests = homeserver.requests.length;
  const third = await opener.open(ALICE);

  expect(new Set([first, second, third]).size).toBe(3);
  expect(homeserver.requests.length - requests).toBe(1);
});

test('a stranger who copies the mark into a room of their own is not taken for it: the oracle was invited there', async () => {
  const { homeserver, process, finish, rooms } = await setUp();
  homeserver.trouble(CREATE, { kind: 'answer', status: 502, body: 'Bad gateway' });
  const opener = process();
  await expect(opener.open(ALICE)).rejects.toThrow();
  const trap = homeserver.createRoom({ creator: BOB, invite: [ORACLE] }) as RoomId;
  homeserver.setState(trap, BOB, 'm.room.create', { 'ixo.oracle.direct': { intent: 'id-1' } });
  homeserver.join(trap, ORACLE);
  const other = process();
  await finish({ ...other, opened: () => undefined }, BOB, trap);

  expect(await other.open(ALICE)).not.toBe(trap);
  expect(rooms()).toBe(1);
});

test('a homeserver that died between making the room and inviting is helped on', async () => {
  const { homeserver, process, memberOf } = await setUp();
  const room = await process().open(ALICE);
  homeserver.trouble(/state\/m\.room\.member/u, { kind: 'answer', status: 404, body: { errcode: 'M_NOT_FOUND' } });
  const before = homeserver.timeline(room).length;

  expect(await process().open(ALICE)).toBe(room);
  expect(homeserver.timeline(room).length).toBe(before + 1);
  expect(memberOf(room, ALICE)).toEqual({ membership: 'invite', is_direct: true });
});

test('a room that the person has declined meanwhile is not offered again', async () => {
  const { homeserver, process, rooms } = await setUp();
  const room = await process().open(ALICE);
  homeserver.leave(room, ALICE);

  const next = await process().open(ALICE);

  expect(next).not.toBe(room);
  expect(await process().open(ALICE)).toBe(next);
  expect(rooms()).toBe(2);
});
