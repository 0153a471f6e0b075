/**
 * A process that dies at any instant, without processes: the whole of `startWork` with the real database, checkpoints and agent, on a fake clock and
 * a homeserver in memory. Every commit, every effect on the homeserver, every checkpoint and every effect of a tool is a numbered step. A kill copies
 * the data folder as it is at that step, as `kill -9` leaves it, and the dead self can neither commit, send nor wake again. What the
 * homeserver shows is folded as a client does, so that "exactly one answer" is what a person would count.
 */
import { cpSync, existsSync, mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as wait } from 'node:timers/promises';
import type { Compilable } from 'kysely';
import { expect, vi } from 'vitest';
import { z } from 'zod';
import { type MatrixApi, type MatrixConnection, MatrixError } from '../../appservice/matrix-api.ts';
import { readIncoming } from '../../appservice/read-incoming.ts';
import { createMainRunner, type MainRunner } from '../../src/agent/main-agent.ts';
import { dataPaths } from '../../src/app/data-paths.ts';
import type { LoadAgentOptions } from '../../src/app/load-agent.ts';
import { openData } from '../../src/app/open-data.ts';
import { readConfig } from '../../src/config.ts';
import type { UserId } from '../../src/ids.ts';
import { createInbox, type Inbox } from '../../src/inbox/inbox.ts';
import { isJsonObject } from '../../src/json.ts';
import { createModels, type Models } from '../../src/models/models.ts';
import { createMetrics } from '../../src/observe/metrics.ts';
import { type AnyOraclePlugin, defineOraclePlugin } from '../../src/plugin-api/define-oracle-plugin.ts';
import { ok } from '../../src/result.ts';
import { type FrameRow, readFrameRow } from '../../src/runs/compact-frames.ts';
import { createToolMarks } from '../../src/runs/tool-marks.ts';
import type { SidecarDeps } from '../../src/sidecar/deps.ts';
import { PruningSaver } from '../../src/store/checkpoints/pruning-saver.ts';
import type { Store, Tx } from '../../src/store/store.ts';
import type { Clock } from '../../src/time.ts';
import { writeAudit } from '../../src/turn/audit.ts';
import { keyFromSeed } from '../../src/ucan/signing-key.ts';
import type { ChatRequest } from '../../synapse-dev/model/chat-request.ts';
import type { Reply } from '../../synapse-dev/model/reply.ts';
import { startModelServer } from '../../synapse-dev/model/server.ts';
import { fakeClock } from '../fakes/fake-clock.ts';
import { createFakeHomeserver, type FakeEvent, type FakeHomeserver } from '../fakes/fake-homeserver.ts';
import { type FakeLogger, fakeLogger } from '../fakes/fake-logger.ts';
import { type FakeKey, sealedContent } from '../fakes/fake-reveal.ts';
import { foldRoom, type ShownInRoom } from '../fakes/fold-room.ts';
import { breakDisk } from '../fakes/memory-store.ts';
import { tool } from '../unit/agent/turn-fixture.ts';
import { asShown, type FakeCrypto, fakeCrypto } from './fake-crypto.ts';

/** The process that starts now; what it imports is made for it. */
const starting = vi.hoisted(() => ({ process: undefined as unknown }));
const current = (): Incarnation => starting.process as Incarnation;
vi.mock('../../appservice/client.ts', () => ({ connectMatrix: async () => current().connection }));
vi.mock('../../appservice/crypto/open-crypto.ts', () => ({ openCrypto: async () => ok(current().crypto) }));
vi.mock('../../src/app/load-agent.ts', () => ({ loadAgent: (options: LoadAgentOptions) => current().loadAgent(options) }));
vi.mock('../../src/sidecar/sidecar.ts', () => ({
  createSidecar(deps: SidecarDeps) {
    current().sidecar = deps;
    return { listen: async () => 'http://127.0.0.1:1', close: async () => undefined };
  },
}));

export const ORACLE = '@oracle:oracle.local' as UserId;
export const ALICE = '@alice:oracle.local';
export const BOB = '@bob:oracle.local';
const DID = keyFromSeed(Buffer.alloc(32, 7)).did;
const never = (): Promise<never> => new Promise(() => undefined);

