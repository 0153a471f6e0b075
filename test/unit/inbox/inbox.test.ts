import { expect, test } from 'vitest';
import type { RoomId } from '../../../src/ids.ts';
import { createInbox, type Inbox, type InboxRow, readOwnRun } from '../../../src/inbox/inbox.ts';
import { StorageError, type Store } from '../../../src/store/store.ts';
import { incoming, ORACLE, OTHER_ROOM, ROOM } from '../../fakes/events.ts';
import { type FakeClock, fakeClock } from '../../fakes/fake-clock.ts';
import { breakDisk, fileStore, memoryStore, settle } from '../../fakes/memory-store.ts';

function setUp(store: Store = memoryStore(), clock: FakeClock = fakeClock(), fence = 1) {
  return { store, clock, inbox: createInbox({ store, clock, oracle: ORACLE, fence }) };
}
function claimRow(inbox: Inbox, room: RoomId = ROOM): InboxRow {
  const claim = inbox.claim(room);
  if (claim.kind !== 'row') throw new Error(`nothing to claim: ${claim.kind}`);
  return claim.row;
}
/** Takes everything that waits in the room, in order. */
async function takeAll({ store, inbox }: { store: Store; inbox: Inbox }, room: RoomId = ROOM): Promise<string[]> {
  const taken: string[] = [];
  for (let claim = inbox.claim(room); claim.kind === 'row'; claim = inbox.claim(room)) {
    const { row } = claim;
    await store.write((tx) => inbox.finish(tx, row));
    taken.push(row.eventId);
  }
  return taken;
}
const answerNaming = (name: string, prompts: string[], runId = '01UNKNOWN') =>
  incoming(name, { sender: ORACLE, content: { msgtype: 'm.text', body: 'x', 'ixo.oracle.run': { run_id: runId, prompts } } });

test('an event is on disk when receive resolves (G1)', async () => {
  const { path, open } = fileStore();
  expect(path).toContain('oracle.db');
  const first = setUp(open());
  await first.inbox.receive([incoming('a')]);
  first.store.close();

  const second = setUp(open());

  expect(claimRow(second.inbox)).toMatchObject({ eventId: '$a', attempt: 1, again: false });
  await settle();
  second.store.close();
});

test('one event by push, sync, a first look back and after a restart is taken once (G2)', async () => {
  const { open } = fileStore();
  const first = setUp(open());
  await first.inbox.receive([incoming('a'), incoming('a', { source: 'sync' })]);
  await first.inbox.receive([incoming('a', { source: 'backfill' })]);
  await first.inbox.receive([incoming('a', { source: 'sync' })]);
  expect(first.inbox.depth().rows).toBe(1);
  expect(await takeAll(first)).toEqual(['$a']);
  first.store.close();

  const second = setUp(open());
  await second.inbox.receive([incoming('a'), incoming('a', { source: 'backfill' }), incoming('b')]);

  expect(await takeAll(second)).toEqual(['$b']);
  second.store.close();
});

test('a receive that cannot be written rejects, and the same events are taken when they come again (G1)', async () => {
  const { store, inbox } = setUp();
  const disk = breakDisk(store);
  await expect(inbox.receive([incoming('a')])).rejects.toBeInstanceOf(StorageError);
  disk.repair();

  await inbox.receive([incoming('a')]);

  expect(inbox.depth().rows).toBe(1);
});

test('nobody hears of an event before it is on disk', async () => {
  const { store, inbox } = setUp();
  const heard: number[] = [];
  inbox.onArrival((rooms) => heard.push(rooms.size, inbox.depth().rows));
  const receiving = inbox.receive([incoming('a'), incoming('b', { roomId: OTHER_ROOM })]);
  expect(heard).toEqual([]);

  await receiving;
  await inbox.receive([incoming('a')]);

  expect(heard).toEqual([2, 2]);
  expect(store.writable()).toBe(true);
});

test('a room’s events are claimed in the order of arrival (G3)', async () => {
  const setup = setUp();
  await setup.inbox.receive([incoming('a'), incoming('other', { roomId: OTHER_ROOM }), incoming('b')]);
  await setup.inbox.receive([incoming('c')]);

  expect(await takeAll(setup)).toEqual(['$a', '$b', '$c']);
  expect(await takeAll(setup, OTHER_ROOM)).toEqual(['$other']);
});

