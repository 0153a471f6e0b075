import { statSync } from 'node:fs';
import { join } from 'node:path';
import type { Insertable } from 'kysely';
import { expect, test } from 'vitest';
import { keepHouse } from '../../../src/app/keep-house.ts';
import type { Did, RunId } from '../../../src/ids.ts';
import type { GrantsTable } from '../../../src/store/schema.ts';
import { writeAudit } from '../../../src/turn/audit.ts';
import { buildCore } from '../../fakes/core.ts';
import { BOB, eventId, incoming, ROOM, STRANGER } from '../../fakes/events.ts';
import { fileStore, settle, tempFolder } from '../../fakes/memory-store.ts';

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

test('ended grants and old nonces are forgotten; live grants and revocations stay (G14)', async () => {
  const core = buildCore();
  const { store, clock } = core;
  const grant = (name: string, expiresAt: number) =>
    ({
      ...{ token_id: name, cid: name, kind: 'acting', did: 'did:key:z1', audience: 'did:key:z2', capabilities: '[]', path: '[]', car: '' },
      ...{ expires_at: expiresAt, source: 'http', stored_at: clock.now(), matrix_user_id: null },
      ...{ shown_at: null, activated_at: null, revoked_at: null },
    }) as unknown as Insertable<GrantsTable>;
  await store.write((tx) => {
    tx.run(store.sql.insertInto('grants').values([grant('ended', clock.now() + 1), grant('live', clock.now() + 30 * DAY_MS)]));
    tx.run(store.sql.insertInto('revocations').values({ id: 'x', did: 'did:key:z1' as Did, at: clock.now() }));
    core.authoriseLinks.issue(tx, { user: BOB, room: ROOM }, clock.now());
  });
  const house = keepHouse({ ...core, retentionMs: DAY_MS, removeIdleCheckpoints: () => 0 });

  clock.advance(2 * DAY_MS);
  await settle();
  clock.advance(SWEEP_MS);
  await settle();

  const rows = (table: 'grants' | 'revocations' | 'authorise_links') => store.read.all(store.sql.selectFrom(table).selectAll());
  expect(rows('grants')).toMatchObject([{ token_id: 'live' }]);
  expect(rows('revocations')).toHaveLength(1);
  expect(rows('authorise_links')).toEqual([]);
  house.stop();
});

test('what was allowed, and what a run was refused, is never forgotten; what strangers asked in vain is', async () => {
  const core = buildCore();
  const { store, clock } = core;
  await store.write((tx) => {
    const at = clock.now();
    writeAudit(store, tx, { at, decision: 'allowed' });
    writeAudit(store, tx, { at, decision: 'refused', code: 'NEEDS_GRANT', run_id: 'run' as RunId });
    writeAudit(store, tx, { at, decision: 'refused', code: 'NO_AUTHORITY' });
  });
  const house = keepHouse({ ...core, retentionMs: DAY_MS, removeIdleCheckpoints: () => 0 });

  clock.advance(2 * DAY_MS);
  await settle();
  clock.advance(SWEEP_MS);
  await settle();

  expect(store.read.all(store.sql.selectFrom('audit').select('code').orderBy('id'))).toEqual([{ code: null }, { code: 'NEEDS_GRANT' }]);
  house.stop();
});

test('the log of a run that ended before the retention is forgotten, the conversation stays; unfinished and young runs keep theirs', async () => {
  const core = buildCore();
  const { store } = core;
  const { sql } = store;
  await core.joinDirect();
  const runIds = () => store.read.all(sql.selectFrom('runs').select('run_id').orderBy('run_id')).map(({ run_id }) => run_id);
  const said = (name: string) => core.take(incoming(name, { text: `question ${name}` }));
  for (let n = 0; n < 45; n += 1) {
    await said(`old${n}`);
    await settle();
    // People pause; without it the budget of a conversation of bots ends.
    core.clock.advance(3_600_000);
  }
  core.clock.advance(2 * DAY_MS);
  await said('young');
  await settle();
  core.execute = null;
  await said('waiting');
  await store.write((tx) => {
    for (const run_id of runIds())
      tx.run(
        sql
          .insertInto('tool_marks')
          .values({ run_id, tool_call_id: 'c', tool: 't', args_hash: 'h', state: 'finished', result: 'r', at: 0 }),
      );
  });
  const before = core.count('transcript');
  const house = keepHouse({ ...core, retentionMs: DAY_MS, removeIdleCheckpoints: () => 0 });

  core.clock.advance(SWEEP_MS);
  await settle(50);

  const pruned = store.read.all(sql.selectFrom('runs').select('run_id').where('frames_pruned_at', 'is not', null)).map((row) => row.run_id);
  expect(pruned).toEqual(runIds().slice(0, 45));
  expect(store.read.all(sql.selectFrom('frames').select('run_id').distinct()).map((row) => row.run_id)).toEqual([runIds()[45]]);
  expect(store.read.all(sql.selectFrom('tool_marks').select('run_id').orderBy('run_id')).map((row) => row.run_id)).toEqual(
    runIds().slice(45),
  );
  const texts = store.read.all(sql.selectFrom('pending_inputs').select('text').orderBy('id')).map(({ text }) => text);
  expect(texts.slice(44)).toEqual(['', 'question young', 'question waiting']);
  expect(core.count('transcript')).toBe(before);
  house.stop();
});

test('a sweep gives free space back in steps that let others write (G16)', async () => {
  const folder = tempFolder();
  const store = fileStore(folder).open();
  const core = buildCore({ store });
  await store.write((tx) => {
    for (let n = 0; n < 4_000; n += 1) {
      const row = { session_id: null, run_id: null, event_id: `$${n}`, role: 'human', speaker: 'x', text: 'x'.repeat(2_000) } as const;
      tx.run(store.sql.insertInto('transcript').values({ ...row, room_id: ROOM, message: null, attachments: null, at: 0, tier: null }));
    }
  });
  const size = () => statSync(join(folder, 'oracle.db')).size;
  store.dropLog();
  const before = size();
  const house = keepHouse({ ...core, retentionMs: DAY_MS, removeIdleCheckpoints: () => 0 });

  core.clock.advance(2 * DAY_MS);
  await settle(200);

  expect(size()).toBeLessThan(before / 4);
  expect(statSync(join(folder, 'oracle.db-wal')).size).toBe(0);
  house.stop();
  store.close();
});
