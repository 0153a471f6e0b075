/**
 * What every scenario starts from: a real Synapse, oracles as `npm run demo` and `matrix-oracle start` make them, and people who sign.
 * Each oracle has an account, a port, a data folder and a scripted model of its own, so that a test which kills, wipes or starves one cannot
 * be seen by another. Synapse reads its registrations only at start, so the accounts a file needs are said when its world is made.
 */
import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout as wait } from 'node:timers/promises';
import { promisify } from 'node:util';
import Sqlite from 'better-sqlite3';
import { afterAll, afterEach, beforeAll, onTestFailed } from 'vitest';
import { buildRegistration, type Registration } from '../../appservice/registration.ts';
import { type Oracle, startOracle } from '../../src/app/main.ts';
import { readConfig } from '../../src/config.ts';
import type { Did, EventId, RoomId, UserId } from '../../src/ids.ts';
import type { JsonObject } from '../../src/json.ts';
import { createLogger } from '../../src/observe/logger.ts';
import type { AnyOraclePlugin } from '../../src/plugin-api/define-oracle-plugin.ts';
import { systemClock } from '../../src/system-clock.ts';
import { type MintProofs, newNonce, signContent } from '../../src/ucan/mint.ts';
import { generateKey, type SigningKey } from '../../src/ucan/signing-key.ts';
import { findQuietPorts } from '../../synapse-dev/homeserver/ports.ts';
import type { RoomWatch, SeenMessage, Version } from '../../synapse-dev/homeserver/room-watch.ts';
import { getAndStartSynapse, type Homeserver } from '../../synapse-dev/homeserver/start-synapse.ts';
import type { MatrixEvent, UserClient } from '../../synapse-dev/homeserver/user-client.ts';
import type { ChatRequest } from '../../synapse-dev/model/chat-request.ts';
import { type ModelServer, startModelServer } from '../../synapse-dev/model/server.ts';

const SERVER_NAME = 'oracle.local';
const BIN = join(import.meta.dirname, '..', '..', 'src', 'app', 'cli', 'bin.mjs');
const CONDITION = '--conditions=matrix-oracle-source';
const READY_WITHIN_MS = 30_000;
const ENDS_WITHIN_MS = 20_000;
const ERROR_LEVEL = 50;
/** base64url of a CARv1 header with one root: what every invocation begins with. */
const START_OF_A_CAR = 'OqJlcm9vdHOB';
/** Accounts whose names begin so may chat unsigned, with every oracle of a world. */
export const LISTED = 'listed-';

export interface World {
  readonly homeserver: Homeserver;
  /** The next of the accounts that were asked for; not started. */
  oracle(env?: Environment, plugins?: readonly AnyOraclePlugin[]): Promise<TestOracle>;
  /** People sign unless told otherwise. */
  person(options?: PersonOptions): Promise<Person>;
}
export type Environment = Readonly<Record<string, string>>;
export interface PersonOptions {
  /** The name is on every oracle's UNSIGNED_USERS, and the person does not sign. */
  readonly listed?: boolean;
  /** False: somebody with an ordinary client, on no list. */
  readonly signs?: boolean;
  /** A did:ixo: the account gets the name that goes with it, and its key signs as this DID. */
  readonly did?: Did;
}

export interface WorldOptions {
  readonly oracles: number;
  /** The homeserver has switched on what `CRYPTO_TRANSPORT=appservice` needs. */
  readonly keysInTransactions?: boolean;
}

/** For the top of a file: one homeserver for its tests, and everything that a test started ended after it. */
export function useWorld(options: WorldOptions): World {
  let world: OpenWorld | undefined;
  const opened = (): OpenWorld => {
    if (world === undefined) throw new Error('the world is there inside tests only');
    return world;
  };
  beforeAll(async () => {
    world = await openWorld(options);
  });
  afterEach(async () => {
    const oracles = await opened().endTest();
    for (const oracle of oracles) expectCleanLog(oracle);
  });
  afterAll(() => world?.close());
  return {
    get homeserver() {
      return opened().homeserver;
    },
    oracle: (env, plugins) => opened().oracle(env, plugins),
    person: (more) => opened().person(more),
  };
}

