/**
 * Starts a real homeserver and stops it without a trace. `npm run demo`, the end-to-end tests and the bench call this same function,
 * so what a newcomer runs is what is tested.
 */
import { randomBytes } from 'node:crypto';
import { open, rm, stat } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { setTimeout as wait } from 'node:timers/promises';
import type { Registration } from '../../appservice/registration.ts';
import { appserviceUrlInDocker, createDockerProcess, dockerPlacement } from './docker.ts';
import { type GetSynapseOptions, getSynapse, type SynapseInstall } from './get-synapse.ts';
import { type HomeserverSecrets, LOG_FILE, writeHomeserverConfig } from './homeserver-config.ts';
import { findFreePort, isPortFree, waitForFreePort } from './ports.ts';
import { SetupError, setupProblem } from './setup-problem.ts';
import { createVenvProcess, type Exit, type SynapseProcess } from './synapse-process.ts';
import { createUserClient, type UserClient } from './user-client.ts';
import { type LoginOptions, loginUser, type RegisterOptions, registerUser, type UserSession } from './users.ts';

export interface StartOptions {
  readonly install: SynapseInstall;
  /** Database, keys, media and log; may be used again. */
  readonly dir: string;
  /** A fixed port, or a free one. */
  readonly port?: number;
  readonly serverName?: string;
  /** `url` as this machine sees it; for a container it is translated. */
  readonly registrations?: readonly Registration[];
  readonly loosenedLimits?: boolean;
  readonly presence?: boolean;
  readonly keysInTransactions?: boolean;
  readonly bcryptRounds?: number;
  readonly readyWithinMs?: number;
}

