import { readFileSync } from 'node:fs';
import { createServer as createPlainServer, type RequestListener, type ServerResponse } from 'node:http';
import { createServer, type Server } from 'node:https';
import type { AddressInfo } from 'node:net';
import { gzipSync } from 'node:zlib';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { createGuardedFetch, type GuardedFetch, type GuardedFetchOptions } from '../../../src/net/guarded-fetch.ts';
import { type FakeClock, fakeClock } from '../../fakes/fake-clock.ts';

const pem = (name: string): string => readFileSync(new URL(`../../fixtures/tls/${name}`, import.meta.url), 'utf8');
const CERT = pem('service.cert.pem');

let server: Server;
let port = 0;
let answer: RequestListener;
let requests = 0;
let clock: FakeClock;
const made: GuardedFetch[] = [];
/** Every name leads to this machine, which is let through. */
function create(options: Partial<GuardedFetchOptions> = {}): GuardedFetch {
  const guarded = createGuardedFetch({
    clock,
    ca: CERT,
    resolve: async () => ['127.0.0.1'],
    allow: (address, at) => address === '127.0.0.1' && at === port,
    ...options,
  });
  made.push(guarded);
  return guarded;
}
const url = (path = '/', host = 'service.test'): string => `https://${host}:${port}${path}`;

