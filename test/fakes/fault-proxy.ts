/**
 * Stands between the oracle and a real homeserver, on either side, and does what networks, proxies and overloaded servers do: takes a request and
 * loses the answer, answers 429 or 502 by itself, is slow, is not there at all, brings a request twice or much later. A fake homeserver shows
 * what we think happens; this shows what a real one makes of it (research/peers.md §6 B3, B4, D2, F1).
 * Requests and answers are read whole before they are passed on, so that "taken, but the answer lost" is exactly that.
 */
import { Agent, createServer, type IncomingHttpHeaders, type IncomingMessage, request, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { setTimeout as wait } from 'node:timers/promises';

export interface Passing {
  readonly method: string;
  /** With its query. */
  readonly path: string;
  readonly headers: IncomingHttpHeaders;
  readonly body: Buffer;
}
export type Fault =
  /** The other side takes it; whoever asked never hears so. */
  | { readonly kind: 'cut_reply' }
  | { readonly kind: 'answer'; readonly status: number; readonly body: object | string }
  /** Passed on after so long. */
  | { readonly kind: 'delay'; readonly ms: number }
  /** Answered with 200 `{}` and kept: `resend` brings it on later, or never. */
  | { readonly kind: 'swallow' };

export interface FaultProxy {
  readonly port: number;
  readonly url: string;
  /** Every request that came in, whatever became of it. */
  readonly seen: readonly Passing[];
  /** How many requests that fit reached the other side and were answered by it. */
  taken(fits: (passing: Passing) => boolean): number;
  /** Asked about each request; until the next `plan` or `heal`. */
  plan(decide: (passing: Passing) => Fault | undefined): void;
  /** Back to passing everything on. */
  heal(): void;
  /** Nobody listens any more, and what was under way is cut. */
  down(): Promise<void>;
  up(): Promise<void>;
  /** Brings this request to the other side, as often as it is called. @returns the status of the answer. */
  resend(passing: Passing, path?: string): Promise<number>;
  close(): Promise<void>;
}

export interface FaultProxyOptions {
  /** A fixed port, or a free one. */
  readonly port?: number;
  /** Base address of the other side, asked for each request. */
  readonly target: () => string;
}

export async function openFaultProxy({ port: wanted = 0, target }: FaultProxyOptions): Promise<FaultProxy> {
  const seen: Passing[] = [];
  const taken: Passing[] = [];
  let decide: (passing: Passing) => Fault | undefined = () => undefined;
  // Sockets of the other side's last life must not be used in its next one.
  const agent = new Agent({ keepAlive: false });

  async function serve(incoming: IncomingMessage, outgoing: ServerResponse): Promise<void> {
    const passing: Passing = {
      method: incoming.method ?? 'GET',
      path: incoming.url ?? '/',
      headers: incoming.headers,
      body: await readWhole(incoming),
    };
    seen.push(passing);
    const fault = decide(passing);
    if (fault?.kind === 'delay') await wait(fault.ms);
    if (fault?.kind === 'answer') {
      const text = typeof fault.body === 'string' ? fault.body : JSON.stringify(fault.body);
      outgoing.writeHead(fault.status, { 'content-type': typeof fault.body === 'string' ? 'text/html' : 'application/json' });
      return void outgoing.end(text);
    }
    if (fault?.kind === 'swallow') {
      outgoing.writeHead(200, { 'content-type': 'application/json' });
      return void outgoing.end('{}');
    }
    const answer = await forward(passing);
    if (fault?.kind === 'cut_reply') return void outgoing.destroy();
    const { 'transfer-encoding': _chunked, connection: _connection, ...headers } = answer.headers;
    outgoing.writeHead(answer.status, { ...headers, 'content-length': answer.body.length });
    outgoing.end(answer.body);
  }

  function forward(passing: Passing, path = passing.path): Promise<{ status: number; headers: IncomingHttpHeaders; body: Buffer }> {
    return new Promise((resolve, reject) => {
      const headers = { ...passing.headers, 'content-length': String(passing.body.length), connection: 'close' };
      const onward = request(new URL(path, target()), { method: passing.method, headers, agent }, (answer) => {
        readWhole(answer).then((body) => {
          taken.push(passing);
          resolve({ status: answer.statusCode ?? 502, headers: answer.headers, body });
        }, reject);
      });
      onward.on('error', reject);
      onward.end(passing.body);
    });
  }

  let server: Server;
  function listen(port: number): Promise<number> {
    server = createServer((incoming, outgoing) => {
      // The other side is away: so are we, for this request.
      serve(incoming, outgoing).catch(() => outgoing.destroy());
    });
    return new Promise((resolve, reject) => {
      server.once('error', reject);
      server.listen(port, '127.0.0.1', () => resolve((server.address() as AddressInfo).port));
    });
  }
  async function unlisten(): Promise<void> {
    if (!server.listening) return;
    const closed = new Promise((resolve) => server.close(resolve));
    server.closeAllConnections();
    await closed;
  }
  const port = await listen(wanted);

  return {
    port,
    url: `http://127.0.0.1:${port}`,
    seen,
    taken: (fits) => taken.filter(fits).length,
    plan: (next) => {
      decide = next;
    },
    heal: () => {
      decide = () => undefined;
    },
    down: unlisten,
    async up() {
      if (!server.listening) await listen(port);
    },
    resend: async (passing, path) => (await forward(passing, path)).status,
    close: async () => {
      await unlisten();
      agent.destroy();
    },
  };
}

async function readWhole(stream: IncomingMessage): Promise<Buffer> {
  const chunks: Buffer[] = [];
  for await (const chunk of stream) chunks.push(chunk as Buffer);
  return Buffer.concat(chunks);
}
