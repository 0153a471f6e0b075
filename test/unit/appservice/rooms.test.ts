import { beforeEach, describe, expect, test } from 'vitest';
import { MatrixError } from '../../../appservice/matrix-api.ts';
import { createRooms, forgetChanged, type Rooms } from '../../../appservice/rooms.ts';
import type { DeviceId, EventId, RoomId, UserId } from '../../../src/ids.ts';
import type { IncomingEvent } from '../../../src/inbox/inbox.ts';
import { createLogger } from '../../../src/observe/logger.ts';
import { openStore, type Store } from '../../../src/store/store.ts';
import { type FakeClock, fakeClock } from '../../fakes/fake-clock.ts';
import { createFakeHomeserver, type FakeHomeserver, registerOracle } from '../../fakes/fake-homeserver.ts';

const ORACLE = '@oracle:oracle.local' as UserId;
const ALICE = '@alice:oracle.local' as UserId;
let clock: FakeClock;
let homeserver: FakeHomeserver;
let store: Store;
let rooms: Rooms;

beforeEach(async () => {
  clock = fakeClock();
  homeserver = createFakeHomeserver({ clock });
  await registerOracle(homeserver.connection());
  store = openStore({ path: ':memory:', now: clock.now() });
  rooms = createRooms({
    api: homeserver.connection().as({ userId: ORACLE, deviceId: 'ORACLE' as DeviceId }),
    store,
    oracle: ORACLE,
    clock,
    logger: createLogger({ level: 'silent', format: 'json' }),
  });
});
function openRoom(options: { direct?: boolean; encrypted?: boolean } = {}): RoomId {
  const room = homeserver.createRoom({ creator: ALICE, invite: [ORACLE], ...options }) as RoomId;
  homeserver.join(room, ORACLE);
  homeserver.requests.length = 0;
  return room;
}

test('a room that is known costs no request', async () => {
  const room = openRoom({ direct: true });
  await rooms.facts(room);
  const cold = homeserver.requests.length;

  for (let time = 0; time < 50; time += 1) await rooms.facts(room);
  await rooms.powerLevel(room, ALICE);

  expect(cold).toBe(1);
  expect(homeserver.requests.length).toBe(cold);
});

test('many messages in a new room at once cost one look-up', async () => {
  const room = openRoom({ direct: true });

  await Promise.all(Array.from({ length: 20 }, () => rooms.facts(room)));

  expect(homeserver.requests).toHaveLength(1);
});

test('direct: invited as such, and at most two people', async () => {
  const room = openRoom({ direct: true });
  expect(await rooms.facts(room)).toMatchObject({ kind: 'direct', encryption: 'none', federated: false, joined: true, displayName: ALICE });

  homeserver.invite(room, ALICE, '@bob:oracle.local');
  rooms.forget(room);

  expect((await rooms.facts(room)).kind).toBe('group');
});

test('direct is found again without a row, and when the homeserver no longer remembers the invite beside the join', async () => {
  const room = openRoom({ direct: true });
  for (const event of homeserver.timeline(room)) delete event.unsigned['prev_content'];

  expect((await rooms.facts(room)).kind).toBe('direct');
  await rooms.facts(room);

  expect(homeserver.requests.map(({ path }) => path.split('/').at(6))).toEqual(['state', 'event']);
});

test('a room that is not known yet counts as federated: edits are rarer until it is known', async () => {
  const room = openRoom();
  expect(rooms.isFederated(room)).toBe(true);

  await rooms.facts(room);

  expect(rooms.isFederated(room)).toBe(false);
});

test('two people alone make no direct room', async () => {
  expect((await rooms.facts(openRoom())).kind).toBe('group');
});

test('the row of the invite says direct and where the room begins', async () => {
  const room = openRoom();
  await store.write((tx) =>
    tx.run(
      store.sql
        .insertInto('rooms')
        .values({ room_id: room, membership: 'joined', inviter: ALICE, is_direct: 1, invited_at: 17, joined_at: 18 }),
    ),
  );

  expect(await rooms.facts(room)).toMatchObject({ kind: 'direct', admissionCursor: 17 });
});

