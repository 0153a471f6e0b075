/**
 * The metrics listener is its own and stands on loopback: what it says is for the operator, and the sidecar's port is the one that gets
 * published (DESIGN: three listeners). Plain node:http, because one GET of one path needs no framework.
 */
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { Registry } from 'prom-client';

export interface MetricsServerOptions {
  readonly registry: Registry;
  /** 0 takes a free one. */
  readonly port: number;
  readonly host?: string;
}
export interface MetricsServer {
  readonly port: number;
  readonly url: string;
  stop(): Promise<void>;
}

const PATH = '/metrics';
const REQUEST_TIMEOUT_MS = 10_000;

/** Rejects with the listen error (EADDRINUSE, EACCES …). */
export async function startMetricsServer({ registry, port, host = '127.0.0.1' }: MetricsServerOptions): Promise<MetricsServer> {
  const server = createServer({ requestTimeout: REQUEST_TIMEOUT_MS, headersTimeout: REQUEST_TIMEOUT_MS }, (request, response) => {
    void answer(registry, request, response);
  });
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject);
    server.listen(port, host, resolve);
  });
  const bound = (server.address() as AddressInfo).port;
  return {
    port: bound,
    url: `http://${host.includes(':') ? `[${host}]` : host}:${bound}${PATH}`,
    stop: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}

async function answer(registry: Registry, request: IncomingMessage, response: ServerResponse): Promise<void> {
  request.resume();
  if (request.url?.split('?')[0] !== PATH || (request.method !== 'GET' && request.method !== 'HEAD')) {
    response.writeHead(404, { 'Content-Type': 'text/plain' }).end('Only GET /metrics is here.\n');
    return;
  }
  try {
    const text = await registry.metrics();
    response.writeHead(200, { 'Content-Type': registry.contentType }).end(request.method === 'HEAD' ? '' : text);
  } catch {
    // The gauges ask the database: when it cannot be read, the scrape fails and the alarm on `up` rings.
    response.writeHead(503, { 'Content-Type': 'text/plain' }).end('The metrics cannot be read at the moment.\n');
  }
}
