import type { FastifyInstance } from 'fastify';
import { afterEach, describe, expect, test } from 'vitest';
import { CryptoUnavailable } from '../../../appservice/crypto/crypto-service.ts';
import { createEndpoint, type EndpointOptions } from '../../../appservice/endpoint.ts';
import type { IncomingEvent } from '../../../src/inbox/inbox.ts';
import { LIMITS } from '../../../src/limits.ts';
import { createLogger } from '../../../src/observe/logger.ts';
import { StorageError } from '../../../src/store/store.ts';
import fixtures from '../../fixtures/synapse-1.163.2.json' with { type: 'json' };

const apps: FastifyInstance[] = [];
afterEach(async () => {
  for (const app of apps.splice(0)) await app.close();
});

type Receivers = Partial<Pick<EndpointOptions, 'receive' | 'receiveKeys'>>;

function open({ receive = async () => {}, ...more }: Receivers = {}) {
  const lines: string[] = [];
  const received: IncomingEvent[] = [];
  const pings: (string | null)[] = [];
  const skipped: string[] = [];
  const answered: [number, number][] = [];
  const app = createEndpoint({
    hsToken: 'hs-secret',
    receive: async (events) => {
      await receive(events);
      received.push(...events);
    },
    ...more,
    onPing: (id) => pings.push(id),
    onAnswered: (status, durationMs) => answered.push([status, durationMs]),
    onSkipped: (reason) => skipped.push(reason),
    logger: createLogger({ level: 'debug', format: 'json', destination: { write: (line) => void lines.push(line) } }),
  });
  apps.push(app);
  const put = (body: unknown, { url = '/_matrix/app/v1/transactions/1', token = 'hs-secret', type = 'application/json' } = {}) =>
    app.inject({
      method: 'PUT',
      url,
      headers: { authorization: `Bearer ${token}`, 'content-type': type },
      payload: typeof body === 'string' ? body : JSON.stringify(body),
    });
  return { app, put, received, pings, skipped, answered, lines };
}
const event = (id: string, more: object = {}) => ({
  event_id: id,
  room_id: '!r:oracle.local',
  sender: '@alice:oracle.local',
  type: 'm.room.message',
  origin_server_ts: 1_796_036_346_876,
  content: { msgtype: 'm.text', body: 'hello' },
  unsigned: { age: 12 },
  ...more,
});

test('200 comes only after the events are stored (G1)', async () => {
  const order: string[] = [];
  let store = () => {};
  const stored = new Promise<void>((resolve) => {
    store = () => {
      order.push('stored');
      resolve();
    };
  });
  const { put } = open({ receive: () => stored });

  const answer = put({ events: [event('$1')] }).then((response) => {
    order.push('answered');
    return response;
  });
  await new Promise(setImmediate);
  store();

  expect((await answer).json()).toEqual({});
  expect(order).toEqual(['stored', 'answered']);
});

test('what cannot be stored is not answered with 200 (G1)', async () => {
  const { put } = open({ receive: () => Promise.reject(new StorageError('full')) });

  const response = await put({ events: [event('$1')] });

  expect(response.statusCode).toBe(503);
  expect(response.json()).toMatchObject({ errcode: 'M_UNKNOWN' });
});

describe('keys in transactions (CRYPTO_TRANSPORT=appservice)', () => {
  const withKeys = { events: [event('$1')], 'de.sorunome.msc2409.to_device': [{ type: 'm.room.encrypted' }] };

  test('they are taken before the events of the transaction, which may need them', async () => {
    const order: string[] = [];
    const { put } = open({
      receive: async () => void order.push('events'),
      receiveKeys: async ({ toDevice }) => void order.push(`${toDevice.length} to-device`),
    });

    const response = await put(withKeys);

    expect(response.statusCode).toBe(200);
    expect(order).toEqual(['1 to-device', 'events']);
  });

  test.each([new StorageError('full'), new CryptoUnavailable('not open yet')])(
    'what cannot be stored is not answered with 200, and its events come again (G1): %s',
    async (error) => {
      const { put, received } = open({ receiveKeys: () => Promise.reject(error) });

      const response = await put(withKeys);

      expect(response.statusCode).toBe(503);
      expect(received).toEqual([]);
    },
  );

  test('a transaction of keys alone is taken as well', async () => {
    const taken: number[] = [];
    const { put } = open({ receiveKeys: async ({ toDevice }) => void taken.push(toDevice.length) });

    await put({ ...withKeys, events: [] });

    expect(taken).toEqual([1]);
  });
});

