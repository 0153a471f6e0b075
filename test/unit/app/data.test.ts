import { chmodSync, mkdirSync, statSync } from 'node:fs';
import { join } from 'node:path';
import Sqlite from 'better-sqlite3';
import { describe, expect, test } from 'vitest';
import { dataPaths } from '../../../src/app/data-paths.ts';
import { keepHouse } from '../../../src/app/keep-house.ts';
import { obeyControl } from '../../../src/app/obey-control.ts';
import { openData } from '../../../src/app/open-data.ts';
import { StartRefused } from '../../../src/app/start-refused.ts';
import type { OutboxTxnId, TokenId } from '../../../src/ids.ts';
import { spend } from '../../../src/ucan/replay.ts';
import { buildCore, type Core } from '../../fakes/core.ts';
import { incoming, ROOM } from '../../fakes/events.ts';
import { FAKE_START_MS } from '../../fakes/fake-clock.ts';
import { breakDisk, settle, tempFolder } from '../../fakes/memory-store.ts';

describe('openData', () => {
  test('a second process on the same folder is refused, and may start once the first is gone (G2)', () => {
    const paths = dataPaths(join(tempFolder(), 'data'));
    const first = openData(paths, FAKE_START_MS);

    expect(() => openData(paths, FAKE_START_MS)).toThrow(StartRefused);

    first.close();
    openData(paths, FAKE_START_MS).close();
  });

  test('every start has a higher fence than any before (G18)', () => {
    const paths = dataPaths(tempFolder());
    const fences = [1, 2, 3].map(() => {
      const data = openData(paths, FAKE_START_MS);
      data.close();
      return data.fence;
    });

    expect(fences).toEqual([1, 2, 3]);
  });

  test('a folder that was there before, open to others, is closed to them (G12)', () => {
    const dir = join(tempFolder(), 'data');
    mkdirSync(dir);
    chmodSync(dir, 0o755);

    openData(dataPaths(dir), FAKE_START_MS).close();

    expect(statSync(dir).mode & 0o777).toBe(0o700);
  });

  test('the folder is for its owner only (G12)', () => {
    const paths = dataPaths(join(tempFolder(), 'data'));
    openData(paths, FAKE_START_MS).close();

    expect(statSync(paths.dir).mode & 0o777).toBe(0o700);
  });

  test('a start that fails lets the folder go', () => {
    const paths = dataPaths(tempFolder());
    openData(paths, FAKE_START_MS).close();
    const newer = new Sqlite(paths.database);
    newer.prepare("INSERT INTO migrations VALUES ('999', 0)").run();
    expect(() => openData(paths, FAKE_START_MS)).toThrow('newer');
    newer.prepare("DELETE FROM migrations WHERE id = '999'").run();
    newer.close();

    openData(paths, FAKE_START_MS).close();
  });
});

