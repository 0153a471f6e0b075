/**
 * A run as somebody over HTTP sees it: as events while it goes on, or as one value when it is over. Both read the log (G7), so neither
 * can say what is not on disk. Leaving never stops the run: only POST /messages/abort does.
 * A reader is served at its own pace: the next page of the log is read when the socket has taken the last, and who takes nothing for a
 * minute is dropped (G14).
 */
import { Readable } from 'node:stream';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { ERRORS, type ErrorCode, OracleError, refusal } from '../errors.ts';
import type { RunId } from '../ids.ts';
import { LIMITS } from '../limits.ts';
import type { FoldedRun, Run } from '../runs/run.ts';
import type { SidecarDeps } from './deps.ts';
import { buildDone, buildQueued, buildSse, type Cursor, encodeSse, type SseContext } from './wire/build-sse.ts';

const HEARTBEAT = ': heartbeat\n\n';

export interface Watchers {
  /** Whether the caller may open one more; asked before anything is written for it. */
  mayOpen(did: string): boolean;
  /** Answers with events from after `from` to the end. */
  stream(request: FastifyRequest, reply: FastifyReply, run: Run, from: Cursor): Promise<FastifyReply>;
  /** Waits for the end; null when the caller left first. Throws what the run failed with. */
  outcome(request: FastifyRequest, run: Run): Promise<FoldedRun | null>;
  /** The server goes: streams end without `done`, and their readers come back with Last-Event-ID. */
  close(): void;
}

export function createWatchers({ viewers, frames, clock }: Pick<SidecarDeps, 'viewers' | 'frames' | 'clock'>): Watchers {
  const open = new Map<AbortController, string>();

  function enter(request: FastifyRequest, run: Run): { signal: AbortSignal; stop: () => void } {
    const controller = new AbortController();
    const stop = () => {
      open.delete(controller);
      controller.abort();
    };
    open.set(controller, run.principalId);
    request.raw.socket.once('close', stop);
    return {
      signal: controller.signal,
      stop: () => {
        request.raw.socket.off('close', stop);
        stop();
      },
    };
  }

  async function* events(run: Run, from: Cursor, context: SseContext, signal: AbortSignal): AsyncGenerator<string, void, undefined> {
    // At once, so that headers go out and the reader knows that it was heard.
    yield from.seq === 0 && run.status === 'queued' ? encodeSse(buildQueued(context, run.attempt)) : ': open\n\n';
    let { pieces } = from;
    for await (const news of viewers.follow(run.id, { after: from.seq, idleMs: LIMITS.sseHeartbeatMs, signal })) {
      if (news.kind === 'idle') yield HEARTBEAT;
      else if (news.kind === 'over') {
        yield encodeSse(buildDone(context, { status: news.status, text: frames.fold(run.id).text, seq: null }));
      } else {
        for (const frame of news.frames) {
          if (frame.kind === 'end') {
            yield encodeSse(buildDone(context, { ...frame.data, text: frames.fold(run.id).text, seq: frame.seq }));
          } else {
            for (const event of buildSse(frame, context, pieces)) yield encodeSse(event);
          }
          pieces = 0;
        }
      }
    }
  }

  return {
    mayOpen: (did) => [...open.values()].filter((owner) => owner === did).length < LIMITS.sseStreamsPerCaller,
    async stream(request, reply, run, from) {
      const { signal, stop } = enter(request, run);
      const context: SseContext = { runId: run.id, sessionId: run.sessionId, requestId: request.id };

      async function* watched(): AsyncGenerator<string, void, undefined> {
        try {
          for await (const text of events(run, from, context, signal)) {
            const stalled = clock.after(LIMITS.sseStalledMs, () => {
              stop();
              readable.destroy();
            });
            yield text;
            stalled.cancel();
          }
        } finally {
          stop();
        }
      }
      // What waits for a slow socket is bounded; the log holds the rest.
      const readable = Readable.from(watched(), { objectMode: false, highWaterMark: LIMITS.sseBufferBytes });
      return reply
        .code(200)
        .headers({
          'content-type': 'text/event-stream; charset=utf-8',
          'cache-control': 'no-cache, no-transform',
          'x-accel-buffering': 'no',
          'x-run-id': run.id,
        })
        .send(readable);
    },
    async outcome(request, run) {
      const { signal, stop } = enter(request, run);
      try {
        for await (const news of viewers.follow(run.id, { after: frames.fold(run.id).lastSeq, idleMs: LIMITS.sseHeartbeatMs, signal })) {
          const ended = news.kind === 'over' || (news.kind === 'frames' && news.frames.at(-1)?.kind === 'end');
          if (ended) return succeed(run.id, frames.fold(run.id), news.kind === 'over' ? news.status : null);
        }
        return null;
      } finally {
        stop();
      }
    },
    close() {
      for (const controller of open.keys()) controller.abort();
      open.clear();
    },
  };
}

/** Completed, or a throw with the run's own code and what it had said by then. */
function succeed(runId: RunId, folded: FoldedRun, endedAs: string | null): FoldedRun {
  const status = folded.end?.status ?? endedAs;
  if (status === 'completed') return folded;
  const details = { runId, ...(folded.text === '' ? {} : { partialText: folded.text }) };
  const code = status === 'cancelled' ? 'RUN_CANCELLED' : (folded.error?.code ?? 'INTERRUPTED');
  const known = Object.hasOwn(ERRORS, code) ? (code as ErrorCode) : 'INTERNAL';
  throw new OracleError(refusal(known, { details, ...(folded.error === null ? {} : { message: folded.error.message }) }));
}
