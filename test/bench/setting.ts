/** What the bench measures against: a real Synapse, an oracle as a process of its own, the bare services, people, and one scripted model. */
import { spawn } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { buildRegistration, type Registration } from '../../appservice/registration.ts';
import type { Did } from '../../src/ids.ts';
import { generateKey } from '../../src/ucan/signing-key.ts';
import { findFreePort } from '../../synapse-dev/homeserver/ports.ts';
import type { RoomWatch } from '../../synapse-dev/homeserver/room-watch.ts';
import { getAndStartSynapse, type Homeserver } from '../../synapse-dev/homeserver/start-synapse.ts';
import type { UserClient } from '../../synapse-dev/homeserver/user-client.ts';
import { type ModelServer, startModelServer } from '../../synapse-dev/model/server.ts';

const SERVER_NAME = 'oracle.local';
const BIN = join(import.meta.dirname, '..', '..', 'src', 'app', 'cli', 'bin.mjs');
const READY_WITHIN_MS = 30_000;
/** Two seconds at the pace of the demo model. */
const STREAM_TOKENS = 120;
const TOKENS_PER_SECOND = 60;

export interface Seat {
  readonly registration: Registration;
  readonly userId: string;
  readonly port: number;
}
export interface Setting {
  readonly homeserver: Homeserver;
  readonly model: ModelServer;
  readonly oracle: Seat;
  readonly bareReply: Seat;
  readonly bareStream: Seat;
  readonly dataDir: string;
  /** Of the oracle. */
  readonly did: Did;
  room(person: string, seat: Seat): Promise<Talk>;
  startOracle(env?: Record<string, string>): Promise<OracleProcess>;
  close(): Promise<void>;
}
export interface OracleProcess {
  readonly pid: number;
  readonly listeningMs: number;
  readonly readyMs: number;
  /** Wall clock, when its start began. */
  readonly startedAt: number;
  readonly sidecarUrl: string;
  stop(): Promise<void>;
  /** As a power cut ends it. */
  kill(): Promise<void>;
}
/** One person in one direct room. */
export interface Talk {
  readonly client: UserClient;
  readonly watch: RoomWatch;
  readonly roomId: string;
  ask(text: string): Promise<Answer>;
}
/** Times in ms since the send began. */
export interface Answer {
  readonly toModelMs: number;
  readonly firstTextMs: number;
  readonly finalTextMs: number;
  readonly events: number;
  readonly text: string;
}

export async function openSetting(onProgress: (line: string) => void): Promise<Setting> {
  const dir = await mkdtemp(join(tmpdir(), 'matrix-oracle-bench-'));
  const [oracle, bareReply, bareStream] = await Promise.all(['oracle', 'barereply', 'barestream'].map(buildSeat));
  if (oracle === undefined || bareReply === undefined || bareStream === undefined) throw new Error('three seats');
  const homeserver = await getAndStartSynapse({
    dir: join(dir, 'homeserver'),
    serverName: SERVER_NAME,
    registrations: [oracle, bareReply, bareStream].map(({ registration }) => registration),
    onProgress,
  });
  const model = await startModelServer({ keepRequests: 10_000 });
  model.respond((request) => (/stream/u.test(request.lastUserText) ? STREAMED : SHORT));
  const clients: UserClient[] = [];
  const key = generateKey();
  const dataDir = join(dir, 'data');
  return {
    homeserver,
    model,
    oracle,
    bareReply,
    bareStream,
    dataDir,
    did: key.did,
    async room(person, seat) {
      const client = await homeserver.createUser(person);
      clients.push(client);
      const roomId = await client.createDirectRoom(seat.userId);
      const watch = await client.watchRoom(roomId);
      await watch.waitFor(
        ({ event }) => event.type === 'm.room.member' && event.state_key === seat.userId && event.content['membership'] === 'join',
      );
      return { client, watch, roomId, ask: (text) => ask({ client, watch, roomId, model }, text) };
    },
    startOracle: (env = {}) =>
      spawnOracle({
        MATRIX_BASE_URL: homeserver.baseUrl,
        MATRIX_SERVER_NAME: SERVER_NAME,
        MATRIX_AS_TOKEN: oracle.registration.as_token,
        MATRIX_HS_TOKEN: oracle.registration.hs_token,
        MATRIX_REGISTRATION_ID: oracle.registration.id,
        ORACLE_DID: key.did,
        DATA_DIR: dataDir,
        UNSIGNED_USERS: `@*:${SERVER_NAME}`,
        OPENAI_BASE_URL: model.baseUrl,
        MODEL_MAIN: 'bench',
        APPSERVICE_PORT: String(oracle.port),
        PORT: '0',
        METRICS_PORT: '0',
        RATE_LIMIT: '100000',
        BOT_HOP_BUDGET: '0',
        CONTEXT_MESSAGES: '16',
        LOG_FORMAT: 'json',
        // A place of its own, so that the first start is one.
        NODE_COMPILE_CACHE: join(dir, 'compiled'),
        ...env,
      }),
    async close() {
      for (const client of clients) client.close();
      await homeserver.close();
      await model.close();
      await rm(dir, { recursive: true, force: true });
    },
  };
}

