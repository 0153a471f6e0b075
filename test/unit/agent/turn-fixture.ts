/** A whole turn of the main runner against the scripted model server: what the agent's tests share. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { z } from 'zod';
import type { MainRunnerOptions } from '../../../src/agent/agent-parts.ts';
import { createMainRunner, type MainRunner } from '../../../src/agent/main-agent.ts';
import { refusal } from '../../../src/errors.ts';
import {
  createRunIds,
  type Did,
  type EventId,
  type OwnerId,
  type PrincipalId,
  type RoomId,
  type SessionId,
  type UserId,
} from '../../../src/ids.ts';
import { createModels, type Models } from '../../../src/models/models.ts';
import { createLogger } from '../../../src/observe/logger.ts';
import { type AnyOraclePlugin, defineOraclePlugin } from '../../../src/plugin-api/define-oracle-plugin.ts';
import type { AnyTool, ToolDefinition } from '../../../src/plugin-api/define-tool.ts';
import { err } from '../../../src/result.ts';
import { EMPTY_FOLD, type FoldedRun, type Frame, type FrameData, foldFrame, type Run } from '../../../src/runs/run.ts';
import type { RunJob, RunOutcome, RunOutput } from '../../../src/runs/runner.ts';
import type { ToolMarks } from '../../../src/runs/tool-marks.ts';
import type { MatrixAccess } from '../../../src/runtime-context/matrix-access.ts';
import type { TranscriptEntry } from '../../../src/sessions/transcript.ts';
import { systemClock } from '../../../src/system-clock.ts';
import type { Clock } from '../../../src/time.ts';
import type { AuditEntry } from '../../../src/turn/audit.ts';
import { NO_GRANTS } from '../../../src/turn/principal.ts';
import type { Downstream } from '../../../src/ucan/downstream.ts';
import { type ModelServer, startModelServer } from '../../../synapse-dev/model/server.ts';
import { fakeServices } from '../../fakes/context-services.ts';
import { hostOf } from '../../fakes/plugin-host.ts';

export const tool = <S extends z.ZodObject>(definition: ToolDefinition<S>): AnyTool => definition as unknown as AnyTool;

const newRunId = createRunIds();
let events = 0;

export function fakeRun(more: Partial<Run> & { text?: string } = {}): Run {
  const { text = 'hello', ...rest } = more;
  events += 1;
  return {
    id: newRunId(systemClock.now()),
    sessionId: '$session' as SessionId,
    roomId: '!room:test' as RoomId,
    threadRoot: null,
    owner: 'did:key:zAlice' as OwnerId,
    principalId: 'did:key:zAlice' as PrincipalId,
    did: 'did:key:zAlice' as Did,
    matrixUserId: '@alice:test' as UserId,
    tier: 'signed',
    trust: null,
    grants: NO_GRANTS,
    tainted: false,
    client: 'matrix',
    requestId: 'req',
    hints: {},
    direct: true,
    replaces: null,
    status: 'running',
    attempt: 1,
    createdAt: 0,
    startedAt: 0,
    deadlineAt: null,
    fence: 1,
    prompts: [{ id: `$prompt${events}` as EventId, text, receivedAt: 0 }],
    ...rest,
  };
}

export interface FakeOutput extends RunOutput {
  readonly folded: () => FoldedRun;
  readonly calls: string[];
  readonly tools: FrameData['tool_call'][];
}
export function fakeOutput(shownText = ''): FakeOutput {
  let fold: FoldedRun = { ...EMPTY_FOLD, text: shownText };
  let seq = 0;
  const calls: string[] = [];
  const tools: FrameData['tool_call'][] = [];
  const add = (frame: Omit<Frame, 'seq' | 'at'>): void => {
    seq += 1;
    fold = foldFrame(fold, { ...frame, seq, at: 0 } as Frame);
  };
  return {
    calls,
    tools,
    folded: () => fold,
    text: (delta) => {
      calls.push('text');
      add({ kind: 'text', data: { delta } } as never);
    },
    truncate: (length) => {
      calls.push(`truncate ${length}`);
      add({ kind: 'truncate', data: { length } } as never);
    },
    toolCall: (data) => {
      calls.push(`tool ${data.name} ${data.status}`);
      tools.push(data);
      add({ kind: 'tool_call', data } as never);
    },
    emit: (kind, data) => {
      calls.push(`emit ${kind}`);
      add({ kind, data } as never);
    },
    inputsWaiting: () => [],
    promptsConsumed: async () => void calls.push('consumed'),
    tainted: async () => void calls.push('tainted'),
    modelCalled: () => void calls.push('model'),
  };
}

/** Marks in memory with the rules of the real ones for one process. */
export function fakeMarks(): ToolMarks & { readonly rows: Map<string, { state: string; result: string | null }> } {
  const rows = new Map<string, { state: string; result: string | null }>();
  return {
    rows,
    async begin(key) {
      const row = rows.get(key.toolCallId);
      if (row === undefined) {
        rows.set(key.toolCallId, { state: 'started', result: null });
        return { kind: 'run' };
      }
      return row.state === 'finished' ? { kind: 'stored', result: row.result ?? '' } : { kind: 'unknown_outcome' };
    },
    async finish(key, result) {
      rows.set(key.toolCallId, { state: 'finished', result });
    },
  };
}