test.each(['wrong', '', 'hs-secret2', 'hs-secre'])('the token %j is refused with 403 and nothing is stored', async (token) => {
  const { put, received } = open();

  const response = await put({ events: [event('$1')] }, { token });

  expect(response.statusCode).toBe(403);
  expect(response.json()).toMatchObject({ errcode: 'M_FORBIDDEN' });
  expect(received).toEqual([]);
});

test('a wrong token is refused before the body is read', async () => {
  const { put } = open();

  const response = await put('this is no JSON', { token: 'wrong' });

  expect(response.statusCode).toBe(403);
});

test('the token in the query does not count', async () => {
  const { app } = open();

  const response = await app.inject({
    method: 'PUT',
    url: '/_matrix/app/v1/transactions/1?access_token=hs-secret',
    payload: '{"events":[]}',
  });

  expect(response.statusCode).toBe(403);
});

test.each(['', 'no json', '{"events":[', '\u0000'])('a body that is not JSON is refused with 400: %j', async (body) => {
  const { put, received } = open();

  const response = await put(body);

  expect(response.statusCode).toBe(400);
  expect(response.json().errcode).toMatch(/^M_(NOT_JSON|BAD_JSON)$/);
  expect(received).toEqual([]);
});

test.each(['[]', 'null', '17', '{}', '{"events":{}}'])('JSON that is no transaction is refused with 400: %s', async (body) => {
  const response = await open().put(body);

  expect(response.statusCode).toBe(400);
  expect(response.json()).toMatchObject({ errcode: 'M_BAD_JSON' });
});

test('a content type that is missing or odd does not matter', async () => {
  const { put, received } = open();

  expect((await put({ events: [event('$1')] }, { type: 'text/plain; charset=utf-8' })).statusCode).toBe(200);
  expect(received).toHaveLength(1);
});

describe('size of a transaction (G14)', () => {
  const padded = (bytes: number) => {
    const head = '{"events":[],"x":"';
    return `${head}${'a'.repeat(bytes - head.length - 2)}"}`;
  };
  test('at the limit it is taken', async () => {
    expect((await open().put(padded(LIMITS.transactionBodyBytes))).statusCode).toBe(200);
  });
  test('past the limit it is refused with 413', async () => {
    const response = await open().put(padded(LIMITS.transactionBodyBytes + 1));

    expect(response.statusCode).toBe(413);
    expect(response.json()).toMatchObject({ errcode: 'M_TOO_LARGE' });
  });
});

test('nine broken events and a good one: the good one is stored, the others are logged and counted (G17)', async () => {
  const { put, received, skipped, lines } = open();
  const broken = [
    null,
    17,
    'text',
    [],
    {},
    event('$2', { content: null }),
    event('no-sigil'),
    event('$4', { sender: 'alice' }),
    event('$5', { origin_server_ts: 'now' }),
  ];

  const response = await put({ events: [...broken, event('$good')] });

  expect(response.statusCode).toBe(200);
  expect(received.map(({ eventId }) => eventId)).toEqual(['$good']);
  expect(skipped).toHaveLength(9);
  expect(lines.filter((line) => line.includes('was skipped'))).toHaveLength(9);
});

