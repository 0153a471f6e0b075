/**
 * An operator's first hour on a real Synapse, command by command as processes: init, doctor (which must say the right thing at each step),
 * start, a conversation, a second start on the same folder, inbox, SIGTERM.
 */
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import Sqlite from 'better-sqlite3';
import { afterAll, beforeAll, expect, test, vi } from 'vitest';
import { type Registration, readRegistration } from '../../appservice/registration.ts';
import { dataPaths } from '../../src/app/data-paths.ts';
import { findFreePort, isPortFree } from '../../synapse-dev/homeserver/ports.ts';
import { getAndStartSynapse, type Homeserver } from '../../synapse-dev/homeserver/start-synapse.ts';
import { type ModelServer, startModelServer } from '../../synapse-dev/model/server.ts';
import { type CliFolder, type CliProcess, createCliFolder } from '../cli-folder.ts';

const cli: CliFolder = createCliFolder();
const SERVER_NAME = 'oracle.local';
let model: ModelServer;
let ports: { homeserver: number; appservice: number; sidecar: number; metrics: number };
let environment: Record<string, string>;
let homeserver: Homeserver | undefined;
let oracle: CliProcess | undefined;

beforeAll(async () => {
  model = await startModelServer();
  ports = {
    homeserver: await findFreePort(),
    appservice: await findFreePort(),
    sidecar: await findFreePort(),
    metrics: await findFreePort(),
  };
  environment = {
    PORT: String(ports.sidecar),
    METRICS_PORT: String(ports.metrics),
    PUBLIC_URL: `http://127.0.0.1:${ports.sidecar}`,
    UNSIGNED_USERS: `@*:${SERVER_NAME}`,
    RECONCILE_INTERVAL_S: '2',
  };
});
afterAll(async () => {
  oracle?.child.kill('SIGKILL');
  await oracle?.ended;
  await homeserver?.close();
  await model?.close();
  cli.remove();
});

/** `name → mark` of every line. */
async function doctor(): Promise<{ status: number | null; marks: Record<string, string>; text: string }> {
  const { status, stdout, stderr } = await cli.run(['doctor'], environment);
  const lines = [...stdout.matchAll(/^(?<mark>[✓✗!–]) (?<name>[^:]+): /gmu)];
  return { status, marks: Object.fromEntries(lines.map(({ groups }) => [groups?.['name'], groups?.['mark']])), text: stdout + stderr };
}

async function readWrittenRegistration(): Promise<Registration> {
  const read = readRegistration(await readFile(dataPaths(join(cli.dir, 'data')).registration, 'utf8'));
  if (!read.ok) throw new Error(read.error.faults.join());
  return read.value;
}

test('init writes what start takes', async () => {
  const result = await cli.run([
    ...['init', '--server-name', SERVER_NAME, '--homeserver', `http://127.0.0.1:${ports.homeserver}`],
    ...['--url', `http://127.0.0.1:${ports.appservice}`, '--model', 'demo', '--model-url', model.baseUrl],
  ]);

  expect(result).toMatchObject({ status: 0, stderr: '' });
});

test('doctor before there is a homeserver fails at that, and only at that', async () => {
  const { status, marks } = await doctor();

  expect(status).toBe(1);
  expect(marks).toEqual({
    config: '✓',
    plugins: '✓',
    homeserver: '✗',
    'key file': '✓',
    database: '✓',
    model: '✓',
    PUBLIC_URL: '–',
    Blocksync: '–',
    'signing key': '✓',
    access: '✓',
  });
});

