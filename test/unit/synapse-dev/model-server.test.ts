/**
 * The model server is what every end-to-end claim about providers rests on, so its own wire is tested over loopback: each kind of
 * reply byte by byte, its strictness, and that it notices a client that leaves (G9).
 */
import { ChatOpenAI } from '@langchain/openai';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import type { JsonObject } from '../../../src/json.ts';
import { startModelServerProcess } from '../../../synapse-dev/model/process.ts';
import { createGate, heldReply, type Reply, textReply } from '../../../synapse-dev/model/reply.ts';
import { type ModelServer, startModelServer } from '../../../synapse-dev/model/server.ts';

let server: ModelServer;
beforeEach(async () => {
  server = await startModelServer();
});
afterEach(() => server.close());

const HELLO = [{ role: 'user', content: 'hello there' }];
const post = (body: JsonObject = {}, init: RequestInit = {}) =>
  fetch(`${server.baseUrl}/chat/completions`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', authorization: 'Bearer sk-private-key' },
    body: JSON.stringify({ model: 'demo', messages: HELLO, stream: true, ...body }),
    ...init,
  });
const frames = (sse: string): any[] =>
  sse
    .split('\n\n')
    .filter((line) => line.startsWith('data: {'))
    .map((line) => JSON.parse(line.slice(6)));
const textOf = (sse: string): string =>
  frames(sse)
    .map((frame) => frame.choices?.[0]?.delta?.content ?? '')
    .join('');

/** Reads until the stream ends or breaks. */
async function readAll(response: Response): Promise<{ text: string; error?: unknown }> {
  const decoder = new TextDecoder();
  let text = '';
  try {
    for await (const chunk of response.body ?? []) text += decoder.decode(chunk, { stream: true });
    return { text };
  } catch (error) {
    return { text, error };
  }
}

async function readUntil(response: Response, end: string): Promise<string> {
  const reader = response.body?.getReader();
  const decoder = new TextDecoder();
  let text = '';
  while (reader !== undefined && !text.includes(end)) {
    const { value, done } = await reader.read();
    if (done) break;
    text += decoder.decode(value, { stream: true });
  }
  return text;
}

