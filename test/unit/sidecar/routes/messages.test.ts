import { createHash } from 'node:crypto';
import { afterEach, beforeEach, expect, test } from 'vitest';
import type { SessionId } from '../../../../src/ids.ts';
import { alice, mallory, TS } from '../../ucan/tokens.ts';
import {
  ALICE,
  answer,
  createWorld,
  DIRECT,
  DM,
  MALLORY,
  MALLORY_DM,
  MALLORY_SESSION,
  readHistory,
  readSse,
  SESSION,
  say,
  signed,
  type World,
} from '../world.ts';

let world: World;
beforeEach(async () => {
  world = createWorld();
  await world.prepare();
});
afterEach(() => world.close());

test('a message is answered as JSON when the run is over, with the id it has in the history', async () => {
  const reply = await world.inject(say('hi'));
  expect(reply.statusCode).toBe(200);
  const { message, sessionId, runId } = reply.json();
  expect(message).toEqual({ type: 'ai', content: 'hello world', id: runId });
  expect(sessionId).toBe(SESSION);
  expect(reply.headers['x-run-id']).toBe(runId);

  const history = await world.inject(readHistory(SESSION));
  expect(history.json().messages.map((m: any) => [m.type, m.content])).toEqual([
    ['human', 'hi'],
    ['ai', 'hello world'],
  ]);
  expect(history.json().messages[1].id).toBe(runId);
});

test('the prompt is mirrored into the room with who said it', async () => {
  await world.inject(say('hi', { headers: { 'x-request-id': 'req-7' } }));
  expect(world.mirrored).toHaveLength(1);
  expect(world.mirrored[0]).toMatchObject({
    sessionId: SESSION,
    roomId: DM,
    threadRoot: SESSION,
    text: 'hi',
    did: alice.did,
    requestId: 'req-7',
  });
});

test('the model is told the time zone of the body, else of the header, and a model only from the list', async () => {
  await world.inject(say('1', { headers: { 'x-timezone': 'Europe/Zurich' }, fields: { model: 'other' } }));
  await world.inject(say('2', { headers: { 'x-timezone': 'Europe/Zurich' }, fields: { timezone: 'Asia/Tokyo', model: 'no-such' } }));
  await world.inject(say('3', { headers: { 'x-timezone': 'Nowhere/<script>' } }));
  expect(world.jobs.map((job) => job.run.hints)).toEqual([{ timezone: 'Europe/Zurich', model: 'other' }, { timezone: 'Asia/Tokyo' }, {}]);
});

test('the same answer as events: every frame once and in order, then done with length and hash (G7)', async () => {
  const reply = await world.inject(say('hi', { fields: { stream: true } }));
  expect(reply.statusCode).toBe(200);
  expect(reply.headers['content-type']).toMatch(/^text\/event-stream/);
  expect(reply.headers).toMatchObject({ 'cache-control': 'no-cache, no-transform', 'x-accel-buffering': 'no' });
  const events = readSse(reply.body);
  expect(events[0]).toMatchObject({ event: 'run', id: null, data: { state: 'queued' } });
  expect(events.map((e) => e.event)).toEqual(['run', 'run', 'message', 'done']);
  expect(events.slice(1).map((e) => e.id)).toEqual(['1', '2', '3']);
  const text = events
    .filter((e) => e.event === 'message')
    .map((e) => e.data['content'])
    .join('');
  expect(text).toBe('hello world');
  expect(events.at(-1)!.data).toMatchObject({
    runId: reply.headers['x-run-id'],
    status: 'completed',
    length: text.length,
    sha256: createHash('sha256').update(text).digest('base64url'),
    read: `/messages/${encodeURIComponent(SESSION)}`,
    model: 'demo',
    usage: { inputTokens: 3, outputTokens: 4 },
  });
});

test('the same token with the same body joins its run from the first frame and asks no model again (G2)', async () => {
  const request = say('hi', { fields: { stream: true } });
  const first = await world.inject(request);
  const again = await world.inject(request);
  expect(again.headers['x-run-id']).toBe(first.headers['x-run-id']);
  expect(readSse(again.body).filter((e) => e.id !== null)).toEqual(
    readSse(first.body)
      .filter((e) => e.id !== null)
      .map((e) => (e.data['requestId'] === undefined ? e : expect.anything())),
  );
  expect(world.jobs).toHaveLength(1);
  expect(world.rows('runs')).toHaveLength(1);
  expect(world.mirrored).toHaveLength(1);
});

