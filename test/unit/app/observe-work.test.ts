/** The numbers an operator's alarms stand on: each refusal and failure once, under its code. */
import { expect, test } from 'vitest';
import { countResumes, observeAdmission, readDepths, readHealth } from '../../../src/app/observe-work.ts';
import type { MegolmSessionId, OutboxTxnId, RunId } from '../../../src/ids.ts';
import { createMetrics } from '../../../src/observe/metrics.ts';
import type { Frame, Run } from '../../../src/runs/run.ts';
import { EMPTY_FOLD } from '../../../src/runs/run.ts';
import { buildCore } from '../../fakes/core.ts';
import { incoming, ROOM } from '../../fakes/events.ts';

test('a refusal in a room and an event that was given up are errors, what is ignored is none', async () => {
  const metrics = createMetrics();
  observeAdmission(metrics, 'refused', 'NO_AUTHORITY');
  observeAdmission(metrics, 'gave_up', 'attempts');
  observeAdmission(metrics, 'ignored', 'membership');
  observeAdmission(metrics, 'admitted', 'direct');

  const lines = (await metrics.registry.metrics()).split('\n').filter((line) => line.startsWith('matrix_oracle_errors_total{'));
  expect(lines).toEqual(['matrix_oracle_errors_total{code="NO_AUTHORITY"} 1', 'matrix_oracle_errors_total{code="GAVE_UP"} 1']);
});

test('depths name what has not ended and how long the oldest of it waits', async () => {
  const core = buildCore();
  const { store, inbox, outbox, clock } = core;
  const look = () => readDepths({ store, inbox, outbox, scheduler: 2, now: clock.now(), keyStore: null });
  expect(look()).toMatchObject({ runsQueued: 0, runsRunning: 0, runsOldestAgeMs: 0, outboxReady: 0, outboxOldestAgeMs: 0 });
  core.execute = null;
  await core.joinDirect();
  await core.take(incoming('a'));
  clock.jump(4_000);
  const event = { lane: 'l', roomId: ROOM, kind: 'notice', eventType: 'm.room.message', content: {} } as const;
  await store.write((tx) => {
    outbox.insert(tx, { ...event, txnId: 'first' as OutboxTxnId }, clock.now());
    outbox.insert(tx, { ...event, txnId: 'second' as OutboxTxnId }, clock.now() + 500);
  });
  clock.jump(1_000);

  expect(look()).toMatchObject({
    runsQueued: 1,
    runsRunning: 0,
    runsOldestAgeMs: 5_000,
    outboxReady: 2,
    outboxOldestAgeMs: 1_000,
    runsActive: 2,
  });
  await core.scheduler.stop(0);
});

test('no statement of a scrape reads what has ended (G16)', () => {
  const { store, inbox, outbox, clock } = buildCore();
  const asked: { sql: string; parameters: readonly unknown[] }[] = [];
  const spied = {
    ...store,
    read: {
      ...store.read,
      all: <Row>(query: Parameters<typeof store.read.all<Row>>[0]) => {
        asked.push(query.compile());
        return store.read.all(query);
      },
      get: <Row>(query: Parameters<typeof store.read.get<Row>>[0]) => {
        asked.push(query.compile());
        return store.read.get(query);
      },
    },
  };
  readDepths({ store: spied, inbox, outbox, scheduler: 0, now: clock.now(), keyStore: null });

  const plans = asked.map(({ sql, parameters }) =>
    store.read.all<{ detail: string }>({ compile: () => ({ sql: `EXPLAIN QUERY PLAN ${sql}`, parameters }) } as never),
  );
  expect(asked).toHaveLength(3);
  for (const plan of plans) expect(plan[0]?.detail).toMatch(/USING (?:COVERING )?INDEX (?:runs_unfinished|outbox_heads|inbox_parked)/u);
});

test('each time that a run goes on is counted, its first start is not', async () => {
  const metrics = createMetrics();
  const view = countResumes(metrics).open({ id: 'r' as RunId } as Run, EMPTY_FOLD);
  const run = (seq: number, state: 'started' | 'resumed'): Frame => ({ seq, at: 0, kind: 'run', data: { state, attempt: seq } });

  view.onFrames([run(1, 'started'), { seq: 2, at: 0, kind: 'text', data: { delta: 'x' } }], EMPTY_FOLD);
  view.onFrames([run(3, 'resumed')], EMPTY_FOLD);

  expect(await metrics.registry.metrics()).toContain('matrix_oracle_runs_resumed_total 1');
});

const UP = { account: true, homeserver: true, agent: true, encryption: { isOpen: true, trouble: null } };

test('until the keys are open nothing is taken up, so the process is not ready', () => {
  const { store, outbox } = buildCore();
  const { ready, parts } = readHealth(store, outbox, { ...UP, encryption: { isOpen: false, trouble: null } });

  expect(ready).toBe(false);
  expect(parts).toContainEqual({ name: 'encryption', ok: false, detail: 'the keys of encrypted rooms are not open yet' });
});

test('keys that do not arrive are told, and are no reason to be taken out of service', () => {
  const { store, outbox } = buildCore();
  const degraded = readHealth(store, outbox, { ...UP, encryption: { isOpen: true, trouble: 'No keys.' } });

  expect(degraded.ready).toBe(true);
  expect(degraded.parts).toContainEqual({ name: 'encryption', ok: false, detail: 'No keys.' });
  expect(readHealth(store, outbox, UP).parts).toContainEqual({ name: 'encryption', ok: true });
});

test('keys that are waited for are counted once each, however many events wait for one', async () => {
  const { store, inbox, outbox, clock } = buildCore();
  await inbox.receive([incoming('a'), incoming('b'), incoming('c')]);
  await store.write((tx) => {
    const park = (event: string, session: string) =>
      tx.run(
        store.sql
          .updateTable('inbox')
          .set({ state: 'parked', megolm_session: session as MegolmSessionId })
          .where('event_id', '=', incoming(event).eventId),
      );
    park('a', 'one');
    park('b', 'one');
    park('c', 'two');
  });

  expect(readDepths({ store, inbox, outbox, scheduler: 0, now: clock.now(), keyStore: null })).toMatchObject({
    inboxParked: 3,
    missingKeys: 2,
  });
});

test('health names the plugins that are loaded, and why the others are not; none of it makes the process unready', () => {
  const { store, outbox } = buildCore();
  const up = UP;
  const plugins = {
    loaded: [
      { name: 'clock', version: '1', visibility: 'always', origin: 'bundled', because: 'on unless switched off' },
      { name: 'notes', version: '1', visibility: 'always', origin: 'given', because: 'switched on' },
    ],
    excluded: [{ name: 'mcp', reason: 'not configured: set MCP_CONFIG_FILE' }],
    softGaps: [{ plugin: 'notes', missing: 'memory' }],
  } as const;

  const { ready, parts } = readHealth(store, outbox, { ...up, plugins });

  expect(ready).toBe(true);
  expect(parts.find(({ name }) => name === 'plugins')).toEqual({
    name: 'plugins',
    ok: true,
    detail: '2 loaded: clock, notes; 1 not loaded: mcp (not configured: set MCP_CONFIG_FILE); notes works without memory',
  });
  expect(readHealth(store, outbox, up).parts.some(({ name }) => name === 'plugins')).toBe(false);
});