/** Every commit of a checkpoint file, of the world that was opened last. */
let onCheckpoint = (): void => undefined;
const { flush } = PruningSaver.prototype;
PruningSaver.prototype.flush = function (this: PruningSaver) {
  flush.call(this);
  onCheckpoint();
};

export interface Incarnation {
  readonly number: number;
  readonly dir: string;
  readonly store: Store;
  readonly inbox: Inbox;
  readonly logger: FakeLogger;
  readonly connection: MatrixConnection;
  readonly crypto: FakeCrypto;
  loadAgent(options: LoadAgentOptions): { runner: MainRunner; models: Models };
  sidecar: SidecarDeps | undefined;
  dead: boolean;
  isReady: boolean;
  ready: Promise<void>;
  stop(): Promise<void>;
}

export interface WorldOptions {
  /** What the homeserver does with a push that nobody took: sends it again, or forgets it when we are gone (research/synapse.md §0). */
  readonly pushes?: 'redelivered' | 'lost';
  readonly env?: Readonly<Record<string, string>>;
  /** Pieces of an answer are this far apart, in real ms: an answer of many pieces is edited on the way. */
  readonly pieceMs?: number;
}
export type World = Awaited<ReturnType<typeof openWorld>>;

/** What the model of these worlds says to prompts: long enough for several edits, and telling which prompts it was given. */
export const answerTo = (...prompts: readonly string[]): string =>
  `You said ${prompts.join(' and ')}. ${Array.from({ length: 30 }, (_, word) => `word${word}`).join(' ')}.`;

function replyTo({ messages }: ChatRequest, pieceMs: number): Reply {
  const lastAnswer = messages.findLastIndex(({ role, toolCalls }) => role === 'assistant' && toolCalls.length === 0);
  const turn = messages.slice(lastAnswer + 1);
  const prompts = turn.filter(({ role }) => role === 'user').map(({ text }) => text);
  const asksToWrite = prompts.some((prompt) => prompt.startsWith('write'));
  if (asksToWrite && !turn.some(({ role }) => role === 'tool'))
    return { kind: 'toolCalls', text: 'Writing it down.', calls: [{ name: 'write_note', args: { note: prompts.at(-1) ?? '' } }] };
  return { kind: 'text', text: answerTo(...prompts), pace: pieceMs === 0 ? 'instant' : { chunkChars: 50, delayMs: pieceMs } };
}

