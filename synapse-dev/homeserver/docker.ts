/**
 * Synapse in a container, for machines with Docker. Everything that differs from the venv is here: paths, the address it listens on,
 * and how it reaches an application service on the host. `testcontainers` is imported only when an engine answered: it costs about a second.
 */
import { existsSync } from 'node:fs';
import { get } from 'node:http';
import { homedir, userInfo } from 'node:os';
import { join } from 'node:path';
import { err, ok, type Result } from '../../src/result.ts';
import type { Placement } from './homeserver-config.ts';
import { type SetupProblem, setupProblem } from './setup-problem.ts';
import type { Exit, SynapseProcess } from './synapse-process.ts';
import { SYNAPSE_IMAGE, SYNAPSE_VERSION } from './version.ts';

export interface DockerInstall {
  readonly kind: 'docker';
  readonly version: string;
  readonly image: string;
}

const ENGINE_ANSWERS_WITHIN_MS = 2_000;
/** Synapse's port inside the container; its folder is the image's volume. */
const CONTAINER_PORT = 8008;
const CONTAINER_DIR = '/data';
const KEPT_CHARS = 32 * 1024;
/** The name under which testcontainers' port forwarder makes the host's ports reachable. */
const HOST_NAME = 'host.testcontainers.internal';

export const dockerPlacement: Placement = { dir: CONTAINER_DIR, bindAddress: '0.0.0.0', port: CONTAINER_PORT };

/** The URL as the container must call it: its own loopback is not the host's. Other hosts stay as they are. */
export function appserviceUrlInDocker(url: string): string {
  const parsed = new URL(url);
  if (!isLoopback(parsed.hostname)) return url;
  return `${parsed.protocol}//${HOST_NAME}:${portOf(parsed)}${parsed.pathname === '/' ? '' : parsed.pathname}`;
}
/** Ports of the host that the container must be able to reach. */
export function hostPortsOf(urls: readonly string[]): number[] {
  const local = urls.map((url) => new URL(url)).filter((url) => isLoopback(url.hostname));
  return [...new Set(local.map(portOf))];
}
const isLoopback = (host: string): boolean => host === 'localhost' || host === '[::1]' || /^127\./u.test(host);
const portOf = (url: URL): number => Number(url.port || (url.protocol === 'https:' ? 443 : 80));

export interface ContainerPlan {
  readonly image: string;
  readonly command: string[];
  readonly environment: Record<string, string>;
  readonly mounts: { source: string; target: string; mode: 'z' }[];
  readonly ports: { container: number; host: number }[];
}
/** What to run; pure, so that it can be read in a test on a machine without Docker. */
export function buildContainerPlan(options: { dir: string; port: number; uid: number; gid: number }): ContainerPlan {
  return {
    image: SYNAPSE_IMAGE,
    command: ['run', '-c', `${CONTAINER_DIR}/homeserver.yaml`],
    // The image's start script drops to this user, so that files in the mounted folder stay the caller's.
    environment: { UID: String(options.uid), GID: String(options.gid) },
    // `z` lets SELinux hosts share the folder; elsewhere it means nothing.
    mounts: [{ source: options.dir, target: CONTAINER_DIR, mode: 'z' }],
    ports: [{ container: CONTAINER_PORT, host: options.port }],
  };
}

/** Asks the engine's `/_ping`, at the addresses where testcontainers looks for it. */
export async function dockerAnswers(): Promise<boolean> {
  for (const address of engineAddresses(process.env)) {
    if (await pings(address)) return true;
  }
  return false;
}

type EngineAddress = { readonly socketPath: string } | { readonly host: string; readonly port: number } | 'unknown-scheme';

export function engineAddresses(env: Record<string, string | undefined>): EngineAddress[] {
  const named = env['DOCKER_HOST'];
  if (named !== undefined && named !== '') return [readEngineAddress(named)];
  const runtimeDir = env['XDG_RUNTIME_DIR'];
  const sockets = [
    '/var/run/docker.sock',
    ...(runtimeDir === undefined ? [] : [join(runtimeDir, 'docker.sock')]),
    join(homedir(), '.docker', 'run', 'docker.sock'),
    join(homedir(), '.docker', 'desktop', 'docker.sock'),
    `/run/user/${userInfo().uid}/docker.sock`,
  ];
  return sockets.map((socketPath) => ({ socketPath }));
}