test('doctor on a homeserver that does not know the registration says so, and start ends with the same reason', async () => {
  const install = { dir: join(cli.dir, 'homeserver'), port: ports.homeserver, serverName: SERVER_NAME, onProgress: console.log };
  homeserver = await getAndStartSynapse({ ...install, registrations: [] });

  const { marks, text } = await doctor();
  const start = await cli.run(['start'], environment);
  await homeserver.close();
  homeserver = await getAndStartSynapse({ ...install, dir: `${install.dir}-2`, registrations: [await readWrittenRegistration()] });

  expect(marks).toMatchObject({ homeserver: '✓', as_token: '✗' });
  expect(text).toContain('app_service_config_files');
  expect(start.status).toBe(1);
  expect(start.stderr).toContain('MATRIX_AS_TOKEN');
  expect(start.stderr).not.toContain('    at ');
});

test('doctor before the first start: the account is missing, the rest is fine', async () => {
  const { status, marks, text } = await doctor();

  expect(marks).toMatchObject({ homeserver: '✓', as_token: '✓', account: '✗', ping: '–', database: '✓' });
  expect(text).toContain('Synapse 1.');
  expect(status).toBe(1);
});

test('start becomes ready, and every check of doctor passes', async () => {
  oracle = cli.start(['start'], environment);
  await oracle.said('"msg":"ready"');

  const { status, marks, text } = await doctor();

  expect(marks, text).toEqual({
    config: '✓',
    plugins: '✓',
    homeserver: '✓',
    as_token: '✓',
    account: '✓',
    device: '✓',
    '/sync': '✓',
    ping: '✓',
    identity: '✓',
    'key device': '✓',
    keys: '✓',
    'key file': '✓',
    database: '✓',
    outbox: '✓',
    inbox: '✓',
    runs: '✓',
    size: '✓',
    model: '✓',
    PUBLIC_URL: '✓',
    Blocksync: '–',
    'signing key': '✓',
    access: '✓',
  });
  expect(status).toBe(0);
});

test('somebody who invites it gets an answer', async () => {
  if (homeserver === undefined) throw new Error('no homeserver');
  model.enqueue({ kind: 'text', text: 'Good morning to you.' });
  const alice = await homeserver.createUser('alice');
  const room = await alice.createDirectRoom(`@oracle:${SERVER_NAME}`);
  const watch = await alice.watchRoom(room);
  const prompt = await alice.sendText(room, 'good morning');

  const answer = await watch.waitForAnswerTo(prompt, 60_000);

  expect(answer.map((message) => message.text).join('')).toBe('Good morning to you.');
  alice.close();
});

test('a second start on the same data folder is refused with one sentence (G2)', async () => {
  const result = await cli.run(['start'], { ...environment, PORT: '0', METRICS_PORT: '0', APPSERVICE_PORT: '0' });

  expect(result.status).toBe(1);
  expect(result.stderr).toContain('another matrix-oracle uses');
  expect(result.stderr).not.toContain('    at ');
});

test('inbox list names a dead event, and the running oracle takes a requeued one', async () => {
  const database = new Sqlite(dataPaths(join(cli.dir, 'data')).database, { timeout: 5_000 });
  const event = {
    event_id: '$given-up',
    room_id: '!nowhere',
    sender: '@a:oracle.local',
    type: 'm.sticker',
    content: {},
    origin_server_ts: 1,
  };
  database
    .prepare(
      `INSERT INTO inbox (ord, event_id, room_id, sender, type, source, event, received_at, state, attempts, error)
       VALUES (1, '$given-up', '!nowhere', '@a:oracle.local', 'm.sticker', 'push', ?, 1, 'dead', 5, 'INTERNAL')`,
    )
    .run(JSON.stringify(event));

  const listed = await cli.run(['inbox', 'list'], environment);
  const requeued = await cli.run(['inbox', 'requeue', '$given-up'], environment);

  expect(listed.stdout).toContain('$given-up');
  expect(requeued.status).toBe(0);
  const outcome = () => database.prepare('SELECT outcome FROM control').get();
  await vi.waitFor(() => expect(outcome()).toEqual({ outcome: 'requeued' }), { timeout: 10_000 });
  await vi.waitFor(async () => expect((await cli.run(['inbox', 'list'], environment)).stdout).toBe('No dead events.\n'), {
    timeout: 10_000,
  });
  database.close();
});

