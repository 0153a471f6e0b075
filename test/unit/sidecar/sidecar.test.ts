import { connect } from 'node:net';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { StorageError } from '../../../src/store/store.ts';
import { createWorld, readHistory, SESSION, say, signed, type World } from './world.ts';

let world: World;
beforeEach(async () => {
  world = createWorld();
  await world.prepare();
});
afterEach(() => world.close());

const get = (url: string, headers: Record<string, string> = {}) => world.inject({ method: 'GET', url, headers });

test('health is 200 while the process lives, ready is 503 with the part that is not', async () => {
  expect((await get('/health')).json()).toMatchObject({ status: 'ok', live: true, ready: true });
  expect((await get('/')).json()).toMatchObject({ status: 'ok', message: 'Testy is running' });
  await world.close();
  world = createWorld({ health: () => ({ live: true, ready: false, parts: [{ name: 'homeserver', ok: false, detail: 'no answer' }] }) });
  const health = await get('/health');
  expect([health.statusCode, health.json().status, health.json().ready]).toEqual([200, 'degraded', false]);
  const ready = await get('/health/ready');
  expect([ready.statusCode, ready.json().parts]).toEqual([503, [{ name: 'homeserver', ok: false, detail: 'no answer' }]]);
});

test('a part that is not well makes health degraded, and need not make the process unready', async () => {
  await world.close();
  world = createWorld({ health: () => ({ live: true, ready: true, parts: [{ name: 'encryption', ok: false, detail: 'no keys' }] }) });

  expect((await get('/health/ready')).json()).toMatchObject({ status: 'degraded', ready: true });
  expect((await get('/health/ready')).statusCode).toBe(200);
});

test('models and the interface need no token', async () => {
  expect((await get('/models')).json()).toEqual({ models: [{ id: 'demo' }, { id: 'other' }], default: 'demo' });
  const docs = (await get('/docs/json')).json();
  expect(Object.keys(docs.paths).sort()).toEqual([
    '/',
    '/authorise/context',
    '/authorise/oracle',
    '/delegation',
    '/health',
    '/health/ready',
    '/messages/abort',
    '/messages/{sessionId}',
    '/models',
    '/runs',
    '/runs/{runId}',
    '/runs/{runId}/ticket',
    '/sessions',
    '/sessions/{sessionId}',
    '/sessions/{sessionId}/run',
  ]);
  expect(docs.paths['/runs/{runId}'].get.security).toEqual([{ ucan: [] }, { ticket: [] }]);
  expect(docs.paths['/runs'].get.security).toEqual([{ ucan: [] }]);
  expect(docs.openapi).toBe('3.1.0');
  const post = docs.paths['/messages/{sessionId}'].post;
  expect(post.security).toEqual([{ ucan: [] }]);
  expect(post.requestBody.content['application/json'].schema.properties.message.maxLength).toBe(32_000);
  expect(post.requestBody.content['application/json'].schema.additionalProperties).toBe(false);
  expect(docs.paths['/health'].get.security).toBeUndefined();
});

test('everything else is refused without a token of our kind', async () => {
  const good = readHistory(SESSION).headers;
  for (const headers of [
    {},
    { authorization: good['authorization']! },
    { ...good, 'x-auth-type': 'jwt' },
    { ...good, authorization: 'Basic abc' },
    { ...good, authorization: 'Bearer ' },
    { ...good, authorization: 'Bearer a b' },
    { 'x-auth-type': 'ucan', 'x-ucan-delegation': 'abc' },
  ]) {
    const reply = await get('/sessions', headers);
    expect([reply.statusCode, reply.json().code]).toEqual([401, 'UNAUTHENTICATED']);
  }
  for (const [bearer, code] of [
    ['AAAA', 'UCAN_MALFORMED'],
    ['A'.repeat(6_000), 'UCAN_TOO_LARGE'],
    [`${good['authorization']!.slice(7, -4)}AAAA`, 'UCAN_MALFORMED'],
  ] as const) {
    const reply = await get('/sessions', { ...good, authorization: `Bearer ${bearer}` });
    expect([reply.statusCode, reply.json().code]).toEqual([401, code]);
  }
});

test('a token in padded base64 is the same token', async () => {
  const request = readHistory(SESSION);
  const padded = Buffer.from(request.token, 'base64url').toString('base64');
  expect((await get('/sessions', { ...request.headers, authorization: `bearer ${padded}` })).statusCode).toBe(200);
});

test('an unknown path is a typed 404, and so is a method that a path does not have', async () => {
  for (const request of [
    { method: 'GET', url: '/nowhere' },
    { method: 'PUT', url: '/sessions' },
    { method: 'GET', url: '/messages/%zz' },
  ] as const) {
    const reply = await world.inject(request);
    expect(reply.json()).toMatchObject({ requestId: expect.any(String), statusCode: reply.statusCode });
    expect(['NOT_FOUND', 'BAD_REQUEST']).toContain(reply.json().code);
  }
  expect((await get('/nowhere')).statusCode).toBe(404);
});

