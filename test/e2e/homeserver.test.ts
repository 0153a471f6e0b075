/**
 * The homeserver of the demo and of all other end-to-end tests: it starts, two people talk on it, and it leaves nothing behind.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { createServer as createHttpServer } from 'node:http';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text as readText } from 'node:stream/consumers';
import { setTimeout as wait } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { buildRegistration } from '../../appservice/registration.ts';
import { defaultCacheDir, getSynapse } from '../../synapse-dev/homeserver/get-synapse.ts';
import { MatrixError, matrixRequest } from '../../synapse-dev/homeserver/matrix-request.ts';
import { findFreePort, isPortFree } from '../../synapse-dev/homeserver/ports.ts';
import { SetupError } from '../../synapse-dev/homeserver/setup-problem.ts';
import { getAndStartSynapse, type Homeserver } from '../../synapse-dev/homeserver/start-synapse.ts';

let dir: string;
let homeserver: Homeserver;
let appservicePort: number;
const registrationFor = (port: number) =>
  buildRegistration({ url: `http://127.0.0.1:${port}`, asToken: 'as-token', hsToken: 'hs-token', serverName: 'oracle.local' });

beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), 'matrix-oracle-homeserver-'));
  appservicePort = await findFreePort();
  homeserver = await getAndStartSynapse({
    dir: join(dir, 'main'),
    registrations: [registrationFor(appservicePort)],
    onProgress: console.log,
  });
});
afterAll(async () => {
  await homeserver?.close();
  await rm(dir, { recursive: true, force: true });
});

test('two people talk, and edits are seen as versions of one message', async () => {
  const [alice, bob] = await Promise.all([homeserver.createUser('alice'), homeserver.createUser('bob')]);
  const roomId = await alice.createDirectRoom(bob.userId);
  const invite = await bob.waitForInvite();
  await bob.join(invite.roomId);
  const watch = await alice.watchRoom(roomId);
  const prompt = await alice.sendText(roomId, 'hello');
  const reply = { 'm.relates_to': { 'm.in_reply_to': { event_id: prompt } } };
  const answerId = await bob.send(roomId, { msgtype: 'm.text', body: 'He', 'org.matrix.msc4357.live': {}, ...reply });
  for (const [text, live] of [
    ['Hello', { 'org.matrix.msc4357.live': {} }],
    ['Hello Alice', {}],
  ] as const) {
    await wait(5);
    const edit = { 'm.new_content': { msgtype: 'm.text', body: text }, 'm.relates_to': { rel_type: 'm.replace', event_id: answerId } };
    await bob.send(roomId, { msgtype: 'm.text', body: `* ${text}`, ...edit, ...live });
  }

  const [answer] = await watch.waitForAnswerTo(prompt);

  expect(invite).toMatchObject({ roomId, sender: alice.userId });
  expect(answer?.versions.map(({ text }) => text)).toEqual(['He', 'Hello', 'Hello Alice']);
  expect(answer).toMatchObject({ text: 'Hello Alice', sender: bob.userId, live: false });
  const original = await alice.getEvent(roomId, answerId);
  expect(original.content['body']).toBe('He');
  expect((await alice.relations(roomId, answerId)).length).toBe(2);
  alice.close();
  bob.close();
});

test('a watch misses no event of a limited timeline and lives through a restart', async () => {
  const [carol, dave] = await Promise.all([homeserver.createUser('carol'), homeserver.createUser('dave')]);
  const roomId = await carol.createRoom({ preset: 'public_chat' });
  await dave.join(roomId);
  const watch = await carol.watchRoom(roomId);
  await homeserver.restart();
  await Promise.all(Array.from({ length: 130 }, (_, index) => dave.sendText(roomId, `message ${index}`)));

  const texts = await watch.waitUntil(() => {
    const seen = watch.messages(dave.userId).map(({ text }) => text);
    return seen.length === 130 && seen;
  });

  expect(new Set(texts).size).toBe(130);
  expect(texts).toEqual(
    (await carol.history(roomId)).filter(({ type }) => type === 'm.room.message').map(({ content }) => content['body']),
  );
  carol.close();
  dave.close();
});

test('an error of the homeserver is thrown with status and errcode', async () => {
  const erin = await homeserver.createUser('erin');

  const failure = erin.join('!nowhere:oracle.local');

  await expect(failure).rejects.toBeInstanceOf(MatrixError);
  await expect(failure).rejects.toMatchObject({ errcode: expect.stringMatching(/^M_/u) });
  await expect(homeserver.registerUser({ username: 'erin', password: 'x' })).rejects.toMatchObject({
    status: 400,
    errcode: 'M_USER_IN_USE',
  });
  await expect(homeserver.login({ username: 'erin', password: 'wrong' })).rejects.toMatchObject({ status: 403, errcode: 'M_FORBIDDEN' });
});

test('the registration makes the oracle a user that is pushed to and may sync as its own device (G1)', async () => {
  const heard: { path: string; body: string; authorization: string | undefined }[] = [];
  const oracle = createHttpServer(async (request, response) => {
    heard.push({ path: request.url ?? '', body: await readText(request), authorization: request.headers.authorization });
    response.setHeader('content-type', 'application/json').end('{}');
  }).listen(appservicePort, '127.0.0.1');
  const asOracle = (method: string, path: string, body?: unknown) =>
    matrixRequest<Record<string, unknown>>(homeserver.baseUrl, method, `/_matrix/client/v3${path}`, {
      accessToken: 'as-token',
      query:
        path === '/register' ? {} : { user_id: '@oracle:oracle.local', ...(path.startsWith('/devices') ? {} : { device_id: 'ORACLE' }) },
      ...(body === undefined ? {} : { body }),
    });
  await asOracle('POST', '/register', { type: 'm.login.application_service', username: 'oracle', inhibit_login: true });
  await asOracle('PUT', '/devices/ORACLE', {});
  const heidi = await homeserver.createUser('heidi');

  const roomId = await heidi.createDirectRoom('@oracle:oracle.local');

  await expect
    .poll(() => heard.some(({ path, body }) => path.includes('/transactions/') && body.includes(roomId)), { timeout: 5_000 })
    .toBe(true);
  expect(new Set(heard.map(({ authorization }) => authorization))).toEqual(new Set(['Bearer hs-token']));
  expect(await asOracle('GET', '/account/whoami')).toMatchObject({ user_id: '@oracle:oracle.local', device_id: 'ORACLE' });
  expect(await asOracle('GET', '/sync')).toMatchObject({ rooms: { invite: { [roomId]: expect.anything() } } });
  oracle.close();
  oracle.closeAllConnections();
});

test('the registration is known: its token is the account of the oracle', async () => {
  const response = await fetch(`${homeserver.baseUrl}/_matrix/client/v3/account/whoami`, { headers: { authorization: 'Bearer as-token' } });

  expect(await response.json()).toMatchObject({ user_id: '@_oracle_as:oracle.local' });
});

describe('nothing is left', () => {
  test('stop frees the port and leaves no process, and users are still there after a start', async () => {
    const frank = await homeserver.createUser('frank');
    const pid = homeserver.pid ?? 0;

    const exit = await homeserver.stop();

    expect(exit).toEqual({ code: 0, signal: null });
    expect(homeserver.pid).toBeUndefined();
    expect(await isPortFree(homeserver.port)).toBe(true);
    expect(isRunning(pid)).toBe(false);
    await homeserver.start();
    expect(await frank.joinedRooms()).toEqual([]);
  });

  test('kill and start keep port and database', async () => {
    const grace = await homeserver.createUser('grace');
    const { baseUrl } = homeserver;

    const exit = await homeserver.kill();
    await homeserver.start();

    expect(exit).toEqual({ code: null, signal: 'SIGKILL' });
    expect(homeserver.baseUrl).toBe(baseUrl);
    expect(await grace.joinedRooms()).toEqual([]);
  });

  test('a parent that is killed takes its homeserver with it', async () => {
    const script = `
      const { getAndStartSynapse } = await import(${JSON.stringify(import.meta.resolve('../../synapse-dev/homeserver/start-synapse.ts'))});
      const homeserver = await getAndStartSynapse({ dir: ${JSON.stringify(join(dir, 'orphan'))} });
      console.log(JSON.stringify({ pid: homeserver.pid, port: homeserver.port }));`;
    const parent = spawn(process.execPath, ['--input-type=module', '-e', script], { stdio: ['ignore', 'pipe', 'inherit'] });
    const [line] = (await once(parent.stdout, 'data')) as [Buffer];
    const { pid, port } = JSON.parse(line.toString()) as { pid: number; port: number };
    expect(isRunning(pid)).toBe(true);

    parent.kill('SIGKILL');

    await expect.poll(() => isRunning(pid), { timeout: 5_000 }).toBe(false);
    await expect.poll(() => isPortFree(port), { timeout: 5_000 }).toBe(true);
  });
});

test('a taken port is named', async () => {
  const squatter = createServer().listen(0, '127.0.0.1');
  await once(squatter, 'listening');
  const { port } = squatter.address() as { port: number };

  const failure = await getAndStartSynapse({ dir: join(dir, 'taken'), port }).catch((error: unknown) => error);

  expect(failure).toBeInstanceOf(SetupError);
  expect((failure as SetupError).problem).toMatchObject({ code: 'PORT_TAKEN', message: expect.stringContaining(`Port ${port} is taken`) });
  squatter.close();
});

test('a homeserver that cannot start says why', async () => {
  const failure = await getAndStartSynapse({ dir: join(dir, 'bad'), serverName: 'not a server name' }).catch((error: unknown) => error);

  expect((failure as SetupError).problem).toMatchObject({ code: 'START_FAILED', message: expect.stringContaining('not a server name') });
});

test('what was installed is found again at once', async () => {
  const began = performance.now();
  const install = await getSynapse({ cacheDir: defaultCacheDir() });

  expect(install.ok).toBe(true);
  expect(performance.now() - began).toBeLessThan(50);
});

function isRunning(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}