test.each([
  ['others come in by themselves', 'm.room.join_rules', { join_rule: 'public' }],
  ['others read from outside', 'm.room.history_visibility', { history_visibility: 'world_readable' }],
])('two people where %s are a group: a link for one of them would not be for one alone (G13)', async (_name, type, content) => {
  const room = openRoom({ direct: true });
  expect((await rooms.facts(room)).kind).toBe('direct');
  homeserver.setState(room, ALICE, type, content);
  forgetChanged([{ type, roomId: room, event: { state_key: '' } } as unknown as IncomingEvent], rooms);

  expect((await rooms.facts(room)).kind).toBe('group');
});

test('a failed look-up is a group with unknown encryption, and the next one is tried again (G11)', async () => {
  const room = openRoom({ direct: true });
  homeserver.stop();
  const down = await rooms.facts(room);
  homeserver.start();

  expect(down).toMatchObject({ kind: 'group', encryption: 'unknown', joined: false });
  expect((await rooms.facts(room)).kind).toBe('direct');
});

test('encryption that was seen once is never forgotten (G11)', async () => {
  const room = openRoom({ encrypted: true });
  expect((await rooms.facts(room)).encryption).toBe('encrypted');
  rooms.forget(room);
  homeserver.stop();

  expect((await rooms.facts(room)).encryption).toBe('encrypted');
  expect(await rooms.isEncrypted(room)).toBe(true);
});

test('encryption that is switched on is seen at the next look', async () => {
  const room = openRoom();
  expect(await rooms.isEncrypted(room)).toBe(false);

  homeserver.setState(room, ALICE, 'm.room.encryption', { algorithm: 'm.megolm.v1.aes-sha2' });
  rooms.forget(room);

  expect(await rooms.isEncrypted(room)).toBe(true);
});

test('a change while the room is being read makes it read again', async () => {
  const room = openRoom();
  const first = rooms.facts(room);
  rooms.forget(room);
  await first;
  homeserver.setState(room, ALICE, 'm.room.name', { name: 'new' });

  expect((await rooms.facts(room)).displayName).toBe('new');
});

test('a large room is not read whole again for every newcomer, but its encryption is', async () => {
  const room = openRoom();
  for (let person = 0; person < 200; person += 1) homeserver.join(room, `@p${person}:oracle.local`);
  await rooms.facts(room);
  homeserver.requests.length = 0;
  homeserver.setState(room, ALICE, 'm.room.encryption', { algorithm: 'x' });
  rooms.forget(room);

  const facts = await rooms.facts(room);

  expect(facts).toMatchObject({ kind: 'group', encryption: 'encrypted', joined: true });
  expect(homeserver.requests.some(({ path }) => path.endsWith('/state'))).toBe(false);
});

test('the own level of a user decides what may be sent for them (no confused deputy)', async () => {
  const room = openRoom();
  homeserver.join(room, '@bob:oracle.local');

  expect(await rooms.maySend(room, ALICE, { type: 'm.room.topic', isState: true })).toBe(true);
  expect(await rooms.maySend(room, '@bob:oracle.local' as UserId, { type: 'm.room.topic', isState: true })).toBe(false);
  expect(await rooms.maySend(room, '@stranger:oracle.local' as UserId, { type: 'm.room.message', isState: false })).toBe(false);
});

test('a member with the room’s redact level may take back what others wrote, who is no longer in may not (G9)', async () => {
  const room = openRoom();
  homeserver.invite(room, ALICE, '@bob:oracle.local');
  homeserver.join(room, '@bob:oracle.local');
  homeserver.setState(room, ALICE, 'm.room.power_levels', {
    redact: 30,
    users: { [ALICE]: 100, '@bob:oracle.local': 30, '@gone:oracle.local': 100 },
  });
  rooms.forget(room);

  expect(await rooms.mayRedact(room, '@bob:oracle.local' as UserId)).toBe(true);
  expect(await rooms.mayRedact(room, '@gone:oracle.local' as UserId)).toBe(false);
  homeserver.setState(room, ALICE, 'm.room.power_levels', { users: { [ALICE]: 100, '@bob:oracle.local': 49 } });
  rooms.forget(room);
  expect(await rooms.mayRedact(room, '@bob:oracle.local' as UserId)).toBe(false);
  expect(await rooms.mayRedact(room, ALICE)).toBe(true);
});