test('the same request ten times at once is one run, and all ten get its answer (G2)', async () => {
  const request = say('hi');
  const replies = await world.settle(Promise.all(Array.from({ length: 10 }, () => world.app.inject(request))));
  expect(new Set(replies.map((reply) => reply.statusCode))).toEqual(new Set([200]));
  expect(new Set(replies.map((reply) => reply.json().runId)).size).toBe(1);
  expect(world.rows('runs')).toHaveLength(1);
});

test('the same token with another body is a conflict', async () => {
  const first = say('one');
  expect((await world.inject(first)).statusCode).toBe(200);
  const other = await world.inject(say('two', { token: first.token }));
  expect(other.statusCode).toBe(409);
  expect(other.json().code).toBe('CONFLICT');
});

test('a body that was changed after signing is refused', async () => {
  const { token } = say('hi');
  const reply = await world.inject(say('something else', { token }));
  expect([reply.statusCode, reply.json().code]).toEqual([401, 'WRONG_CONTENT']);
  expect(world.jobs).toHaveLength(0);
});

test('a token for another session, method or time is refused before any model call (G8)', async () => {
  const codes = [];
  for (const request of [
    say('hi', { token: say('hi', { session: MALLORY_SESSION }).token }),
    say('hi', { token: readHistory(SESSION).token }),
    say('hi', { ts: TS - 10 * 60_000 }),
    readHistory(SESSION, { token: say('hi').token }),
  ]) {
    const reply = await world.inject(request);
    expect(reply.statusCode).toBe(401);
    codes.push(reply.json().code);
  }
  expect(codes).toEqual(['WRONG_TYPE', 'BAD_CAPABILITY', 'TOKEN_EXPIRED', 'BAD_CAPABILITY']);
  expect(world.jobs).toHaveLength(0);
});

test("an own DID with somebody else's room is refused as not linked, and nothing is written but the refusal (G13)", async () => {
  for (const request of [
    say('hi', { key: mallory, sender: MALLORY, room: DM }),
    say('hi', { key: mallory, room: DM }),
    say('hi', { key: mallory, sender: MALLORY, room: null }),
  ]) {
    const reply = await world.inject(request);
    expect([reply.statusCode, reply.json().code]).toEqual([403, 'NOT_LINKED']);
    expect(reply.json().message).toContain('Write to me once in Matrix');
  }
  expect(world.rows('runs')).toHaveLength(0);
  expect(world.rows('transcript')).toHaveLength(0);
  expect(world.rows('replay_marks')).toHaveLength(0);
  expect(world.mirrored).toHaveLength(0);
  expect(world.rows('audit').map((row: any) => [row.decision, row.code, row.principal_id])).toEqual(
    Array(3).fill(['refused', 'NOT_LINKED', mallory.did]),
  );
});

test("another's session looks like one that does not exist, for writing, reading and stopping (G13)", async () => {
  await world.inject(say('secret', { key: mallory, sender: MALLORY, room: MALLORY_DM, session: MALLORY_SESSION }));
  const unknown = '$nobody' as SessionId;
  for (const make of [
    (session: SessionId) => say('hi', { session }),
    (session: SessionId) => readHistory(session),
    (session: SessionId) => signed({ method: 'DELETE', path: `/sessions/${session}`, session }),
    (session: SessionId) => signed({ method: 'POST', path: '/messages/abort', body: { sessionId: session } }),
  ]) {
    const foreign = await world.inject(make(MALLORY_SESSION));
    const none = await world.inject(make(unknown));
    expect(foreign.statusCode).toBe(404);
    const { requestId: a, ...left } = foreign.json();
    const { requestId: b, ...right } = none.json();
    expect(left).toEqual(right);
    expect(foreign.body).not.toContain('secret');
  }
});

test('an account that may not use the oracle is refused in every mode', async () => {
  await world.close();
  world = createWorld({ mayUse: () => false });
  await world.prepare();
  const reply = await world.inject(say('hi'));
  expect([reply.statusCode, reply.json().code]).toEqual([403, 'NOT_ALLOWED']);
});

test('too many messages are refused with 429 before the stream begins, and cost nothing', async () => {
  await world.close();
  world = createWorld({ rateLimit: 2 });
  await world.prepare();
  for (const text of ['1', '2']) expect((await world.inject(say(text))).statusCode).toBe(200);
  const reply = await world.inject(say('3', { fields: { stream: true } }));
  expect([reply.statusCode, reply.json().code]).toEqual([429, 'RATE_LIMITED']);
  expect(reply.headers['retry-after']).toBe('60');
  expect(reply.headers['content-type']).toContain('application/json');
  expect(world.jobs).toHaveLength(2);
});

test('a message that was delivered and is sent again is answered although the sender is over his limit', async () => {
  await world.close();
  world = createWorld({ rateLimit: 1 });
  await world.prepare();
  const request = say('1');
  const first = await world.inject(request);
  expect((await world.inject(request)).json()).toEqual(first.json());
});