describe('streams', () => {
  test('a text is role, pieces, finish_reason, usage in a chunk of its own, [DONE]', async () => {
    server.enqueue(textReply(['Hel', 'lo ', 'wörld']));

    const response = await post({ stream_options: { include_usage: true } });
    const sse = await response.text();

    expect(response.headers.get('content-type')).toContain('text/event-stream');
    expect(sse.endsWith('data: [DONE]\n\n')).toBe(true);
    const all = frames(sse);
    expect(all[0].choices[0].delta).toMatchObject({ role: 'assistant', content: '' });
    expect(all.slice(1, 4).map((frame) => frame.choices[0].delta.content)).toEqual(['Hel', 'lo ', 'wörld']);
    expect(all[4].choices[0]).toMatchObject({ delta: {}, finish_reason: 'stop' });
    expect(all[5]).toMatchObject({ choices: [], usage: { completion_tokens: 3 } });
    expect(all.slice(0, 5).every((frame) => frame.usage === null)).toBe(true);
    expect(new Set(all.map((frame) => frame.id)).size).toBe(1);
  });

  test('no usage is sent when it was not asked for', async () => {
    server.enqueue(textReply('hi'));

    expect(await (await post()).text()).not.toContain('usage');
  });

  test('every answer has its own completion id, also after a restart on the same data', async () => {
    const other = await startModelServer();
    const ids = new Set<string>();
    for (let n = 0; n < 3; n += 1) ids.add(((await (await post({ stream: false })).json()) as { id: string }).id);
    const foreign = await fetch(`${other.baseUrl}/chat/completions`, {
      method: 'POST',
      body: JSON.stringify({ model: 'm', messages: HELLO }),
    });
    ids.add(((await foreign.json()) as { id: string }).id);
    await other.close();

    expect(ids.size).toBe(4);
  });

  test('tool calls send id and name first, then arguments in pieces, by index', async () => {
    const calls = [
      { name: 'look', args: { at: 'the sky', times: 2 } },
      { name: 'listen', args: '{"broken' },
    ];
    server.enqueue({ kind: 'toolCalls', calls, text: 'One moment.' });

    const sse = await (await post()).text();

    expect(textOf(sse)).toBe('One moment.');
    const deltas = frames(sse).flatMap((frame) => frame.choices[0]?.delta.tool_calls ?? []);
    const first = deltas.filter((delta) => delta.index === 0);
    expect(first[0]).toMatchObject({ id: expect.stringMatching(/^call_/), type: 'function', function: { name: 'look', arguments: '' } });
    expect(first.length).toBeGreaterThan(2);
    expect(first.slice(1).every((delta) => delta.id === undefined && delta.function.name === undefined)).toBe(true);
    expect(first.map((delta) => delta.function.arguments).join('')).toBe('{"at":"the sky","times":2}');
    expect(
      deltas
        .filter((delta) => delta.index === 1)
        .map((delta) => delta.function.arguments)
        .join(''),
    ).toBe('{"broken');
    expect(frames(sse).at(-1).choices[0].finish_reason).toBe('tool_calls');
  });

  test('reasoning comes before the text and apart from it', async () => {
    server.enqueue(textReply('four', { reasoning: 'two and two' }));

    const sse = await (await post()).text();

    expect(
      frames(sse)
        .map((frame) => frame.choices[0].delta.reasoning_content ?? '')
        .join(''),
    ).toBe('two and two');
    expect(textOf(sse)).toBe('four');
  });

  test('a pace keeps pieces apart', async () => {
    server.enqueue(textReply('abcdef', { pace: { chunkChars: 2, delayMs: 40 } }));
    const begin = performance.now();

    const sse = await (await post()).text();

    expect(textOf(sse)).toBe('abcdef');
    expect(performance.now() - begin).toBeGreaterThanOrEqual(75);
  });

  test('a gate holds an answer in mid-stream until it is released', async () => {
    const gate = createGate();
    server.enqueue(heldReply(gate, 'before', ' after'));

    const response = await post();
    await gate.reached;
    expect(server.requests[0]).toMatchObject({ pieces: 1 });
    expect(server.requests[0]?.ended).toBeUndefined();
    gate.release();

    expect(textOf(await response.text())).toBe('before after');
    expect((await server.waitForRequest(1)).ended).toBe('completed');
  });

  test('a gate in front of the headers holds the whole response', async () => {
    const gate = createGate();
    server.enqueue(textReply('late', { holds: [{ gate, before: 'headers' }] }));
    let arrived = false;

    const response = post().then((value) => {
      arrived = true;
      return value;
    });
    await gate.reached;
    expect(arrived).toBe(false);
    gate.release();

    expect(textOf(await (await response).text())).toBe('late');
  });

  test('characters torn by write boundaries are whole again in the stream', async () => {
    server.enqueue({ kind: 'splitUtf8', text: ['grün 🙂', ' ende'] });

    const response = await post();
    const chunks: Buffer[] = [];
    for await (const chunk of response.body ?? []) chunks.push(Buffer.from(chunk));

    expect(textOf(Buffer.concat(chunks).toString())).toBe('grün 🙂 ende');
    expect(chunks.some((chunk) => chunk.toString().includes('\ufffd'))).toBe(true);
  });
});