interface OpenWorld extends World {
  /** @returns the oracles of the test, ended. */
  endTest(): Promise<readonly TestOracle[]>;
  close(): Promise<void>;
}
interface Seat {
  readonly registration: Registration;
  readonly localpart: string;
  readonly port: number;
}

async function openWorld({ oracles, keysInTransactions = false }: WorldOptions): Promise<OpenWorld> {
  const dir = await mkdtemp(join(tmpdir(), 'matrix-oracle-e2e-'));
  const seats = (await findQuietPorts(oracles)).map((port, index) => buildSeat(port, index, keysInTransactions ? 'appservice' : 'sync'));
  const homeserver = await getAndStartSynapse({
    dir: join(dir, 'homeserver'),
    serverName: SERVER_NAME,
    registrations: seats.map(({ registration }) => registration),
    keysInTransactions,
    onProgress: console.log,
  });
  const free = seats.values();
  const endings: (() => Promise<void>)[] = [];
  const running: TestOracle[] = [];
  let people = 0;
  async function endTest(): Promise<readonly TestOracle[]> {
    for (const end of endings.splice(0).reverse()) await end();
    return running.splice(0);
  }
  return {
    homeserver,
    async oracle(env = {}, plugins = []) {
      const seat = free.next().value;
      if (seat === undefined) throw new Error(`this world has only ${oracles} oracles: ask useWorld for more`);
      const oracle = await createTestOracle({ seat, homeserver, dataDir: join(dir, seat.localpart), env, plugins });
      running.push(oracle);
      endings.push(() => oracle.end());
      onTestFailed(() => console.error(`log of ${oracle.userId}:\n${describeLog(oracle.log)}`));
      return oracle;
    },
    async person({ listed = false, signs = !listed, did } = {}) {
      people += 1;
      const client = await homeserver.createUser(did?.replaceAll(':', '-') ?? `${listed ? LISTED : ''}person${people}`);
      endings.push(async () => client.close());
      return createPerson(client, signs ? generateKey() : null, did);
    },
    endTest,
    async close() {
      await endTest();
      await homeserver.close();
      await rm(dir, { recursive: true, force: true });
    },
  };
}

/** Whatever a test is about: no secret in a log line (G12), and no error line that the test did not expect. */
function expectCleanLog({ log, registration, expectedErrors }: TestOracle): void {
  const text = JSON.stringify(log);
  for (const secret of [registration.as_token, registration.hs_token, START_OF_A_CAR]) {
    if (text.includes(secret))
      throw new Error(`a secret stands in the log:\n${describeLog(log.filter((line) => JSON.stringify(line).includes(secret)))}`);
  }
  const errors = log.filter(({ level, msg }) => (level === undefined || Number(level) >= ERROR_LEVEL) && !expectedErrors.has(msg));
  if (errors.length > 0) throw new Error(`the oracle logged errors:\n${describeLog(errors.slice(0, 10))}`);
}

function buildSeat(port: number, index: number, keys: 'sync' | 'appservice'): Seat {
  // None may lie in another's namespace, which is `oracle` and `oracle_…`.
  const localpart = index === 0 ? 'oracle' : `oracle${index}`;
  const registration = buildRegistration({
    id: `registration-${index}`,
    url: `http://127.0.0.1:${port}`,
    asToken: `as-token-of-${localpart}-${'x'.repeat(32)}`,
    hsToken: `hs-token-of-${localpart}-${'x'.repeat(32)}`,
    serverName: SERVER_NAME,
    localpart,
    senderLocalpart: `_as_${localpart}`,
    keys,
  });
  return { registration, localpart, port };
}

export interface LogLine extends Record<string, unknown> {
  readonly msg: string;
}

