/** Ports of this machine: a free one, and whether one is free. */
import { createServer } from 'node:net';
import { setTimeout as wait } from 'node:timers/promises';

/** A port that was free a moment ago; the caller must cope with losing the race for it. */
export async function findFreePort(): Promise<number> {
  const port = await listenOnce(0);
  if (port === undefined) throw new Error('the machine has no free port');
  return port;
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