beforeEach(async () => {
  requests = 0;
  clock = fakeClock();
  answer = (_request, response) => response.end('hello');
  server = createServer({ key: pem('service.key.pem'), cert: CERT }, (request, response) => {
    requests += 1;
    answer(request, response);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  port = (server.address() as AddressInfo).port;
});
afterEach(async () => {
  await Promise.all(made.splice(0).map((guarded) => guarded.close()));
  server.closeAllConnections();
  await new Promise((resolve) => server.close(resolve));
});

test('an answer comes with its status, and nothing is kept: no timer, no connection', async () => {
  answer = (_request, response) => response.writeHead(404).end('none');
  const guarded = create();

  expect(await guarded.get(url())).toEqual({ ok: true, value: { status: 404, text: 'none' } });
  expect(clock.pending()).toBe(0);
  await expect.poll(() => new Promise((resolve) => server.getConnections((_, count) => resolve(count)))).toBe(0);
});

test('a request carries no cookie and no credential, names its host, and asks for no compression', async () => {
  let seen: Record<string, unknown> = {};
  answer = ({ headers, method, url: path }, response) => {
    seen = { ...headers, method, path };
    response.setHeader('set-cookie', 'a=b').end();
  };
  const guarded = create();

  await guarded.get(url('/a?b=c#d'));
  await guarded.post(url('/p'), '{}');

  expect(seen).toMatchObject({ method: 'POST', path: '/p', host: `service.test:${port}`, 'accept-encoding': 'identity' });
  expect(Object.keys(seen)).not.toContain('cookie');
  expect(Object.keys(seen)).not.toContain('authorization');
});

test.each([
  ['http', 'http://service.test/'],
  ['a file', 'file:///etc/passwd'],
  ['data', 'data:,x'],
  ['credentials', 'https://user:secret@service.test/'],
  ['no host', 'https:///'],
  ['no address', 'service.test'],
  ['an endless one', `https://service.test/${'a'.repeat(3_000)}`],
  ['nothing', ''],
])('%s is no address for a stranger', async (_name, text) => {
  expect(await create().get(text)).toEqual({ ok: false, error: 'bad_url' });
});

test.each([
  'https://127.0.0.1/',
  'https://127.1/',
  'https://2130706433/',
  'https://0x7f.0.0.1/',
  'https://017700000001/',
  'https://[::1]/',
  'https://[::ffff:127.0.0.1]/',
  'https://[64:ff9b::7f00:1]/',
  'https://[2002:7f00:1::]/',
  'https://[fe80::1]/',
  'https://169.254.169.254/latest/meta-data',
  'https://0.0.0.0/',
  'https://１２７.0.0.1/',
])('%s, an address that is not public, is refused', async (text) => {
  expect(await create({ allow: () => false }).get(text)).toEqual({ ok: false, error: 'refused_address' });
});

test.each([
  ['loopback', ['127.0.0.1']],
  ['a private one', ['10.1.2.3']],
  ['a public one and a private one', ['8.8.8.8', '10.1.2.3']],
  ['IPv4-mapped loopback', ['::ffff:127.0.0.1']],
  ['the metadata service', ['169.254.169.254']],
  ['what is no address', ['localhost']],
  ['more than anybody has', Array.from({ length: 17 }, () => '8.8.8.8')],
])('a name that leads to %s is refused', async (_name, addresses) => {
  const guarded = create({ allow: () => false, resolve: async () => addresses });

  expect(await guarded.get('https://service.test/')).toEqual({ ok: false, error: 'refused_address' });
});

test('another port than 443 is refused, also at a public address', async () => {
  const guarded = create({ allow: () => false, resolve: async () => ['8.8.8.8'] });

  expect(await guarded.get('https://service.test:8443/')).toEqual({ ok: false, error: 'refused_address' });
});

test('a name that changes its mind is looked up once: the address that was judged is the one connected to', async () => {
  const answers = [['127.0.0.1'], ['127.0.0.2']];
  const asked: string[] = [];
  const guarded = create({
    resolve: async (name) => {
      asked.push(name);
      return answers.shift() ?? [];
    },
  });

  const first = await guarded.get(url());
  const second = await guarded.get(url());

  expect(first).toMatchObject({ ok: true });
  expect(second).toEqual({ ok: false, error: 'refused_address' });
  expect(asked).toEqual(['service.test', 'service.test']);
  expect(requests).toBe(1);
});

test('a judge that changes its mind is asked again about the connected address', async () => {
  let asked = 0;
  const guarded = create({
    allow: () => {
      asked += 1;
      return asked === 1;
    },
  });

  expect(await guarded.get(url())).toEqual({ ok: false, error: 'refused_address' });
  expect(requests).toBe(0);
});

test('a name without an address and one that cannot be looked up are unreachable', async () => {
  expect(await create({ resolve: async () => [] }).get(url())).toEqual({ ok: false, error: 'unreachable' });
  expect(await create({ resolve: () => Promise.reject(new Error('no')) }).get(url())).toEqual({ ok: false, error: 'unreachable' });
});

test('a certificate for another name, and one nobody vouches for, are refused whatever the environment says', async () => {
  expect(await create().get(url('/', 'other.test'))).toEqual({ ok: false, error: 'unreachable' });
  const guarded = createGuardedFetch({ clock, resolve: async () => ['127.0.0.1'], allow: () => true });
  made.push(guarded);
  process.env['NODE_TLS_REJECT_UNAUTHORIZED'] = '0';
  try {
    expect(await guarded.get(url())).toEqual({ ok: false, error: 'unreachable' });
  } finally {
    delete process.env['NODE_TLS_REJECT_UNAUTHORIZED'];
  }
  expect(requests).toBe(0);
});

test.each([301, 302, 303, 307, 308, 304])('a redirect (%i) is not followed', async (status) => {
  answer = (_request, response) => response.writeHead(status, { location: url('/elsewhere') }).end('x');

  expect(await create().get(url())).toEqual({ ok: false, error: 'redirect' });
  expect(requests).toBe(1);
});

test('a body at the limit passes, one byte more does not, with and without its length said', async () => {
  const guarded = create();
  const results: unknown[] = [];
  for (const [bytes, chunked] of [
    [1_000, false],
    [1_001, false],
    [1_000, true],
    [1_001, true],
  ] as const) {
    answer = (_request, response) => {
      if (!chunked) response.setHeader('content-length', bytes);
      response.write('x'.repeat(bytes - 1));
      response.end('x');
    };
    const result = await guarded.get(url(), { maxBytes: 1_000 });
    results.push(result.ok ? result.value.text.length : result.error);
  }

  expect(results).toEqual([1_000, 'too_large', 1_000, 'too_large']);
});

test('a body without end is cut at 64 kB (G14)', async () => {
  let sent = 0;
  answer = (_request, response) => {
    const more = () => {
      while (!response.destroyed && response.write('x'.repeat(16_384))) sent += 16_384;
    };
    response.on('drain', more);
    more();
  };

  expect(await create().get(url())).toEqual({ ok: false, error: 'too_large' });
  await expect.poll(() => new Promise((resolve) => server.getConnections((_, count) => resolve(count)))).toBe(0);
  expect(sent).toBeLessThan(64 * 1024 * 1024);
});

test('a body that would unpack to much more is not unpacked', async () => {
  const bomb = gzipSync(Buffer.alloc(20 * 1024 * 1024));
  answer = (_request, response) => response.writeHead(200, { 'content-encoding': 'gzip' }).end(bomb);

  expect(await create().get(url())).toEqual({ ok: false, error: 'compressed' });
});

test.each<[string, RequestListener]>([
  ['headers', () => undefined],
  ['the end of the body', (_request, response) => void response.write('{')],
])('a server that keeps %s to itself is left after 3 s', async (_name, listener) => {
  const arrived = Promise.withResolvers<void>();
  answer = (request, response) => {
    listener(request, response);
    arrived.resolve();
  };
  const call = create().get(url());
  await arrived.promise;

  await clock.advanceAsync(2_999);
  const early = await Promise.race([call, Promise.resolve('waiting')]);
  await clock.advanceAsync(1);

  expect(early).toBe('waiting');
  expect(await call).toEqual({ ok: false, error: 'timeout' });
  expect(clock.pending()).toBe(0);
});

test('a name whose look-up never ends is left after its time', async () => {
  const call = create({ resolve: () => new Promise(() => undefined) }).get(url(), { timeoutMs: 100 });
  await clock.advanceAsync(100);

  expect(await call).toEqual({ ok: false, error: 'timeout' });
});

test('a cut answer, a server that speaks no HTTP and endless headers are unreachable', async () => {
  const guarded = create();
  const results: unknown[] = [];
  for (const act of [
    (response: ServerResponse) => {
      response.writeHead(200, { 'content-length': 100 });
      response.write('x');
      setImmediate(() => response.destroy());
    },
    (response: ServerResponse) => void response.socket?.end('220 mail ready\r\n'),
    (response: ServerResponse) => void response.socket?.end(`HTTP/1.1 200 OK\r\nx: ${'x'.repeat(100_000)}\r\n\r\n`),
  ]) {
    answer = (_request, response) => act(response);
    results.push(await guarded.get(url()));
  }

  expect(results).toEqual(Array.from({ length: 3 }, () => ({ ok: false, error: 'unreachable' })));
});

test('more at once than are served are told so', async () => {
  answer = () => undefined;
  const guarded = create();
  const calls = Array.from({ length: 64 }, () => guarded.get(url()));

  expect(await guarded.get(url())).toEqual({ ok: false, error: 'busy' });
  await guarded.close();
  expect(new Set((await Promise.all(calls)).map((result) => (result.ok ? 'ok' : result.error)))).toEqual(new Set(['unreachable']));
  expect(clock.pending()).toBe(0);
});

test('after the close nothing is asked', async () => {
  const guarded = create();
  await guarded.close();

  expect(await guarded.get(url())).toEqual({ ok: false, error: 'unreachable' });
});

test("an operator's address may be http, private and on any port, and its connection is kept; the other limits hold", async () => {
  let connections = 0;
  let body = '';
  const plain = createPlainServer((request, response) => {
    if (request.url === '/redirect') return void response.writeHead(302, { location: '/' }).end();
    if (request.url === '/large') return void response.end('x'.repeat(70_000));
    request.on('data', (chunk: Buffer) => {
      body += chunk.toString();
    });
    request.on('end', () => response.end(request.headers['content-type']));
  });
  plain.on('connection', () => {
    connections += 1;
  });
  await new Promise<void>((resolve) => plain.listen(0, '127.0.0.1', resolve));
  const at = `http://localhost:${(plain.address() as AddressInfo).port}`;
  const guarded = create({ allow: () => false });
  const operator = { chosenBy: 'operator' } as const;

  const results = [await guarded.post(at, '{"a":1}', operator), await guarded.post(at, '{}', operator)];
  const refused = [await guarded.get(`${at}/redirect`, operator), await guarded.get(`${at}/large`, operator), await guarded.get(at)];
  await guarded.close();
  plain.closeAllConnections();
  await new Promise((resolve) => plain.close(resolve));

  expect(results.map((result) => result.ok && result.value.text)).toEqual(['application/json', 'application/json']);
  expect(body).toBe('{"a":1}{}');
  expect(refused.map((result) => !result.ok && result.error)).toEqual(['redirect', 'too_large', 'bad_url']);
  expect(connections).toBeLessThanOrEqual(2);
});