test('what a first look back brings stands before what waits, in its own order, also after a restart', async () => {
  const { open } = fileStore();
  const first = setUp(open());
  await first.inbox.receive([incoming('new1'), incoming('new2')]);
  await first.inbox.receive([
    incoming('old1', { source: 'backfill' }),
    incoming('new1', { source: 'backfill' }),
    incoming('old2', { source: 'backfill' }),
  ]);
  first.store.close();

  const second = setUp(open());
  await second.inbox.receive([incoming('new3')]);
  await second.inbox.receive([incoming('older', { source: 'backfill' })]);

  expect(await takeAll(second)).toEqual(['$older', '$old1', '$old2', '$new1', '$new2', '$new3']);
  second.store.close();
});

test('a look back into a room where nothing waits keeps later events behind it', async () => {
  const setup = setUp();
  await setup.inbox.receive([incoming('a', { source: 'backfill' }), incoming('b', { source: 'backfill' })]);
  await setup.inbox.receive([incoming('c')]);

  expect(await takeAll(setup)).toEqual(['$a', '$b', '$c']);
});

test('the oracle’s own messages are no input; its own state events are', async () => {
  const { inbox } = setUp();
  await inbox.receive([incoming('echo', { sender: ORACLE })]);
  expect(inbox.depth().rows).toBe(0);

  await inbox.receive([incoming('join', { sender: ORACLE, type: 'm.room.member', event: { type: 'm.room.member', state_key: ORACLE } })]);

  expect(inbox.depth().rows).toBe(1);
});

test('after a lost database an own answer marks its prompts as answered, whether they wait or come later (G2)', async () => {
  const setup = setUp();
  await setup.inbox.receive([incoming('waits'), incoming('next')]);
  await setup.inbox.receive([answerNaming('answer', ['$waits', '$later'])]);

  await setup.inbox.receive([incoming('later')]);

  expect(await takeAll(setup)).toEqual(['$next']);
});

test('within one transaction an own answer beats the prompt before it and the prompt after it', async () => {
  const setup = setUp();
  await setup.inbox.receive([incoming('before'), answerNaming('answer', ['$before', '$after']), incoming('after'), incoming('free')]);

  expect(await takeAll(setup)).toEqual(['$free']);
});

test('an answer of somebody else marks nothing', async () => {
  const setup = setUp();
  const forged = answerNaming('forged', ['$victim']);
  await setup.inbox.receive([{ ...forged, sender: '@mallory:example.org' }, incoming('victim')]);

  expect(await takeAll(setup)).toEqual(['$forged', '$victim']);
});

test('hostile run fields are read as nothing and bounded (G14)', () => {
  for (const content of [
    null,
    'x',
    [],
    { 'ixo.oracle.run': null },
    { 'ixo.oracle.run': [] },
    { 'ixo.oracle.run': { run_id: 1, prompts: 'x' } },
  ])
    expect(readOwnRun({ content } as never)).toEqual({ runId: null, prompts: [] });

  const many = Array.from({ length: 5_000 }, (_, n) => `$${n}`);
  const run = readOwnRun({ content: { 'ixo.oracle.run': { run_id: 'r', prompts: ['no event', 7, ...many] } } } as never);

  expect(run.runId).toBe('r');
  expect(run.prompts.length).toBeLessThanOrEqual(100);
});

test('a retried row waits, holds its room, and counts its claims', async () => {
  const { inbox, clock } = setUp();
  await inbox.receive([incoming('a'), incoming('b'), incoming('c', { roomId: OTHER_ROOM })]);
  const row = claimRow(inbox);
  await inbox.retry(row, clock.now() + 1_000, 'SomeError');

  expect(inbox.claim(ROOM)).toEqual({ kind: 'later', at: clock.now() + 1_000 });
  expect(claimRow(inbox, OTHER_ROOM).eventId).toBe('$c');
  clock.advance(1_000);
  expect(claimRow(inbox)).toMatchObject({ eventId: '$a', attempt: 2, again: true });
});

test('a retry that does not count leaves the attempts as they were, and says that the row was in hand', async () => {
  const { inbox, clock } = setUp();
  await inbox.receive([incoming('a')]);
  const row = claimRow(inbox);
  await inbox.retry(row, clock.now(), 'Unavailable', row.attempt - 1);

  expect(claimRow(inbox)).toMatchObject({ attempt: 1, again: true });
  await settle();
});

test('a process that died leaves its row free at once to the next one (G5)', async () => {
  const { open } = fileStore();
  const first = setUp(open(), fakeClock(), 1);
  await first.inbox.receive([incoming('a')]);
  claimRow(first.inbox);
  await settle();
  first.store.close();

  const second = setUp(open(), fakeClock(), 2);

  expect(claimRow(second.inbox)).toMatchObject({ eventId: '$a', attempt: 2, again: true });
  await settle();
  second.store.close();
});

