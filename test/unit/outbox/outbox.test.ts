import { expect, test } from 'vitest';
import type { DeviceId, EventId, OutboxTxnId, RunId } from '../../../src/ids.ts';
import { createOutbox, type OutboundEvent, type Outbox, type OutboxRow } from '../../../src/outbox/outbox.ts';
import type { Store } from '../../../src/store/store.ts';
import { ORACLE, ROOM } from '../../fakes/events.ts';
import { FAKE_START_MS } from '../../fakes/fake-clock.ts';
import { fileStore, memoryStore, settle } from '../../fakes/memory-store.ts';

const NOW = FAKE_START_MS;
const RUN = '01ARZ3NDEKTSV4RRFFQ69G5FAV' as RunId;
const txn = (name: string): OutboxTxnId => name as OutboxTxnId;
const event = (name: string, change: Partial<OutboundEvent> = {}): OutboundEvent => ({
  txnId: txn(name),
  lane: name,
  roomId: ROOM,
  kind: 'answer',
  eventType: 'm.room.message',
  content: { body: name },
  ...change,
});
function setUp(store: Store = memoryStore()) {
  const outbox = createOutbox({ store, identity: { sender: ORACLE, deviceId: 'ORACLE' as DeviceId } });
  const add = (...events: OutboundEvent[]) =>
    store.write((tx) => {
      for (const one of events) outbox.insert(tx, one, NOW);
    });
  return { store, outbox, add };
}
const due = (outbox: Outbox, now = NOW, busy: readonly string[] = [], limit = 10): OutboxRow[] =>
  outbox.due(now, { limit, busy: new Set(busy) });
const names = (rows: OutboxRow[]): string[] => rows.map((row) => row.txn_id);
const first = (outbox: Outbox, now = NOW): OutboxRow => due(outbox, now)[0] as OutboxRow;
const signal = new AbortController().signal;

test('the first row of each lane is due, oldest lane first, and busy lanes are left out (G4)', async () => {
  const { outbox, add } = setUp();
  await add(event('a1', { lane: 'a' }), event('b1', { lane: 'b' }), event('a2', { lane: 'a' }), event('c1', { lane: 'c' }));

  expect(names(due(outbox))).toEqual(['a1', 'b1', 'c1']);
  expect(names(due(outbox, NOW, ['a']))).toEqual(['b1', 'c1']);
  expect(names(due(outbox, NOW, ['a'], 1))).toEqual(['b1']);
  expect(names(due(outbox, NOW, [], 2))).toEqual(['a1', 'b1']);
});

test('a row that waits for its retry holds its own lane and no other', async () => {
  const { outbox, add } = setUp();
  await add(event('a1', { lane: 'a' }), event('a2', { lane: 'a' }), event('b1', { lane: 'b' }));
  await outbox.retryAt(first(outbox), NOW + 1_000, 'M_LIMIT_EXCEEDED 429');

  expect(names(due(outbox))).toEqual(['b1']);
  expect(names(due(outbox, NOW + 1_000))).toEqual(['a1', 'b1']);
  expect(first(outbox, NOW + 1_000)).toMatchObject({ attempts: 1, error: 'M_LIMIT_EXCEEDED 429' });
});

test('the same cause again changes nothing: the first content stays (G4)', async () => {
  const { outbox, add } = setUp();
  await add(event('a', { content: { body: 'first' } }));
  await add(event('a', { content: { body: 'second' }, lane: 'other' }));
  expect(outbox.depth()).toBe(1);
  expect(first(outbox)).toMatchObject({ content: '{"body":"first"}', lane: 'a', sender: ORACLE, device_id: 'ORACLE' });

  await outbox.markSent(first(outbox), '$sent' as EventId, NOW);
  await add(event('a', { content: { body: 'third' } }));

  expect(due(outbox)).toEqual([]);
  expect(outbox.eventIdOf(txn('a'))).toBe('$sent');
});

test('a row survives a restart with its bytes and its attempts', async () => {
  const { open } = fileStore();
  const before = setUp(open());
  await before.add(event('a'), event('b', { lane: 'a', runId: RUN, part: 2, editsTxn: txn('a') }));
  await before.outbox.retryAt(first(before.outbox), NOW, 'x');
  before.store.close();

  const after = setUp(open());

  expect(first(after.outbox)).toMatchObject({ txn_id: 'a', attempts: 1, content: '{"body":"a"}', deadline_at: NOW + 24 * 3_600_000 });
  expect(after.outbox.ofRun(after.store.read, RUN)).toMatchObject([{ txn_id: 'b', part: 2, edits_txn: 'a' }]);
  after.store.close();
});