test('a failed run is its own status with what was said by then', async () => {
  world.world.script = async ({ output }) => {
    output.text('half an');
    const { refusal } = await import('../../../../src/errors.ts');
    return { kind: 'failed', refusal: refusal('MODEL_ERROR'), messages: [] };
  };
  const reply = await world.inject(say('hi'));
  expect(reply.statusCode).toBe(502);
  expect(reply.json()).toMatchObject({ code: 'MODEL_ERROR', details: { partialText: 'half an' } });
  const stream = readSse((await world.inject(say('hi again', { fields: { stream: true } }))).body);
  expect(stream.map((e) => e.event)).toEqual(['run', 'run', 'message', 'error', 'done']);
  expect(stream[3]!.data).toMatchObject({ code: 'MODEL_ERROR', kind: 'server', source: 'platform', retryable: true, status: 502 });
  expect(stream[4]!.data).toMatchObject({ status: 'failed', failed: true, partialText: 'half an' });
});

test('a busy session answers 200 and says that the message waits', async () => {
  let finish = () => {};
  world.world.script = async (job) => {
    await new Promise<void>((resolve) => {
      finish = resolve;
    });
    return answer('done')(job);
  };
  const first = world.app.inject(say('1', { fields: { stream: true } }));
  for (let i = 0; i < 20 && world.jobs.length === 0; i++) await world.clock.advanceAsync(10);
  const second = world.app.inject(say('2', { fields: { stream: true } }));
  for (let i = 0; i < 20 && world.rows('runs').length < 2; i++) await world.clock.advanceAsync(10);
  expect(world.rows('runs').map((row: any) => row.status)).toEqual(['running', 'queued']);
  world.world.script = answer('done');
  finish();
  const replies = await world.settle(Promise.all([first, second]));
  expect(replies.map((reply) => reply.statusCode)).toEqual([200, 200]);
  expect(readSse(replies[1]!.body)[0]).toMatchObject({ event: 'run', data: { state: 'queued' } });
  expect(readSse(replies[1]!.body).at(-1)!.data['status']).toBe('completed');
});

test('a message may stop the own run that works in its session and be answered next, or wait for it', async () => {
  const partial: typeof world.world.script = ({ output, signal }) =>
    new Promise((_resolve, reject) => {
      output.text('so far');
      signal.addEventListener('abort', () => reject(signal.reason));
    });
  world.world.script = partial;
  const first = world.app.inject(say('1', { fields: { stream: true } }));
  for (let i = 0; i < 20 && world.jobs.length === 0; i++) await world.clock.advanceAsync(10);
  const odd = await world.inject(say('no', { fields: { multitask: 'steer' } }));
  expect([odd.statusCode, odd.json().details]).toEqual([400, { field: 'multitask' }]);
  world.world.script = answer('second');
  const second = world.app.inject(say('2', { fields: { multitask: 'interrupt', stream: true } }));
  const replies = await world.settle(Promise.all([first, second]));
  expect(replies.map((reply) => readSse(reply.body).at(-1)!.data['status'])).toEqual(['cancelled', 'completed']);
  expect(world.jobs.map((job) => job.run.prompts.map(({ text }) => text))).toEqual([['1'], ['2']]);
});

test('abort is on disk before anything is stopped, so that a crash in between does not take the run up again (G5, G9)', async () => {
  world.world.script = ({ signal }) => new Promise((_resolve, reject) => signal.addEventListener('abort', () => reject(signal.reason)));
  const streaming = world.app.inject(say('hi', { fields: { stream: true } }));
  for (let i = 0; i < 20 && world.jobs.length === 0; i++) await world.clock.advanceAsync(10);
  const { cancel } = world.scheduler;
  const asked: unknown[] = [];
  Object.assign(world.scheduler, {
    cancel: (...args: Parameters<typeof cancel>) => {
      asked.push(...world.rows('runs').map((row: any) => row.stop_asked));
      return cancel(...args);
    },
  });
  await world.inject(signed({ method: 'POST', path: '/messages/abort', body: { sessionId: SESSION } }));
  await world.settle(streaming);
  expect(asked).toEqual(['RUN_CANCELLED']);
});

