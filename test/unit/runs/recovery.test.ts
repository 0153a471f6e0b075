import { describe, expect, test } from 'vitest';
import type { RunId, SessionId } from '../../../src/ids.ts';
import { planRecovery, type Unfinished } from '../../../src/runs/recovery.ts';
import { buildCore } from '../../fakes/core.ts';
import { incoming, listed, roomId } from '../../fakes/events.ts';
import { settle } from '../../fakes/memory-store.ts';
import { held } from '../../fakes/scripted-runner.ts';

const unfinished = (name: string, more: Partial<Unfinished> = {}): Unfinished => ({
  id: name as RunId,
  sessionId: `$${name}` as SessionId,
  status: 'queued',
  attempt: 0,
  deadlineAt: null,
  stopAsked: null,
  ...more,
});
const planOf = (...args: Parameters<typeof planRecovery>): string[] =>
  planRecovery(...args).map(({ run, step }) => `${run.id} ${step.kind}${step.kind === 'end' ? ` ${step.because}` : ''}`);

test.each([
  [{ status: 'queued', attempt: 0, deadlineAt: null }, 'execute'],
  [{ status: 'running', attempt: 2, deadlineAt: 1_001 }, 'execute'],
  [{ status: 'running', attempt: 3, deadlineAt: 1_001 }, 'end INTERRUPTED'],
  [{ status: 'running', attempt: 1, deadlineAt: 1_000 }, 'end RUN_DEADLINE'],
  [{ status: 'queued', attempt: 0, deadlineAt: 999 }, 'end RUN_DEADLINE'],
  [{ status: 'running', attempt: 1, deadlineAt: 999, stopAsked: 'RUN_CANCELLED' }, 'end RUN_CANCELLED'],
] as const)('the plan for %o at 1000 is: %s (G5)', (run, expected) => {
  expect(planOf([unfinished('a', run)], 1_000)).toEqual([`a ${expected}`]);
});

describe('which run may have a place (G3)', () => {
  const rows = [
    unfinished('a'),
    unfinished('b', { sessionId: '$a' as SessionId }),
    unfinished('c'),
    unfinished('d', { stopAsked: 'RUN_CANCELLED' }),
  ];

  test('turns of one session go one after the other, the first first', () => {
    expect(planOf(rows, 0)).toEqual(['a execute', 'b wait', 'c execute', 'd end RUN_CANCELLED']);
  });
  test('a busy session waits', () => {
    expect(planOf(rows, 0, { busy: new Set(['$a' as SessionId]) })).toEqual(['a wait', 'b wait', 'c execute', 'd end RUN_CANCELLED']);
  });
  test('what has no place waits, also to be ended', () => {
    expect(planOf(rows, 0, { free: 2 })).toEqual(['a execute', 'b wait', 'c execute', 'd wait']);
  });
});

test('a start with 1,000 unfinished runs takes new work within 2 s and keeps to the limit (G5)', async () => {
  const core = buildCore({ maxConcurrentRuns: 8 });
  await core.joinDirect();
  const principal = listed();
  await core.store.write((tx) => {
    for (let at = 0; at < 1_000; at += 1) {
      const id = core.newRunId(core.clock.now());
      const session = {
        id: `$s${at}` as SessionId,
        roomId: roomId('old'),
        owner: principal.id,
        kind: 'thread' as const,
        threadRoot: null,
        title: null,
      };
      core.sessions.create(tx, session, 0);
      const { id: sessionId, owner } = session;
      const run = {
        id,
        sessionId,
        roomId: session.roomId,
        threadRoot: null,
        owner,
        principal,
        client: 'matrix' as const,
        requestId: 'r',
        hints: {},
        direct: true,
      };
      core.runs.insert(tx, run, at);
      core.runs.addPrompt(tx, { runId: id, sessionId, promptId: `$p${at}`, principal, text: 'hello' }, at);
      if (at % 2 === 0) core.runs.start(tx, id, { now: at, leaseUntil: 0, deadlineAt: core.clock.now() + 60_000 });
    }
  });
  const holding = held('x');
  core.runner.script(holding.script);

  const from = performance.now();
  core.scheduler.wake();
  await core.take(incoming('new'));
  await settle();

  expect(performance.now() - from).toBeLessThan(2_000);
  expect(core.admitted).toEqual(['admitted:direct']);
  expect(core.scheduler.active()).toBe(8);
  expect(holding.started).toBe(8);
  holding.release();
  while (core.scheduler.active() > 0) await settle();
  expect(holding.started).toBe(1_001);
  expect(core.store.read.all(core.store.sql.selectFrom('runs').select('status').where('status', '!=', 'completed'))).toEqual([]);
});
