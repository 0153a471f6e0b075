/**
 * The demo as a newcomer has it: `npm run demo` as a process, with a real Synapse, from the first start to the last port given back.
 */
import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { mkdtemp, readdir, readFile, rm, stat } from 'node:fs/promises';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import Sqlite from 'better-sqlite3';
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { isPortFree } from '../../synapse-dev/homeserver/ports.ts';
import { startModelServer } from '../../synapse-dev/model/server.ts';

interface PromptReport {
  readonly text: string;
  readonly eventId: string;
  readonly answer: {
    readonly eventIds: string[];
    readonly versions: { text: string; atMs: number }[];
    readonly finalText: string;
    readonly runId: string;
    readonly status: string;
    readonly tools: string[];
    readonly events: number;
  };
}
interface Report {
  readonly prompts: PromptReport[];
  readonly homeserver: { readonly baseUrl: string };
  readonly sidecar: { readonly url: string };
  readonly metrics: { readonly url: string };
  readonly user: { readonly userId: string; readonly did: string };
  readonly room: { readonly roomId: string; readonly encrypted: boolean };
  readonly model: { readonly name: string; readonly baseUrl: string };
  readonly readyMs: number;
}

const ROOT = join(import.meta.dirname, '..', '..');
const CTRL_C = '\u0003';
const CTRL_D = '\u0004';

let parent: string;
let data: string;
let first: Ended;
const children = new Set<ChildProcess>();

beforeAll(async () => {
  parent = await mkdtemp(join(tmpdir(), 'matrix-oracle-demo-'));
  data = join(parent, 'data');
  first = await run(['--say', 'hello', '--say', 'what time is it?', '--json', '--data', data]);
});
afterEach(() => {
  for (const child of children) child.kill('SIGKILL');
});
afterAll(() => rm(parent, { recursive: true, force: true }));

interface Ended {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}
interface Running {
  readonly pid: number;
  readonly ended: Promise<Ended>;
  /** Resolves when the text (stdout and stderr together, from `from`) was printed; with how much was printed then. */
  printed(text: string | RegExp, from?: number): Promise<number>;
  write(text: string): void;
  end(text: string): void;
  kill(signal: NodeJS.Signals): void;
}

function start(command: string, args: readonly string[], env: Record<string, string> = {}): Running {
  const { OPENAI_API_KEY: _key, OPENAI_BASE_URL: _url, MODEL_MAIN: _model, ...rest } = process.env;
  const child = spawn(command, args, { cwd: ROOT, env: { ...rest, ...env }, stdio: ['pipe', 'pipe', 'pipe'] });
  children.add(child);
  let stdout = '';
  let stderr = '';
  let all = '';
  const listeners = new Set<() => void>();
  const take = (add: (text: string) => void) => (text: string) => {
    add(text);
    all += text;
    for (const listener of listeners) listener();
  };
  child.stdout.setEncoding('utf8').on(
    'data',
    take((text) => {
      stdout += text;
    }),
  );
  child.stderr.setEncoding('utf8').on(
    'data',
    take((text) => {
      stderr += text;
    }),
  );
  const ended = new Promise<Ended>((resolve) => {
    child.once('close', (code) => {
      children.delete(child);
      resolve({ code, stdout, stderr });
    });
  });
  return {
    pid: child.pid ?? 0,
    ended,
    printed: (text, from = 0) =>
      new Promise((resolve, reject) => {
        const look = () => {
          const rest = all.slice(from);
          if (!(typeof text === 'string' ? rest.includes(text) : text.test(rest))) return;
          listeners.delete(look);
          resolve(all.length);
        };
        listeners.add(look);
        child.once('close', () => reject(new Error(`ended before it printed ${String(text)}:\n${all}`)));
        look();
      }),
    write: (text) => void child.stdin.write(text),
    end: (text) => void child.stdin.end(text),
    kill: (signal) => void child.kill(signal),
  };
}