test('who sent an event is asked once; an unknown event has no sender', async () => {
  const room = openRoom();
  const { event_id: id } = homeserver.say(room, ALICE, 'x');

  expect(await rooms.senderOf(room, id as EventId)).toBe(ALICE);
  expect(await rooms.senderOf(room, id as EventId)).toBe(ALICE);
  expect(await rooms.senderOf(room, '$none' as EventId)).toBe(null);
  expect(homeserver.requests).toHaveLength(2);
});

test('who asks after a change is not answered with a look from before it (G11)', async () => {
  const room = openRoom();
  const create = { type: 'm.room.create', state_key: '', content: {} };
  const encryption = { type: 'm.room.encryption', state_key: '', content: {} };
  const answers: ((state: object[]) => void)[] = [];
  const slow = createRooms({
    api: { request: () => new Promise<never>((resolve) => answers.push(resolve as never)) },
    store,
    oracle: ORACLE,
    clock,
    logger: createLogger({ level: 'silent', format: 'json' }),
  });
  const before = slow.isEncrypted(room);
  slow.forget(room);
  const after = slow.isEncrypted(room);

  answers[0]?.([create]);
  expect(await before).toBe(false);
  await new Promise((resolve) => setImmediate(resolve));
  answers[1]?.([create, encryption]);
  expect(await after).toBe(true);
});

test('an answer that is no list of state says nothing about encryption, so nothing is sent (G11)', async () => {
  const room = openRoom({ encrypted: true });
  for (const answer of [{}, []]) {
    const odd = createRooms({
      api: { request: async () => answer as never },
      store,
      oracle: ORACLE,
      clock,
      logger: createLogger({ level: 'silent', format: 'json' }),
    });

    expect(await odd.facts(room)).toMatchObject({ encryption: 'unknown', kind: 'group' });
    await expect(odd.isEncrypted(room)).rejects.toBeInstanceOf(MatrixError);
  }
});

test('encryption and people that were pushed count at once, before their events have their turn (G11, G13)', async () => {
  const room = openRoom({ direct: true });
  const event = (type: string, state: object) => ({
    eventId: '$e' as EventId,
    roomId: room,
    sender: ALICE,
    type,
    ageMs: 0,
    source: 'push',
    event: state,
  });
  expect((await rooms.facts(room)).kind).toBe('direct');
  homeserver.invite(room, ALICE, '@bob:oracle.local');
  homeserver.setState(room, ALICE, 'm.room.encryption', { algorithm: 'm.megolm.v1.aes-sha2' });

  forgetChanged([event('m.room.message', {}), event('m.room.member', {})] as IncomingEvent[], rooms);
  expect((await rooms.facts(room)).kind).toBe('direct');

  forgetChanged([event('m.room.encryption', { state_key: '' })] as IncomingEvent[], rooms);
  expect(await rooms.isEncrypted(room)).toBe(true);
  expect((await rooms.facts(room)).kind).toBe('group');
});

test('large rooms do not fill the memory: the least used is read again (G14)', async () => {
  const large = Array.from({ length: 300_000 }, (_value, n) => ({
    type: 'm.room.member',
    state_key: `@u${n}:x`,
    content: { membership: 'join' },
  }));
  const state = [{ type: 'm.room.create', state_key: '', content: {} }, ...large];
  let reads = 0;
  const many = createRooms({
    api: {
      request: async () => {
        reads += 1;
        return state as never;
      },
    },
    store,
    oracle: ORACLE,
    clock,
    logger: createLogger({ level: 'silent', format: 'json' }),
  });
  const [a, b] = ['!a' as RoomId, '!b' as RoomId];

  for (const room of [a, a, b, b, a]) await many.isEncrypted(room);

  expect(reads).toBe(3);
});

