import { createServer, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { createModelFetch, type ModelFetch } from '../../../src/models/model-fetch.ts';
import { type FakeClock, fakeClock } from '../../fakes/fake-clock.ts';

let server: Server;
let url = '';
let answer: (response: ServerResponse) => void = () => undefined;
let clock: FakeClock;
let model: ModelFetch;
let connections = 0;
let closed: Promise<void>;

beforeEach(async () => {
  connections = 0;
  const gone = Promise.withResolvers<void>();
  closed = gone.promise;
  server = createServer((_request, response) => {
    response.on('close', () => gone.resolve());
    answer(response);
  });
  server.on('connection', () => {
    connections += 1;
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/`;
  clock = fakeClock();
  model = createModelFetch({ clock, idleTimeoutMs: 1_000 });
});
afterEach(async () => {
  await model.close();
  server.closeAllConnections();
  await new Promise((resolve) => server.close(resolve));
});

const sse =
  (...parts: string[]) =>
  (response: ServerResponse) => {
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    response.end(parts.join(''));
  };
const said = 'data: {"choices":[{"delta":{"content":"hi"},"finish_reason":null}]}\n\n';

test.each([
  ['[DONE]', 'data: [DONE]\n\n'],
  ['a finish_reason', 'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\n\n'],
])('a stream that ends with %s passes unchanged and leaves no timer', async (_name, end) => {
  answer = sse(said, end);

  expect(await (await model.fetch(url)).text()).toBe(said + end);
  expect(clock.pending()).toBe(0);
});

test.each([
  ['nothing', ''],
  // Older Ollama says so in every piece.
  ['an empty finish_reason', 'data: {"choices":[{"delta":{"content":"hi"},"finish_reason":""}]}\n\n'],
  ['a model that says [DONE]', 'data: {"choices":[{"delta":{"content":"data: [DONE]"},"finish_reason":null}]}\n\n'],
  ['a model that says finish_reason', `data: ${JSON.stringify({ choices: [{ delta: { content: '"finish_reason":"stop"' } }] })}\n\n`],
])('a stream closed after %s is an error, not an answer', async (_name, end) => {
  answer = sse(said, end);

  await expect((await model.fetch(url)).text()).rejects.toMatchObject({ problem: 'cut' });
});

test('silence before the headers ends the call', async () => {
  const arrived = Promise.withResolvers<void>();
  answer = () => arrived.resolve();
  const call = model.fetch(url);
  call.catch(() => undefined);
  await arrived.promise;

  clock.advance(1_000);

  await expect(call).rejects.toMatchObject({ problem: 'idle' });
  expect(clock.pending()).toBe(0);
});

test('silence in the middle ends the stream and closes the socket', async () => {
  answer = (response) => {
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    response.write(said);
  };
  const reader = (await model.fetch(url)).body!.getReader();
  await reader.read();
  const next = reader.read();
  next.catch(() => undefined);

  await clock.advanceAsync(1_000);

  await expect(next).rejects.toMatchObject({ problem: 'idle' });
  await closed;
});

test('a reader that takes its time is not a silent model', async () => {
  answer = sse(said, 'data: [DONE]\n\n');
  const response = await model.fetch(url);

  await clock.advanceAsync(60_000);

  expect(await response.text()).toContain('[DONE]');
});

test('a cancelled body closes the socket and leaves no timer', async () => {
  answer = (response) => {
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    response.write(said);
  };
  const response = await model.fetch(url);

  await response.body!.cancel();

  await closed;
  expect(clock.pending()).toBe(0);
});

test("the caller's signal ends the call with its own reason", async () => {
  const arrived = Promise.withResolvers<void>();
  answer = () => arrived.resolve();
  const stop = new AbortController();
  const call = model.fetch(url, { signal: stop.signal });
  call.catch(() => undefined);
  await arrived.promise;

  stop.abort(new Error('stopped'));

  await expect(call).rejects.toThrow('stopped');
});

test('calls one after the other use connections again', async () => {
  answer = (response) => response.end('{}');

  for (let at = 0; at < 8; at += 1) await (await model.fetch(url)).text();

  expect(connections).toBeLessThan(3);
});

test('the first piece comes at once, what follows is collected, and the end does not wait', async () => {
  let write: (text: string) => void = () => undefined;
  answer = (response) => {
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    write = (text) => void response.write(text);
    write(said);
  };
  const reader = (await model.fetch(url)).body!.getReader();
  const read = async () => new TextDecoder().decode((await reader.read()).value);
  expect(await read()).toBe(said);

  const collected = read();
  const early = vi.fn();
  void collected.then(early);
  for (const text of ['data: 1\n\n', 'data: 2\n\n']) {
    write(text);
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
  expect(early).not.toHaveBeenCalled();
  await clock.advanceAsync(48);
  expect(await collected).toBe('data: 1\n\ndata: 2\n\n');

  write('data: [DONE]\n\n');
  expect(await read()).toBe('data: [DONE]\n\n');
  await reader.cancel();
  await clock.advanceAsync(500);
  await closed;
  expect(clock.pending()).toBe(0);
});

test('a reader that stops at [DONE] leaves the connection for the next call', async () => {
  answer = (response) => {
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    response.write('data: [DONE]\n\n');
    setTimeout(() => response.end(), 10);
  };
  for (let at = 0; at < 4; at += 1) {
    const reader = (await model.fetch(url)).body!.getReader();
    await reader.read();
    await reader.cancel();
    await vi.waitFor(() => expect(clock.pending()).toBe(0), { interval: 2 });
  }
  expect(connections).toBeLessThan(3);
});

test('what came before a failure is given before it', async () => {
  answer = (response) => {
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    response.write(said);
    setTimeout(() => response.write('data: 1\n\n', () => response.destroy()), 10);
  };
  const reader = (await model.fetch(url)).body!.getReader();
  await reader.read();

  expect(new TextDecoder().decode((await reader.read()).value)).toBe('data: 1\n\n');
  await expect(reader.read()).rejects.toThrow();
  expect(clock.pending()).toBe(0);
});

test('an answer larger than what is held for a slow reader arrives whole', async () => {
  const text = 'x'.repeat(8 * 1024 * 1024);
  answer = (response) => response.end(text);
  const response = await model.fetch(url);
  await new Promise((resolve) => setTimeout(resolve, 50));
  await clock.advanceAsync(60_000);

  expect(await response.text()).toBe(text);
});
