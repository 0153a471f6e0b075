/**
 * The whole way of a message on a real Synapse, beside the barest services that could answer, in one run and turn by turn: machines differ and
 * drift, ratios do not. The figures and their aims stand in docs/architecture.md.
 */
import { randomBytes } from 'node:crypto';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { setTimeout as wait } from 'node:timers/promises';
import { Pool } from 'undici';
import { startBareService } from './bare-service.ts';
import { measureFsync } from './fsync.ts';
import { measureHistory } from './history.ts';
import { cpuMs, median, round, rssMib } from './measure.ts';
import { type Answer, openSetting, type Setting, type Talk } from './setting.ts';

const SHORT_ROUNDS = 20;
const STREAM_ROUNDS = 5;
const CROWD = 20;
const CROWD_ROUNDS = 5;
const LANES = 4;
const LANE_ANSWERS = 8;

export async function benchE2e(onProgress: (line: string) => void): Promise<Record<string, number>> {
  const setting = await openSetting(onProgress);
  try {
    const bares = await Promise.all([
      startBareService({ kind: 'reply', ...bareOptions(setting, setting.bareReply) }),
      startBareService({ kind: 'stream', ...bareOptions(setting, setting.bareStream) }),
    ]);
    // The first start of an installation has no compiled code on disk yet; every later one has.
    const first = await setting.startOracle();
    await wait(1_000);
    await first.stop();
    const oracle = await setting.startOracle();
    await wait(3_000);
    const idle = rssMib(oracle.pid);
    onProgress('the first rooms');
    const ours = await setting.room('ours', setting.oracle);
    const bare = await setting.room('bare', setting.bareReply);
    const bareStream = await setting.room('barestreamed', setting.bareStream);
    await ours.ask('warm up');
    await bare.ask('warm up');
    onProgress('short answers, oracle and bare service in turn');
    const short = await inTurn(SHORT_ROUNDS, 'short', ours, bare);
    onProgress('CPU of short answers');
    const shortCpu = await cpuOf(oracle.pid, () => sequence(openRoom(setting, 'cpu-short'), SHORT_ROUNDS, 'short'));
    onProgress('streamed answers');
    const streamer = await setting.room('streamer', setting.oracle);
    await streamer.ask('warm up');
    let streamed: Answer[] = [];
    const streamCpu = await cpuOf(oracle.pid, async () => {
      streamed = await sequence(Promise.resolve(streamer), STREAM_ROUNDS, 'stream');
      return streamed.length;
    });
    const bareStreamed = await sequence(Promise.resolve(bareStream), STREAM_ROUNDS, 'stream');
    onProgress(`${CROWD} rooms at once`);
    const crowd = await measureCrowd(setting);
    onProgress(`${LANES} rooms without pause`);
    const answersPerS = await measureLanes(setting);
    const loaded = rssMib(oracle.pid);
    await oracle.stop();
    onProgress('inside times, through a proxy that looks on');
    const inside = await measureInside(setting, ours);
    await Promise.all(bares.map((one) => one.stop()));
    onProgress('2,000 messages of history beside 20');
    const history = await measureHistory();
    return {
      sent_to_model_p50_ms: round(median(short.ours.map((answer) => answer.toModelMs))),
      first_text_p50_ms: round(median(streamed.map((answer) => answer.firstTextMs))),
      final_text_p50_ms: round(median(short.ours.map((answer) => answer.finalTextMs))),
      bare_sent_to_model_p50_ms: round(median(short.bare.map((answer) => answer.toModelMs))),
      bare_final_text_p50_ms: round(median(short.bare.map((answer) => answer.finalTextMs))),
      bare_stream_first_text_p50_ms: round(median(bareStreamed.map((answer) => answer.firstTextMs))),
      final_over_bare_p50: round(
        median(short.ours.map((answer) => answer.finalTextMs)) / median(short.bare.map((answer) => answer.finalTextMs)),
        2,
      ),
      ...inside,
      ...crowd,
      answers_per_s_4: round(answersPerS),
      cpu_per_streamed_answer_ms: round(streamCpu),
      cpu_per_short_answer_ms: round(shortCpu),
      events_per_answer: round(median(streamed.map((answer) => answer.events)), 1),
      rss_idle_mib: round(idle),
      rss_loaded_mib: round(loaded),
      listening_ms: round(oracle.listeningMs, 0),
      ready_ms: round(oracle.readyMs, 0),
      listening_first_ms: round(first.listeningMs, 0),
      ready_first_ms: round(first.readyMs, 0),
      ...history,
      fsync_p50_ms: round(measureFsync(), 2),
    };
  } finally {
    await setting.close();
  }
}

const bareOptions = ({ homeserver, model }: Setting, seat: Setting['bareReply']) => ({
  port: seat.port,
  homeserver: homeserver.baseUrl,
  asToken: seat.registration.as_token,
  userId: seat.userId,
  modelUrl: model.baseUrl,
});

const openRoom = (setting: Setting, person: string): Promise<Talk> => setting.room(person, setting.oracle);

/** A B A B …: what drifts, drifts for both. */
async function inTurn(rounds: number, kind: string, ours: Talk, bare: Talk): Promise<{ ours: Answer[]; bare: Answer[] }> {
  const answers: { ours: Answer[]; bare: Answer[] } = { ours: [], bare: [] };
  for (let round = 0; round < rounds; round += 1) {
    answers.ours.push(await ours.ask(`${kind} ours ${round}`));
    answers.bare.push(await bare.ask(`${kind} bare ${round}`));
  }
  return answers;
}

