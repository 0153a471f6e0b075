/** Streams over a real socket: what inject cannot show is who leaves, who reads slowly, and what arrives before the end. */
import { type ClientRequest, request as httpRequest, type IncomingMessage } from 'node:http';
import { EventSource } from 'undici';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import type { RunId } from '../../../src/ids.ts';
import type { RunOutput } from '../../../src/runs/runner.ts';
import { createTextReader, readEvents } from '../../../src/sidecar/watch-run.ts';
import { START } from '../../../src/sidecar/wire/build-sse.ts';
import { createWorld, readSse, say, signed, type World } from './world.ts';

let world: World;
let port: number;
beforeEach(async () => {
  world = createWorld();
  await world.prepare();
  await world.app.listen({ port: 0, host: '127.0.0.1' });
  port = (world.app.server.address() as { port: number }).port;
});
afterEach(() => world.close());

interface Client {
  readonly request: ClientRequest;
  readonly response: Promise<IncomingMessage>;
  readonly body: () => string;
  readonly ended: Promise<void>;
}
function open({ method, url, headers, payload }: ReturnType<typeof signed>, { read = true } = {}): Client {
  let body = '';
  let end = () => {};
  const ended = new Promise<void>((resolve) => {
    end = resolve;
  });
  const request = httpRequest({ host: '127.0.0.1', port, method, path: url, headers, agent: false });
  const response = new Promise<IncomingMessage>((resolve, reject) => {
    request.on('error', reject);
    request.on('response', (incoming) => {
      incoming.on('error', end).on('close', end);
      if (read) {
        incoming.setEncoding('utf8').on('data', (data) => {
          body += data;
        });
      }
      resolve(incoming);
    });
  });
  response.catch(() => end());
  request.end(payload);
  return { request, response, body: () => body, ended };
}

/** Time passes in small steps, and the sockets work in between, until it holds. */
async function until(holds: () => boolean, stepMs = 10): Promise<void> {
  for (let i = 0; i < 2_000 && !holds(); i++) await world.clock.advanceAsync(stepMs);
  expect(holds()).toBe(true);
}

/** A run that says what the test tells it, and ends when the test says so. */
function conduct() {
  let output: RunOutput | null = null;
  let finish = () => {};
  const over = new Promise<void>((resolve) => {
    finish = resolve;
  });
  world.world.script = async (job) => {
    output = job.output;
    await Promise.race([
      over,
      new Promise((_resolve, reject) => job.signal.addEventListener('abort', () => reject(job.signal.reason), { once: true })),
    ]);
    return { kind: 'completed', text: '', messages: [] };
  };
  return { running: () => output !== null, text: (delta: string) => output?.text(delta), finish };
}

test('headers and the first words arrive while the run goes on, and a heartbeat every 15 s', async () => {
  const run = conduct();
  const client = open(say('hi', { fields: { stream: true }, headers: { 'x-request-id': 'r1', origin: 'https://portal.example.org' } }));
  const { statusCode, headers } = await world.settle(client.response);
  expect(statusCode).toBe(200);
  expect(headers).toMatchObject({ 'x-request-id': 'r1', 'access-control-allow-origin': '*', 'x-run-id': expect.any(String) });
  await until(run.running);
  run.text('first');
  await until(() => client.body().includes('"content":"first"'));
  for (const beats of [1, 2, 3]) {
    await world.clock.advanceAsync(15_000);
    await until(() => client.body().split(': heartbeat\n\n').length - 1 === beats, 0);
  }
  run.finish();
  await until(() => client.body().includes('event: done'));
  await world.settle(client.ended);
  expect(world.viewers.count()).toBe(0);
  expect(world.clock.pending()).toBe(0);
});

test('a reader that leaves stops nothing, and comes back to exactly the rest (G7)', async () => {
  const run = conduct();
  const client = open(say('hi', { fields: { stream: true } }));
  await until(run.running);
  run.text('one ');
  await until(() => client.body().includes('one '));
  client.request.destroy();
  await until(() => world.viewers.count() === 0);
  run.text('two ');
  await world.clock.advanceAsync(100);
  const seen = readSse(client.body()).at(-1)!;
  const runId = (await client.response).headers['x-run-id'] as string;
  const back = open(signed({ method: 'GET', path: `/runs/${runId}`, headers: { 'last-event-id': seen.id! } }));
  await until(() => back.body().includes('two '));
  run.text('three');
  await world.clock.advanceAsync(100);
  run.finish();
  await world.settle(back.ended);
  const rest = readSse(back.body());
  expect(rest.map((event) => [event.event, event.data['content'] ?? event.data['status']])).toEqual([
    ['message', 'two '],
    ['message', 'three'],
    ['done', 'completed'],
  ]);
  expect(rest.map((event) => Number(event.id))).toEqual([3, 4, 5]);
});

