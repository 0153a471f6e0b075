/** The suite on both implementations, and what only the client over HTTP can show. */
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterEach, expect, test } from 'vitest';
import { connectMatrix } from '../../appservice/client.ts';
import type { MatrixConnection, MatrixError } from '../../appservice/matrix-api.ts';
import { systemClock } from '../../src/system-clock.ts';
import { createFakeHomeserver } from '../fakes/fake-homeserver.ts';
import { describeMatrixApi } from './matrix-api-contract.ts';

const open: (() => Promise<unknown>)[] = [];
afterEach(async () => {
  for (const close of open.splice(0).reverse()) await close();
});

describeMatrixApi('the fake', async () => {
  const homeserver = createFakeHomeserver({ clock: systemClock });
  return { homeserver, connection: homeserver.connection() };
});
describeMatrixApi('the client over HTTP', async () => {
  const homeserver = createFakeHomeserver({ clock: systemClock });
  const server = await homeserver.listen();
  const connection = await connectMatrix({ baseUrl: `${server.baseUrl}/`, asToken: 'as-token', clock: systemClock });
  open.push(server.close, connection.close);
  return { homeserver, connection };
});

async function connectTo(answer: (response: import('node:http').ServerResponse) => void): Promise<MatrixConnection> {
  const server = createServer((_request, response) => answer(response));
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const connection = await connectMatrix({
    baseUrl: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    asToken: 't',
    clock: systemClock,
  });
  open.push(async () => {
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
  }, connection.close);
  return connection;
}
const failureOf = (work: Promise<unknown>) =>
  work.then(
    () => expect.fail('should have failed'),
    (error: unknown) => error as MatrixError,
  );

test('a refused connection certainly had no effect', async () => {
  const connection = await connectMatrix({ baseUrl: 'http://127.0.0.1:1', asToken: 't', clock: systemClock });
  open.push(connection.close);

  expect(await failureOf(connection.bare.request('POST', '/x'))).toMatchObject({ errcode: 'UNREACHABLE', status: 0, certain: true });
});

test('a server that never answers is left at the time limit (G14)', async () => {
  const connection = await connectTo(() => {});

  expect(await failureOf(connection.bare.request('GET', '/x', { timeoutMs: 50 }))).toMatchObject({ errcode: 'TIMEOUT', certain: false });
});

test('an answer that trickles is left at the same time limit (G14)', async () => {
  const connection = await connectTo((response) => {
    response.writeHead(200);
    response.write('{');
  });

  expect(await failureOf(connection.bare.request('GET', '/x', { timeoutMs: 50 }))).toMatchObject({ errcode: 'TIMEOUT' });
});

test('an endless answer is cut at the size limit (G14)', async () => {
  const chunk = Buffer.alloc(1024 * 1024, 0x20);
  const connection = await connectTo((response) => {
    response.writeHead(200);
    const more = () => {
      while (response.write(chunk)) if (response.destroyed) return;
    };
    response.on('drain', more);
    more();
  });

  expect(await failureOf(connection.bare.request('GET', '/x'))).toMatchObject({ errcode: 'TOO_LARGE' });
});

test.each(['', 'null', '"text"', '17', '{"half":'])('a success without a JSON object is a failure: %j', async (body) => {
  const connection = await connectTo((response) => response.end(body));

  expect(await failureOf(connection.bare.request('GET', '/x'))).toMatchObject({ errcode: 'NOT_JSON', status: 200, certain: false });
});

test('a server that asks for a very long pause gets ten minutes', async () => {
  const connection = await connectTo((response) => {
    response.writeHead(429, { 'retry-after': '86400' });
    response.end('{"errcode":"M_LIMIT_EXCEEDED"}');
  });

  expect(await failureOf(connection.bare.request('GET', '/x'))).toMatchObject({ retryAfterMs: 600_000 });
});

test('the text of an error holds neither token nor the words of the server (G12)', async () => {
  const connection = await connectTo((response) => {
    response.writeHead(403);
    response.end(JSON.stringify({ errcode: 'M_FORBIDDEN', error: 'secret words' }));
  });

  const error = await failureOf(connection.bare.request('GET', '/x'));

  expect(`${error.message} ${error.stack}`).not.toMatch(/secret words|Bearer/);
});

test('a kept connection that the homeserver closes is told, one that we close is not', async () => {
  let server: import('node:net').Socket | null = null;
  const connection = await connectTo((response) => {
    server = response.socket;
    response.end('{}');
  });
  let told = 0;
  connection.onClosed?.(() => {
    told += 1;
  });
  await connection.bare.request('GET', '/x');
  await connection.bare.request('GET', '/x', { timeoutMs: 1 }).catch(() => undefined);
  const before = told;
  (server as unknown as import('node:net').Socket).destroy();
  await expect.poll(() => told).toBeGreaterThan(before);
  await connection.bare.request('GET', '/x');
  const open = told;
  await connection.close();

  expect(before).toBe(0);
  expect(told).toBe(open);
});