export async function openWorld(options: WorldOptions = {}) {
  const clock = fakeClock();
  const homeserver = createFakeHomeserver({ clock });
  const folder = mkdtempSync(join(memoryFolder(), 'oracle-crash-'));
  const model = await startModelServer();
  model.respond((request) => replyTo(request, options.pieceMs ?? 0));
  const { startWork } = await import('../../src/app/work.ts');
  const processes: Incarnation[] = [];
  /** In the key store, which outlives its process. */
  const keys = new Map<string, FakeKey>();
  const closers: (() => void)[] = [];
  const effects: string[] = [];
  const steps: string[] = [];
  /** What happens right after so many further steps. */
  let armed: { left: number; fits: RegExp; act: () => void } | null = null;
  let alive: Incarnation | null = null;
  let struckAt: string | null = null;
  let answersToLose = 0;
  let failing: ((path: string) => { status: number; body: unknown } | undefined) | null = null;

  /** Called when something cannot be taken back any more. Resolves never for a process that dies of it. */
  function step(process: Incarnation, name: string): Promise<void> | undefined {
    if (process.dead) return never();
    steps.push(name);
    if (armed === null || !armed.fits.test(name) || --armed.left > 0) return undefined;
    const { act } = armed;
    armed = null;
    struckAt = name;
    act();
    return process.dead ? never() : undefined;
  }
  function kill(): void {
    armed = null;
    if (alive !== null) alive.dead = true;
    alive = null;
    cpSync(currentDir(), join(folder, String(processes.length + 1)), { recursive: true });
  }
  const currentDir = (): string => join(folder, String(processes.length));

  function wrapStore(process: Incarnation, store: Store): Store {
    return {
      ...store,
      async write(change) {
        if (process.dead) return never();
        let name = '';
        const value = await store.write((tx) => change(naming(tx, (table) => (name = name === '' ? table : name))));
        await step(process, `commit: ${name}`);
        return value;
      },
    };
  }
  function wrapConnection(process: Incarnation): MatrixConnection {
    const inner = homeserver.connection();
    const wrap = (api: MatrixApi): MatrixApi => ({
      async request<T extends object>(...[method, path, request]: Parameters<MatrixApi['request']>): Promise<T> {
        if (process.dead) throw new MatrixError({ errcode: 'UNREACHABLE', status: 0, retryAfterMs: null, certain: true });
        const failure = failing?.(path);
        if (failure !== undefined) {
          const body = isJsonObject(failure.body) ? failure.body : {};
          const errcode = typeof body['errcode'] === 'string' ? body['errcode'] : 'NOT_JSON';
          throw new MatrixError({
            errcode,
            status: failure.status,
            retryAfterMs: null,
            certain: failure.status < 500 && errcode !== 'NOT_JSON',
          });
        }
        const answer = await api.request<T>(method, path, request);
        if (method !== 'GET' && path.includes('/rooms/') && answersToLose > 0) {
          answersToLose -= 1;
          throw new MatrixError({ errcode: 'CONNECTION_LOST', status: 0, retryAfterMs: null, certain: false });
        }
        if (method !== 'GET' && path.includes('/rooms/') && !/receipt|typing/u.test(path))
          await step(process, `homeserver: ${path.split('/').slice(6, 8).join(' ')}`);
        else if (path.endsWith('/createRoom')) await step(process, 'homeserver: createRoom');
        else if (process.dead) return never();
        return answer;
      },
    });
    return { bare: wrap(inner.bare), as: (identity) => wrap(inner.as(identity)), close: inner.close };
  }
  function buildPlugin(process: Incarnation): AnyOraclePlugin {
    return defineOraclePlugin({
      name: 'notes',
      version: '1.0.0',
      manifest: { title: 'Notes', summary: 'Writes notes.', whenToUse: ['Something is to be kept.'], visibility: 'always' },
      getTools: () => [
        tool({
          name: 'write_note',
          description: 'Writes a note down.',
          schema: z.object({ note: z.string() }),
          effect: 'write',
          reach: 'own',
          handler: async ({ note }) => {
            if (process.dead) return never();
            effects.push(note);
            await step(process, 'effect of a tool');
            return 'written';
          },
        }),
      ],
    });
  }
  function buildAgent(process: Incarnation, agent: LoadAgentOptions): { runner: MainRunner; models: Models } {
    const models = createModels({
      clock: agent.clock,
      baseUrl: model.baseUrl,
      apiKey: 'sk-test',
      roles: { main: 'demo' },
      idleTimeoutMs: 10 * 60_000,
    });
    const runner = createMainRunner({
      clock: agent.clock,
      logger: agent.logger,
      transcript: agent.transcript,
      marks: createToolMarks({ store: agent.store, clock: agent.clock }),
      models,
      host: agent.host,
      services: agent.services,
      spending: agent.spending,
      matrix: agent.matrix,
      authority: agent.authority,
      downstream: agent.downstream,
      audit: (entry) => agent.store.write((tx) => writeAudit(agent.store, tx, entry)),
      checkpointFolder: agent.checkpointFolder,
      oracleName: 'Oracle',
      contextMessages: 40,
    });
    closers.push(
      () => runner.close(),
      () => void models.close(),
    );
    return { runner, models };
  }

  async function start(): Promise<Incarnation> {
    const number = processes.length + 1;
    const dir = join(folder, String(number));
    mkdirSync(dir, { recursive: true });
    const config = readConfig({
      MATRIX_BASE_URL: 'http://127.0.0.1:1',
      MATRIX_SERVER_NAME: 'oracle.local',
      MATRIX_AS_TOKEN: 'as-token-xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx',
      MATRIX_HS_TOKEN: 'hs-token-xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx',
      ORACLE_DID: DID,
      DATA_DIR: dir,
      MODEL_MAIN: 'demo',
      OPENAI_BASE_URL: model.baseUrl,
      UNSIGNED_USERS: '@*:oracle.local',
      RATE_LIMIT: '1000',
      BOT_HOP_BUDGET: '0',
      PORT: '0',
      ...options.env,
    });
    if (!config.ok) throw new Error(config.error.map(({ message }) => message).join('\n'));
    const process: Incarnation = {
      number,
      dir,
      logger: fakeLogger(),
      dead: false,
      isReady: false,
      sidecar: undefined,
      crypto: fakeCrypto(keys, ORACLE),
      connection: undefined as never,
      store: undefined as never,
      inbox: undefined as never,
      ready: Promise.resolve(),
      loadAgent: (agent) => buildAgent(process, agent),
      stop: async () => undefined,
    };
    const own: Clock = {
      now: clock.now,
      monotonic: clock.monotonic,
      after: (delayMs, callback) => clock.after(delayMs, () => (process.dead ? undefined : callback())),
    };
    const data = openData(dataPaths(dir), clock.now());
    closers.push(() => data.close());
    const store = wrapStore(process, data.store);
    const inbox = createInbox({ store, clock: own, oracle: ORACLE, fence: data.fence });
    Object.assign(process, { store, inbox, connection: wrapConnection(process) });
    processes.push(process);
    alive = process;
    starting.process = process;
    const work = await startWork({
      config: config.value,
      logger: process.logger,
      clock: own,
      data: { ...data, store },
      inbox,
      metrics: createMetrics(),
      appserviceUrl: 'http://127.0.0.1:1',
      plugins: [buildPlugin(process)],
      onFatal: (reason) => {
        throw new Error(reason);
      },
    });
    const becomeReady = (): void => {
      process.isReady = true;
    };
    process.ready = work.ready.then(becomeReady, () => undefined);
    process.stop = () => work.stop();
    return process;
  }

  /** Events in the order of the timeline that no process has taken yet. */
  const unpushed: FakeEvent[] = [];
  const known = new Map<string, number>();
  const rooms: string[] = [];
  function collect(): void {
    for (const room of rooms) {
      const timeline = homeserver.timeline(room);
      unpushed.push(...timeline.slice(known.get(room) ?? 0));
      known.set(room, timeline.length);
    }
  }
  let pushing: Incarnation | null = null;
  async function push(): Promise<void> {
    const process = alive;
    if (process === null || pushing === process || unpushed.length === 0) return;
    pushing = process;
    const batch = unpushed.slice(0, 3);
    const { events } = readIncoming(
      batch.map((event) => homeserver.pushed(event)),
      { source: 'push' },
    );
    // Nobody waits for a dead process: the next one is tried.
    await process.inbox.receive(events).then(
      () => unpushed.splice(0, batch.length),
      () => undefined,
    );
    pushing = null;
  }

  /** Lets the world go on until `until`, or for `forMs` of its time. */
  async function drive(until: () => boolean, forMs = 120_000): Promise<void> {
    const end = clock.monotonic() + forMs;
    while (!until()) {
      if (clock.monotonic() >= end) return;
      collect();
      void push();
      const isSpeaking = model.requests.some((request) => request.ended === undefined);
      await clock.advanceAsync(isSpeaking ? 400 : 20);
      if (isSpeaking) await wait(1);
    }
  }

  const shown = (room: string): ShownInRoom[] =>
    foldRoom(
      homeserver
        .timeline(room)
        .filter(({ sender }) => sender === ORACLE)
        .map(asShown),
    );
  const count = (query: string): number => {
    if (alive === null) return -1;
    return alive.store.read.get<{ n: number }>(raw(query))?.n ?? -1;
  };
  const world = {
    clock,
    folder,
    homeserver,
    model,
    effects,
    steps,
    processes,
    start,
    drive,
    kill,
    shown,
    get alive(): Incarnation {
      if (alive === null) throw new Error('no process is alive');
      return alive;
    },
    get isAlive() {
      return alive !== null;
    },
    /** The step after which what was armed happened; null when it did not come to that. */
    get struckAt() {
      return struckAt;
    },
    /** Requests whose path fits are answered so; `undefined` lets one through. */
    fail(path: RegExp, answer: (path: string) => { readonly status: number; readonly body: unknown } | undefined) {
      failing = (asked) => (path.test(asked) ? answer(asked) : undefined);
    },
    /** Lets time pass, quietly or not. */
    async pass(ms: number) {
      for (let passed = 0; passed < ms; passed += 1_000) {
        collect();
        void push();
        await clock.advanceAsync(1_000);
      }
    },
    /** A copy of the data folder as it is now; `restore` makes it the next process's. */
    backUp(): string {
      const copy = join(folder, `backup-${steps.length}`);
      cpSync(currentDir(), copy, { recursive: true });
      return copy;
    },
    restore(copy: string) {
      kill();
      const dir = join(folder, String(processes.length + 1));
      rmSync(dir, { recursive: true });
      cpSync(copy, dir, { recursive: true });
    },
    /** What this person's client encrypts, as a prompt whose words are known. */
    sayEncrypted(room: string, sender: string, text: string, { session, index }: { session: string; index: number }): FakeEvent {
      const content = { msgtype: 'm.text', body: text };
      const event = homeserver.send(
        room,
        sender,
        'm.room.encrypted',
        sealedContent(session, { type: 'm.room.message', content, room, sender, index }),
      );
      return { ...event, content };
    },
    /** It is in the key store; then the process hears of it, if it still lives. */
    async bringKey(session: string) {
      keys.set(session, { trust: 'cross-signed', fromIndex: 0 });
      const process = alive;
      if (process === null) return;
      void step(process, 'a key is on disk');
      if (!process.dead) process.crypto.announce(session);
      await clock.advanceAsync(0);
    },
    /** Forgets pushes that nobody took, as Synapse does when it stops. */
    losePushes() {
      collect();
      unpushed.length = 0;
    },
    /** Does this right after so many further steps (whose names fit); 0 never. */
    after(further: number, act: () => void, fits = /(?:)/u) {
      armed = further === 0 ? null : { left: further, fits, act };
    },
    /** The homeserver does what it is asked next, and its answers are lost. */
    loseAnswers(count: number) {
      answersToLose = count;
    },
    /** Nothing can be written for a while. */
    breakDisk(forMs: number) {
      const disk = breakDisk(world.alive.store);
      clock.after(forMs, () => disk.repair());
    },
    stopHomeserver(forMs: number) {
      homeserver.stop();
      clock.after(forMs, () => homeserver.start());
    },
    /** Everything that was ever pushed once more, newest first: a transaction that was stuck, or a homeserver that counts from 1 again. */
    pushAgain() {
      for (const room of rooms)
        unpushed.push(
          ...homeserver
            .timeline(room)
            .slice(0, known.get(room) ?? 0)
            .toReversed(),
        );
    },
    room(create: Parameters<FakeHomeserver['createRoom']>[0]): string {
      const room = homeserver.createRoom(create);
      rooms.push(room);
      return room;
    },
    rows: <Row extends object>(query: string): Row[] => world.alive.store.read.all<Row>(raw(query)),
    /** Nothing waits anywhere. */
    quiet: (): boolean =>
      alive?.isReady === true &&
      unpushed.length === 0 &&
      rooms.every((room) => homeserver.timeline(room).length === (known.get(room) ?? 0)) &&
      count(
        "SELECT (SELECT count(*) FROM inbox WHERE state = 'ready') + (SELECT count(*) FROM runs WHERE status IN ('queued', 'running')) + (SELECT count(*) FROM outbox WHERE state = 'ready') AS n",
      ) === 0,
    async close() {
      for (const process of processes) process.dead = true;
      for (const close of closers.reverse()) close();
      await model.close();
      rmSync(folder, { recursive: true, force: true });
    },
  };

  onCheckpoint = () => {
    if (alive !== null) void step(alive, 'checkpoint');
  };
  return world;
}