test('abort stops the own run, the reader sees it end, and the same token stops nothing more (G9)', async () => {
  world.world.script = ({ output, signal }) =>
    new Promise((_resolve, reject) => {
      output.text('so far');
      signal.addEventListener('abort', () => reject(signal.reason));
    });
  const streaming = world.app.inject(say('hi', { fields: { stream: true } }));
  for (let i = 0; i < 20 && world.jobs.length === 0; i++) await world.clock.advanceAsync(10);
  await world.clock.advanceAsync(100);
  const stop = signed({ method: 'POST', path: '/messages/abort', body: { sessionId: SESSION } });
  expect((await world.inject(stop)).json()).toEqual({ success: true });
  const events = readSse((await world.settle(streaming)).body);
  expect(events.at(-1)).toMatchObject({ event: 'done', data: { status: 'cancelled', aborted: true, partialText: 'so far' } });
  expect((await world.inject(stop)).json()).toEqual({ success: false });
  const idle = signed({ method: 'POST', path: '/messages/abort', body: { sessionId: SESSION } });
  expect(await world.inject(idle).then((r) => [r.statusCode, r.json()])).toEqual([200, { success: false }]);
});

test('a run can be read again from any event, and by nobody else (G7, G13)', async () => {
  world.world.script = async (job) => {
    for (const delta of ['a', 'b', 'c']) {
      job.output.text(delta);
      await new Promise<void>((resolve) => void world.clock.after(60, resolve));
    }
    return { kind: 'completed', text: 'abc', messages: [] };
  };
  const first = await world.inject(say('hi', { fields: { stream: true } }));
  const all = readSse(first.body).filter((event) => event.id !== null);
  const runId = first.headers['x-run-id'] as string;
  for (let seen = 0; seen <= all.length; seen++) {
    const rest = await world.inject(signed({ method: 'GET', path: `/runs/${runId}`, query: `?after=${seen}` }));
    expect(rest.statusCode).toBe(200);
    expect(readSse(rest.body).filter((e) => e.id !== null)).toEqual(all.slice(seen));
    expect(readSse(rest.body).at(-1)!.event).toBe('done');
  }
  const resumed = await world.inject(signed({ method: 'GET', path: `/runs/${runId}`, headers: { 'last-event-id': '2' } }));
  expect(readSse(resumed.body)).toEqual(all.slice(2));

  const foreign = await world.inject(signed({ method: 'GET', path: `/runs/${runId}`, key: mallory, sender: MALLORY, room: MALLORY_DM }));
  const none = await world.inject(signed({ method: 'GET', path: '/runs/01ARZ3NDEKTSV4RRFFQ69G5FAV' }));
  expect([foreign.statusCode, none.statusCode]).toEqual([404, 404]);
  const bad = await world.inject(signed({ method: 'GET', path: `/runs/${runId}`, query: '?after=x' }));
  expect([bad.statusCode, bad.json().details]).toEqual([400, { field: 'after' }]);
});

test('what is not built yet is refused by name instead of being dropped', async () => {
  for (const [fields, part] of [
    [{ tools: [{ name: 'x' }] }, 'tools'],
    [{ attachments: [{}] }, 'attachments'],
    [{ mcpInvocations: { a: 'b' } }, 'mcpInvocations'],
  ] as const) {
    const reply = await world.inject(say('hi', { fields }));
    expect([reply.statusCode, reply.json().code]).toEqual([501, 'NOT_AVAILABLE']);
    expect(reply.json().message).toContain(part);
  }
  expect((await world.inject(say('hi', { fields: { tools: [], attachments: [], metadata: { spaceId: 's' } } }))).statusCode).toBe(200);
});

test('a direct room that is encrypted is answered in like any other', async () => {
  const facts = { ...DIRECT, people: new Set([ALICE]), encryption: 'encrypted' as const };
  const encrypted = createWorld({ rooms: { facts: async (roomId) => ({ ...facts, roomId }) } });
  await encrypted.prepare();

  expect((await encrypted.inject(say('hello'))).statusCode).toBe(200);
  expect(encrypted.rows('runs')).toHaveLength(1);
  await encrypted.close();
});

test.each([
  [{ kind: 'group' }, 403, 'NOT_LINKED'],
  // Its owner threw Alice out and came in instead: still two people, still direct.
  [{ people: new Set([MALLORY]) }, 403, 'NOT_LINKED'],
  [{ encryption: 'unknown' }, 503, 'HOMESERVER_UNAVAILABLE'],
] as const)(
  'a room that is no longer what was proven, %o, gets no answer over HTTP and nothing is opened (G11, G13)',
  async (change, status, code) => {
    const facts = { ...DIRECT, people: new Set([ALICE]) };
    const elsewhere = createWorld({ rooms: { facts: async (roomId) => ({ ...facts, roomId, ...change }) } });
    await elsewhere.prepare();

    const refused = await elsewhere.inject(say('hello'));

    expect([refused.statusCode, refused.json().code]).toEqual([status, code]);
    expect(elsewhere.rows('runs')).toEqual([]);
    await elsewhere.close();
  },
);
