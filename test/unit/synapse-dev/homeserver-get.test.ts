/** Every way in which a stranger's machine can refuse, without such a machine: `run` is the port. */
import { existsSync, mkdirSync, readFileSync, symlinkSync, utimesSync, writeFileSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { hostname, tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { err, ok } from '../../../src/result.ts';
import { type DockerPort, getSynapse } from '../../../synapse-dev/homeserver/get-synapse.ts';
import { acquireInstallLock } from '../../../synapse-dev/homeserver/install-lock.ts';
import { type CommandResult, type RunCommand, runCommand } from '../../../synapse-dev/homeserver/run-command.ts';
import { setupProblem } from '../../../synapse-dev/homeserver/setup-problem.ts';

let cacheDir: string;
beforeEach(async () => {
  cacheDir = await mkdtemp(join(tmpdir(), 'matrix-oracle-cache-'));
});
afterEach(() => rm(cacheDir, { recursive: true, force: true }));

const NO_DOCKER: DockerPort = { answers: async () => false, pull: async () => err(setupProblem('DOCKER_FAILED', 'not asked')) };
const PYTHON = '3 11 1 /usr/bin/python3.11\n';
const done = (output = ''): CommandResult => ({ code: 0, output });
const failed = (output: string): CommandResult => ({ code: 1, output });
const missing: CommandResult = { code: undefined, output: '', failure: 'not-found' };

/** A machine on which each step answers as said; by default all is well, and venv and pip leave what they would leave. */
function machine(
  steps: { probe?: (command: string) => CommandResult; venv?: CommandResult; pip?: CommandResult; check?: CommandResult } = {},
) {
  const calls: string[] = [];
  const run: RunCommand = async (command, args, { onLine }) => {
    const kind = args[0] === '-m' ? 'venv' : args.includes('pip') ? 'pip' : String(args[1]).includes('synapse') ? 'check' : 'probe';
    calls.push(kind);
    if (kind === 'probe') return steps.probe?.(command) ?? done(PYTHON);
    if (kind === 'venv' && steps.venv === undefined) makeVenv(String(args[2]));
    if (kind === 'pip') for (let index = 0; index < 34; index += 1) onLine?.(`Collecting package-${index}`);
    return steps[kind] ?? done();
  };
  return { run, calls };
}
function makeVenv(dir: string): void {
  mkdirSync(join(dir, 'bin'), { recursive: true });
  symlinkSync(process.execPath, join(dir, 'bin', 'python'));
}
const get = (run: RunCommand, more: Parameters<typeof getSynapse>[0] = {}) => getSynapse({ cacheDir, run, docker: NO_DOCKER, ...more });

test('Synapse is installed once and then found by its marker', async () => {
  const { run, calls } = machine();
  const lines: string[] = [];

  const first = await get(run, { onProgress: (line) => lines.push(line) });
  const second = await get(run);

  expect(first).toEqual(ok({ kind: 'venv', version: '1.163.2', python: join(cacheDir, 'synapse-1.163.2', 'bin', 'python') }));
  expect(second).toEqual(first);
  expect(calls).toEqual(['probe', 'venv', 'pip', 'check']);
  expect(lines).toContain(`installing Synapse 1.163.2 into ${join(cacheDir, 'synapse-1.163.2')}, about a minute, 30 packages so far`);
});

test('two calls at the same time install once', async () => {
  const { run, calls } = machine();

  const [first, second] = await Promise.all([get(run), get(run)]);

  expect(first).toMatchObject({ ok: true });
  expect(second).toEqual(first);
  expect(calls.filter((kind) => kind === 'pip')).toHaveLength(1);
});

test('an install that was interrupted is not taken for a whole one', async () => {
  await get(machine({ pip: { code: undefined, output: '', failure: 'cancelled' } }).run);
  const { run, calls } = machine();

  const again = await get(run);

  expect(again).toMatchObject({ ok: true });
  expect(calls).toContain('pip');
});

test('a venv whose interpreter was replaced is built anew', async () => {
  await get(machine().run);
  const marker = join(cacheDir, 'synapse-1.163.2', 'installed.json');
  writeFileSync(marker, JSON.stringify({ ...JSON.parse(readFileSync(marker, 'utf8')), interpreter: '/usr/bin/python3.10' }));
  const { run, calls } = machine();

  await get(run);

  expect(calls).toContain('pip');
});

test('a newer interpreter beside an old python3 is found', async () => {
  const { run } = machine({
    probe: (command) => (command === 'python3' ? done('3 9 1 /usr/bin/python3.9\n') : command === 'python3.12' ? done(PYTHON) : missing),
  });

  expect(await get(run)).toMatchObject({ ok: true });
});

const PROBLEMS: [name: string, code: string, remedy: string, steps: Parameters<typeof machine>[0]][] = [
  ['no Python and no Docker', 'NO_PYTHON_NO_DOCKER', 'apt-get install python3 python3-venv', { probe: () => missing }],
  ['only a Python that is too old', 'NO_PYTHON_NO_DOCKER', 'Python 3.10 or newer', { probe: () => done('3 9 1 /usr/bin/python3.9\n') }],
  [
    'Python without ensurepip',
    'PYTHON_WITHOUT_VENV',
    'apt-get install python3-venv',
    { probe: () => done('3 11 0 /usr/bin/python3.11\n') },
  ],
  [
    'venv fails for lack of ensurepip',
    'PYTHON_WITHOUT_VENV',
    'apt-get install python3-venv',
    { venv: failed('because ensurepip is not available') },
  ],
  [
    'the index cannot be reached',
    'NO_NETWORK',
    'check the network',
    { pip: failed('ERROR: No matching distribution (from versions: none)') },
  ],
  [
    'no name resolution',
    'NO_NETWORK',
    'check the network',
    { pip: failed('NewConnectionError: [Errno -3] Temporary failure in name resolution') },
  ],
  ['pip hangs', 'NO_NETWORK', 'check the network', { pip: { code: undefined, output: '', failure: 'timed-out' } }],
  ['the disk is full', 'DISK_FULL', 'free about 300 MB', { pip: failed('ERROR: Could not install: [Errno 28] No space left on device') }],
  ['pip fails otherwise', 'PIP_FAILED', 'synapse-install.log', { pip: failed('building\nerror: no compiler') }],
  ['Synapse cannot be imported', 'PIP_FAILED', 'ImportError: libfoo', { check: failed('ImportError: libfoo') }],
];
for (const [name, code, remedy, steps] of PROBLEMS) {
  test(`${name}: ${code} in one sentence with the remedy`, async () => {
    const result = await get(machine(steps).run);

    expect(result).toMatchObject({ ok: false, error: { code, message: expect.stringContaining(remedy) } });
    expect(result.ok || result.error.message).not.toContain('\n');
    expect(existsSync(join(cacheDir, 'synapse-1.163.2', 'installed.json'))).toBe(false);
    expect(existsSync(join(cacheDir, 'synapse-1.163.2.lock'))).toBe(false);
  });
}

test('what pip said is kept in the file that the sentence names', async () => {
  const result = await get(machine({ pip: failed('error: no compiler') }).run);

  const logFile = result.ok ? '' : (result.error.logFile ?? '');
  expect(readFileSync(logFile, 'utf8')).toBe('error: no compiler');
});

test('a cancelled install says so and gives the lock back', async () => {
  const abort = new AbortController();
  const { run } = machine();
  const cancelling: RunCommand = async (command, args, options) => {
    if (args.includes('pip')) abort.abort();
    return args.includes('pip') ? { code: undefined, output: '', failure: 'cancelled' } : run(command, args, options);
  };

  expect(await get(cancelling, { signal: abort.signal })).toMatchObject({ ok: false, error: { code: 'CANCELLED' } });
  expect(existsSync(join(cacheDir, 'synapse-1.163.2.lock'))).toBe(false);
});

test('a cache folder that cannot be made is named', async () => {
  writeFileSync(join(cacheDir, 'file'), '');

  expect(await get(machine().run, { cacheDir: join(cacheDir, 'file', 'cache') })).toMatchObject({
    ok: false,
    error: { code: 'CACHE_NOT_WRITABLE', message: expect.stringContaining('MATRIX_ORACLE_CACHE') },
  });
});

test('Docker is used when it answers, and Python when the image cannot be fetched', async () => {
  const docker: DockerPort = { answers: async () => true, pull: async () => ok({ kind: 'docker', version: '1.163.2', image: 'image' }) };
  const broken: DockerPort = { ...NO_DOCKER, answers: async () => true };

  expect(await get(machine().run, { docker })).toMatchObject({ ok: true, value: { kind: 'docker' } });
  expect(await get(machine().run, { docker: broken })).toMatchObject({ ok: true, value: { kind: 'venv' } });
  expect(await get(machine().run, { docker: broken, using: 'docker' })).toMatchObject({ ok: false, error: { code: 'DOCKER_FAILED' } });
});

test('the lock of a dead process is taken over, that of a living one is not', async () => {
  const path = join(cacheDir, 'lock');
  const { output } = await runCommand(process.execPath, ['-e', 'console.log(process.pid)'], { timeoutMs: 5_000 });
  writeFileSync(path, JSON.stringify({ pid: Number(output), host: hostname() }));
  const waited: number[] = [];

  const taken = await acquireInstallLock(path, {});
  const abort = new AbortController();
  const second = acquireInstallLock(path, { signal: abort.signal, onWait: (pid) => waited.push(pid) });
  abort.abort();

  await expect(second).rejects.toMatchObject({ name: 'AbortError' });
  expect(waited).toEqual([process.pid]);
  taken.release();
  expect(existsSync(path)).toBe(false);
});

test('a lock that was not touched for long is stale, whoever holds it', async () => {
  const path = join(cacheDir, 'lock');
  writeFileSync(path, JSON.stringify({ pid: 1, host: 'elsewhere' }));
  const longAgo = new Date(Date.now() - 10 * 60_000);
  utimesSync(path, longAgo, longAgo);

  const lock = await acquireInstallLock(path, { onWait: () => expect.unreachable() });

  lock.release();
});

test('a program that does not exist, one that fails and one that hangs are told apart', async () => {
  expect(await runCommand('no-such-program-here', [], { timeoutMs: 5_000 })).toMatchObject({ code: undefined, failure: 'not-found' });
  expect(await runCommand(process.execPath, ['-e', 'console.error("no"); process.exit(3)'], { timeoutMs: 5_000 })).toEqual({
    code: 3,
    output: 'no\n',
  });
  expect(await runCommand(process.execPath, ['-e', 'setInterval(() => {}, 1000)'], { timeoutMs: 100 })).toMatchObject({
    failure: 'timed-out',
  });
});