describe('an encrypted room', () => {
  const BOB = '@bob:elsewhere.org' as UserId;
  const restart = () => {
    rooms = createRooms({
      api: homeserver.connection().as({ userId: ORACLE, deviceId: 'ORACLE' as DeviceId }),
      store,
      oracle: ORACLE,
      clock,
      logger: createLogger({ level: 'silent', format: 'json' }),
    });
  };
  const pushed = (room: RoomId, type: string, stateKey: string) =>
    forgetChanged([{ type, roomId: room, event: { state_key: stateKey } } as unknown as IncomingEvent], rooms);
  const commits = () => new Promise((resolve) => setImmediate(resolve));

  test('is described for who encrypts: its readers, its visibility, when its key is replaced', async () => {
    const room = openRoom({ encrypted: true });
    homeserver.setState(room, ALICE, 'm.room.encryption', {
      algorithm: 'm.megolm.v1.aes-sha2',
      rotation_period_ms: 86_400_000,
      rotation_period_msgs: 20,
    });

    expect(await rooms.encryption(room)).toEqual({
      roomId: room,
      readers: [ALICE, ORACLE],
      historyVisibility: 'shared',
      rotationPeriodMs: 86_400_000,
      rotationPeriodMessages: 20,
    });
  });

  test('is null where plain text may go: the control', async () => {
    expect(await rooms.encryption(openRoom())).toBeNull();
  });

  test('costs no request while nothing changes', async () => {
    const room = openRoom({ encrypted: true });
    await rooms.encryption(room);
    homeserver.requests.length = 0;

    for (let time = 0; time < 50; time += 1) await rooms.encryption(room);

    expect(homeserver.requests).toEqual([]);
  });

  test.each([
    ['invited', true],
    ['shared', true],
    ['world_readable', true],
    ['a word nobody knows', true],
    ['joined', false],
  ])('with visibility %s: invited people read along: %s', async (history_visibility, read) => {
    const room = openRoom({ encrypted: true });
    homeserver.setState(room, ALICE, 'm.room.history_visibility', { history_visibility });
    homeserver.invite(room, ALICE, BOB);

    expect((await rooms.encryption(room))?.readers.includes(BOB)).toBe(read);
  });

  test('gives its key to nobody who has left, and to whoever came since the last message (G13)', async () => {
    const room = openRoom({ encrypted: true });
    homeserver.join(room, BOB);
    expect((await rooms.encryption(room))?.readers).toContain(BOB);

    homeserver.leave(room, BOB);
    pushed(room, 'm.room.member', BOB);
    expect((await rooms.encryption(room))?.readers).toEqual([ALICE, ORACLE]);

    homeserver.join(room, '@carol:oracle.local');
    pushed(room, 'm.room.member', '@carol:oracle.local');
    expect((await rooms.encryption(room))?.readers).toContain('@carol:oracle.local');
  });

  test('with many members, too: what saves requests elsewhere does not count for who gets the key', async () => {
    const room = openRoom({ encrypted: true });
    for (let person = 0; person < 200; person += 1) homeserver.join(room, `@p${person}:oracle.local`);
    await rooms.encryption(room);
    homeserver.leave(room, '@p7:oracle.local');
    pushed(room, 'm.room.member', '@p7:oracle.local');
    homeserver.requests.length = 0;

    expect((await rooms.encryption(room))?.readers).toHaveLength(201);
    expect(homeserver.requests.map(({ path }) => path.split('/').slice(6).join('/'))).toEqual(['state']);
  });

  test('with many members that was read in part for something else is read whole', async () => {
    const room = openRoom({ encrypted: true });
    for (let person = 0; person < 200; person += 1) homeserver.join(room, `@p${person}:oracle.local`);
    await rooms.facts(room);
    homeserver.leave(room, '@p7:oracle.local');
    pushed(room, 'm.room.member', '@p7:oracle.local');
    await rooms.facts(room);

    expect((await rooms.encryption(room))?.readers).toHaveLength(201);
  });

  test('that the oracle was thrown out of gets no key, as nothing can be sent there', async () => {
    const room = openRoom({ encrypted: true });
    await rooms.encryption(room);
    homeserver.leave(room, ORACLE);
    pushed(room, 'm.room.member', ORACLE);
    homeserver.trouble(/state$/u, { kind: 'answer', status: 200, body: [{ type: 'm.room.create', state_key: '', content: {} }] });

    await expect(rooms.encryption(room)).rejects.toMatchObject({ errcode: 'M_FORBIDDEN', status: 403 });
  });

  test('that cannot be looked up is an error, never "no readers"', async () => {
    const room = openRoom({ encrypted: true });
    await rooms.encryption(room);
    rooms.forget(room);
    homeserver.stop();

    await expect(rooms.encryption(room)).rejects.toBeInstanceOf(MatrixError);
  });

  test('stays one for the next process, whatever its state says then (G11)', async () => {
    const room = openRoom({ encrypted: true });
    await rooms.encryption(room);
    await commits();
    homeserver.hideState(room, 'm.room.encryption');
    restart();

    expect(await rooms.isEncrypted(room)).toBe(true);
    expect(await rooms.encryption(room)).toMatchObject({ readers: [ALICE, ORACLE], rotationPeriodMs: null });
    expect((await rooms.facts(room)).encryption).toBe('encrypted');
  });

  test('is known by its event, also when the state is answered from before it (G11)', async () => {
    const room = openRoom();
    await rooms.facts(room);
    pushed(room, 'm.room.encryption', '');

    expect(await rooms.encryption(room)).toMatchObject({ readers: [ALICE, ORACLE] });
    expect((await rooms.facts(room)).encryption).toBe('encrypted');
  });

  test('is known by its event, also when it comes while the state is on its way (G11)', async () => {
    const room = openRoom();
    const create = { type: 'm.room.create', state_key: '', content: {} };
    const answers: ((state: object[]) => void)[] = [];
    rooms = createRooms({
      api: { request: () => new Promise<never>((resolve) => answers.push(resolve as never)) },
      store,
      oracle: ORACLE,
      clock,
      logger: createLogger({ level: 'silent', format: 'json' }),
    });
    const asked = rooms.encryption(room);
    const askedToo = rooms.isEncrypted(room);
    pushed(room, 'm.room.encryption', '');

    answers[0]?.([create]);
    expect(await askedToo).toBe(true);
    await commits();
    answers[1]?.([create, { type: 'm.room.member', state_key: ORACLE, content: { membership: 'join' } }]);
    expect(await asked).toMatchObject({ readers: [ORACLE] });
  });

  test('is not made by an event with another key', async () => {
    const room = openRoom();
    pushed(room, 'm.room.encryption', 'x');

    expect(await rooms.encryption(room)).toBeNull();
  });

  test('is known to this process when the disk is full, and written down at a later look (G11)', async () => {
    const room = openRoom({ encrypted: true });
    const write = store.write;
    const full = { ...store, write: () => Promise.reject(new Error('disk full')) } as Store;
    let broken = true;
    rooms = createRooms({
      api: homeserver.connection().as({ userId: ORACLE, deviceId: 'ORACLE' as DeviceId }),
      store: { ...store, write: (work) => (broken ? full.write(work) : write(work)) } as Store,
      oracle: ORACLE,
      clock,
      logger: createLogger({ level: 'silent', format: 'json' }),
    });
    await rooms.encryption(room);
    await commits();
    homeserver.hideState(room, 'm.room.encryption');
    rooms.forget(room);
    expect(await rooms.isEncrypted(room)).toBe(true);

    broken = false;
    rooms.sawEncryption(room);
    await commits();
    restart();
    expect(await rooms.isEncrypted(room)).toBe(true);
  });
});

test('who is only invited, or gone, has not joined; a room that the oracle may not look into is none of theirs (G13)', async () => {
  const room = openRoom();
  const bob = '@bob:oracle.local' as UserId;
  homeserver.invite(room, ALICE, bob);

  expect(await rooms.areJoined(room, ALICE)).toBe(true);
  expect(await rooms.areJoined(room, bob)).toBe(false);
  expect(await rooms.areJoined(homeserver.createRoom({ creator: ALICE }) as RoomId, ALICE)).toBe(false);
});