export interface TestOracle {
  readonly userId: string;
  readonly did: SigningKey['did'];
  readonly dataDir: string;
  readonly registration: Registration;
  readonly model: ModelServer;
  /** Lines of all its processes and starts so far, debug ones included. */
  readonly log: readonly LogLine[];
  /** Messages of error lines that the test provokes; any other fails it. */
  readonly expectedErrors: Set<string>;
  /** In this process, as the demo does. Resolves when it is ready. */
  start(env?: Environment): Promise<Oracle>;
  /** As SIGTERM does. */
  stop(): Promise<void>;
  /** `matrix-oracle start` as a process of its own, for what must be killed. Resolves when it is ready. */
  startProcess(env?: Environment, options?: ProcessOptions): Promise<OracleProcess>;
  /** What the homeserver would do. A string is sent as it is. */
  push(body: JsonObject | string, options?: { txnId?: string; token?: string }): Promise<Pushed>;
  /** What its sidecar says of it. */
  health(): Promise<JsonObject>;
  /** Address of the sidecar of its newest start. */
  sidecarUrl(): string;
  /** Rows of a table of its database, read beside the running process. */
  rows<Row extends object = JsonObject>(query: string, ...values: readonly (string | number)[]): Row[];
  /** Changes its database beside the running process: what only time would do. */
  change(statement: string): void;
  /** `matrix-oracle <args>` with its settings. @returns what it printed; rejects unless it ended well. */
  cli(...args: readonly string[]): Promise<string>;
  /** The first log line, past or coming, that fits. */
  waitForLog(fits: (line: LogLine) => boolean, timeoutMs?: number): Promise<LogLine>;
  /** Its database and checkpoints are gone; only while it is stopped. */
  loseData(): Promise<void>;
  end(): Promise<void>;
}
export interface Pushed {
  readonly status: number;
  readonly body: JsonObject;
}
export interface ProcessOptions {
  /** What is run in place of `matrix-oracle start`. */
  readonly program?: string;
  /** `matrix-oracle start` of the package that is installed in this folder, in place of the source's. */
  readonly installedIn?: string;
  /** False: resolves at once. */
  readonly waits?: boolean;
}
export interface OracleProcess {
  readonly pid: number;
  /** Settles when it is gone. */
  readonly ended: Promise<void>;
  /** Sends the signal and waits for the end. */
  kill(signal: 'SIGKILL' | 'SIGTERM'): Promise<void>;
}

interface OracleParts {
  readonly seat: Seat;
  readonly homeserver: Homeserver;
  readonly dataDir: string;
  readonly env: Environment;
  readonly plugins: readonly AnyOraclePlugin[];
}