const SHORT = { kind: 'text', text: 'A short answer.', pace: 'instant' } as const;
const STREAMED = {
  kind: 'text',
  text: Array.from({ length: STREAM_TOKENS }, (_, index) => `word${index}`).join(' '),
  pace: { tokensPerSecond: TOKENS_PER_SECOND },
} as const;

async function buildSeat(localpart: string): Promise<Seat> {
  const port = await findFreePort();
  const registration = buildRegistration({
    id: localpart,
    url: `http://127.0.0.1:${port}`,
    asToken: `as-token-${localpart}-${'x'.repeat(32)}`,
    hsToken: `hs-token-${localpart}-${'x'.repeat(32)}`,
    serverName: SERVER_NAME,
    localpart,
    senderLocalpart: `_as_${localpart}`,
  });
  return { registration, userId: `@${localpart}:${SERVER_NAME}`, port };
}

async function ask(
  { client, watch, roomId, model }: Pick<Talk, 'client' | 'watch' | 'roomId'> & { model: ModelServer },
  text: string,
): Promise<Answer> {
  const at = performance.now();
  const eventId = await client.send(roomId, { msgtype: 'm.text', body: text });
  const messages = await watch.waitForAnswerTo(eventId, 60_000);
  const request = model.requests.findLast((one) => one.chat?.lastUserText.includes(text));
  const versions = messages.flatMap((message) => message.versions);
  const times = versions.map((version) => version.at - at);
  return {
    // The model server speaks in wall time, this process in its own.
    toModelMs: (request?.at ?? Number.NaN) - performance.timeOrigin - at,
    firstTextMs: Math.min(...times),
    finalTextMs: Math.max(...times),
    events: versions.length,
    text: messages.map((message) => message.text).join(''),
  };
}

async function spawnOracle(env: Record<string, string>): Promise<OracleProcess> {
  const from = performance.now();
  const startedAt = Date.now();
  const child = spawn(process.execPath, ['--conditions=matrix-oracle-source', BIN, 'start'], {
    cwd: tmpdir(),
    env: { PATH: process.env['PATH'], HOME: process.env['HOME'], ...env },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  let listeningMs = Number.NaN;
  let sidecarPort = 0;
  await new Promise<void>((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error('the oracle was not ready in time')), READY_WITHIN_MS);
    createInterface({ input: child.stdout }).on('line', (line) => {
      const { msg, level, port } = JSON.parse(line) as { msg: string; level: number; port?: number };
      if (level >= 40) console.error(line);
      if (msg === 'listening for portals') sidecarPort = port ?? 0;
      if (msg === 'listening for transactions') listeningMs = performance.now() - from;
      if (msg === 'ready') {
        clearTimeout(timer);
        resolve();
      }
    });
    child.once('exit', (code) => reject(new Error(`the oracle ended with ${code}`)));
  });
  const end = (signal: 'SIGTERM' | 'SIGKILL') =>
    new Promise<void>((resolve) => {
      child.removeAllListeners('exit').once('exit', () => resolve());
      child.kill(signal);
    });
  return {
    pid: child.pid ?? -1,
    listeningMs,
    readyMs: performance.now() - from,
    startedAt,
    sidecarUrl: `http://127.0.0.1:${sidecarPort}`,
    stop: () => end('SIGTERM'),
    kill: () => end('SIGKILL'),
  };
}
