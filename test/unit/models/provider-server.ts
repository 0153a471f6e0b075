/** A model server that answers with what a provider once streamed, byte for byte, and remembers what it was asked. */
import { readFileSync } from 'node:fs';
import { createServer, type IncomingHttpHeaders, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';

type Answer = (response: ServerResponse) => void;

export interface ProviderServer {
  readonly url: string;
  readonly asked: { readonly path: string; readonly headers: IncomingHttpHeaders; readonly body: Record<string, unknown> }[];
  /** Answers in order; the last one goes on. */
  answers: Answer[];
  close(): Promise<void>;
}

export const streamed =
  (text: string): Answer =>
  (response) => {
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    response.end(text);
  };
/** A file of test/fixtures/models. */
export const recorded = (name: string): Answer =>
  streamed(readFileSync(new URL(`../../fixtures/models/${name}.sse`, import.meta.url), 'utf8'));
export const failing =
  (status: number, body: unknown = { error: { message: 'no' } }): Answer =>
  (response) => {
    response.writeHead(status, { 'content-type': 'application/json' });
    response.end(JSON.stringify(body));
  };
export const whole =
  (body: unknown): Answer =>
  (response) => {
    response.writeHead(200, { 'content-type': 'application/json' });
    response.end(JSON.stringify(body));
  };
/** Says `text`, then the connection breaks. */
export const broken =
  (text: string): Answer =>
  (response) => {
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    response.write(`data: ${JSON.stringify({ choices: [{ index: 0, delta: { content: text }, finish_reason: null }] })}\n\n`, () =>
      response.destroy(),
    );
  };

export async function startProviderServer(...answers: Answer[]): Promise<ProviderServer> {
  const asked: ProviderServer['asked'] = [];
  const server = createServer((request, response) => {
    const chunks: Buffer[] = [];
    request.on('data', (chunk: Buffer) => chunks.push(chunk));
    request.on('end', () => {
      asked.push({ path: request.url ?? '', headers: request.headers, body: JSON.parse(Buffer.concat(chunks).toString()) });
      (started.answers.length > 1 ? started.answers.shift() : started.answers[0])?.(response);
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const started: ProviderServer = {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`,
    asked,
    answers,
    close: () => {
      server.closeAllConnections();
      return new Promise((resolve) => server.close(() => resolve()));
    },
  };
  return started;
}
