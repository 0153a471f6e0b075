import { expect, test } from 'vitest';
import { keepHouse } from '../../../src/app/keep-house.ts';
import { buildCore } from '../../fakes/core.ts';
import { BOB, eventId, incoming, ROOM, STRANGER } from '../../fakes/events.ts';
import { settle } from '../../fakes/memory-store.ts';

const DAY_MS = 24 * 3_600_000;
const SWEEP_MS = 10 * 60_000;

test('what strangers say in groups and ask in vain is forgotten after the retention, what belongs to sessions stays (G14)', async () => {
  const core = buildCore();
  core.execute = null;
  await core.joinDirect();
  core.rooms.room(ROOM, { kind: 'group' });
  await core.take(
    incoming('noise', { sender: BOB, text: 'x'.repeat(60_000) }),
    incoming('refused', { sender: STRANGER, text: 'Oracle: me too' }),
    incoming('mention', { text: 'Oracle: hi' }),
  );
  expect(core.transcript.overheard(ROOM, 10).map(({ text }) => text.length)).toEqual([4_000]);
  expect([core.count('transcript'), core.count('audit')]).toEqual([2, 2]);
  const house = keepHouse({ ...core, retentionMs: DAY_MS, removeIdleCheckpoints: () => 0 });

  core.clock.advance(2 * DAY_MS);
  await settle();
  core.clock.advance(SWEEP_MS);
  await settle();

  expect([core.count('transcript'), core.count('audit')]).toEqual([1, 1]);
  house.stop();
});

test('a sweep forgets all that is old, not only as much as fits one step (G14)', async () => {
  const core = buildCore();
  const old = core.clock.now();
  await core.store.write((tx) => {
    for (let n = 0; n < 12_000; n += 1) tx.run(core.store.sql.insertInto('seen').values({ event_id: eventId(`old${n}`), seen_at: old }));
  });
  const house = keepHouse({ ...core, retentionMs: DAY_MS, removeIdleCheckpoints: () => 0 });

  core.clock.advance(3 * DAY_MS);
  await settle();
  core.clock.advance(SWEEP_MS);
  await settle(50);

  expect(core.store.read.all(core.store.sql.selectFrom('seen').select('event_id').limit(1))).toEqual([]);
  house.stop();
});