const startDemo = (args: readonly string[], env?: Record<string, string>): Running =>
  start('npm', ['run', '--silent', 'demo', '--', ...args], env);
const run = (args: readonly string[], env?: Record<string, string>): Promise<Ended> => startDemo(args, env).ended;

const reportOf = ({ stdout, stderr }: Ended): Report => {
  if (stdout === '') throw new Error(`no report; stderr:\n${stderr}`);
  return JSON.parse(stdout) as Report;
};

async function expectNothingLeft(): Promise<void> {
  const { ports } = JSON.parse(await readFile(join(data, 'demo.json'), 'utf8')) as { ports: Record<string, number> };
  const busy = [];
  for (const [name, port] of Object.entries(ports)) if (!(await isPortFree(port))) busy.push(`${name} ${port}`);
  expect(busy).toEqual([]);
  expect(processesWith(data)).toEqual([]);
}

const processesWith = (text: string): string[] =>
  execFileSync('ps', ['-eo', 'pid,args'], { encoding: 'utf8' })
    .split('\n')
    .filter((line) => line.includes(text));

test('--say answers each prompt in one message that grows, and --json says how', () => {
  const report = reportOf(first);
  const [hello, time] = report.prompts;

  expect(first.code, first.stderr).toBe(0);
  expect(report.prompts.map(({ text }) => text)).toEqual(['hello', 'what time is it?']);
  expect(hello?.eventId).toMatch(/^\$/u);
  expect(hello?.answer).toMatchObject({ status: 'completed', runId: expect.stringMatching(/^[0-9A-Z]{26}$/u) });
  expect(hello?.answer.eventIds).toHaveLength(1);
  expect(hello?.answer.versions.length).toBeGreaterThanOrEqual(3);
  expect(hello?.answer.events).toBe(hello?.answer.versions.length);
  expect(hello?.answer.versions.at(-1)?.text).toBe(hello?.answer.finalText);
  expect(hello?.answer.finalText).toContain('I am the demo model of this oracle');
  const times = hello?.answer.versions.map(({ atMs }) => atMs) ?? [];
  expect(times).toEqual([...times].sort((a, b) => a - b));
  expect(times[0]).toBeGreaterThan(0);
  expect(time?.answer.tools).toEqual(['current_time']);
  expect(time?.answer.finalText).toMatch(/\d{4}-\d{2}-\d{2}/u);
});

/** Every event of the homeserver's database, as text. */
function storedEvents(): string {
  const database = new Sqlite(join(data, 'synapse', 'homeserver.db'), { readonly: true, fileMustExist: true });
  try {
    return database
      .prepare<[], { json: string }>('SELECT json FROM event_json')
      .all()
      .map(({ json }) => json)
      .join('\n');
  } finally {
    database.close();
  }
}

test('the conversation is encrypted: not a word of it is in the database of the homeserver (G11)', () => {
  const { room } = reportOf(first);
  const events = storedEvents();

  expect(room.encrypted).toBe(true);
  expect(first.stderr).toContain('end-to-end encrypted');
  expect(events).toContain('m.megolm.v1.aes-sha2');
  expect(events).not.toMatch(/hello|what time is it|demo model/iu);
});

test('a demo that is done leaves no process and no port', async () => {
  const { model } = reportOf(first);

  await expectNothingLeft();
  expect(await isPortFree(Number(new URL(model.baseUrl).port))).toBe(true);
});

test('what the data folder keeps is readable by its owner only (G12)', async () => {
  const keys = (await readdir(data)).filter((name) => name.startsWith('person-') && name.endsWith('.db'));
  const files = ['demo.json', 'person.key', 'oracle/oracle.key', 'oracle.log', ...keys];
  const modes = await Promise.all(['', ...files].map((name) => stat(join(data, name))));

  expect(keys).toHaveLength(1);
  expect(modes.map(({ mode }) => (mode & 0o777).toString(8))).toEqual(['700', ...files.map(() => '600')]);
});

