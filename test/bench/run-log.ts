/**
 * The log of runs alone: real store, ledger, frame log and viewers on a real disk, without agent and network. How many frames a second reach the
 * disk beside one commit for each, and when two hundred viewers have a token that was handed to the log.
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as wait } from 'node:timers/promises';
import Sqlite from 'better-sqlite3';
import { createRunIds, type EventId, type RoomId, sessionIdOf, type UserId, unsignedPrincipalId } from '../../src/ids.ts';
import { createFrameLog, createFrameReader, type FrameLog } from '../../src/runs/frames.ts';
import { createRuns } from '../../src/runs/ledger.ts';
import { EMPTY_FOLD, type Run } from '../../src/runs/run.ts';
import { createViewers } from '../../src/runs/viewers.ts';
import { createSessions } from '../../src/sessions/sessions.ts';
import { createTextReader, readEvents } from '../../src/sidecar/watch-run.ts';
import { encodeSse, START } from '../../src/sidecar/wire/build-sse.ts';
import { openStore } from '../../src/store/store.ts';
import { systemClock } from '../../src/system-clock.ts';
import { NO_GRANTS, type Principal } from '../../src/turn/principal.ts';
import { quantile } from './measure.ts';

const WRITERS = 8;
const WRITING_MS = 2_000;
const TOKENS = 300;
const TOKEN_EVERY_MS = 10;

type Bench = ReturnType<typeof openBench>;

export async function measureFrameLog(): Promise<{ framesPerS: number; bareCommitsPerS: number }> {
  const bench = openBench();
  try {
    const until = performance.now() + WRITING_MS;
    const from = performance.now();
    const written = await Promise.all(Array.from({ length: WRITERS }, (_, index) => writeUntil(bench, index, until)));
    const framesPerS = (written.reduce((sum, count) => sum + count, 0) * 1_000) / (performance.now() - from);
    return { framesPerS, bareCommitsPerS: measureBareCommits(bench.dir) };
  } finally {
    bench.close();
  }
}

async function writeUntil(bench: Bench, index: number, until: number): Promise<number> {
  const run = await bench.startRun(index);
  const log = bench.log(run, () => undefined);
  let count = 0;
  for (; performance.now() < until; count += 1) {
    log.append('router', { step: `step ${count}` });
    await log.flush();
  }
  log.close();
  return count;
}

/** One frame, one commit: what a log without group commit would do. */
function measureBareCommits(dir: string): number {
  const database = new Sqlite(join(dir, 'bare.db'));
  database.pragma('journal_mode = WAL');
  database.pragma('synchronous = FULL');
  database.exec('CREATE TABLE frames (run_id TEXT, seq INTEGER, data TEXT, PRIMARY KEY (run_id, seq)) WITHOUT ROWID');
  const insert = database.prepare('INSERT INTO frames VALUES (?, ?, ?)');
  const from = performance.now();
  let count = 0;
  for (; performance.now() - from < WRITING_MS / 2; count += 1) insert.run('run', count, `{"step":"step ${count}"}`);
  const perS = (count * 1_000) / (performance.now() - from);
  database.close();
  return perS;
}

/** From the log being handed a token until the bytes of its event are there for the socket of each viewer; p95 over all of them. */
export async function measureViewers(count: number): Promise<number> {
  const bench = openBench();
  try {
    const run = await bench.startRun(0);
    const viewers = createViewers({ store: bench.store, frames: bench.frames, clock: systemClock });
    const view = viewers.open(run, EMPTY_FOLD);
    const log = bench.log(run, (frames, folded) => view.onFrames(frames, folded));
    const times: number[] = [];
    const context = { runId: run.id, sessionId: run.sessionId, requestId: 'bench' };
    const signal = new AbortController().signal;
    const textOf = createTextReader(bench.frames);
    async function read(): Promise<void> {
      for await (const event of readEvents(run, START, { context, signal, textOf }, { viewers })) {
        if (event === null) continue;
        const text = encodeSse(event);
        const at = performance.now();
        if (event.event === 'message') for (const [token] of text.matchAll(/\d+\.\d+(?=;)/gu)) times.push(at - Number(token));
      }
    }
    const reading = Promise.all(Array.from({ length: count }, read));
    for (let token = 0; token < TOKENS; token += 1) {
      log.text(`${performance.now().toFixed(2)};`);
      await wait(TOKEN_EVERY_MS);
    }
    await log.settle();
    const publish = await bench.store.write((tx) => {
      const finished = log.finishInTx(tx, [{ kind: 'end', data: { status: 'completed' } }]);
      bench.runs.end(tx, run, { status: 'completed', error: null, usage: null, model: null }, systemClock.now());
      return finished.publish;
    });
    publish();
    view.close();
    log.close();
    await reading;
    if (times.length !== TOKENS * count) throw new Error(`${times.length} tokens were seen, not ${TOKENS * count}`);
    return quantile(times, 0.95);
  } finally {
    bench.close();
  }
}

function openBench() {
  const dir = mkdtempSync(join(tmpdir(), 'matrix-oracle-run-log-'));
  const store = openStore({ path: join(dir, 'oracle.db'), now: Date.now() });
  const runs = createRuns({ store, fence: 1 });
  const sessions = createSessions({ store });
  const frames = createFrameReader({ store });
  const newRunId = createRunIds();
  const userId = '@bench:oracle.local' as UserId;
  const principal: Principal = {
    id: unsignedPrincipalId(userId),
    did: null,
    matrixUserId: userId,
    tier: 'listed',
    grants: NO_GRANTS,
    trust: 'clear',
  };
  const roomId = '!bench' as RoomId;

  return {
    dir,
    store,
    runs,
    frames,
    async startRun(index: number): Promise<Run> {
      const sessionId = sessionIdOf(`$session${index}` as EventId);
      const now = systemClock.now();
      const run = await store.write((tx) => {
        sessions.create(tx, { id: sessionId, roomId, owner: principal.id, kind: 'thread', threadRoot: sessionId, title: null }, now);
        const id = newRunId(now);
        const rest = {
          threadRoot: null,
          owner: principal.id,
          principal,
          client: 'portal',
          requestId: 'bench',
          hints: {},
          direct: true,
        } as const;
        runs.insert(tx, { id, sessionId, roomId, ...rest }, now);
        return runs.start(tx, id, { now, leaseUntil: now + 60_000, deadlineAt: now + 60_000 });
      });
      if (run === undefined) throw new Error('the run did not start');
      return run;
    },
    log: (run: Run, onCommitted: Parameters<typeof createFrameLog>[0]['onCommitted']): FrameLog =>
      createFrameLog({
        store,
        runs,
        clock: systemClock,
        run,
        folded: EMPTY_FOLD,
        onCommitted,
        onFailure: (error) => {
          throw error;
        },
      }),
    close() {
      store.close();
      rmSync(dir, { recursive: true, force: true });
    },
  };
}
