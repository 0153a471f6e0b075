import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterEach, expect, test } from 'vitest';
import { checkModel, checkPublicUrl, isListening, readHealthPart } from '../../../../../src/app/cli/doctor/http-checks.ts';
import { Secret } from '../../../../../src/config/secret.ts';

let server: Server | undefined;
afterEach(() => {
  server?.closeAllConnections();
  server?.close();
  server = undefined;
});

const KEY = 'sk-do-not-print-me';
interface Answer {
  readonly status: number;
  readonly body: string;
}
async function serve(answer: Answer, seen: (string | undefined)[] = []): Promise<{ url: string; port: number }> {
  server = createServer((request, response) => {
    seen.push(request.headers.authorization);
    response.writeHead(answer.status, { location: 'http://127.0.0.1:1/' }).end(answer.body);
  });
  await new Promise<void>((resolve) => server?.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  return { url: `http://127.0.0.1:${port}`, port };
}
const model = (openaiBaseUrl: string) => checkModel({ openaiBaseUrl, openaiApiKey: new Secret(KEY), modelMain: 'small' });
const list = (...ids: string[]) => JSON.stringify({ object: 'list', data: ids.map((id) => ({ id })) });

test('what the running oracle says of a part is read, and nothing that others answer in its place', async () => {
  const parts = [{ name: 'encryption', ok: false, detail: 'no\u001b[31m keys' }];
  const { port } = await serve({ status: 200, body: JSON.stringify({ parts }) });
  const at = (name: string, where = port) => readHealthPart({ host: '0.0.0.0', port: where }, name);

  expect(await at('encryption')).toEqual({ name: 'encryption', ok: false, detail: 'no?[31m keys' });
  expect(await at('absent')).toBeNull();
  expect(await at('encryption', 1)).toBeNull();
  server?.close();
  const other = await serve({ status: 200, body: '<html>' });
  expect(await at('encryption', other.port)).toBeNull();
});

test.each<[string, Answer, string, string]>([
  ['the model', { status: 200, body: list('large', 'small') }, 'ok', 'small at'],
  ['other models', { status: 200, body: list('large') }, 'failed', 'such as large'],
  ['no model', { status: 200, body: list() }, 'failed', 'Set MODEL_MAIN'],
  ['a page', { status: 200, body: '<html>' }, 'failed', 'OPENAI_BASE_URL'],
  ['a refusal', { status: 401, body: '{}' }, 'failed', 'OPENAI_API_KEY'],
  ['no list', { status: 404, body: '' }, 'skipped', 'cannot be checked'],
  ['an error', { status: 500, body: '' }, 'failed', 'HTTP 500'],
  ['a redirect', { status: 302, body: '' }, 'failed', 'HTTP 302'],
])('a model server that answers with %s', async (_, answer, status, said) => {
  const seen: string[] = [];
  const { url } = await serve(answer, seen);

  const check = await model(url);

  expect(check.status).toBe(status);
  expect(JSON.stringify(check)).toContain(said);
  expect(JSON.stringify(check)).not.toContain(KEY);
  expect(seen).toEqual([`Bearer ${KEY}`]);
});

test('a model server that is not there, and one that never stops, are faults', async () => {
  const { url } = await serve({ status: 200, body: 'x'.repeat(9 * 1024 * 1024) });

  expect((await model(url)).status).toBe('failed');
  expect((await model('http://127.0.0.1:1/v1')).status).toBe('failed');
});

test('PUBLIC_URL: unset is a fault, a running oracle behind it is seen, another server is not the oracle', async () => {
  const { url, port } = await serve({ status: 200, body: '{"live":true}' });

  const unset = await checkPublicUrl({ publicUrl: undefined, host: '127.0.0.1', port });
  const good = await checkPublicUrl({ publicUrl: url, host: '0.0.0.0', port });
  const stopped = await checkPublicUrl({ publicUrl: url, host: '127.0.0.1', port: 1 });
  server?.removeAllListeners('request');
  server?.on('request', (_, response) => response.end('hello'));
  const other = await checkPublicUrl({ publicUrl: url, host: '127.0.0.1', port });

  expect([unset.status, good.status, stopped.status, other.status]).toEqual(['failed', 'ok', 'skipped', 'failed']);
});

test.each([
  ['http://oracle.internal:3000', 'warning'],
  ['http://127.0.0.1.example.org', 'warning'],
  ['http://localhost:3000', 'skipped'],
  ['http://[::1]:3000', 'skipped'],
  ['https://oracle.example.org', 'skipped'],
])('PUBLIC_URL %s, where browsers may offer no keys: %s', async (publicUrl, status) => {
  expect((await checkPublicUrl({ publicUrl, host: '127.0.0.1', port: 1 })).status).toBe(status);
});

test('a port without a listener is not listening', async () => {
  expect(await isListening('127.0.0.1', 1)).toBe(false);
});