async function createTestOracle({ seat, homeserver, dataDir, env, plugins }: OracleParts): Promise<TestOracle> {
  const key = generateKey();
  const model = await startModelServer({ pace: 'instant' });
  const log: LogLine[] = [];
  const listeners = new Set<() => void>();
  let running: Oracle | undefined;
  const processes = new Set<OracleProcess>();
  const { registration, port } = seat;
  const take = (text: string) => {
    const line = readLine(text);
    if (line !== undefined) log.push(line);
    for (const listener of [...listeners]) listener();
  };
  const settings = (more: Environment): Record<string, string> => ({
    MATRIX_BASE_URL: homeserver.baseUrl,
    MATRIX_SERVER_NAME: SERVER_NAME,
    MATRIX_AS_TOKEN: registration.as_token,
    MATRIX_HS_TOKEN: registration.hs_token,
    MATRIX_REGISTRATION_ID: registration.id,
    MATRIX_ORACLE_LOCALPART: seat.localpart,
    MATRIX_SENDER_LOCALPART: registration.sender_localpart,
    ORACLE_DID: key.did,
    DATA_DIR: dataDir,
    UNSIGNED_USERS: `@${LISTED}*:${SERVER_NAME}`,
    OPENAI_BASE_URL: model.baseUrl,
    MODEL_MAIN: 'demo',
    APPSERVICE_PORT: String(port),
    PORT: '0',
    METRICS_PORT: '0',
    RECONCILE_INTERVAL_S: '2',
    LOG_LEVEL: 'debug',
    LOG_FORMAT: 'json',
    ...env,
    ...more,
  });
  function withDatabase<T>(options: Sqlite.Options, use: (database: Sqlite.Database) => T): T {
    const database = new Sqlite(join(dataDir, 'oracle.db'), { ...options, fileMustExist: true, timeout: 5_000 });
    try {
      return use(database);
    } finally {
      database.close();
    }
  }
  const oracle: TestOracle = {
    userId: `@${seat.localpart}:${SERVER_NAME}`,
    did: key.did,
    dataDir,
    registration,
    model,
    log,
    expectedErrors: new Set(),
    async start(more = {}) {
      const environment = settings(more);
      const config = readConfig(environment);
      if (!config.ok) throw new Error(config.error.map(({ message }) => message).join('\n'));
      const logger = createLogger({ level: 'debug', format: 'json', destination: { write: take } });
      running = await startOracle({ config: config.value, environment, logger, clock: systemClock, plugins });
      await within(running.ready, READY_WITHIN_MS, 'the oracle was not ready');
      return running;
    },
    async stop() {
      await running?.stop();
      running = undefined;
    },
    async startProcess(more = {}, { program, installedIn, waits = true } = {}) {
      const args = program === undefined ? [BIN, 'start'] : [program];
      const installed = installedIn === undefined ? null : [join(installedIn, 'node_modules/.bin/matrix-oracle'), 'start'];
      const child = spawn(process.execPath, installed ?? [CONDITION, ...args], {
        cwd: installedIn ?? tmpdir(),
        env: { PATH: process.env['PATH'], HOME: process.env['HOME'], ...settings(more) },
        stdio: ['ignore', 'pipe', 'pipe'],
      });
      const started = readProcess(child, take);
      processes.add(started);
      void started.ended.then(() => processes.delete(started));
      if (!waits) return started;
      const from = log.length;
      await within(
        Promise.race([
          oracle.waitForLog((line) => log.indexOf(line) >= from && line.msg === 'ready', READY_WITHIN_MS),
          started.ended.then(() => Promise.reject(new Error(`the oracle ended while it started:\n${describeLog(log.slice(from))}`))),
        ]),
        READY_WITHIN_MS,
        'the process was not ready',
      );
      return started;
    },
    async push(body, { txnId = `by-hand-${Math.random()}`, token = registration.hs_token } = {}) {
      const response = await fetch(`http://127.0.0.1:${port}/_matrix/app/v1/transactions/${encodeURIComponent(txnId)}`, {
        method: 'PUT',
        headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json' },
        body: typeof body === 'string' ? body : JSON.stringify(body),
      });
      return { status: response.status, body: (await response.json()) as JsonObject };
    },
    sidecarUrl() {
      const port = log.findLast(({ msg }) => msg === 'listening for portals')?.['port'];
      return `http://127.0.0.1:${port}`;
    },
    async health() {
      return (await (await fetch(`${oracle.sidecarUrl()}/health`)).json()) as JsonObject;
    },
    rows: <Row extends object>(query: string, ...values: readonly (string | number)[]) =>
      withDatabase({ readonly: true }, (database) => database.prepare(query).all(...values) as Row[]),
    change: (statement) => withDatabase({}, (database) => database.exec(statement)),
    cli: (...args) => runCli(args, settings({})),
    waitForLog: (fits, timeoutMs = 30_000) =>
      new Promise((resolve, reject) => {
        const end = () => {
          clearTimeout(timer);
          listeners.delete(look);
        };
        const look = () => {
          const found = log.find(fits);
          if (found === undefined) return;
          end();
          resolve(found);
        };
        const timer = setTimeout(() => {
          end();
          reject(new Error(`no such log line within ${timeoutMs} ms; the log is:\n${describeLog(log)}`));
        }, timeoutMs);
        listeners.add(look);
        look();
      }),
    async loseData() {
      // Not the identity for encryption: without it the start is refused, which is another test's matter.
      for (const name of await readdir(dataDir))
        if (!name.startsWith('crypto')) await rm(join(dataDir, name), { recursive: true, force: true });
    },
    async end() {
      await oracle.stop();
      await Promise.all([...processes].map((one) => one.kill('SIGKILL')));
      await model.close();
    },
  };
  return oracle;
}

function readProcess(child: ChildProcess, take: (line: string) => void): OracleProcess {
  const ended = new Promise<void>((resolve) => {
    child.once('exit', () => resolve());
    child.once('error', () => resolve());
  });
  for (const stream of [child.stdout, child.stderr]) if (stream !== null) createInterface({ input: stream }).on('line', take);
  return {
    pid: child.pid ?? -1,
    ended,
    async kill(signal) {
      child.kill(signal);
      await within(ended, ENDS_WITHIN_MS, `the process did not end on ${signal}`);
    },
  };
}

