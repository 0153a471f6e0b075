import { expect, test } from 'vitest';
import type { RoomId } from '../../../src/ids.ts';
import { createDispatcher, type DispatcherOptions } from '../../../src/inbox/dispatcher.ts';
import { createInbox, type InboxRow } from '../../../src/inbox/inbox.ts';
import { Unavailable } from '../../../src/inbox/unavailable.ts';
import { incoming, ORACLE, OTHER_ROOM, ROOM, roomId } from '../../fakes/events.ts';
import { fakeClock } from '../../fakes/fake-clock.ts';
import { fakeLogger } from '../../fakes/fake-logger.ts';
import { breakDisk, fileStore, memoryStore, settle } from '../../fakes/memory-store.ts';

function setUp(change: Partial<DispatcherOptions> = {}) {
  const store = change.store ?? memoryStore();
  const clock = fakeClock();
  const logger = fakeLogger();
  const inbox = createInbox({ store, clock, oracle: ORACLE, fence: 1 });
  const handled: string[] = [];
  const buried: string[] = [];
  const finish = (row: InboxRow) => store.write((tx) => inbox.finish(tx, row));
  const dispatcher = createDispatcher({
    inbox,
    store,
    clock,
    logger,
    handle: async (row) => {
      handled.push(row.eventId);
      await finish(row);
    },
    giveUp: async (row) => {
      await store.write((tx) => inbox.bury(tx, row, 'GAVE_UP'));
      buried.push(row.eventId);
    },
    heldUntil: () => null,
    maxRooms: 4,
    ...change,
  });
  return { store, clock, logger, inbox, dispatcher, handled, buried, finish };
}
/** A handler that waits for the test. */
function gate() {
  const waiting = new Map<string, () => void>();
  return {
    waiting,
    wait: (row: InboxRow) => new Promise<void>((resolve) => void waiting.set(row.eventId, resolve)),
    open(event: string) {
      waiting.get(event)?.();
      waiting.delete(event);
    },
  };
}

test('what waited before the start and what arrives later is handled, each room in order (G3)', async () => {
  const { inbox, dispatcher, handled } = setUp();
  await inbox.receive([incoming('a'), incoming('b')]);
  dispatcher.start();
  await settle();
  await inbox.receive([incoming('c'), incoming('d')]);

  await settle();

  expect(handled).toEqual(['$a', '$b', '$c', '$d']);
  await dispatcher.stop();
});

test('one row of a room at a time, other rooms meanwhile, never more rooms than allowed', async () => {
  const held = gate();
  const setup = setUp({
    maxRooms: 2,
    handle: async (row) => {
      await held.wait(row);
      await setup.finish(row);
    },
  });
  const { inbox, dispatcher } = setup;
  dispatcher.start();
  await inbox.receive(['r1', 'r2', 'r3'].flatMap((room) => [1, 2].map((n) => incoming(`${room}.${n}`, { roomId: roomId(room) }))));
  await settle();
  expect([...held.waiting.keys()]).toEqual(['$r1.1', '$r2.1']);

  held.open('$r2.1');
  await settle();
  expect([...held.waiting.keys()]).toEqual(['$r1.1', '$r2.2']);
  held.open('$r2.2');
  await settle();

  expect([...held.waiting.keys()]).toEqual(['$r1.1', '$r3.1']);
  for (let round = 0; round < 6; round += 1) {
    for (const event of [...held.waiting.keys()]) held.open(event);
    await settle();
  }
  expect(inbox.depth().rows).toBe(0);
  await dispatcher.stop();
});

test('a row that fails is tried again after 1, 2, 4 and 8 s, holds only its own room, and is then buried with a word (G1)', async () => {
  const tries: number[] = [];
  const setup = setUp({
    handle: async (row) => {
      if (row.eventId === '$bad') {
        tries.push(setup.clock.monotonic());
        throw new TypeError('a bug');
      }
      setup.handled.push(row.eventId);
      await setup.finish(row);
    },
  });
  const { inbox, dispatcher, handled, buried, clock, logger } = setup;
  dispatcher.start();
  await inbox.receive([incoming('bad'), incoming('behind'), incoming('elsewhere', { roomId: OTHER_ROOM })]);
  await settle();
  expect(handled).toEqual(['$elsewhere']);

  for (let second = 0; second < 20; second += 1) await clock.advanceAsync(1_000).then(() => settle());

  expect(tries).toEqual([0, 1_000, 3_000, 7_000, 15_000]);
  expect(buried).toEqual(['$bad']);
  expect(handled).toEqual(['$elsewhere', '$behind']);
  expect(logger.lines.find(({ code }) => code === 'GAVE_UP')).toMatchObject({ level: 'error', event_id: '$bad', attempt: 5 });
  await dispatcher.stop();
  expect(clock.pending()).toBe(0);
});