test.each([
  ['unknown field', { message: 'hi', colour: 'red' }, 'colour'],
  ['unknown nested field', { message: 'hi', metadata: { spaceId: 's', evil: 1 } }, 'metadata.evil'],
  ['no message', {}, 'message'],
  ['an empty message', { message: '  ' }, 'message'],
  ['a message of another type', { message: 7 }, 'message'],
  ['a message past the limit', { message: 'x'.repeat(32_001) }, 'message'],
  ['half a character', '{"message":"\\ud800"}', 'message'],
  ['a NUL', { message: 'a\0b' }, 'message'],
  ['a zone past the limit', { message: 'hi', timezone: 'x'.repeat(65) }, 'timezone'],
  ['no object', '[1]', ''],
  ['null', 'null', ''],
])('a body with %s is a 400 that names the field', async (_name, body, field) => {
  const reply = await world.inject(signed({ method: 'POST', path: `/messages/${SESSION}`, session: SESSION, body }));
  expect([reply.statusCode, reply.json().code, reply.json().details]).toEqual([400, 'BAD_REQUEST', { field }]);
  expect(world.rows('runs')).toHaveLength(0);
  expect(world.rows('replay_marks')).toHaveLength(0);
});

test.each([
  ['no JSON', '{"message":', 400],
  ['a prototype', '{"message":"hi","__proto__":{"stream":true}}', 400],
  ['a constructor', '{"message":"hi","constructor":{"prototype":{"stream":true}}}', 400],
  ['256 KiB', JSON.stringify({ message: 'x'.repeat(256 * 1024) }), 413],
])('a body with %s is refused as a whole', async (_name, body, status) => {
  const reply = await world.inject(signed({ method: 'POST', path: `/messages/${SESSION}`, session: SESSION, body }));
  expect(reply.statusCode).toBe(status);
  expect(reply.json().requestId).toBe(reply.headers['x-request-id']);
});

test('a body of another type is refused', async () => {
  const request = say('hi');
  const reply = await world.inject({ ...request, headers: { ...request.headers, 'content-type': 'text/plain' } });
  expect([reply.statusCode, reply.json().message]).toEqual([400, 'The body must be application/json.']);
});

test('a request id is echoed when it may be logged, and replaced otherwise (G12)', async () => {
  expect((await get('/health', { 'x-request-id': 'Abc-1._' })).headers['x-request-id']).toBe('Abc-1._');
  for (const bad of ['a b', 'x'.repeat(129), 'a"b', '<script>', '']) {
    expect((await get('/health', { 'x-request-id': bad })).headers['x-request-id']).toMatch(/^made-\d+$/);
  }
  await get('/sessions', { 'x-request-id': 'find-me' });
  expect(world.lines.find((line) => line.request_id === 'find-me')).toMatchObject({ code: 'UNAUTHENTICATED', path: '/sessions' });
});

test('no log line and no error holds the token or the prompt (G12)', async () => {
  const request = say('my secret prompt');
  await world.inject(request);
  await world.inject(say('my secret prompt', { token: readHistory(SESSION).token }));
  const log = JSON.stringify(world.lines);
  expect(log).not.toContain(request.token.slice(50, 90));
  expect(log).not.toContain('secret prompt');
});

test('a bug is a 500 that says nothing, with the log line under its request id (G12)', async () => {
  await world.close();
  world = createWorld({
    models: () => {
      throw new Error('the password is 1234');
    },
  });
  const reply = await get('/models', { 'x-request-id': 'bug-1' });
  expect(reply.statusCode).toBe(500);
  expect(reply.json()).toEqual({ statusCode: 500, code: 'INTERNAL', message: expect.any(String), requestId: 'bug-1' });
  expect(world.lines.some((line) => line.request_id === 'bug-1' && line.code === 'INTERNAL')).toBe(true);
});

test('a database that cannot be written is a 503 that says to try again', async () => {
  const { write } = world.store;
  (world.store as { write: unknown }).write = () => Promise.reject(new StorageError('full'));
  const reply = await world.inject(say('hi'));
  expect([reply.statusCode, reply.json().code]).toEqual([503, 'STORAGE_UNAVAILABLE']);
  (world.store as { write: unknown }).write = write;
  expect((await world.inject(say('hi'))).statusCode).toBe(200);
});

test('an address that is refused too often is not verified any more, with CORS so that a browser can read why (G14)', async () => {
  await world.close();
  let verified = 0;
  world = createWorld({
    options: { corsOrigins: ['*'], refusedPerMinute: 3 },
    verify: async () => {
      verified++;
      return { ok: false, error: 'BAD_SIGNATURE' };
    },
  });
  const codes = [];
  for (let i = 0; i < 6; i++) {
    const reply = await world.inject({ ...readHistory(SESSION), remoteAddress: `2001:db8:0:1::${i}` });
    codes.push(reply.json().code);
    expect(reply.headers['access-control-allow-origin']).toBe('*');
  }
  expect(codes).toEqual([...Array(3).fill('BAD_SIGNATURE'), ...Array(3).fill('RATE_LIMITED')]);
  expect(verified).toBe(3);
  const elsewhere = await world.inject({ ...readHistory(SESSION), remoteAddress: '2001:db8:0:2::1' });
  expect(elsewhere.json().code).toBe('BAD_SIGNATURE');
  expect((await get('/health')).statusCode).toBe(200);
});

