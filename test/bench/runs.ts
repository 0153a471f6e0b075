/**
 * What durability costs and how long a crash is felt: tokens on their way to a reader over HTTP, and `kill -9` in mid-stream, on real processes with
 * a real Synapse; the log of runs and the thread of 2,000 messages in this process. The figures and their aims stand in docs/durability.md.
 */
import { statSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { setTimeout as wait } from 'node:timers/promises';
import Sqlite from 'better-sqlite3';
import type { RoomId, SessionId, UserId } from '../../src/ids.ts';
import { mintRequestInvocation, newNonce, signContent } from '../../src/ucan/mint.ts';
import { generateKey } from '../../src/ucan/signing-key.ts';
import { measureFsync } from './fsync.ts';
import { measureHistory } from './history.ts';
import { cpuMs, median, quantile, round } from './measure.ts';
import { measureFrameLog, measureViewers } from './run-log.ts';
import { type OracleProcess, openSetting, type Setting, type Talk } from './setting.ts';

const STREAM_ROUNDS = 4;
const TOKENS = 300;
const TOKENS_PER_SECOND = 100;
const KILL_ROUNDS = 5;
const TURNS = 20;
const VIEWERS = 200;

export async function benchRuns(onProgress: (line: string) => void): Promise<Record<string, number>> {
  onProgress('frames per second');
  const log = await measureFrameLog();
  onProgress(`1 viewer, then ${VIEWERS}`);
  const one = await measureViewers(1);
  const many = await measureViewers(VIEWERS);
  onProgress('2,000 messages of history beside 20');
  const history = await measureHistory();
  const setting = await openSetting(onProgress);
  try {
    onProgress('tokens to a reader over HTTP');
    const tokens = await measureTokens(setting);
    onProgress('kill -9 in mid-stream');
    const kills = await measureKills(setting, onProgress);
    onProgress('what one turn leaves on disk');
    const turn = await measureTurn(setting);
    return {
      frames_per_s: round(log.framesPerS, 0),
      bare_commits_per_s: round(log.bareCommitsPerS, 0),
      token_to_sse_p50_ms: round(median(tokens.ours)),
      token_to_sse_p95_ms: round(quantile(tokens.ours, 0.95)),
      bare_token_to_reader_p95_ms: round(quantile(tokens.bare, 0.95)),
      viewers_1_p95_ms: round(one),
      viewers_200_p95_ms: round(many),
      resume_ms: round(median(kills.map(({ resumeMs }) => resumeMs)), 0),
      kill_to_finished_ms: round(median(kills.map(({ beyondModelMs }) => beyondModelMs)), 0),
      kill_to_finished_max_ms: round(Math.max(...kills.map(({ beyondModelMs }) => beyondModelMs)), 0),
      start_cpu_ms: round(median(kills.map(({ startCpuMs }) => startCpuMs)), 0),
      bytes_per_turn: history['storage_bytes_per_turn_20'] ?? Number.NaN,
      bytes_per_turn_2000_over_20: history['storage_2000_over_20'] ?? Number.NaN,
      ...turn,
      fsync_p50_ms: round(measureFsync(), 2),
    };
  } finally {
    await setting.close();
  }
}

/** Somebody who signs, with a direct room that a signed message has linked. */
async function openPortal(setting: Setting, person: string) {
  const talk = await setting.room(person, setting.oracle);
  const key = generateKey();
  const sender = talk.client.userId as UserId;
  const room = talk.roomId as RoomId;
  const content = signContent(
    { key, audience: setting.did, room, sender, type: 'm.room.message', ts: Date.now(), nonce: newNonce() },
    { msgtype: 'm.text', body: 'hello from Matrix' },
  );
  const session = await talk.client.send(talk.roomId, content);
  await talk.watch.waitForAnswerTo(session, 60_000);
  const path = `/messages/${encodeURIComponent(session)}`;
  return {
    async *ask(oracle: OracleProcess, message: string): AsyncGenerator<string, void, undefined> {
      const body = JSON.stringify({ message, stream: true });
      const claims = { key, audience: setting.did, method: 'POST', path, body, sender, room, thread: session as SessionId };
      const token = mintRequestInvocation({ ...claims, ts: Date.now(), nonce: newNonce() });
      const headers = { authorization: `Bearer ${token}`, 'x-auth-type': 'ucan', 'content-type': 'application/json' };
      yield* readStream(await fetch(`${oracle.sidecarUrl}${path}`, { method: 'POST', headers, body }));
    },
  };
}

async function* readStream(response: Response): AsyncGenerator<string, void, undefined> {
  if (!response.ok || response.body === null) throw new Error(`${response.status}: ${await response.text()}`);
  const decoder = new TextDecoder();
  for await (const bytes of response.body) yield decoder.decode(bytes, { stream: true });
}

/** From a token leaving the model until its event is in the reader's hand; beside somebody who reads the model directly. */
async function measureTokens(setting: Setting): Promise<{ ours: number[]; bare: number[] }> {
  const model = await startTimedModel();
  const oracle = await setting.startOracle({ OPENAI_BASE_URL: model.url });
  try {
    const portal = await openPortal(setting, 'tokens');
    for await (const _ of portal.ask(oracle, 'warm up'));
    const times: { ours: number[]; bare: number[] } = { ours: [], bare: [] };
    for (let index = 0; index < STREAM_ROUNDS; index += 1) {
      await readTimes(portal.ask(oracle, `tokens ${index}`), times.ours);
      const body = JSON.stringify({ model: 'bench', stream: true, messages: [] });
      await readTimes(readStream(await fetch(`${model.url}/chat/completions`, { method: 'POST', body })), times.bare);
    }
    return times;
  } finally {
    await oracle.stop();
    await model.stop();
  }
}

async function readTimes(stream: AsyncIterable<string>, into: number[]): Promise<void> {
  let rest = '';
  const before = into.length;
  for await (const text of stream) {
    const at = performance.now();
    const lines = (rest + text).split('\n');
    rest = lines.pop() ?? '';
    // The last event has no text but its length; each token says when it left.
    for (const line of lines) for (const [token] of line.matchAll(/\d+\.\d{2}(?=;)/gu)) into.push(at - Number(token));
  }
  if (into.length - before !== TOKENS) throw new Error(`${into.length - before} tokens were seen, not ${TOKENS}`);
}

/** Says the time, a hundred times a second. */
async function startTimedModel(): Promise<{ url: string; stop(): Promise<void> }> {
  const chunk = (content: string, more: object = {}) =>
    `data: ${JSON.stringify({ id: 'bench', object: 'chat.completion.chunk', created: 0, model: 'bench', choices: [{ index: 0, delta: { role: 'assistant', content }, finish_reason: null }], ...more })}\n\n`;
  const server = createServer(async (request, response) => {
    let asked = '';
    for await (const data of request) asked += String(data);
    if (request.method !== 'POST') {
      response.writeHead(200, { 'content-type': 'application/json' }).end('{"data":[{"id":"bench"}]}');
      return;
    }
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    const isShort = /hello from Matrix/u.test(asked) && !/tokens \d|warm up/u.test(asked);
    for (let token = 0; token < (isShort ? 3 : TOKENS) && !response.destroyed; token += 1) {
      response.write(chunk(`${performance.now().toFixed(2)};`));
      await wait(1_000 / TOKENS_PER_SECOND);
    }
    response.write(chunk('', { choices: [{ index: 0, delta: {}, finish_reason: 'stop' }] }));
    response.end(
      `${chunk('', { choices: [], usage: { prompt_tokens: 1, completion_tokens: TOKENS, total_tokens: TOKENS + 1 } })}data: [DONE]\n\n`,
    );
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`,
    stop: async () => {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

interface Kill {
  /** From the start of the next process to the frame that says so. */
  readonly resumeMs: number;
  /** From the kill to the final text in the room, without the time in which the model spoke. */
  readonly beyondModelMs: number;
  /** What the start used: the floor of `resumeMs`, whatever else the machine does. */
  readonly startCpuMs: number;
}
/** Killed half a second after the first text, started again at once, as a supervisor does. */
async function measureKills(setting: Setting, onProgress: (line: string) => void): Promise<Kill[]> {
  let oracle = await setting.startOracle();
  const talk = await setting.room('killed', setting.oracle);
  await talk.ask('warm up');
  const kills: Kill[] = [];
  for (let index = 0; index < KILL_ROUNDS; index += 1) {
    const text = `stream kill ${index}.`;
    const prompt = await talk.client.send(talk.roomId, { msgtype: 'm.text', body: text });
    await talk.watch.waitUntil(() => talk.watch.answersTo(prompt)[0]);
    await wait(500);
    const killedAt = performance.now();
    await oracle.kill();
    oracle = await setting.startOracle();
    const startCpuMs = cpuMs(oracle.pid);
    const parts = await talk.watch.waitForAnswerTo(prompt, 60_000);
    const finishedAt = Math.max(...parts.flatMap(({ versions }) => versions.map(({ at }) => at)));
    const asked = setting.model.requests.findLast((one) => one.chat?.lastUserText.includes(text));
    if (asked?.endedAt === undefined) throw new Error('the model was not asked again');
    const kill = {
      startCpuMs,
      resumeMs: readResumedAt(setting, prompt) - oracle.startedAt,
      beyondModelMs: finishedAt - killedAt - (asked.endedAt - asked.at),
    };
    kills.push(kill);
    onProgress(
      `resumed after ${kill.resumeMs} ms (ready after ${round(oracle.readyMs, 0)}), asked the model ${round(asked.at - performance.timeOrigin - killedAt, 0)} ms after the kill, it spoke ${asked.endedAt - asked.at} ms, finished ${round(kill.beyondModelMs, 0)} ms beyond that`,
    );
  }
  await oracle.stop();
  return kills;
}

const openDatabase = ({ dataDir }: Setting) => new Sqlite(join(dataDir, 'oracle.db'), { readonly: true });

function readResumedAt(setting: Setting, prompt: string): number {
  const database = openDatabase(setting);
  const row = database
    .prepare(
      `SELECT f.at FROM frames f JOIN pending_inputs p ON p.run_id = f.run_id
       WHERE p.prompt_id = ? AND f.kind = 'run' AND json_extract(f.data, '$.state') = 'resumed' ORDER BY f.seq DESC LIMIT 1`,
    )
    .get(prompt) as { at: number } | undefined;
  database.close();
  if (row === undefined) throw new Error('the run was not resumed');
  return row.at;
}

/** Tables of which a turn leaves rows; docs/durability.md has what for. */
const TABLES = ['seen', 'runs', 'pending_inputs', 'frames', 'outbox', 'transcript', 'audit', 'rate_counts'] as const;

/** Rows that stay of a streamed answer of 2 s, all tables of the whole way, and the bytes of their pages. */
async function measureTurn(setting: Setting): Promise<Record<string, number>> {
  const oracle = await setting.startOracle();
  const talk: Talk = await setting.room('turns', setting.oracle);
  await talk.ask('stream warm up');
  // A reader that stays: the log is not begun anew meanwhile, so it grows by what is written.
  const reader = openDatabase(setting);
  reader.exec('BEGIN');
  reader.prepare('SELECT count(*) FROM meta').get();
  const before = readSize(setting);
  for (let index = 0; index < TURNS; index += 1) await talk.ask(`stream turn ${index}`);
  // Confirmed edits and receipts.
  await wait(500);
  const after = readSize(setting);
  reader.close();
  await oracle.stop();
  const perTurn = (name: keyof typeof before): number => (after[name] - before[name]) / TURNS;
  return {
    bytes_kept_per_streamed_turn: round(perTurn('bytes'), 0),
    bytes_written_per_streamed_turn: round(perTurn('log'), 0),
    ...Object.fromEntries(TABLES.map((table) => [`rows_${table}`, round(perTurn(table), 1)])),
  };
}

function readSize(setting: Setting): Record<(typeof TABLES)[number] | 'bytes' | 'log', number> {
  const database = openDatabase(setting);
  try {
    const counts = TABLES.map((table) => {
      const { n } = database.prepare(`SELECT count(*) AS n FROM ${table}`).get() as { n: number };
      return [table, n] as const;
    });
    const bytes = (database.pragma('page_count', { simple: true }) as number) * (database.pragma('page_size', { simple: true }) as number);
    return { bytes, log: statSync(join(setting.dataDir, 'oracle.db-wal')).size, ...Object.fromEntries(counts) } as ReturnType<
      typeof readSize
    >;
  } finally {
    database.close();
  }
}