test('a second start has the same homeserver, person and room, and is ready within 6 s', async () => {
  const before = reportOf(first);
  const readyMs: number[] = [];

  // The quickest of three: other work on the machine makes a start slower, nothing makes it quicker than it is.
  for (let attempt = 0; attempt < 3 && !readyMs.some((ms) => ms < 6_000); attempt += 1) {
    const again = await run(['--say', 'hello', '--json', '--data', data]);
    expect(again.code, again.stderr).toBe(0);
    const report = reportOf(again);
    expect(report).toMatchObject({ homeserver: before.homeserver, user: before.user, room: before.room, sidecar: before.sidecar });
    expect(report.prompts[0]?.answer.finalText).toContain(`This is message ${3 + attempt} of our conversation`);
    readyMs.push(report.readyMs);
  }

  console.log(`second start: ready after ${readyMs.join(', ')} ms`);
  expect(Math.min(...readyMs)).toBeLessThan(6_000);
  await expectNothingLeft();
});

const canMakeTerminal = process.platform === 'linux' && commandExists('script');
/** util-linux `script` gives the demo a real terminal. */
const startInTerminal = (command: string): Running => start('script', ['-qefc', command, '/dev/null'], { TERM: 'xterm', NO_COLOR: '1' });

test.skipIf(!canMakeTerminal)('in a terminal a person types, sees the answer grow, and Ctrl-C ends everything', async () => {
  const demo = startInTerminal(`stty cols 100 rows 40; npm run demo -- --data '${data}'`);
  const ready = await demo.printed('you> ');
  demo.write('hello\r');
  const growing = await demo.printed('oracle> Hello', ready);
  await demo.printed('Tools offered to me', growing);
  demo.write(CTRL_C);

  const { code, stdout } = await demo.ended;

  expect(code).toBe(0);
  expect(stdout).toMatch(/homeserver http:\/\/127\.0\.0\.1:\d+/u);
  expect(stdout).toMatch(/password {3}\S{16,}/u);
  expect(stdout).toMatch(/Sidecar {3}http:\/\/127\.0\.0\.1:\d+/u);
  expect(stdout.split('oracle> ').length, 'drawn more than once').toBeGreaterThan(2);
  await expectNothingLeft();
});

test.skipIf(!canMakeTerminal)('Ctrl-D ends it too, with an answer half-way', async () => {
  const demo = startInTerminal(`stty cols 100 rows 40; npm run demo -- --data '${data}'`);
  const ready = await demo.printed('you> ');
  demo.write('give me a long answer\r');
  await demo.printed('oracle> ', ready);
  demo.write(CTRL_D);

  const { code } = await demo.ended;

  expect(code).toBe(0);
  await expectNothingLeft();
});

test('lines from a pipe are answered in order before it ends', async () => {
  const demo = startDemo(['--data', data]);
  demo.end('one small step\ntwo giant leaps\n');

  const { code, stdout, stderr } = await demo.ended;

  expect(code, stderr).toBe(0);
  expect(stdout).toMatch(/one small step[\s\S]*two giant leaps/u);
  await expectNothingLeft();
});

test('--unencrypted talks in a room in the clear', async () => {
  const ended = await run(['--unencrypted', '--say', 'hello', '--json', '--data', join(parent, 'clear')]);

  expect(ended.code, ended.stderr).toBe(0);
  expect(ended.stderr).toContain('the conversation is not encrypted');
  expect(reportOf(ended)).toMatchObject({ room: { encrypted: false }, prompts: [{ answer: { status: 'completed' } }] });
});

