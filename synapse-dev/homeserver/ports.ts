/** Ports of this machine: a free one, and whether one is free. */
import { randomInt } from 'node:crypto';
import { createServer } from 'node:net';
import { setTimeout as wait } from 'node:timers/promises';

/** A port that was free a moment ago; the caller must cope with losing the race for it. */
export async function findFreePort(): Promise<number> {
  const port = await listenOnce(0);
  if (port === undefined) throw new Error('the machine has no free port');
  return port;
}

/** Below the ports that systems give to clients and to whoever listens on 0, above those that services have by habit. */
const QUIET = { from: 10_000, to: 20_000 };

/** Distinct free ports that nobody is given by chance before they are listened on, nor while what listens there is down. */
export async function findQuietPorts(count: number): Promise<number[]> {
  const ports = new Set<number>();
  for (let tries = 0; ports.size < count; tries++) {
    if (tries > 50 * count) throw new Error(`the machine has no ${count} free ports between ${QUIET.from} and ${QUIET.to}`);
    const port = randomInt(QUIET.from, QUIET.to);
    if (!ports.has(port) && (await isPortFree(port))) ports.add(port);
  }
  return [...ports];
}

export const isPortFree = async (port: number): Promise<boolean> => (await listenOnce(port)) !== undefined;

/** False when it is still taken after `timeoutMs`. */
export async function waitForFreePort(port: number, timeoutMs: number): Promise<boolean> {
  const deadline = performance.now() + timeoutMs;
  while (!(await isPortFree(port))) {
    if (performance.now() > deadline) return false;
    await wait(20);
  }
  return true;
}

function listenOnce(port: number): Promise<number | undefined> {
  return new Promise((resolve) => {
    const server = createServer();
    server.once('error', () => resolve(undefined));
    server.listen({ port, host: '127.0.0.1', exclusive: true }, () => {
      const address = server.address();
      server.close(() => resolve(typeof address === 'object' && address !== null ? address.port : undefined));
    });
  });
}