test('behind a proxy one caller who is refused too often locks nobody else out, and cannot rename himself (G14)', async () => {
  await world.close();
  world = createWorld({ options: { corsOrigins: ['*'], refusedPerMinute: 3, trustedProxies: ['127.0.0.0/8', '::1'] } });
  await world.prepare();
  const behind = (forwarded: string, remoteAddress = '127.0.0.1') => ({ remoteAddress, headers: { 'x-forwarded-for': forwarded } });
  const guess = (more: ReturnType<typeof behind>) => world.inject({ method: 'GET', url: '/sessions', ...more });
  for (let i = 0; i < 4; i++) await guess(behind(`198.51.100.${i}, 203.0.113.7`));

  expect((await guess(behind('198.51.100.9, 203.0.113.7'))).statusCode).toBe(429);
  const honest = readHistory(SESSION);
  const headers = { ...honest.headers, 'x-forwarded-for': '203.0.113.8' };
  expect((await world.inject({ ...honest, headers, remoteAddress: '127.0.0.1' })).statusCode).toBe(200);
  // Who is no proxy of ours is himself, whatever he says.
  for (let i = 0; i < 3; i++) await guess(behind(`203.0.113.${100 + i}`, '192.0.2.1'));
  expect((await guess(behind('203.0.113.200', '192.0.2.1'))).statusCode).toBe(429);
});

test('an address that asks too often is refused before anything else, but health answers', async () => {
  await world.close();
  world = createWorld({ options: { corsOrigins: ['*'], requestsPerMinute: 2 } });
  const statuses = [];
  for (let i = 0; i < 3; i++) statuses.push((await get('/models')).statusCode);
  expect(statuses).toEqual([200, 200, 429]);
  expect((await get('/health')).statusCode).toBe(200);
});

const preflight = (origin: string) =>
  world.inject({
    method: 'OPTIONS',
    url: '/messages/$x',
    headers: { origin, 'access-control-request-method': 'POST', 'access-control-request-headers': 'authorization,x-auth-type' },
  });

test('browsers of any origin may ask by default, without credentials', async () => {
  const reply = await preflight('https://portal.example.org');
  expect(reply.statusCode).toBe(204);
  expect(reply.headers['access-control-allow-origin']).toBe('*');
  expect(reply.headers['access-control-allow-credentials']).toBeUndefined();
  const allowed = String(reply.headers['access-control-allow-headers']).toLowerCase();
  for (const header of ['authorization', 'x-auth-type', 'x-ucan-delegation', 'x-timezone', 'x-request-id', 'content-type'])
    expect(allowed).toContain(header);
  const answered = await get('/models', { origin: 'https://portal.example.org' });
  expect(answered.headers['access-control-expose-headers']).toContain('X-Request-Id');
});

test('named origins may send credentials, others get no permission', async () => {
  await world.close();
  world = createWorld({ options: { corsOrigins: ['https://portal.example.org'] } });
  const reply = await preflight('https://portal.example.org');
  expect(reply.headers).toMatchObject({
    'access-control-allow-origin': 'https://portal.example.org',
    'access-control-allow-credentials': 'true',
  });
  expect((await preflight('https://evil.example.net')).headers['access-control-allow-origin']).toBeUndefined();
});

const raw = (port: number, text: string) =>
  new Promise<string>((resolve, reject) => {
    let got = '';
    const socket = connect(port, '127.0.0.1', () => socket.write(text));
    socket.setEncoding('utf8').on('data', (data) => {
      got += data;
    });
    socket.on('close', () => resolve(got)).on('error', reject);
  });

test('what is no HTTP, and headers without end, get a JSON answer too', async () => {
  await world.app.listen({ port: 0, host: '127.0.0.1' });
  const { port } = world.app.server.address() as { port: number };
  for (const text of ['hello\r\n\r\n', `GET / HTTP/1.1\r\nHost: x\r\nX: ${'y'.repeat(70_000)}\r\n\r\n`]) {
    const reply = await raw(port, text);
    expect(reply).toMatch(/^HTTP\/1\.1 400 /);
    expect(JSON.parse(reply.split('\r\n\r\n')[1]!)).toMatchObject({ statusCode: 400, code: 'BAD_REQUEST', requestId: expect.any(String) });
  }
});

test('what is refused is counted by its code', async () => {
  await world.close();
  const codes: string[] = [];
  world = createWorld({ observeRefusal: (code) => void codes.push(code) });
  await get('/nothing');
  await get('/sessions');
  await get('/health');
  expect(codes).toEqual(['NOT_FOUND', 'UNAUTHENTICATED']);
});