test.for(['SIGTERM', 'SIGINT'] as const)('%s ends a demo that is starting, and nothing is left', async (signal) => {
  const demo = startDemo(['--say', 'hello', '--data', data]);
  await demo.printed('starting Synapse');
  demo.kill(signal);

  const { code, stderr } = await demo.ended;

  expect(code).not.toBe(0);
  expect(stderr).not.toContain('a bug');
  await expect.poll(() => processesWith(data), { timeout: 10_000 }).toEqual([]);
  await expectNothingLeft();
});

test('a taken port is one sentence with its remedy, and nothing is left', async () => {
  const squatter = createServer().listen(0, '127.0.0.1');
  await new Promise((resolve) => squatter.once('listening', resolve));
  const { port } = squatter.address() as { port: number };

  const { code, stdout, stderr } = await run(['--say', 'hello', '--data', join(parent, 'taken'), '--port', String(port)]);

  squatter.close();
  expect(code).toBe(1);
  expect(stdout).toBe('');
  expect(stderr.split('\n').filter((line) => line.startsWith('matrix-oracle: '))).toEqual([
    `matrix-oracle: Port ${port} is taken: stop the program that listens there, or choose another port.`,
  ]);
  expect(processesWith(join(parent, 'taken'))).toEqual([]);
});

test('with OPENAI_API_KEY the demo talks to that model', async () => {
  const model = await startModelServer();
  model.respond(() => ({ kind: 'text', text: 'I am another model, and this is what I say.' }));

  const ended = await run(['--say', 'who are you?', '--json', '--data', data], {
    OPENAI_API_KEY: 'a-key-of-mine',
    OPENAI_BASE_URL: model.baseUrl,
    MODEL_MAIN: 'demo',
  });

  await model.close();
  const report = reportOf(ended);
  expect(report.prompts[0]?.answer.finalText).toBe('I am another model, and this is what I say.');
  expect(report.model.baseUrl).toBe(model.baseUrl);
  expect(`${ended.stdout}${ended.stderr}${await readFile(join(data, 'oracle.log'), 'utf8')}`).not.toContain('a-key-of-mine');
});

test('plugins that PLUGINS names can be tried in it, with their own settings and none of another oracle', async () => {
  const env = { PLUGINS: './plugins/template/plugin.ts', TEMPLATE_MAX_ITEMS: '1', ACCESS: 'granted', CREDITS_PRICES: '*=1/1' };
  const say = ['--say', 'use template_add {"item": "oat milk"}', '--say', 'use template_add {"item": "dark bread"}'];

  const { code, stdout } = await run([...say, '--json', '--data', data], env);

  const [added, full] = (JSON.parse(stdout) as Report).prompts;
  expect(code).toBe(0);
  expect(added?.answer).toMatchObject({ tools: ['template_add'], finalText: expect.stringContaining('It is on the list.') });
  expect(full?.answer.finalText).toContain('The list is full: 1 items at most.');
});

test('an oracle that lost its key store between two starts is a new device, and is given the keys of what is said', async () => {
  for (const name of await readdir(join(data, 'oracle'))) if (name.startsWith('crypto.db')) await rm(join(data, 'oracle', name));

  const again = await run(['--say', 'are you there?', '--json', '--data', data]);

  expect(again.code, again.stderr).toBe(0);
  expect(reportOf(again).prompts[0]?.answer).toMatchObject({ status: 'completed', finalText: expect.stringContaining('are you there?') });
});

test('a model that fails is one sentence and exit code 1', async () => {
  const model = await startModelServer();
  model.respond(() => ({ kind: 'status', status: 400, message: 'no' }));

  const { code, stderr } = await run(['--say', 'hello', '--data', data], { OPENAI_BASE_URL: model.baseUrl });

  await model.close();
  expect(code).toBe(1);
  expect(stderr).toMatch(/matrix-oracle: "hello" was not answered as it should \([A-Z_]+\): .*oracle\.log may say why\./u);
  await expectNothingLeft();
});

function commandExists(name: string): boolean {
  try {
    execFileSync('which', [name], { stdio: 'ignore' });
    return true;
  } catch {
    return false;
  }
}