test('who waits for JSON and leaves stops nothing either, and is no error', async () => {
  const run = conduct();
  const client = open(say('hi'));
  client.response.catch(() => undefined);
  await until(run.running);
  client.request.destroy();
  await until(() => world.viewers.count() === 0);
  run.finish();
  await until(() => world.rows('runs').every((row: any) => row.status === 'completed'));
  expect(world.lines.filter((line: any) => line.level >= 50)).toEqual([]);
});

test('a reader that takes nothing keeps a bounded part in memory and is dropped after a minute (G14)', async () => {
  const PIECES = 300;
  const PIECE = 'x'.repeat(60_000);
  world.world.script = async ({ output }) => {
    for (let i = 0; i < PIECES; i++) {
      output.text(PIECE);
      await new Promise<void>((resolve) => void world.clock.after(50, resolve));
    }
    return { kind: 'completed', text: '', messages: [] };
  };
  const client = open(say('hi', { fields: { stream: true } }), { read: false });
  const response = await world.settle(client.response);
  response.pause();
  const runId = response.headers['x-run-id'] as string;
  await until(() => world.rows('runs').every((row: any) => row.status === 'completed'), 50);
  expect(world.viewers.count()).toBe(1);
  await world.clock.advanceAsync(61_000);
  await until(() => world.viewers.count() === 0);
  client.request.destroy();

  const other = open(signed({ method: 'GET', path: `/runs/${runId}` }));
  await until(() => other.body().includes('event: done'));
  expect(readSse(other.body()).at(-1)!.data['length']).toBe(PIECES * PIECE.length);
  const said = readSse(other.body()).filter((event) => event.event === 'message');
  expect(said.reduce((sum, event) => sum + event.data['content'].length, 0)).toBe(PIECES * PIECE.length);
}, 30_000);

test('a closing server ends its streams without done, so that readers come back', async () => {
  const run = conduct();
  const client = open(say('hi', { fields: { stream: true } }));
  await until(run.running);
  run.text('so far');
  await until(() => client.body().includes('so far'));
  await world.settle(world.app.close());
  await world.settle(client.ended);
  expect(client.body()).not.toContain('event: done');
  run.finish();
});

test('the seventeenth stream of one caller is refused before anything is written for it (G14)', async () => {
  const run = conduct();
  const first = open(say('hi', { fields: { stream: true } }));
  await until(run.running);
  const runId = (await first.response).headers['x-run-id'] as string;
  const more = Array.from({ length: 15 }, () => open(signed({ method: 'GET', path: `/runs/${runId}` })));
  await until(() => world.viewers.count() === 16);
  const refused = await world.settle(open(say('one more')).response);
  expect(refused.statusCode).toBe(429);
  expect(world.rows('runs')).toHaveLength(1);
  run.finish();
  await world.settle(Promise.all([first, ...more].map((client) => client.ended)));
});

const statuses = () => world.rows('runs').map((row: any) => row.status);
const asksToStop = (message: string, more: object = {}) => say(message, { fields: { cancelOnDisconnect: true, ...more } });

test('a caller who asked for it stops his run by leaving, and what it said stays (G9)', async () => {
  for (const stream of [true, false]) {
    const run = conduct();
    const client = open(asksToStop('hi', { stream }));
    client.response.catch(() => undefined);
    await until(run.running);
    run.text('so far');
    await world.clock.advanceAsync(100);
    client.request.destroy();
    await until(() => statuses().every((status) => status === 'cancelled'));
  }
  expect(statuses()).toHaveLength(2);
  const { runId } = JSON.parse((await world.inject(signed({ method: 'GET', path: '/runs', query: '?limit=1' }))).body).runs[0];
  const rest = await world.inject(signed({ method: 'GET', path: `/runs/${runId}` }));
  expect(readSse(rest.body).at(-1)).toMatchObject({ event: 'done', data: { status: 'cancelled', aborted: true, partialText: 'so far' } });
  expect(world.lines.filter((line: any) => line.level >= 50)).toEqual([]);
});

test('a caller who asked for it and leaves while his message waits takes it back, and no other', async () => {
  const run = conduct();
  const first = open(say('1', { fields: { stream: true } }));
  await until(run.running);
  const second = open(asksToStop('2', { stream: true }));
  await until(() => statuses().length === 2);
  await until(() => second.body().includes('queued'));
  second.request.destroy();
  await until(() => statuses()[1] === 'cancelled');
  expect(statuses()).toEqual(['running', 'cancelled']);
  run.finish();
  await world.settle(first.ended);
  expect(statuses()).toEqual(['completed', 'cancelled']);
  expect(world.jobs).toHaveLength(1);
});