test('a full disk stops claiming, costs no attempt, and work goes on when it has room again', async () => {
  const setup = setUp();
  const { inbox, dispatcher, handled, buried, clock, store, logger } = setup;
  await inbox.receive([incoming('a'), incoming('b')]);
  const disk = breakDisk(store);
  dispatcher.start();
  for (let second = 0; second < 30; second += 1) await clock.advanceAsync(1_000).then(() => settle());
  // The first claim finds out; after that nothing is in hand while nothing can be written.
  expect(handled).toEqual(['$a']);
  expect(logger.said('error')).toEqual(['an event waits: the database cannot be written']);

  disk.repair();
  await clock.advanceAsync(1_000).then(() => settle());

  expect(handled).toEqual(['$a', '$a', '$b']);
  expect(buried).toEqual([]);
  await dispatcher.stop();
});

test('a disk that fails at the end of handling, again and again, buries nothing', async () => {
  let failures = 8;
  const setup = setUp({
    handle: async (row) => {
      // The claim is on disk by then, so it was counted.
      await settle(2);
      if (failures-- > 0) {
        const disk = breakDisk(setup.store);
        await setup.finish(row).finally(() => disk.repair());
      }
      setup.handled.push(row.eventId);
      await setup.finish(row);
    },
  });
  const { inbox, dispatcher, handled, buried, clock } = setup;
  dispatcher.start();
  await inbox.receive([incoming('a')]);

  for (let second = 0; second < 12; second += 1) await clock.advanceAsync(1_000).then(() => settle());

  expect(handled).toEqual(['$a']);
  expect(buried).toEqual([]);
  await dispatcher.stop();
});

class Refused extends Error {}
test.each([
  ['the room cannot be looked up', new Unavailable('x')],
  ['the homeserver is down', new Refused('x')],
])('while %s rows wait uncounted, at most 30 s apart, and go on afterwards (G1)', async (_why, error) => {
  let down = true;
  let tries = 0;
  const setup = setUp({
    isOutage: (thrown) => thrown instanceof Refused,
    handle: async (row) => {
      tries += 1;
      if (down) throw error;
      setup.handled.push(`${row.eventId} ${row.attempt} ${row.again}`);
      await setup.finish(row);
    },
  });
  const { inbox, dispatcher, handled, buried, clock } = setup;
  dispatcher.start();
  await inbox.receive([incoming('a')]);
  for (let minute = 0; minute < 30; minute += 1) await clock.advanceAsync(60_000).then(() => settle());
  expect(tries).toBeGreaterThan(30);
  expect(tries).toBeLessThan(80);
  down = false;

  await clock.advanceAsync(30_000).then(() => settle());

  expect(handled).toEqual(['$a 1 true']);
  expect(buried).toEqual([]);
  await dispatcher.stop();
});

test('how long it waits is stored in whole ms, however long it has waited already', async () => {
  const setup = setUp({
    handle: async () => {
      setup.clock.advance(2_333);
      throw new Unavailable('x');
    },
  });
  const { inbox, dispatcher, logger } = setup;
  dispatcher.start();

  await inbox.receive([incoming('a')]);
  await settle();

  expect(logger.lines.filter(({ message }) => message.includes('could not be recorded'))).toEqual([]);
  await dispatcher.stop();
});

test('a room that can never be looked up does not hold its row for ever', async () => {
  const setup = setUp({
    handle: async () => {
      throw new Unavailable('we were thrown out');
    },
  });
  const { inbox, dispatcher, buried, clock } = setup;
  dispatcher.start();
  await inbox.receive([incoming('a')]);

  for (let minute = 0; minute < 70; minute += 1) await clock.advanceAsync(60_000).then(() => settle());

  expect(buried).toEqual(['$a']);
  await dispatcher.stop();
});

