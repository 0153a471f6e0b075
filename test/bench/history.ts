/**
 * G16: what a turn costs in a thread of 2,000 messages beside one of 20. Real store, ledger, frames, agent and checkpoints on a real disk; the
 * model answers at once and is shown the same number of messages in both, so what differs is what the length of the thread costs.
 */

import { mkdtempSync, readdirSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import Sqlite from 'better-sqlite3';
import { createMainRunner } from '../../src/agent/main-agent.ts';
import { openPluginServices } from '../../src/app/plugin-services.ts';
import { createRunIds, type EventId, type PrincipalId, type RoomId, sessionIdOf, type UserId } from '../../src/ids.ts';
import { createModels } from '../../src/models/models.ts';
import { createLogger } from '../../src/observe/logger.ts';
import { executeRun } from '../../src/runs/execute-run.ts';
import { createFrameReader } from '../../src/runs/frames.ts';
import { createInputs } from '../../src/runs/inputs.ts';
import { createRuns } from '../../src/runs/ledger.ts';
import { createToolMarks } from '../../src/runs/tool-marks.ts';
import type { MatrixAccess } from '../../src/runtime-context/matrix-access.ts';
import { createSessions } from '../../src/sessions/sessions.ts';
import { createTranscript } from '../../src/sessions/transcript.ts';
import { openStore } from '../../src/store/store.ts';
import { systemClock } from '../../src/system-clock.ts';
import { NO_GRANTS, type Principal } from '../../src/turn/principal.ts';
import { startModelServerProcess } from '../../synapse-dev/model/process.ts';
import { hostOf } from '../fakes/plugin-host.ts';
import { median, round } from './measure.ts';

const TURNS = 60;
const WARM_UP = 15;
const LOADS = 200;
const WINDOW = 16;

export async function measureHistory(): Promise<Record<string, number>> {
  const model = await startModelServerProcess({ pace: 'instant', answerTokens: 20 });
  try {
    // In turn, so that a machine that drifts drifts for both.
    const short = await openThread(20, model.baseUrl);
    const long = await openThread(2_000, model.baseUrl);
    for (let turn = 0; turn < WARM_UP; turn += 1) {
      await short.turn();
      await long.turn();
    }
    short.begin();
    long.begin();
    for (let turn = 0; turn < TURNS; turn += 1) {
      await short.turn();
      await long.turn();
    }
    const [a, b] = [short.end(), long.end()];
    return {
      storage_2000_over_20: round(b.bytesPerTurn / a.bytesPerTurn, 2),
      load_2000_over_20: round(b.loadMs / a.loadMs, 2),
      cpu_2000_over_20: round(b.cpuMs / a.cpuMs, 2),
      storage_bytes_per_turn_20: round(a.bytesPerTurn, 0),
      cpu_per_turn_20_ms: round(a.cpuMs),
    };
  } finally {
    await model.stop();
  }
}

interface Cost {
  readonly bytesPerTurn: number;
  readonly loadMs: number;
  readonly cpuMs: number;
}

async function openThread(messages: number, modelUrl: string) {
  const dir = mkdtempSync(join(tmpdir(), 'matrix-oracle-history-'));
  const store = openStore({ path: join(dir, 'oracle.db'), now: Date.now() });
  const logger = createLogger({ level: 'silent', format: 'json' });
  const clock = systemClock;
  const transcript = createTranscript({ store });
  const sessions = createSessions({ store });
  const runs = createRuns({ store, fence: 1 });
  const models = createModels({ clock, baseUrl: modelUrl, apiKey: 'none', roles: { main: 'bench' }, idleTimeoutMs: 30_000 });
  const host = await hostOf([]);
  const matrix: MatrixAccess = {
    send: () => Promise.reject(new Error('no tool sends here')),
    roomState: async () => [],
    event: async () => ({}),
    readFile: async () => Promise.reject(new Error('no files here')),
    uploadFile: async () => Promise.reject(new Error('no files here')),
    mayUserSend: async () => false,
    areJoined: async () => false,
  };
  const runner = createMainRunner({
    clock,
    logger,
    transcript,
    marks: createToolMarks({ store, clock }),
    models,
    host,
    services: await openPluginServices({
      config: { dataDir: dir, secretsKeyFile: undefined },
      host,
      store,
      matrix,
      signing: null,
      clock,
      logger,
    }),
    matrix,
    authority: { judge: () => null, actingGrants: () => [] },
    downstream: {
      hasSigningKey: () => false,
      resolveServiceDid: async () => null,
      mint: () => Promise.reject(new Error('no tool mints here')),
      fromDelegation: () => Promise.reject(new Error('no tool mints here')),
    },
    audit: async () => undefined,
    checkpointFolder: join(dir, 'checkpoints'),
    oracleName: 'Oracle',
    contextMessages: WINDOW,
  });
  const principal: Principal = {
    id: 'did:key:zBench' as PrincipalId,
    did: null,
    matrixUserId: '@bench:oracle.local' as UserId,
    tier: 'listed',
    grants: NO_GRANTS,
    trust: 'clear',
  };
  const roomId = '!bench' as RoomId;
  const sessionId = sessionIdOf('$session' as EventId);
  const newRunId = createRunIds();
  await store.write((tx) => {
    const at = clock.now();
    sessions.create(tx, { id: sessionId, roomId, owner: principal.id, kind: 'rolling', threadRoot: null, title: null }, at);
    for (let index = 0; index < messages; index += 1) {
      transcript.append(tx, {
        roomId,
        sessionId,
        runId: newRunId(at),
        eventId: null,
        role: index % 2 === 0 ? 'human' : 'ai',
        speaker: index % 2 === 0 ? principal.id : 'oracle',
        text: `message ${index} `.padEnd(400, 'words '),
        message: null,
        at,
      });
    }
  });

  let prompts = 0;
  async function turn(): Promise<void> {
    const id = newRunId(clock.now());
    prompts += 1;
    const promptId = `$prompt${prompts}`;
    const text = `question ${prompts} `.padEnd(400, 'words ');
    const before = process.cpuUsage();
    const run = await store.write((tx) => {
      const at = clock.now();
      runs.insert(
        tx,
        {
          id,
          sessionId,
          roomId,
          threadRoot: null,
          owner: principal.id,
          principal,
          client: 'matrix',
          requestId: promptId,
          hints: {},
          direct: true,
        },
        at,
      );
      runs.addPrompt(tx, { runId: id, sessionId, promptId, principal, text }, at);
      transcript.append(tx, {
        roomId,
        sessionId,
        runId: id,
        eventId: promptId,
        role: 'human',
        speaker: principal.id,
        text,
        message: null,
        at,
      });
      return runs.start(tx, id, { now: at, leaseUntil: at + 60_000, deadlineAt: at + 60_000 });
    });
    if (run === undefined) throw new Error('the run did not start');
    const frames = createFrameReader({ store });
    const ended = await executeRun(run, new AbortController().signal, {
      store,
      runs,
      inputs: createInputs({ store, runs, newRunId }),
      frames,
      transcript,
      clock,
      logger,
      projections: [],
      runner,
      authority: { judgeStart: () => null },
      observe: () => undefined,
    });
    if (ended !== 'ended') throw new Error(`the run ${ended}`);
    const used = process.cpuUsage(before);
    cpu.push((used.user + used.system) / 1_000);
  }
  /** What lies on disk once the log is folded in. */
  function bytesOnDisk(): number {
    const checkpoints = readdirSync(join(dir, 'checkpoints')).filter((name) => name.endsWith('.db'));
    const files = [join(dir, 'oracle.db'), ...checkpoints.map((name) => join(dir, 'checkpoints', name))];
    return files.reduce((sum, file) => {
      const database = new Sqlite(file);
      database.pragma('wal_checkpoint(TRUNCATE)');
      database.close();
      return sum + statSync(file).size;
    }, 0);
  }
  let cpu: number[] = [];
  let from = 0;
  return {
    turn,
    begin() {
      cpu = [];
      from = bytesOnDisk();
    },
    end(): Cost {
      const loads = Array.from({ length: LOADS }, () => {
        const at = performance.now();
        transcript.newest(sessionId, { limit: WINDOW });
        return performance.now() - at;
      });
      const cost = { bytesPerTurn: (bytesOnDisk() - from) / TURNS, loadMs: median(loads), cpuMs: median(cpu) };
      runner.close();
      store.close();
      void models.close();
      rmSync(dir, { recursive: true, force: true });
      return cost;
    },
  };
}
