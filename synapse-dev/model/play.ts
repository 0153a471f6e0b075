/**
 * Performs the steps of a reply on one HTTP response. A client that goes away ends every wait at once (tests of cancellation look at
 * it, G9), and pieces that are due together leave in one write, so that the server stays cheap beside a homeserver on two cores.
 */
import type { ServerResponse } from 'node:http';
import { assertNever } from '../../src/result.ts';
import type { StreamStep } from './plan-stream.ts';

export type Ended = 'completed' | 'client_disconnected' | 'cut';

/** Writes wait until this many characters are due together. */
const WRITE_CHARS = 16_384;

/** A response with its two facts that every wait needs: is it still open, and whom to wake when it closes. */
export interface Exchange {
  readonly response: ServerResponse;
  readonly isClosed: () => boolean;
  /** Waits for what start begins and done ends, or until the client is gone. */
  readonly pause: (start: (done: () => void) => (() => void) | undefined) => Promise<void>;
  /** Its `pieces` counts what is on the wire, for whoever looks on. */
  readonly progress: { pieces: number };
}

export function createExchange(response: ServerResponse, progress: { pieces: number }): Exchange {
  let closed = false;
  let wake: (() => void) | undefined;
  response.once('close', () => {
    closed = true;
    wake?.();
  });
  return {
    response,
    isClosed: () => closed,
    progress,
    pause: (start) =>
      new Promise((resolve) => {
        if (closed) return resolve();
        let undo: (() => void) | undefined;
        let settled = false;
        const done = () => {
          if (settled) return;
          settled = true;
          wake = undefined;
          undo?.();
          resolve();
        };
        wake = done;
        undo = start(done);
      }),
  };
}

export const pauseMs = (exchange: Exchange, ms: number): Promise<void> =>
  exchange.pause((done) => {
    const timer = setTimeout(done, ms);
    return () => clearTimeout(timer);
  });

export async function playSteps(exchange: Exchange, steps: readonly StreamStep[]): Promise<Ended> {
  const { response } = exchange;
  let due = '';
  let duePieces = 0;
  let nextAt = 0;
  const flush = async () => {
    if (due === '') return;
    const drained = response.write(due);
    exchange.progress.pieces += duePieces;
    due = '';
    duePieces = 0;
    if (!drained)
      await exchange.pause((done) => {
        response.once('drain', done);
        return undefined;
      });
  };
  for (const step of steps) {
    if (exchange.isClosed()) return 'client_disconnected';
    switch (step.kind) {
      case 'head':
        response.writeHead(200, {
          'content-type': 'text/event-stream; charset=utf-8',
          'cache-control': 'no-cache',
          'x-accel-buffering': 'no',
        });
        response.flushHeaders();
        break;
      case 'piece': {
        const waitMs = step.delayMs === 0 ? 0 : nextAt - performance.now();
        // Late pieces leave together with the next one: the schedule keeps its speed although timers are coarse.
        if (waitMs > 0) {
          await flush();
          await pauseMs(exchange, waitMs);
        }
        if (step.delayMs > 0) nextAt = (nextAt === 0 ? performance.now() : Math.max(nextAt, performance.now() - 100)) + step.delayMs;
        due += step.data;
        duePieces += 1;
        if (due.length >= WRITE_CHARS) await flush();
        break;
      }
      case 'frame':
        due += step.data;
        break;
      case 'bytes':
        await flush();
        response.write(step.data);
        exchange.progress.pieces += 1;
        await pauseMs(exchange, 1);
        break;
      case 'wait':
        await flush();
        await pauseMs(exchange, step.ms);
        nextAt = 0;
        break;
      case 'gate':
        await flush();
        step.gate.arrive();
        await exchange.pause((done) => {
          void step.gate.released.then(done);
          return undefined;
        });
        nextAt = 0;
        break;
      case 'stall':
        await flush();
        await exchange.pause(() => undefined);
        return 'client_disconnected';
      case 'json':
        sendJson(response, 200, step.body);
        return 'completed';
      case 'error':
        sendError(response, step);
        return 'completed';
      case 'reset':
        await flush();
        // What was written must reach the client before the reset throws the rest of the connection away.
        await pauseMs(exchange, 20);
        if (exchange.isClosed()) return 'client_disconnected';
        response.socket?.resetAndDestroy();
        return 'cut';
      case 'end':
        await flush();
        if (exchange.isClosed()) return 'client_disconnected';
        await exchange.pause((done) => {
          response.end(done);
          return undefined;
        });
        return response.writableFinished ? step.as : 'client_disconnected';
      default:
        assertNever(step);
    }
  }
  return exchange.isClosed() ? 'client_disconnected' : 'completed';
}

export function sendError(
  response: ServerResponse,
  { status, error, retryAfterS }: Omit<Extract<StreamStep, { kind: 'error' }>, 'kind'>,
): void {
  sendJson(response, status, { error }, retryAfterS === undefined ? {} : { 'retry-after': String(retryAfterS) });
}

export function sendJson(response: ServerResponse, status: number, body: unknown, headers: Record<string, string> = {}): void {
  const text = JSON.stringify(body);
  response.writeHead(status, { 'content-type': 'application/json', 'content-length': Buffer.byteLength(text), ...headers });
  response.end(text);
}