test('a row that a newer process holds is not claimed until its lease ends (G18)', async () => {
  const store = memoryStore();
  const clock = fakeClock();
  const older = setUp(store, clock, 1);
  const newer = setUp(store, clock, 2);
  await older.inbox.receive([incoming('a')]);
  claimRow(newer.inbox);
  await settle();

  const claim = older.inbox.claim(ROOM);

  expect(claim.kind).toBe('later');
  clock.advance(claim.kind === 'later' ? claim.at - clock.now() : 0);
  expect(claimRow(older.inbox).eventId).toBe('$a');
  await settle();
});

test('a buried row lets the next one pass, is shown, and comes back by a requeue with fresh attempts', async () => {
  const { store, inbox } = setUp();
  await inbox.receive([incoming('a'), incoming('b')]);
  const row = claimRow(inbox);
  await store.write((tx) => inbox.bury(tx, row, 'GAVE_UP'));
  expect(claimRow(inbox).eventId).toBe('$b');
  const dead = store.sql.selectFrom('inbox').select(['event_id', 'attempts', 'error', 'type']).where('state', '=', 'dead');
  expect(store.read.all(dead)).toEqual([{ event_id: '$a', attempts: 1, error: 'GAVE_UP', type: 'm.room.message' }]);
  expect(inbox.depth()).toMatchObject({ rows: 1, dead: 1 });

  const requeued = await store.write((tx) => [inbox.requeue(tx, row.id), inbox.requeue(tx, row.id), inbox.requeue(tx, 999)]);

  expect(requeued).toEqual([true, false, false]);
  expect(claimRow(inbox)).toMatchObject({ eventId: '$a', attempt: 1 });
  await settle();
});

test('forgetting is bounded per call and keeps what is young enough (G2)', async () => {
  const setup = setUp();
  const { inbox, clock, store } = setup;
  await inbox.receive(Array.from({ length: 5_001 }, (_, n) => incoming(`old${n}`)));
  clock.advance(1_000);
  await inbox.receive([incoming('young')]);
  await store.write((tx) => tx.run(store.sql.deleteFrom('inbox')));

  expect(await inbox.prune(clock.now())).toBe(5_000);
  expect(await inbox.prune(clock.now())).toBe(1);
  expect(await inbox.prune(clock.now())).toBe(0);
  await inbox.receive([incoming('young')]);
  expect(inbox.depth().rows).toBe(0);
});

test('a dead row whose id was forgotten does not fail the transaction that brings it again (G17)', async () => {
  const { inbox, store, clock } = setUp();
  await inbox.receive([incoming('a')]);
  const row = claimRow(inbox);
  await store.write((tx) => inbox.bury(tx, row, 'GAVE_UP'));
  clock.advance(1_000);
  await inbox.prune(clock.now());

  await inbox.receive([incoming('a'), incoming('b')]);

  expect(inbox.depth()).toMatchObject({ rows: 1, dead: 1 });
});

/** By one statement: what arrives one by one is the subject of the other tests. */
function fill(store: Store, { rooms, rows }: { rooms: number; rows: number }): void {
  const sql = `WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < ${rows - 1})
    INSERT INTO inbox (ord, event_id, room_id, sender, type, source, event, received_at)
    SELECT i, '$' || i, '!r' || (i % ${rooms}) || ':example.org', '@a:b', 'm.room.message', 'push', '{"text":"${'x'.repeat(500)}"}', 0 FROM n`;
  store.read.run({ compile: () => ({ sql, parameters: [] }) } as never);
}

test('with 100 000 rows waiting a claim reads one row, and rooms are listed a page at a time', async () => {
  const { store, inbox } = setUp();
  const rooms = 2_000;
  fill(store, { rooms, rows: 100_000 });
  expect(inbox.depth().rows).toBe(100_000);
  const heapBefore = process.memoryUsage().heapUsed;

  const first = inbox.waitingRooms(1_000);
  const second = inbox.waitingRooms(1_000, first.at(-1));
  const started = process.hrtime.bigint();
  for (const room of [...first, ...second]) claimRow(inbox, room);
  const perClaimMs = Number(process.hrtime.bigint() - started) / 1e6 / rooms;
  await settle();

  expect(new Set([...first, ...second]).size).toBe(rooms);
  expect(inbox.waitingRooms(1_000, second.at(-1))).toEqual([]);
  expect(perClaimMs).toBeLessThan(2);
  expect(process.memoryUsage().heapUsed - heapBefore).toBeLessThan(60 * 1024 * 1024);
  expect(store.writable()).toBe(true);
});