test('a parked event takes its edits with it and nothing else', async () => {
  const { outbox, add, store } = setUp();
  await add(
    event('a'),
    event('e1', { lane: 'a', editsTxn: txn('a') }),
    event('e2', { lane: 'a', editsTxn: txn('a') }),
    event('next', { lane: 'a' }),
  );
  const settled = Promise.all(['a', 'e1', 'e2'].map((name) => outbox.settled(txn(name), signal)));

  await outbox.park(first(outbox), 'M_FORBIDDEN 403');

  expect(await settled).toEqual([null, null, null]);
  expect(names(due(outbox))).toEqual(['next']);
  expect([outbox.parked(), outbox.depth()]).toEqual([1, 1]);
  expect(store.read.all(store.sql.selectFrom('outbox').select('state').orderBy('seq')).map(({ state }) => state)).toEqual([
    'parked',
    'dropped',
    'dropped',
    'ready',
  ]);
});

test('newer edits replace those that are not confirmed; sent ones and other messages stay', async () => {
  const { outbox, add, store } = setUp();
  await add(event('a'), event('e1', { lane: 'a', editsTxn: txn('a') }));
  await outbox.markSent(first(outbox), '$a' as EventId, NOW);
  await outbox.markSent(first(outbox), '$e1' as EventId, NOW);
  await add(event('e2', { lane: 'a', editsTxn: txn('a') }), event('other', { editsTxn: txn('b') }));

  await store.write((tx) => {
    outbox.dropSuperseded(tx, txn('a'));
    outbox.insert(tx, event('e3', { lane: 'a', editsTxn: txn('a') }), NOW);
  });

  expect(names(due(outbox)).toSorted()).toEqual(['e3', 'other']);
  expect(outbox.eventIdOf(txn('e1'))).toBe('$e1');
});

test('an edit that was replaced while it was under way is not sent again when that failed', async () => {
  const { outbox, add, store } = setUp();
  await add(event('e1', { editsTxn: txn('a') }));
  const underWay = first(outbox);
  await store.write((tx) => outbox.dropSuperseded(tx, txn('a')));

  await outbox.retryAt(underWay, NOW, 'NETWORK');

  expect(due(outbox)).toEqual([]);
});

test('settled tells who waits before and who asks after, for each way a row can end', async () => {
  const { outbox, add } = setUp();
  const early = outbox.settled(txn('a'), signal);
  await add(event('a'), event('b'));
  const waiting = outbox.settled(txn('a'), signal);
  await outbox.markSent(first(outbox), '$a' as EventId, NOW);
  await outbox.park(first(outbox), 'x');

  expect(await Promise.all([early, waiting, outbox.settled(txn('a'), signal), outbox.settled(txn('b'), signal)])).toEqual([
    '$a',
    '$a',
    '$a',
    null,
  ]);
});

test('whoever stops waiting is rejected with the reason and forgotten, and others still hear', async () => {
  const { outbox, add } = setUp();
  await add(event('a'));
  const stop = new AbortController();
  const given = outbox.settled(txn('a'), stop.signal).catch((reason: unknown) => reason);
  const waits = outbox.settled(txn('a'), signal);
  const late = new AbortController();
  late.abort('already over');

  stop.abort('enough');

  expect(await given).toBe('enough');
  await expect(outbox.settled(txn('a'), late.signal)).rejects.toBe('already over');
  await outbox.markSent(first(outbox), '$a' as EventId, NOW);
  expect(await waits).toBe('$a');
});

test('a row is not due before its commit, and a rolled back one never', async () => {
  const { outbox, store } = setUp();
  const rolledBack = store.write((tx) => {
    outbox.insert(tx, event('a'), NOW);
    throw new Error('undone');
  });
  const adding = store.write((tx) => outbox.insert(tx, event('b'), NOW));
  expect(due(outbox)).toEqual([]);

  await Promise.allSettled([rolledBack, adding]);
  await settle(1);

  expect(names(due(outbox))).toEqual(['b']);
  expect(outbox.nextDueAt()).toBe(0);
});

test('a thousand rows of one lane in front do not hide another lane', async () => {
  const { outbox, add } = setUp();
  await add(...Array.from({ length: 1_000 }, (_, n) => event(`a${n}`, { lane: 'a' })), event('b'));

  expect(names(due(outbox, NOW, ['a'], 1))).toEqual(['b']);
});

test('a row knows the thread it stands in, and an edit that of its original (G3)', async () => {
  const { store, outbox, add } = setUp();
  const inThread = { body: 'a', 'm.relates_to': { rel_type: 'm.thread', event_id: '$root', 'm.in_reply_to': { event_id: '$p' } } };
  await add(
    event('a', { content: inThread }),
    event('b', { editsTxn: txn('a') }),
    event('c', { content: { body: 'x', 'm.relates_to': { 'm.in_reply_to': { event_id: '$p' } } } }),
  );

  const roots = store.read.all(store.sql.selectFrom('outbox').select(['txn_id', 'thread_root']).orderBy('seq'));
  expect(roots.map(({ thread_root }) => thread_root)).toEqual(['$root', '$root', null]);
  expect(outbox.depth()).toBe(3);
});

test('an edit of what another database sent is later than what it replaces, whatever the clock says (G4)', async () => {
  const { store, add } = setUp();
  await add(event('a', { after: NOW + 5_000 }));

  expect(store.read.get(store.sql.selectFrom('outbox').select('created_at'))?.created_at).toBe(NOW + 5_001);
});