describe('housekeeping', () => {
  const DAY = 24 * 3_600_000;
  const RETENTION = 30 * DAY;
  const TEN_MINUTES = 10 * 60_000;
  async function setUp() {
    const core = buildCore();
    core.execute = null;
    await core.joinDirect();
    const { store, inbox, grants, blobs, clock, logger } = core;
    return {
      core,
      house: keepHouse({ store, inbox, grants, blobs, clock, logger, retentionMs: RETENTION, removeIdleCheckpoints: () => 0 }),
    };
  }
  const addOutbox = (core: Core, name: string) =>
    core.store.write((tx) =>
      core.outbox.insert(
        tx,
        { txnId: name as OutboxTxnId, lane: name, roomId: ROOM, kind: 'notice', eventType: 'm.room.message', content: {} },
        core.clock.now(),
      ),
    );

  test('forgets sent events, stamps, tokens and ids that have served their time, and nothing that has not', async () => {
    const { core, house } = await setUp();
    await addOutbox(core, 'sent');
    await addOutbox(core, 'waiting');
    await core.outbox.markSent(
      core.outbox.due(core.clock.now(), { limit: 1, busy: new Set() })[0] as never,
      '$s' as never,
      core.clock.now(),
    );
    await core.store.write((tx) => {
      for (const [token, days] of [
        ['old', 1],
        ['young', 100],
      ] as const)
        spend(
          core.store,
          tx,
          { tokenId: token as TokenId, keepUntil: core.clock.now() + days * DAY, bodyHash: null },
          { promptId: token, runId: null },
        );
    });
    core.clock.jump(RETENTION + 1);
    await addOutbox(core, 'new');

    await core.clock.advanceAsync(TEN_MINUTES);
    await settle();

    const left = core.store.read.all(core.store.sql.selectFrom('outbox').select('txn_id').orderBy('seq')).map(({ txn_id }) => txn_id);
    expect(left).toEqual(['waiting', 'new']);
    expect(core.store.read.all(core.store.sql.selectFrom('replay_marks').select('token_id'))).toEqual([{ token_id: 'young' }]);
    house.stop();
  });

  test('an event id is forgotten only after the event itself is refused as too old (G2)', async () => {
    const { core, house } = await setUp();
    await core.take(incoming('a'));
    for (let day = 0; day < 70; day += 1) {
      core.clock.jump(DAY);
      await core.clock.advanceAsync(TEN_MINUTES);
      await settle();
      await core.inbox.receive([incoming('a', { source: 'sync' })]);
      if (core.inbox.depth().rows > 0) await core.admit.handle(core.claim());
    }

    expect(core.count('runs')).toBe(1);
    expect(core.admitted).toContain('ignored:too_old');
    house.stop();
  });

  test('goes on after a sweep that failed, and leaves no timer when stopped, also in the middle of one', async () => {
    const { core, house } = await setUp();
    const disk = breakDisk(core.store);
    await core.clock.advanceAsync(TEN_MINUTES);
    await settle();
    disk.repair();
    expect(core.logger.said('warn')).toEqual(['old rows could not be forgotten']);
    await core.clock.advanceAsync(TEN_MINUTES - 1);

    core.clock.advance(1);
    house.stop();
    await settle();

    // What is left is the scheduler, which waits for the agent.
    await core.scheduler.stop(0);
    expect(core.clock.pending()).toBe(0);
  });
});

describe('orders of the command line', () => {
  async function setUp() {
    const core = buildCore();
    core.execute = null;
    await core.joinDirect();
    const nudged: string[] = [];
    const { store, inbox, clock, logger } = core;
    const control = obeyControl({ store, inbox, clock, logger, nudge: (room) => void nudged.push(room) });
    const order = (kind: string, argument: string) =>
      store.write((tx) => tx.run(store.sql.insertInto('control').values({ kind, argument, created_at: 0, done_at: null, outcome: null })));
    const outcomes = () => store.read.all(store.sql.selectFrom('control').select('outcome').orderBy('id')).map(({ outcome }) => outcome);
    return { core, control, order, outcomes, nudged };
  }

  test('a requeue brings a dead row back and wakes its room; anything else is answered with what is wrong', async () => {
    const { core, control, order, outcomes, nudged } = await setUp();
    await core.inbox.receive([incoming('dead'), incoming('alive')]);
    const row = core.claim();
    await core.store.write((tx) => core.inbox.bury(tx, row, 'GAVE_UP'));
    for (const [kind, argument] of [
      ['inbox.requeue', '$dead'],
      ['inbox.requeue', '$alive'],
      ['inbox.requeue', '$unknown'],
      ['format.disk', 'c:'],
    ] as const)
      await order(kind, argument);

    await core.clock.advanceAsync(1_000);
    await settle();

    const missing = 'not found among the dead rows';
    expect(outcomes()).toEqual(['requeued', missing, missing, 'unknown order']);
    expect(nudged).toEqual([ROOM]);
    expect(core.inbox.depth()).toMatchObject({ rows: 2, dead: 0 });
    await core.clock.advanceAsync(1_000);
    await settle();
    expect(nudged).toEqual([ROOM]);
    control.stop();
  });

  test('an order that could not be carried out is tried again', async () => {
    const { core, control, order, outcomes } = await setUp();
    await order('format.disk', 'c:');
    const disk = breakDisk(core.store);
    await core.clock.advanceAsync(1_000);
    await settle();
    expect(outcomes()).toEqual([null]);
    disk.repair();

    await core.clock.advanceAsync(1_000);
    await settle();

    expect(outcomes()).toEqual(['unknown order']);
    control.stop();
  });

  test('no timer is left when stopped while it looks', async () => {
    const { core, control } = await setUp();
    core.clock.advance(1_000);
    control.stop();
    await settle();

    expect(core.clock.pending()).toBe(0);
  });
});