test('an event is handed on as the homeserver sent it, with its age', async () => {
  const { put, received } = open();
  const sent = event('$1', { content: { msgtype: 'm.text', body: 'x', 'odd.key': [1, { deep: true }] } });

  await put({ events: [sent] });

  expect(received).toEqual([
    {
      eventId: '$1',
      roomId: '!r:oracle.local',
      sender: '@alice:oracle.local',
      type: 'm.room.message',
      event: sent,
      ageMs: 12,
      source: 'push',
    },
  ]);
});

test('every transaction that was captured from a real Synapse is taken', async () => {
  const { put, skipped } = open();
  const bodies = Object.values(fixtures as Record<string, unknown>)
    .flatMap((value) => (Array.isArray(value) ? value : []))
    .filter(
      (entry): entry is { path: string; body: object } =>
        typeof entry === 'object' && entry !== null && String((entry as { path?: unknown }).path).includes('/transactions/'),
    );

  const statuses = await Promise.all(bodies.map(async ({ path, body }) => (await put(body, { url: path })).statusCode));

  expect(statuses.length).toBeGreaterThan(20);
  expect(new Set(statuses)).toEqual(new Set([200]));
  expect(skipped).toEqual([]);
});

test('the path of old homeservers works', async () => {
  const { put, received } = open();

  expect((await put({ events: [event('$1')] }, { url: '/transactions/7' })).statusCode).toBe(200);
  expect(received).toHaveLength(1);
});

test('a ping is answered and its id handed on', async () => {
  const { app, pings } = open();
  const headers = { authorization: 'Bearer hs-secret', 'content-type': 'application/json' };

  const answers = [
    await app.inject({ method: 'POST', url: '/_matrix/app/v1/ping', headers, payload: '{"transaction_id":"abc"}' }),
    await app.inject({ method: 'POST', url: '/_matrix/app/v1/ping', headers, payload: '{"transaction_id":null}' }),
  ];

  expect(answers.map((answer) => answer.json())).toEqual([{}, {}]);
  expect(pings).toEqual(['abc', null]);
});

test.each([
  ['GET', '/', 'M_UNRECOGNIZED'],
  ['GET', '/_matrix/app/v1/transactions/1', 'M_UNRECOGNIZED'],
  ['POST', '/_matrix/app/v1/thirdparty/protocol/x', 'M_UNRECOGNIZED'],
  ['GET', '/_matrix/app/v1/users/%40oracle_new%3Aoracle.local', 'M_NOT_FOUND'],
  ['GET', '/_matrix/app/v1/rooms/%23x%3Aoracle.local', 'M_NOT_FOUND'],
] as const)('%s %s is a 404 with JSON', async (method, url, errcode) => {
  const response = await open().app.inject({ method, url });

  expect(response.statusCode).toBe(404);
  expect(response.json()).toMatchObject({ errcode });
});

test('no log line holds the token or the content (G12)', async () => {
  const { put, lines } = open({ receive: () => Promise.reject(new Error('broken')) });

  await put({
    events: [event('$1', { content: { msgtype: 'm.text', body: 'private words' } }), event('bad', { content: { body: 'private words' } })],
  });
  await put({ events: [] }, { token: 'guess-of-a-token' });

  expect(lines.length).toBeGreaterThan(1);
  expect(lines.join('')).not.toMatch(/private words|hs-secret|guess-of-a-token/);
});

test('every transaction is counted with the status it was answered with, not only the good ones', async () => {
  const good = open();
  const full = open({ receive: () => Promise.reject(new StorageError('full')) });

  await good.put({ events: [event('$1')] });
  await good.put({ events: [] });
  await good.put('no json');
  await good.put({ events: [] }, { token: 'guess' });
  await good.app.inject({ method: 'POST', url: '/_matrix/app/v1/ping', headers: { authorization: 'Bearer hs-secret' }, payload: {} });
  await full.put({ events: [event('$1')] });

  expect(good.answered.map(([status]) => status)).toEqual([200, 200, 400, 403]);
  expect(full.answered.map(([status]) => status)).toEqual([503]);
  for (const [, durationMs] of good.answered) expect(durationMs).toBeGreaterThan(0);
});