export interface Homeserver {
  readonly baseUrl: string;
  readonly serverName: string;
  readonly port: number;
  readonly dir: string;
  readonly logFile: string;
  /** Of the present Synapse; undefined when stopped, and in Docker. */
  readonly pid: number | undefined;
  /** Signals, waits for the end and for the port. Stopping a stopped one does nothing. */
  stop(signal?: 'SIGTERM' | 'SIGINT' | 'SIGKILL'): Promise<Exit>;
  kill(): Promise<Exit>;
  /** Again after `stop` or `kill`, on the same port and database. */
  start(): Promise<void>;
  restart(signal?: 'SIGTERM' | 'SIGKILL'): Promise<void>;
  registerUser(options: RegisterOptions): Promise<UserSession>;
  login(options: LoginOptions): Promise<UserSession>;
  /** Registers an account and gives a client for it: most tests need no more. */
  createUser(username: string, options?: Partial<RegisterOptions>): Promise<UserClient>;
  /** `stop`, and removes the container if there is one. */
  close(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
}

const DEFAULT_SERVER_NAME = 'oracle.local';
const PORT_TRIES = 3;
const READY_WITHIN_MS = 60_000;
const POLL_MS = 25;
const PORT_FREE_WITHIN_MS = 5_000;

/** @throws SetupError PORT_TAKEN, START_FAILED, START_TIMEOUT, DOCKER_FAILED. */
export async function startSynapse(options: StartOptions): Promise<Homeserver> {
  for (let attempt = 1; ; attempt += 1) {
    const port = options.port ?? (await findFreePort());
    if (!(await isPortFree(port))) throw portTaken(port);
    try {
      return await startOnPort({ ...options, dir: resolve(options.dir), port });
    } catch (error) {
      const lostRace = error instanceof SetupError && error.problem.code === 'PORT_TAKEN' && options.port === undefined;
      if (!lostRace || attempt === PORT_TRIES) throw error;
    }
  }
}

/** `getSynapse` and `startSynapse` in one, for hooks of tests. @throws SetupError. */
export async function getAndStartSynapse(options: Omit<StartOptions, 'install'> & GetSynapseOptions): Promise<Homeserver> {
  const install = await getSynapse(options);
  if (!install.ok) throw new SetupError(install.error);
  return startSynapse({ ...options, install: install.value });
}

async function startOnPort(options: StartOptions & { port: number }): Promise<Homeserver> {
  const { install, dir, port, serverName = DEFAULT_SERVER_NAME, readyWithinMs = READY_WITHIN_MS } = options;
  const secrets = randomSecrets();
  const inDocker = install.kind === 'docker';
  const registrations = options.registrations ?? [];
  await writeHomeserverConfig({
    ...options,
    serverName,
    secrets,
    placement: inDocker ? dockerPlacement : { dir, bindAddress: '127.0.0.1', port },
    registrations: inDocker ? registrations.map((one) => ({ ...one, url: appserviceUrlInDocker(one.url) })) : registrations,
  });
  const logFile = join(dir, LOG_FILE);
  await rm(logFile, { force: true });
  const synapse =
    install.kind === 'docker'
      ? await startContainer({ dir, port, logFile, appserviceUrls: registrations.map(({ url }) => url) })
      : createVenvProcess({ python: install.python, dir, port });
  try {
    await waitUntilReady(synapse, { port, logFile, readyWithinMs });
  } catch (error) {
    await synapse.end('SIGKILL');
    await synapse.dispose();
    throw error;
  }
  return createHomeserver({ synapse, serverName, port, dir, logFile, readyWithinMs, secret: secrets.registrationSharedSecret });
}

async function startContainer(options: Parameters<typeof createDockerProcess>[0] & { logFile: string }): Promise<SynapseProcess> {
  try {
    return await createDockerProcess(options);
  } catch (error) {
    const said = `${String(error)}\n${await readTail(options.logFile)}`.trim();
    if (/port is already allocated|address already in use/iu.test(said)) throw portTaken(options.port);
    throw new SetupError(
      setupProblem('DOCKER_FAILED', `Docker could not start Synapse; the last lines are:\n${lastLines(said)}`, { cause: error }),
    );
  }
}

interface Parts {
  readonly synapse: SynapseProcess;
  readonly serverName: string;
  readonly port: number;
  readonly dir: string;
  readonly logFile: string;
  readonly readyWithinMs: number;
  readonly secret: string;
}

function createHomeserver(parts: Parts): Homeserver {
  const { synapse, port, serverName, dir, logFile, secret } = parts;
  const { baseUrl } = synapse;
  const server = { baseUrl, secret };
  const stop = async (signal: 'SIGTERM' | 'SIGINT' | 'SIGKILL' = 'SIGTERM') => {
    const exit = await synapse.end(signal);
    await waitForFreePort(port, PORT_FREE_WITHIN_MS);
    return exit;
  };
  const start = async () => {
    if (synapse.exit() === undefined) return;
    if (!(await waitForFreePort(port, PORT_FREE_WITHIN_MS))) throw portTaken(port);
    await synapse.start();
    await waitUntilReady(synapse, parts);
  };
  const close = async () => {
    await stop();
    await synapse.dispose();
  };
  return {
    baseUrl,
    serverName,
    port,
    dir,
    logFile,
    get pid() {
      return synapse.pid;
    },
    stop,
    kill: () => stop('SIGKILL'),
    start,
    async restart(signal = 'SIGTERM') {
      await stop(signal);
      await start();
    },
    registerUser: (user) => registerUser(server, user),
    login: (user) => loginUser(baseUrl, user),
    async createUser(username, more = {}) {
      const session = await registerUser(server, { password: `${username}-password`, ...more, username });
      return createUserClient({ baseUrl, ...session });
    },
    close,
    [Symbol.asyncDispose]: close,
  };
}

async function waitUntilReady(synapse: SynapseProcess, options: { port: number; logFile: string; readyWithinMs: number }): Promise<void> {
  const { port, logFile, readyWithinMs } = options;
  const deadline = performance.now() + readyWithinMs;
  while (!(await answers(synapse.baseUrl))) {
    if (synapse.exit() !== undefined) throw await explainExit(synapse, { port, logFile });
    if (performance.now() > deadline) {
      const message = `Synapse did not answer on port ${port} within ${readyWithinMs / 1_000} s: ${logFile} may say why.`;
      throw new SetupError(setupProblem('START_TIMEOUT', message, { logFile }));
    }
    await wait(POLL_MS);
  }
  // Somebody else's server may have answered on this port while ours could not listen.
  if (synapse.exit() !== undefined) throw await explainExit(synapse, { port, logFile });
}

async function answers(baseUrl: string): Promise<boolean> {
  try {
    const response = await fetch(`${baseUrl}/_matrix/client/versions`, { signal: AbortSignal.timeout(5_000) });
    await response.arrayBuffer();
    return response.ok;
  } catch {
    return false;
  }
}

async function explainExit(synapse: SynapseProcess, { port, logFile }: { port: number; logFile: string }): Promise<SetupError> {
  const said = `${synapse.output()}\n${await readTail(logFile)}`.trim();
  if (/Failed to listen on TCP port|Address already in use/iu.test(said)) return portTaken(port);
  return new SetupError(
    setupProblem('START_FAILED', `Synapse stopped while starting; the last lines of ${logFile} are:\n${lastLines(said)}`, { logFile }),
  );
}

const TAIL_BYTES = 16 * 1024;
async function readTail(path: string): Promise<string> {
  try {
    const { size } = await stat(path);
    const file = await open(path);
    try {
      const { buffer, bytesRead } = await file.read({ buffer: Buffer.alloc(TAIL_BYTES), position: Math.max(0, size - TAIL_BYTES) });
      return buffer.subarray(0, bytesRead).toString('utf8');
    } finally {
      await file.close();
    }
  } catch {
    return '';
  }
}

const portTaken = (port: number): SetupError =>
  new SetupError(setupProblem('PORT_TAKEN', `Port ${port} is taken: stop the program that listens there, or choose another port.`));

const lastLines = (text: string): string => text.split('\n').slice(-8).join('\n');

const randomSecrets = (): HomeserverSecrets => ({
  registrationSharedSecret: randomBytes(24).toString('base64url'),
  macaroonSecretKey: randomBytes(24).toString('base64url'),
  formSecret: randomBytes(24).toString('base64url'),
});