export const noMatrix: MatrixAccess = {
  send: async () => {
    throw new Error('unexpected send');
  },
  roomState: async () => [],
  event: async () => ({}),
  readFile: async () => {
    throw new Error('unexpected read of a file');
  },
  uploadFile: async () => {
    throw new Error('unexpected upload');
  },
  mayUserSend: async () => true,
  areJoined: async () => false,
};

/** An oracle without a key: nothing can be minted. */
export const noDownstream: Downstream = {
  hasSigningKey: () => false,
  resolveServiceDid: async () => null,
  mint: async () => err(refusal('NO_SIGNING_KEY')),
  fromDelegation: async () => ({ error: 'no key' }),
};

export interface Bench {
  readonly server: ModelServer;
  readonly models: Models;
  readonly runner: MainRunner;
  readonly marks: ReturnType<typeof fakeMarks>;
  readonly folder: string;
  readonly transcript: TranscriptEntry[];
  readonly overheard: TranscriptEntry[];
  readonly audit: AuditEntry[];
  readonly restart: () => MainRunner;
  execute(job?: Partial<RunJob> & { run?: Run }): Promise<{ outcome: RunOutcome; output: FakeOutput; run: Run }>;
  close(): Promise<void>;
}

export async function startBench(
  more: {
    tools?: readonly AnyTool[];
    plugins?: readonly AnyOraclePlugin[];
    options?: Partial<MainRunnerOptions>;
    idleTimeoutMs?: number;
    clock?: Clock;
  } = {},
): Promise<Bench> {
  const clock = more.clock ?? systemClock;
  const server = await startModelServer({ pace: 'instant' });
  const models = createModels({
    clock,
    baseUrl: server.baseUrl,
    apiKey: 'sk-test',
    roles: { main: 'demo' },
    selectable: ['other'],
    idleTimeoutMs: more.idleTimeoutMs ?? 5_000,
  });
  const folder = mkdtempSync(join(tmpdir(), 'oracle-agent-'));
  const marks = fakeMarks();
  const transcript: TranscriptEntry[] = [];
  const overheard: TranscriptEntry[] = [];
  const audit: AuditEntry[] = [];
  const plugin = defineOraclePlugin({
    name: 'test',
    version: '1.0.0',
    manifest: { title: 'Test', summary: 'Tools of the test.', whenToUse: ['The test asks.'], visibility: 'always' },
    getTools: () => more.tools ?? [],
  });
  const host = await hostOf([plugin, ...(more.plugins ?? [])], clock);
  const open: MainRunner[] = [];
  const restart = (): MainRunner => {
    const runner = createMainRunner({
      clock,
      logger: createLogger({ level: 'silent', format: 'json' }),
      transcript: { newest: (_session, { limit }) => transcript.slice(-limit), overheard: (_room, limit) => overheard.slice(-limit) },
      marks,
      models,
      host,
      services: { ...fakeServices(), host },
      matrix: noMatrix,
      authority: { judge: () => null, actingGrants: () => [] },
      downstream: noDownstream,
      audit: async (entry) => void audit.push(entry),
      checkpointFolder: join(folder, 'checkpoints'),
      oracleName: 'Oracle',
      contextMessages: 40,
      ...more.options,
    });
    open.push(runner);
    return runner;
  };
  let runner = restart();
  return {
    server,
    models,
    get runner() {
      return runner;
    },
    marks,
    folder,
    transcript,
    overheard,
    audit,
    restart: () => {
      runner.close();
      runner = restart();
      return runner;
    },
    async execute(job = {}) {
      const run = job.run ?? fakeRun();
      const output = (job.output as FakeOutput | undefined) ?? fakeOutput(job.shownText);
      const outcome = await runner.execute({
        run,
        shownText: job.shownText ?? '',
        signal: job.signal ?? new AbortController().signal,
        output,
      });
      return { outcome, output, run };
    },
    async close() {
      for (const one of open) one.close();
      await models.close();
      await server.close();
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

/** What a model was sent with request `number` (from 1). */
export function sentWith(bench: Bench, number: number): { system: string; messages: string[]; tools: string[]; model: string } {
  const request = bench.server.requests[number - 1];
  if (request === undefined) throw new Error(`there was no request ${number}`);
  const body = request.body as unknown as {
    model: string;
    messages: { role: string; content: unknown }[];
    tools?: { function: { name: string } }[];
  };
  const [system, ...messages] = body.messages;
  return {
    system: String(system?.content),
    messages: messages.map(({ role, content }) => `${role}: ${typeof content === 'string' ? content : ''}`),
    tools: (body.tools ?? []).map((one) => one.function.name),
    model: body.model,
  };
}

/** Texts of a turn's tool results, in order. */
export const resultsOf = (outcome: RunOutcome): string[] =>
  outcome.kind === 'suspended' ? [] : outcome.messages.filter(({ role }) => role === 'tool').map(({ text }) => text);