async function runCli(args: readonly string[], settings: Environment): Promise<string> {
  const env = { PATH: process.env['PATH'], HOME: process.env['HOME'], ...settings };
  const { stdout } = await promisify(execFile)(process.execPath, [CONDITION, BIN, ...args], { cwd: tmpdir(), env });
  return stdout;
}

function readLine(text: string): LogLine | undefined {
  if (text.trim() === '') return undefined;
  try {
    return JSON.parse(text) as LogLine;
  } catch {
    return { msg: text };
  }
}
const describeLog = (lines: readonly LogLine[]): string =>
  lines
    .slice(-60)
    .map((line) => JSON.stringify(line).slice(0, 1_500))
    .join('\n');

export interface Person {
  readonly userId: string;
  readonly client: UserClient;
  /** Null for somebody who does not sign. */
  readonly key: SigningKey | null;
  /** What the person signs as. @throws for somebody who does not sign. */
  did(): Did;
  /** A direct room with the oracle, which has joined. */
  direct(oracle: TestOracle): Promise<Talk>;
  /** A room of the person's own, the oracle invited and joined. */
  group(oracle: TestOracle, options?: JsonObject): Promise<Talk>;
  /** Any room this person is in. */
  talk(roomId: string, oracle: TestOracle): Promise<Talk>;
}

/** One person's view of one room with one oracle. */
export interface Talk {
  readonly roomId: string;
  readonly watch: RoomWatch;
  readonly person: Person;
  /** Waits until the oracle is in the room. */
  joined(): Promise<void>;
  /** Signed if the person signs. @returns the event id. */
  say(text: string, more?: JsonObject): Promise<string>;
  /** The content that `say` would send. */
  content(text: string, more?: JsonObject): JsonObject;
  answerTo(eventId: string, timeoutMs?: number): Promise<Answer>;
  ask(text: string, more?: JsonObject): Promise<Answer>;
  /** Notices of the oracle, by their error code. */
  notices(code?: string): SeenMessage[];
  notice(code: string, timeoutMs?: number): Promise<SeenMessage>;
  /** The room as the homeserver has it, whatever this watch saw. */
  history(): Promise<MatrixEvent[]>;
}
export interface Answer {
  readonly prompt: string;
  readonly parts: readonly SeenMessage[];
  /** What a reader sees at the end, over all parts. */
  readonly text: string;
  readonly versions: readonly Version[];
  readonly status: unknown;
  readonly runId: unknown;
  readonly prompts: readonly string[];
}

export function createPerson(client: UserClient, key: SigningKey | null, did?: Did): Person {
  const person: Person = {
    userId: client.userId,
    client,
    key,
    did() {
      if (key === null) throw new Error('this person does not sign');
      return did ?? key.did;
    },
    async direct(oracle) {
      const talk = await person.talk(await client.createDirectRoom(oracle.userId), oracle);
      await talk.joined();
      return talk;
    },
    async group(oracle, options = {}) {
      const talk = await person.talk(await client.createRoom({ preset: 'private_chat', invite: [oracle.userId], ...options }), oracle);
      await talk.joined();
      return talk;
    },
    async talk(roomId, oracle) {
      return createTalk({ person, oracle, watch: await client.watchRoom(roomId) });
    },
  };
  return person;
}

function createTalk({ person, oracle, watch }: { person: Person; oracle: TestOracle; watch: RoomWatch }): Talk {
  const { client, key } = person;
  const { roomId } = watch;
  const talk: Talk = {
    roomId,
    watch,
    person,
    async joined() {
      await watch.waitFor(({ event }) => isMembership(event, oracle.userId, 'join'));
    },
    content(text, more = {}) {
      const content = { msgtype: 'm.text', body: text, ...more };
      return key === null ? content : sign(key, { oracle, roomId, sender: client.userId, content, as: person.did() });
    },
    say: (text, more) => client.send(roomId, talk.content(text, more)),
    async answerTo(prompt, timeoutMs) {
      return readAnswer(prompt, await watch.waitForAnswerTo(prompt, timeoutMs));
    },
    ask: async (text, more) => talk.answerTo(await talk.say(text, more)),
    notices: (code) =>
      watch
        .messages(oracle.userId)
        .filter(({ content }) => content['msgtype'] === 'm.notice' && (code === undefined || errorOf(content)?.['code'] === code)),
    notice: (code, timeoutMs) => watch.waitUntil(() => talk.notices(code)[0], timeoutMs),
    history: () => client.history(roomId),
  };
  return talk;
}