async function sequence(talk: Promise<Talk>, rounds: number, kind: string): Promise<Answer[]> {
  const { ask, roomId } = await talk;
  const answers: Answer[] = [];
  for (let round = 0; round < rounds; round += 1) answers.push(await ask(`${kind} ${roomId} ${round}`));
  return answers;
}

/** CPU of the oracle's process per answer, in ms. */
async function cpuOf(pid: number, work: () => Promise<number | readonly unknown[]>): Promise<number> {
  const before = cpuMs(pid);
  const done = await work();
  return (cpuMs(pid) - before) / (typeof done === 'number' ? done : done.length);
}

/** How long until the last of 20 prompts in 20 rooms has reached the model. */
async function measureCrowd(setting: Setting): Promise<Record<string, number>> {
  const open = (seat: Setting['oracle'], name: string) =>
    Promise.all(Array.from({ length: CROWD }, (_, index) => setting.room(`${name}${index}`, seat)));
  const ours = await open(setting.oracle, 'crowd');
  const bare = await open(setting.bareReply, 'barecrowd');
  const takeRound = async (talks: readonly Talk[], label: string): Promise<number> => {
    const answers = await Promise.all(talks.map((talk, index) => talk.ask(`short ${label} ${index}.`)));
    if (answers.some((answer) => answer.text !== 'A short answer.')) throw new Error('a wrong answer in the crowd');
    return Math.max(...answers.map((answer) => answer.toModelMs));
  };
  await takeRound(ours, 'warm ours');
  await takeRound(bare, 'warm bare');
  const times: { ours: number[]; bare: number[] } = { ours: [], bare: [] };
  for (let index = 0; index < CROWD_ROUNDS; index += 1) {
    times.ours.push(await takeRound(ours, `ours ${index}`));
    times.bare.push(await takeRound(bare, `bare ${index}`));
  }
  return {
    concurrent20_to_model_ms: round(median(times.ours)),
    concurrent20_bare_to_model_ms: round(median(times.bare)),
    concurrent20_model_over_bare: round(median(times.ours) / median(times.bare), 2),
  };
}

async function measureLanes(setting: Setting): Promise<number> {
  const talks = await Promise.all(Array.from({ length: LANES }, (_, index) => setting.room(`lane${index}`, setting.oracle)));
  for (const talk of talks) await talk.ask('warm up');
  const from = performance.now();
  await Promise.all(talks.map((talk) => sequence(Promise.resolve(talk), LANE_ANSWERS, 'short')));
  return (LANES * LANE_ANSWERS * 1_000) / (performance.now() - from);
}

/** Our own share of the way: transaction in → model asked, and last token → the send that leaves us. */
async function measureInside(setting: Setting, talk: Talk): Promise<Record<string, number>> {
  const sends: { at: number; body: string }[] = [];
  const proxy = await startProxy(setting.homeserver.baseUrl, (path, body) => {
    if (path.includes('/send/m.room.message/')) sends.push({ at: performance.now(), body });
  });
  const oracle = await setting.startOracle({ MATRIX_BASE_URL: proxy.url });
  const pool = new Pool(`http://127.0.0.1:${setting.oracle.port}`);
  const toModel: number[] = [];
  const toSend: number[] = [];
  try {
    await talk.ask('warm up inside');
    for (let index = 0; index < SHORT_ROUNDS; index += 1) {
      const text = `short inside ${index}.`;
      const event = {
        type: 'm.room.message',
        event_id: `$${randomBytes(32).toString('base64url')}`,
        room_id: talk.roomId,
        sender: talk.client.userId,
        origin_server_ts: Date.now(),
        content: { msgtype: 'm.text', body: text },
        unsigned: { age: 1 },
      };
      const at = performance.now();
      const answer = await pool.request({
        method: 'PUT',
        path: `/_matrix/app/v1/transactions/bench${index}`,
        headers: { authorization: `Bearer ${setting.oracle.registration.hs_token}`, 'content-type': 'application/json' },
        body: JSON.stringify({ events: [event] }),
      });
      await answer.body.dump();
      const request = await setting.model.waitForRequest((one) => one.chat?.lastUserText.includes(text) ?? false);
      toModel.push(request.at - performance.timeOrigin - at);
      const sent = await until(() => sends.find(({ body }) => body.includes(event.event_id)));
      toSend.push(sent.at + performance.timeOrigin - (request.endedAt ?? Number.NaN));
      await wait(300);
    }
  } finally {
    await oracle.stop();
    await pool.close();
    await proxy.stop();
  }
  return { transaction_to_model_p50_ms: round(median(toModel)), last_token_to_send_p50_ms: round(median(toSend)) };
}

async function until<T>(look: () => T | undefined): Promise<T> {
  const deadline = performance.now() + 10_000;
  for (;;) {
    const found = look();
    if (found !== undefined) return found;
    if (performance.now() > deadline) throw new Error('waited 10 s in vain');
    await wait(5);
  }
}

async function startProxy(target: string, look: (path: string, body: string) => void): Promise<{ url: string; stop(): Promise<void> }> {
  const pool = new Pool(target, { connections: 32 });
  const server = createServer(async (request, response) => {
    let body = '';
    for await (const chunk of request) body += String(chunk);
    look(request.url ?? '', body);
    try {
      const answer = await pool.request({
        method: request.method as 'GET',
        path: request.url ?? '/',
        headers: { authorization: request.headers.authorization ?? '', 'content-type': 'application/json' },
        ...(body === '' ? {} : { body }),
      });
      response.writeHead(answer.statusCode, { 'content-type': 'application/json' });
      response.end(await answer.body.text());
    } catch {
      response.destroy();
    }
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    async stop() {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
      await pool.close();
    },
  };
}