test('a run that somebody else still reads goes on when a caller leaves who asked to stop it', async () => {
  const run = conduct();
  const client = open(asksToStop('hi', { stream: true }));
  await until(run.running);
  const runId = (await client.response).headers['x-run-id'] as string;
  const other = open(signed({ method: 'GET', path: `/runs/${runId}` }));
  await until(() => world.viewers.count() === 2);
  client.request.destroy();
  await until(() => world.viewers.count() === 1);
  run.finish();
  await world.settle(other.ended);
  expect(statuses()).toEqual(['completed']);
});

test('a caller who reads to the end stops nothing, and a server that goes is no caller that leaves', async () => {
  const whole = conduct();
  const done = open(asksToStop('1', { stream: true }));
  await until(whole.running);
  whole.finish();
  await world.settle(done.ended);
  const cut = conduct();
  const client = open(asksToStop('2', { stream: true }));
  await until(cut.running);
  await world.settle(world.app.close());
  await world.settle(client.ended);
  await world.clock.advanceAsync(1_000);
  expect(statuses()).toEqual(['completed', 'running']);
  cut.finish();
  await until(() => statuses()[1] === 'completed');
});

test('two hundred readers of one run cost one read of its log each flush', async () => {
  const run = conduct();
  const client = open(say('hi', { fields: { stream: true } }));
  await until(run.running);
  const runId = (await client.response).headers['x-run-id'] as string;
  let reads = 0;
  let folds = 0;
  const { after, fold } = world.frames;
  Object.assign(world.frames, {
    after: (...args: Parameters<typeof after>) => {
      reads += 1;
      return after(...args);
    },
    fold: (...args: Parameters<typeof fold>) => {
      folds += 1;
      return fold(...args);
    },
  });
  const stored = world.runs.read(world.store.read, runId as RunId)!;
  const context = { runId: stored.id, sessionId: stored.sessionId, requestId: 'r' };
  const never = new AbortController().signal;
  const textOf = createTextReader(world.deps.frames);
  const read = async () => {
    const seen: string[] = [];
    for await (const event of readEvents(stored, START, { context, signal: never, textOf }, world.deps)) {
      if (event !== null) seen.push(String(event.data['content'] ?? event.data['state'] ?? event.data['status']));
    }
    return seen;
  };
  const readers = Array.from({ length: 199 }, read);
  await world.clock.advanceAsync(100);
  reads = 0;
  folds = 0;
  for (const word of ['a', 'b', 'c', 'd', 'e']) {
    run.text(word);
    await world.clock.advanceAsync(100);
  }
  expect(reads).toBe(5);
  run.finish();
  await world.settle(client.ended);
  for (const seen of await world.settle(Promise.all(readers))) expect(seen).toEqual(['started', 'a', 'b', 'c', 'd', 'e', 'completed']);
  // The whole text at the end: once for the client, once for all who read here, whatever their number.
  expect([reads, folds]).toEqual([6, 2]);
});

test('a browser’s EventSource follows a run with tickets: what breaks is resumed with the next one, event by event (G7)', async () => {
  const run = conduct();
  const first = open(say('hi', { fields: { stream: true } }));
  await until(run.running);
  const runId = (await first.response).headers['x-run-id'] as string;
  const seen: { type: string; id: string; data: any }[] = [];
  const tickets = async (): Promise<string> =>
    (await world.inject(signed({ method: 'POST', path: `/runs/${runId}/ticket`, body: {} }))).json().ticket;
  const follow = async (): Promise<EventSource> => {
    const source = new EventSource(`http://127.0.0.1:${port}/runs/${runId}?ticket=${await tickets()}&after=${seen.at(-1)?.id || '0'}`, {
      node: { reconnectionTime: 1 },
    });
    for (const type of ['run', 'message', 'done']) {
      source.addEventListener(type, (event: any) => {
        if (event.lastEventId !== '') seen.push({ type, id: event.lastEventId, data: JSON.parse(event.data) });
      });
    }
    return source;
  };
  const source = await follow();
  run.text('one ');
  await until(() => seen.some(({ data }) => data.content === 'one '));
  world.app.server.closeAllConnections();
  // It comes back by itself, its ticket is used up, and it gives up: its page asks for another.
  await vi.waitFor(() => expect(source.readyState).toBe(EventSource.CLOSED), { timeout: 10_000, interval: 5 });
  run.text('two');
  await world.clock.advanceAsync(100);
  const next = await follow();
  run.finish();
  await until(() => seen.at(-1)?.type === 'done');
  next.close();
  expect(seen.map(({ type, id, data }) => [type, id, data.content ?? data.status ?? data.state])).toEqual([
    ['run', '1', 'started'],
    ['message', '2', 'one '],
    ['message', '3', 'two'],
    ['done', '4', 'completed'],
  ]);
  await until(() => world.viewers.count() === 0);
});