export interface Signing extends MintProofs {
  readonly oracle: Pick<TestOracle, 'did'>;
  readonly roomId: string;
  readonly sender: string;
  readonly content: JsonObject;
  readonly ts?: number;
  /** The event that this one replaces. */
  readonly edits?: string;
  /** The person's DID when the key is a session key or a key of a did:ixo. */
  readonly as?: Did;
}
/** Content with its invocation; the thread it names is the one its relation names. */
export function sign(key: SigningKey, { oracle, roomId, sender, content, ts = Date.now(), edits, ...signer }: Signing): JsonObject {
  const relation = content['m.relates_to'] as JsonObject | undefined;
  const thread = relation?.['rel_type'] === 'm.thread' ? (relation['event_id'] as EventId) : undefined;
  return signContent(
    {
      key,
      ...signer,
      audience: oracle.did,
      room: roomId as RoomId,
      sender: sender as UserId,
      type: 'm.room.message',
      ts,
      thread,
      edits: edits as EventId | undefined,
      nonce: newNonce(),
    },
    content,
  );
}

function readAnswer(prompt: string, parts: readonly SeenMessage[]): Answer {
  const run = (parts.at(-1)?.content['ixo.oracle.run'] ?? {}) as JsonObject;
  return {
    prompt,
    parts,
    text: parts.map(({ text }) => text).join('\n'),
    versions: parts.flatMap(({ versions }) => versions),
    status: run['status'],
    runId: run['run_id'],
    prompts: (run['prompts'] ?? []) as string[],
  };
}

export const errorOf = (content: JsonObject): JsonObject | undefined => content['ixo.oracle.error'] as JsonObject | undefined;

export const isMembership = (event: MatrixEvent, userId: string, membership: string): boolean =>
  event.type === 'm.room.member' && event.state_key === userId && event.content['membership'] === membership;

/** Everything the oracle has said in the room as it is stored: messages without edits, in order. */
export const messagesIn = (history: readonly MatrixEvent[], sender: string): MatrixEvent[] =>
  history.filter((event) => {
    const relation = event.content['m.relates_to'] as JsonObject | undefined;
    return event.type === 'm.room.message' && event.sender === sender && relation?.['rel_type'] !== 'm.replace';
  });

/** What is new in a request: the messages of the user behind the last answer. Over all requests: what reached the model, in order. */
export const newTexts = (request: ChatRequest): string[] => {
  const from = request.messages.findLastIndex(({ role }) => role === 'assistant' || role === 'tool') + 1;
  return request.messages.slice(from).flatMap(({ role, text }) => (role === 'user' ? [text] : []));
};
export const textsAt = (model: ModelServer): string[] => model.requests.flatMap(({ chat }) => (chat === undefined ? [] : newTexts(chat)));

/** Polls until `choose` gives something: for what no event announces. */
export async function eventually<T>(choose: () => T | undefined | false | Promise<T | undefined | false>, timeoutMs = 20_000): Promise<T> {
  const deadline = performance.now() + timeoutMs;
  for (;;) {
    const chosen = await choose();
    if (chosen !== undefined && chosen !== false) return chosen;
    if (performance.now() > deadline) throw new Error(`it did not come true within ${timeoutMs} ms: ${choose.toString()}`);
    await wait(25);
  }
}

export async function within<T>(promise: Promise<T>, timeoutMs: number, otherwise: string): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(`${otherwise} within ${timeoutMs} ms`)), timeoutMs);
  });
  try {
    return await Promise.race([promise, late]);
  } finally {
    clearTimeout(timer);
  }
}