describe('failures', () => {
  test('a stall keeps the connection open and silent; the client leaving is recorded at once (G9)', async () => {
    server.enqueue({ kind: 'stall', text: ['a', 'b', 'c'], afterChunks: 2 });
    const stop = new AbortController();

    const response = await post({}, { signal: stop.signal });
    expect(textOf(await readUntil(response, '"b"'))).toBe('ab');
    expect(server.requests[0]?.ended).toBeUndefined();
    const left = performance.now();
    stop.abort();
    const record = await server.waitForRequest((request) => request.ended !== undefined, 1_000);

    expect(record).toMatchObject({ ended: 'client_disconnected', pieces: 2 });
    expect(performance.now() - left).toBeLessThan(500);
  });

  test('a client that leaves between two paced pieces, before headers, or in a whole answer is recorded (G9)', async () => {
    const slow: Reply[] = [
      textReply('a long text that is never finished', { pace: { chunkChars: 1, delayMs: 200 } }),
      { kind: 'slowHeaders', delayMs: 60_000, reply: textReply('x') },
    ];
    for (const [index, reply] of slow.entries()) {
      server.enqueue(reply);
      const stop = new AbortController();
      const response = post({ stream: index === 0 }, { signal: stop.signal }).then(readAll, () => undefined);
      await server.waitForRequest(index + 1);
      stop.abort();
      await response;

      const record = await server.waitForRequest((request) => request.number === index + 1 && request.ended !== undefined, 1_000);
      expect(record.ended).toBe('client_disconnected');
    }
  });

  test('a stall with an end goes on with the rest', async () => {
    server.enqueue({ kind: 'stall', text: ['a', 'b'], afterChunks: 1, forMs: 30 });
    server.enqueue({ kind: 'stall', text: ['a', 'b'], afterChunks: 1, forMs: 30, keepAliveMs: 10 });

    expect(textOf(await (await post()).text())).toBe('ab');
    const kept = await (await post()).text();
    expect(textOf(kept)).toBe('ab');
    expect(kept.match(/^: keep-alive$/gmu)).toHaveLength(2);
  });

  test('an error in the stream comes as an error object after six tenths of the pieces', async () => {
    server.enqueue({ kind: 'errorMidStream', text: [...'0123456789'], how: 'sse_error' });

    const sse = await (await post()).text();

    expect(textOf(sse)).toBe('012345');
    expect(frames(sse).at(-1)).toMatchObject({ error: { type: 'server_error' } });
    expect(sse).not.toContain('[DONE]');
  });

  test('a reset reaches the client as a broken stream after what was written', async () => {
    server.enqueue({ kind: 'errorMidStream', text: [...'0123456789'], how: 'reset' });

    const { text, error } = await readAll(await post());

    expect(textOf(text)).toBe('012345');
    expect(error).toBeInstanceOf(TypeError);
    expect((await server.waitForRequest((request) => request.ended !== undefined)).ended).toBe('cut');
  });

  test('a reset in a piece leaves half a character behind', async () => {
    server.enqueue({ kind: 'errorMidStream', text: ['ab', 'cd', 'e€'], how: 'reset_in_piece', fraction: 0.7 });

    const { text, error } = await readAll(await post());

    expect(textOf(text.slice(0, text.lastIndexOf('data: ')))).toBe('abcd');
    expect(text.slice(text.lastIndexOf('data: '))).toContain('"content":"e');
    expect(text).not.toContain('€');
    expect(error).toBeInstanceOf(TypeError);
  });

  test('an answer without usage says nothing of tokens, streamed or whole', async () => {
    server.enqueue({ kind: 'text', text: 'a', withoutUsage: true }, { kind: 'text', text: 'a', withoutUsage: true });

    expect(await (await post({ stream_options: { include_usage: true } })).text()).not.toContain('"usage":{');
    expect(await (await post({ stream: false, stream_options: null })).json()).not.toHaveProperty('usage');
  });

  test('a cut closes cleanly without finish_reason and without [DONE]', async () => {
    server.enqueue({ kind: 'cut', text: ['a', 'b'] });

    const { text, error } = await readAll(await post());

    expect(error).toBeUndefined();
    expect(textOf(text)).toBe('ab');
    expect(text).not.toMatch(/\[DONE\]|"finish_reason":"/);
    expect((await server.waitForRequest((request) => request.ended !== undefined)).ended).toBe('cut');
  });

  test.each([
    [429, 'rate_limit_exceeded', '7'],
    [401, 'invalid_api_key', null],
    [400, null, null],
    [500, null, null],
  ])('status %i has an error body in the shape of OpenAI', async (status, code, retryAfter) => {
    server.enqueue({ kind: 'status', status, ...(retryAfter === null ? {} : { retryAfterS: Number(retryAfter) }) });

    const response = await post();

    expect(response.status).toBe(status);
    expect(response.headers.get('retry-after')).toBe(retryAfter);
    expect(await response.json()).toMatchObject({ error: { message: expect.any(String), type: expect.any(String), param: null, code } });
  });

  test('three kinds of empty answers', async () => {
    server.enqueue({ kind: 'empty', how: 'no_body' }, { kind: 'empty', how: 'only_done' }, { kind: 'empty', how: 'no_text' });

    expect(await (await post()).text()).toBe('');
    expect(await (await post()).text()).toBe('data: [DONE]\n\n');
    const sse = await (await post()).text();
    expect(textOf(sse)).toBe('');
    expect(sse).toContain('"finish_reason":"stop"');
  });
});

describe('requests', () => {
  test.each<[string, JsonObject, RegExp]>([
    ['no messages', { messages: [] }, /empty array/],
    ['an image part', { messages: [{ role: 'user', content: [{ type: 'image_url', image_url: { url: 'x' } }] }] }, /text parts/],
    ['a number as content', { messages: [{ role: 'user', content: 1 }] }, /string or an array/],
    ['null content without calls', { messages: [{ role: 'assistant', content: null }] }, /string or an array/],
    ['no model', { model: '' }, /model/],
    ['an unknown role', { messages: [{ role: 'boss', content: 'x' }] }, /Supported values/],
    ['an empty tool list', { tools: [] }, /tools/],
    ['a tool name with a dot', { tools: [{ type: 'function', function: { name: 'a.b' } }] }, /name/],
  ])('%s is refused with 400 and takes no scripted reply', async (_case, body, message) => {
    server.enqueue(textReply('still there'));

    const response = await post(body);

    expect(response.status).toBe(400);
    expect(((await response.json()) as any).error.message).toMatch(message);
    expect(server.requests[0]?.refused).toBeDefined();
    expect(server.queued).toBe(1);
  });

  const call = (id: string) => ({ id, type: 'function', function: { name: 'look', arguments: '{}' } });
  const assistant = { role: 'assistant', content: null, tool_calls: [call('c1'), call('c2')] };
  const result = (id: string) => ({ role: 'tool', tool_call_id: id, content: 'seen' });

  test.each<[string, JsonObject[], number]>([
    ['all results', [assistant, result('c2'), result('c1')], 200],
    ['one result missing before a user message', [assistant, result('c1'), ...HELLO], 400],
    ['one result missing at the end', [assistant, result('c1')], 400],
    ['a result twice', [assistant, result('c1'), result('c2'), result('c2')], 400],
    ['a result without its call', [result('c9')], 400],
  ])('a history with %s', async (_case, rest, status) => {
    const response = await post({ stream: false, messages: [...HELLO, ...rest] });

    expect(response.status).toBe(status);
  });

  test('replies come in order, then the rule, then the persona; functions see the request', async () => {
    server.enqueue(textReply('first'), (request) => textReply(`you: ${request.lastUserText}`));
    server.respond((request) => (request.messages.length > 1 ? undefined : textReply('rule')));

    expect(textOf(await (await post()).text())).toBe('first');
    expect(textOf(await (await post()).text())).toBe('you: hello there');
    expect(textOf(await (await post()).text())).toBe('rule');
    const last = await (await post({ stream: false, messages: [{ role: 'system', content: 's' }, ...HELLO] })).json();
    expect((last as any).choices[0].message.content).toContain('demo model');
  });

  test('a script that throws is answered with 500 and its reason', async () => {
    server.enqueue(() => {
      throw new Error('test is wrong');
    });

    const response = await post();

    expect(response.status).toBe(500);
    expect(await response.text()).toContain('test is wrong');
  });

  test('the record has the body and headers, and never the key (G12)', async () => {
    await (await post({ stream: false, temperature: 0 })).text();

    expect(server.requests[0]).toMatchObject({ number: 1, hasAuthorization: true, body: { temperature: 0 }, ended: 'completed' });
    expect(JSON.stringify(server.requests)).not.toContain('sk-private-key');
  });

  test('waiting for a request that does not come fails with what was seen', async () => {
    await expect(server.waitForRequest(1, 10)).rejects.toThrow('seen: none');
  });

  test('reset forgets script, rule and records and drops open answers', async () => {
    const gate = createGate();
    server.enqueue(heldReply(gate, 'a', 'b'), textReply('unused'));
    const response = await post();
    await gate.reached;

    server.reset();

    expect((await readAll(response)).error).toBeDefined();
    expect([server.queued, server.requests.length]).toEqual([0, 0]);
  });

  test('only the newest requests are kept', async () => {
    const small = await startModelServer({ keepRequests: 2 });
    for (let n = 0; n < 3; n += 1) {
      await (
        await fetch(`${small.baseUrl}/chat/completions`, { method: 'POST', body: JSON.stringify({ model: 'm', messages: HELLO }) })
      ).text();
    }
    await small.close();

    expect(small.requests.map((request) => request.number)).toEqual([2, 3]);
  });

  test('models are listed, other paths are 404, broken JSON is 400', async () => {
    expect(await (await fetch(`${server.baseUrl}/models`)).json()).toMatchObject({
      object: 'list',
      data: [{ id: 'demo', object: 'model' }],
    });
    expect((await fetch(`${server.baseUrl}/nothing`)).status).toBe(404);
    expect((await post({}, { body: '{"model"' })).status).toBe(400);
  });

  test('a taken port is a typed error', async () => {
    await expect(startModelServer({ port: server.port })).rejects.toMatchObject({ code: 'PORT_TAKEN' });
  });
});

describe('clients', () => {
  test('ChatOpenAI reads text, tool calls and usage', async () => {
    server.enqueue(textReply('Hello from afar'), { kind: 'toolCalls', calls: [{ name: 'look', args: { at: 'sky' } }] });
    const model = new ChatOpenAI({ model: 'demo', apiKey: 'none', maxRetries: 0, configuration: { baseURL: server.baseUrl } });

    let text = '';
    let tokens = 0;
    for await (const chunk of await model.stream('hi')) {
      text += chunk.text;
      tokens += (chunk.usage_metadata as { output_tokens: number } | undefined)?.output_tokens ?? 0;
    }
    const answer = await model.invoke('look');

    expect(text).toBe('Hello from afar');
    expect(tokens).toBeGreaterThan(2);
    expect(answer.tool_calls).toMatchObject([{ name: 'look', args: { at: 'sky' } }]);
  });

  test('the server runs as a process of its own, stops, and says when its port is taken', async () => {
    const child = await startModelServerProcess({ pace: 'instant', answerTokens: 3 });
    const response = await fetch(`${child.baseUrl}/chat/completions`, {
      method: 'POST',
      body: JSON.stringify({ model: 'm', messages: HELLO, stream: true }),
    });
    const sse = await response.text();
    await child.stop();

    expect(textOf(sse)).toBe('word word word');
    await expect(fetch(`${child.baseUrl}/models`)).rejects.toThrow();
    await expect(startModelServerProcess({ port: server.port })).rejects.toMatchObject({ code: 'PORT_TAKEN' });
  });
});