/** A kill is no power cut: thousands of commits need not wait for a disk. */
const memoryFolder = (): string => (existsSync('/dev/shm') ? '/dev/shm' : tmpdir());

const raw = <Row>(sql: string): Compilable<Row> => ({ compile: () => ({ sql, parameters: [] }) }) as unknown as Compilable<Row>;

/** Names a commit by the first table that it changes. */
function naming(tx: Tx, onChange: (table: string) => void): Tx {
  return {
    ...tx,
    run(query) {
      onChange(/(?:insert into|update|delete from) "(\w+)"/u.exec(query.compile().sql)?.slice(0, 2).join(' ') ?? '?');
      return tx.run(query);
    },
  };
}

/** The answers that name this prompt, each as the text of all its parts. */
export function answersTo(
  shown: readonly ShownInRoom[],
  prompt: string,
): { runId: string; text: string; live: boolean; status: string; prompts: readonly string[] }[] {
  const byRun = new Map<string, ShownInRoom[]>();
  for (const message of shown) {
    if (message.run?.prompts.includes(prompt as never) !== true) continue;
    byRun.set(message.run.runId, [...(byRun.get(message.run.runId) ?? []), message]);
  }
  return [...byRun].map(([runId, parts]) => {
    const ordered = parts.toSorted((a, b) => (a.run?.part ?? 0) - (b.run?.part ?? 0));
    const last = ordered.at(-1);
    return {
      runId,
      text: ordered.map(({ body }) => body).join('\n\n'),
      live: ordered.some(({ live }) => live),
      status: last?.run?.status ?? '',
      prompts: last?.run?.prompts ?? [],
    };
  });
}