function readEngineAddress(text: string): EngineAddress {
  if (text.startsWith('unix://')) return { socketPath: text.slice('unix://'.length) };
  const match = /^(?:tcp|http):\/\/([^/:]+|\[[^\]]+\]):(\d+)\/?$/u.exec(text);
  return match === null ? 'unknown-scheme' : { host: match[1] ?? '', port: Number(match[2]) };
}

function pings(address: EngineAddress): Promise<boolean> {
  // TLS or ssh: only testcontainers can tell, and it says so when it starts.
  if (address === 'unknown-scheme') return Promise.resolve(true);
  if ('socketPath' in address && !existsSync(address.socketPath)) return Promise.resolve(false);
  return new Promise((resolve) => {
    const request = get({ ...address, path: '/_ping', timeout: ENGINE_ANSWERS_WITHIN_MS, agent: false }, (response) => {
      response.resume();
      resolve(response.statusCode === 200);
    });
    const deadline = setTimeout(() => request.destroy(), ENGINE_ANSWERS_WITHIN_MS);
    request.on('timeout', () => request.destroy());
    request.on('error', () => resolve(false));
    request.on('close', () => {
      clearTimeout(deadline);
      resolve(false);
    });
  });
}

export async function pullImage(onProgress: (line: string) => void): Promise<Result<DockerInstall, SetupProblem>> {
  try {
    const { getContainerRuntimeClient, ImageName } = await import('testcontainers');
    const client = await getContainerRuntimeClient();
    const image = ImageName.fromString(SYNAPSE_IMAGE);
    if (!(await client.image.exists(image))) {
      onProgress(`fetching the Docker image ${SYNAPSE_IMAGE}, about a minute`);
      await client.image.pull(image);
    }
    return ok({ kind: 'docker', version: SYNAPSE_VERSION, image: SYNAPSE_IMAGE });
  } catch (error) {
    return err(
      setupProblem('DOCKER_FAILED', `Docker answers but cannot fetch ${SYNAPSE_IMAGE}: check \`docker pull ${SYNAPSE_IMAGE}\`.`, {
        cause: error,
      }),
    );
  }
}

/** Starts the container; testcontainers' reaper removes it when this process dies, however it dies. */
export async function createDockerProcess(options: {
  dir: string;
  port: number;
  appserviceUrls: readonly string[];
}): Promise<SynapseProcess> {
  const { GenericContainer, getContainerRuntimeClient, TestContainers, Wait } = await import('testcontainers');
  const hostPorts = hostPortsOf(options.appserviceUrls);
  // Before the container exists: its hosts file gets the forwarder's address only at creation.
  if (hostPorts.length > 0) await TestContainers.exposeHostPorts(...hostPorts);
  const plan = buildContainerPlan({ ...options, uid: process.getuid?.() ?? 0, gid: process.getgid?.() ?? 0 });
  let printed = '';
  const started = await new GenericContainer(plan.image)
    .withCommand(plan.command)
    .withEnvironment(plan.environment)
    .withBindMounts(plan.mounts)
    .withExposedPorts(...plan.ports)
    .withWaitStrategy(Wait.forListeningPorts())
    .withStartupTimeout(60_000)
    .withLogConsumer((stream) => {
      stream.on('data', (chunk) => {
        printed = (printed + String(chunk)).slice(-KEPT_CHARS);
      });
    })
    .start()
    .catch((error: unknown) => {
      throw new Error(`${error instanceof Error ? error.message : String(error)}\n${printed}`, { cause: error });
    });
  const client = await getContainerRuntimeClient();
  const container = client.container.getById(started.getId());
  let exit: Exit | undefined;
  return {
    baseUrl: `http://${started.getHost()}:${options.port}`,
    pid: undefined,
    exit: () => exit,
    output: () => printed,
    async end(signal) {
      await container.kill({ signal });
      const { StatusCode: code } = (await container.wait()) as { StatusCode: number };
      exit = { code, signal: null };
      return exit;
    },
    async start() {
      exit = undefined;
      await container.start();
    },
    async dispose() {
      await started.stop({ remove: true, removeVolumes: true });
    },
  };
}