/** Of `crypto status`, which finds nothing wrong. */
async function device(): Promise<{ id: string | undefined; text: string }> {
  const { status, stdout, stderr } = await cli.run(['crypto', 'status'], environment);
  expect([status, stderr, stdout.includes('✗')], stdout).toEqual([0, '', false]);
  return { id: /^Device +(?<id>\S+), signed by the identity$/mu.exec(stdout)?.groups?.['id'], text: stdout };
}

test('crypto status beside the running oracle shows its signed device and that keys arrive; beginning anew is refused', async () => {
  const { id, text } = await device();
  const refused = await cli.run(['crypto', 'new-device'], environment);
  const exported = await cli.run(['crypto', 'export', 'identity.json'], environment);

  expect(id).toMatch(/^ORACLE_[A-Z0-9]{6}$/u);
  expect(text).toMatch(/^One-time keys +\d+ left/mu);
  expect(text).toContain('runs, and keys arrive');
  expect(refused).toMatchObject({ status: 1, stdout: '' });
  expect(exported).toMatchObject({ status: 0, stderr: '' });
});

test('metrics tell of the key store, and health of encryption', async () => {
  const metrics = await (await fetch(`http://127.0.0.1:${ports.metrics}/metrics`)).text();
  const health = (await (await fetch(`http://127.0.0.1:${ports.sidecar}/health`)).json()) as { parts: object[] };

  expect(metrics).toMatch(/^matrix_oracle_crypto_one_time_keys [1-9]\d*$/mu);
  expect(metrics).toMatch(/^matrix_oracle_crypto_store_bytes [1-9]\d*$/mu);
  expect(metrics).toContain('matrix_oracle_crypto_missing_keys 0');
  expect(health.parts).toContainEqual({ name: 'encryption', ok: true });
});

test('SIGTERM ends it with status 0, within the drain, and frees its ports', async () => {
  const from = performance.now();
  oracle?.child.kill('SIGTERM');
  const result = await oracle?.ended;

  expect(result?.status).toBe(0);
  expect(performance.now() - from).toBeLessThan(12_000);
  expect(result?.stdout).toContain('"msg":"stopped"');
  for (const port of [ports.appservice, ports.sidecar, ports.metrics]) expect(await isPortFree(port)).toBe(true);
});

test('no line of its log holds a token or what was said (G12)', async () => {
  const { as_token: asToken, hs_token: hsToken } = await readWrittenRegistration();
  const result = await oracle?.ended;
  const log = `${result?.stdout}${result?.stderr}`;

  for (const secret of [asToken, hsToken, 'good morning', 'Good morning to you.']) expect(log).not.toContain(secret);
});

test('new-device, new-identity and import: the next start goes on with each, as the homeserver shows', async () => {
  const first = await device();
  expect(await cli.run(['crypto', 'new-device'], environment)).toMatchObject({ status: 0, stderr: '' });
  await startAndStop();
  const second = await device();
  expect(await cli.run(['crypto', 'new-identity', '--yes'], environment)).toMatchObject({ status: 0, stderr: '' });
  await startAndStop();
  const third = await device();
  const old = await cli.run(['crypto', 'import', 'identity.json'], environment);

  const identityOf = ({ text }: { text: string }) => /^Identity.*$/mu.exec(text)?.[0];
  expect(second.id).not.toBe(first.id);
  expect(identityOf(second)).toBe(identityOf(first));
  expect(third.id).toBe(second.id);
  expect(identityOf(third)).not.toBe(identityOf(second));
  expect(old).toMatchObject({ status: 1, stdout: '' });
  expect(old.stderr).toContain('another identity on the homeserver');
});

async function startAndStop(): Promise<void> {
  oracle = cli.start(['start'], environment);
  await oracle.said('"msg":"ready"');
  oracle.child.kill('SIGTERM');
  await oracle.ended;
}
