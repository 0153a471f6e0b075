/**
 * What a message costs must not grow with what was said before (G16): every statement of a whole turn is explained, and none may read a
 * table from end to end. The counters of /health and metrics are not part of a turn.
 */
import type { Compilable } from 'kysely';
import { expect, test } from 'vitest';
import type { SessionId } from '../../../src/ids.ts';
import type { Store, Tx } from '../../../src/store/store.ts';
import { newNonce, signContent } from '../../../src/ucan/mint.ts';
import { ALICE_KEY, buildCore, ORACLE_KEY } from '../../fakes/core.ts';
import { ALICE, BOB, incoming, OTHER_ROOM, ROOM } from '../../fakes/events.ts';
import { encrypted } from '../../fakes/fake-reveal.ts';
import { memoryStore, settle } from '../../fakes/memory-store.ts';

function recordingStore(): { store: Store; statements: Map<string, readonly unknown[]> } {
  const store = memoryStore();
  const statements = new Map<string, readonly unknown[]>();
  const record = (tx: Tx): Tx => {
    const noted = <Row>(query: Compilable<Row>): Compilable<Row> => {
      const { sql, parameters } = query.compile();
      statements.set(sql, parameters);
      return query;
    };
    return { all: (query) => tx.all(noted(query)), get: (query) => tx.get(noted(query)), run: (query) => tx.run(noted(query)) };
  };
  return { store: { ...store, read: record(store.read), write: (change) => store.write((tx) => change(record(tx))) }, statements };
}

test('no statement of a turn reads a whole table (G16)', async () => {
  const { store, statements } = recordingStore();
  const core = buildCore({ store });
  await core.joinDirect();
  const content = signContent(
    {
      key: ALICE_KEY,
      audience: ORACLE_KEY.did,
      room: ROOM,
      sender: ALICE,
      type: 'm.room.message',
      ts: core.clock.now(),
      nonce: newNonce(),
    },
    { msgtype: 'm.text', body: 'signed' },
  );
  const inThread = (text: string) => ({ msgtype: 'm.text', body: text, 'm.relates_to': { rel_type: 'm.thread', event_id: '$root' } });
  await core.take(incoming('a'), incoming('b', { content }), incoming('c', { content: inThread('x') }), incoming('late', { ageMs: 1e9 }));
  core.rooms.room(ROOM, { kind: 'group' });
  core.rooms.forget(ROOM);
  await core.take(incoming('d', { sender: BOB, content: inThread('x') }), incoming('e', { sender: BOB, text: 'Oracle: y' }));
  await settle();
  const corrected = { msgtype: 'm.text', body: 'z', 'm.relates_to': { rel_type: 'm.replace', event_id: '$f' } };
  core.rooms.room(OTHER_ROOM, { kind: 'direct', membership: 'join' });
  await core.take(incoming('f', { roomId: OTHER_ROOM }));
  await settle();
  await core.take(
    incoming('g', { roomId: OTHER_ROOM, content: { ...corrected, 'm.new_content': { msgtype: 'm.text', body: 'z' } } }),
    incoming('h', {
      roomId: OTHER_ROOM,
      type: 'm.reaction',
      content: { 'm.relates_to': { rel_type: 'm.annotation', event_id: '$f', key: '\u{1F6D1}' } },
    }),
  );
  await settle();
  expect(core.admitted.slice(-2)).toEqual(['admitted:edit', 'stopped:author']);
  // One that has no key for a while: set aside, told, taken up, and answered because nothing was said since.
  core.watch.start();
  core.crypto.bring('here');
  await core.take(encrypted('i', { session: 'here', index: 0 }, { roomId: OTHER_ROOM }));
  await core.inbox.receive([encrypted('j', { session: 'late', index: 0 }, { roomId: OTHER_ROOM })]);
  await core.admit.handle(core.claim(OTHER_ROOM));
  core.clock.advance(3_000);
  await core.admit.handle(core.claim(OTHER_ROOM));
  core.crypto.sync();
  await core.clock.advanceAsync(70_000).then(() => settle());
  core.crypto.bring('late');
  await settle();
  await core.admit.handle(core.claim(OTHER_ROOM));
  expect(core.admitted.slice(-3)).toEqual(['parked:missing_key', 'refused:CANNOT_READ', 'admitted:direct']);
  await core.watch.stop();
  core.transcript.newest('$a' as SessionId, { limit: 10 });
  core.transcript.overheard(ROOM, 10);
  core.outbox.due(core.clock.now(), { limit: 10, busy: new Set() });
  core.inbox.waitingRooms(10);

  // With its values: a partial index is found only when the value is known (`state = 'ready'`).
  const explain = (sql: string, parameters: readonly unknown[]) =>
    store.read
      .all<{ detail: string }>({ compile: () => ({ sql: `EXPLAIN QUERY PLAN ${sql}`, parameters }) } as never)
      .map(({ detail }) => detail);
  const plans = [...statements]
    .filter(([sql]) => !sql.startsWith('insert'))
    .map(([sql, parameters]) => ({ sql, plan: explain(sql, parameters) }));
  const scans = plans.filter(({ plan }) => plan.some((step) => /^SCAN (?!.*USING (COVERING )?INDEX)/u.test(step)));

  expect(plans.length).toBeGreaterThan(20);
  expect(scans).toEqual([]);
});