test('a row that ends the process each time it is handled is buried without being handled a sixth time', async () => {
  const { open } = fileStore();
  for (let start = 0; start < 5; start += 1) {
    const store = open();
    const inbox = createInbox({ store, clock: fakeClock(), oracle: ORACLE, fence: start + 1 });
    await inbox.receive([incoming('deadly')]);
    const claim = inbox.claim(ROOM);
    if (claim.kind === 'row') await claim.count?.();
    await settle(2);
    store.close();
  }
  const store = open();
  const setup = setUp({ store });
  // Its fence is lower than the last one's: as if the leases had ended.
  setup.clock.advance(200_000);

  setup.dispatcher.start();
  await settle();

  expect(setup.handled).toEqual([]);
  expect(setup.buried).toEqual(['$deadly']);
  await setup.dispatcher.stop();
  store.close();
});

test('a room that is held waits until its time, or until it is told to look', async () => {
  let until: number | null = null;
  const setup = setUp({ heldUntil: (room) => (room === ROOM ? until : null) });
  const { inbox, dispatcher, handled, clock } = setup;
  until = clock.now() + 60_000;
  dispatcher.start();
  await inbox.receive([incoming('a'), incoming('elsewhere', { roomId: OTHER_ROOM })]);
  await clock.advanceAsync(59_999).then(() => settle());
  expect(handled).toEqual(['$elsewhere']);

  await clock.advanceAsync(1).then(() => settle());
  expect(handled).toEqual(['$elsewhere', '$a']);

  until = clock.now() + 60_000;
  await inbox.receive([incoming('b')]);
  await settle();
  expect(handled).not.toContain('$b');
  until = null;
  dispatcher.nudge(ROOM);
  await settle();
  expect(handled).toContain('$b');
  await dispatcher.stop();
  expect(clock.pending()).toBe(0);
});

test('an arrival announced while its room is being handled is not missed and not handled beside it', async () => {
  let inHand = 0;
  const setup = setUp({
    handle: async (row) => {
      inHand += 1;
      expect(inHand).toBe(1);
      // As a first look back does: the room's own rows arrive while it is in hand.
      if (row.eventId === '$invite') await setup.inbox.receive([incoming('hello', { source: 'backfill' }), incoming('again')]);
      setup.inbox.announce(new Set<RoomId>([ROOM]));
      setup.handled.push(row.eventId);
      await setup.finish(row);
      inHand -= 1;
    },
  });
  setup.dispatcher.start();
  await setup.inbox.receive([incoming('invite')]);

  await settle();

  expect(setup.handled).toEqual(['$invite', '$hello', '$again']);
  await setup.dispatcher.stop();
});

test('stop waits for the row in hand, claims no other, and leaves no timer', async () => {
  const held = gate();
  const setup = setUp({
    handle: async (row) => {
      await held.wait(row);
      await setup.finish(row);
    },
  });
  const { inbox, dispatcher, clock } = setup;
  dispatcher.start();
  await inbox.receive([incoming('a'), incoming('b')]);
  await settle();
  let stopped = false;
  const stopping = dispatcher.stop().then(() => {
    stopped = true;
  });
  await settle();
  expect(stopped).toBe(false);

  held.open('$a');
  await stopping;
  await inbox.receive([incoming('c')]);
  await settle();

  expect(inbox.depth().rows).toBe(2);
  expect(held.waiting.size).toBe(0);
  expect(clock.pending()).toBe(0);
});

test('a row that fails while we stop sets no timer that would outlive us', async () => {
  const held = gate();
  const setup = setUp({
    handle: async (row) => {
      await held.wait(row);
      throw new TypeError('a bug');
    },
  });
  setup.dispatcher.start();
  await setup.inbox.receive([incoming('a')]);
  await settle();
  const stopping = setup.dispatcher.stop();

  held.open('$a');
  await stopping;

  expect(setup.clock.pending()).toBe(0);
});

test('rows that cannot be read are reported and tried again, and other rooms go on', async () => {
  const setup = setUp({
    heldUntil: (room) => {
      if (room === ROOM) throw new Error('a bug');
      return null;
    },
  });
  setup.dispatcher.start();
  await setup.inbox.receive([incoming('a'), incoming('elsewhere', { roomId: OTHER_ROOM })]);

  await setup.clock.advanceAsync(1_000).then(() => settle());

  expect(setup.handled).toEqual(['$elsewhere']);
  expect(setup.logger.said('error').length).toBeGreaterThan(1);
  await setup.dispatcher.stop();
});