/** Everything that must hold once a world is quiet, however often it was killed. */
export function expectSound(world: World, room: string, prompts: readonly FakeEvent[], why: string): void {
  const shown = world.shown(room);
  const textById = new Map(prompts.map((prompt) => [prompt.event_id, String(prompt.content['body'])]));
  for (const prompt of prompts) {
    const answers = answersTo(shown, prompt.event_id);
    expect(answers.length, `${why}: answers to ${textById.get(prompt.event_id)}: ${JSON.stringify(shown)}`).toBe(1);
    const [answer] = answers;
    const texts = (answer?.prompts ?? []).map((id) => textById.get(id) ?? '?');
    const wrote = texts.some((text) => text.startsWith('write'));
    expect(answer, why).toMatchObject({
      live: false,
      status: 'completed',
      text: `${wrote ? 'Writing it down.\n\n' : ''}${answerTo(...texts)}`,
    });
  }
  // Nothing else was said: no second message, no notice.
  const answers = new Set(prompts.flatMap((prompt) => answersTo(shown, prompt.event_id).map(({ runId }) => runId)));
  expect(
    shown.filter(({ run }) => run === undefined || !answers.has(run.runId)),
    why,
  ).toEqual([]);
  // Answers stand in the order of their prompts.
  const order = prompts.map(({ event_id }) => shown.findIndex(({ run }) => run?.prompts.includes(event_id as never) === true));
  expect(order, why).toEqual(order.toSorted((a, b) => a - b));
  expect(new Set(world.effects).size, `${why}: ${world.effects.join()}`).toBe(world.effects.length);
  expectContiguous(world, why);
}

/** G7 and G10: every run is over, and its log says so once. */
export function expectContiguous(world: World, why: string): void {
  const runs = world.rows<{ run_id: string; status: string }>('SELECT run_id, status FROM runs');
  for (const { run_id, status } of runs) {
    expect(['queued', 'running'], why).not.toContain(status);
    // A row of an ended run may hold many frames (src/runs/compact-frames.ts).
    const frames = world
      .rows<FrameRow>(`SELECT seq, kind, data, at FROM frames WHERE run_id = '${run_id}' ORDER BY seq`)
      .flatMap(readFrameRow);
    expect(
      frames.map(({ seq }) => seq),
      why,
    ).toEqual(frames.map((_, index) => index + 1));
    expect(frames.map(({ kind }) => kind).filter((kind) => kind === 'end').length, why).toBe(frames.length === 0 ? 0 : 1);
    if (frames.length > 0) expect(frames.at(-1)?.kind, why).toBe('end');
  }
}
