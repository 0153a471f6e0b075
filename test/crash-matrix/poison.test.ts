/** A row that ends the process whenever it is looked at: it must come to an end, and take no other message with it. */
import { expect, test } from 'vitest';
import { createDispatcher } from '../../src/inbox/dispatcher.ts';
import { createInbox, type InboxRow, type IncomingEvent } from '../../src/inbox/inbox.ts';
import { openStore } from '../../src/store/store.ts';
import { incoming, ORACLE, roomId } from '../fakes/events.ts';
import { FAKE_START_MS, fakeClock } from '../fakes/fake-clock.ts';
import { fakeLogger } from '../fakes/fake-logger.ts';
import { settle, tempFolder } from '../fakes/memory-store.ts';

/** Starts processes on one database until one survives; `handle` returns false to die at once, before anything that waits is committed. */
async function startUntilAlive(events: readonly IncomingEvent[], handle: (row: InboxRow) => boolean | Promise<boolean>) {
  const path = `${tempFolder()}/oracle.db`;
  const handled: string[] = [];
  const buried: string[] = [];
  for (let process = 1; process <= 40; process += 1) {
    let dead = false;
    const schedule = (flush: () => void): void => void setImmediate(() => (dead ? undefined : flush()));
    const store = openStore({ path, now: FAKE_START_MS, schedule });
    const clock = fakeClock();
    const inbox = createInbox({ store, clock, oracle: ORACLE, fence: process });
    const dispatcher = createDispatcher({
      inbox,
      store,
      clock,
      logger: fakeLogger(),
      async handle(row) {
        const outcome = handle(row);
        const lives = typeof outcome === 'boolean' ? outcome : await outcome;
        if (!lives) dead = true;
        if (dead) return new Promise(() => undefined);
        handled.push(row.eventId);
        await store.write((tx) => inbox.finish(tx, row));
      },
      async giveUp(row) {
        await store.write((tx) => inbox.bury(tx, row, 'GAVE_UP'));
        buried.push(row.eventId);
      },
      heldUntil: () => null,
      maxRooms: 64,
    });
    if (process === 1) await inbox.receive(events);
    dispatcher.start();
    await settle(60);
    if (!dead) {
      await dispatcher.stop();
      store.close();
      return { processes: process, handled, buried };
    }
    // Its queue dies with it; only what was committed stays.
    store.close = () => undefined;
  }
  throw new Error('the row ends the process for ever');
}

test('it is given up after five counted times, also when it dies before anything could be written (G1)', async () => {
  const { processes, handled, buried } = await startUntilAlive(
    [incoming('deadly'), incoming('behind')],
    (row) => row.eventId !== '$deadly',
  );

  expect(buried).toEqual(['$deadly']);
  expect(handled).toEqual(['$behind']);
  expect(processes).toBeLessThanOrEqual(7);
});

test('messages of other rooms that were in hand each time are handled, not given up with it (G1)', async () => {
  const others = Array.from({ length: 10 }, (_, index) => incoming(`other${index}`, { roomId: roomId(`other${index}`) }));
  const events = [incoming('deadly', { roomId: roomId('m') }), ...others];
  const { handled, buried } = await startUntilAlive(events, async (row) => {
    // Ordinary rows wait for the homeserver; the deadly one dies while they do.
    await settle(3);
    return row.eventId !== '$deadly';
  });

  expect(buried).toEqual(['$deadly']);
  expect(handled.toSorted()).toEqual(others.map(({ eventId }) => eventId).toSorted());
});
