/**
 * A run as somebody over HTTP sees it: as events while it goes on, or as one value when it is over. Both read the log (G7), so neither
 * can say what is not on disk. Leaving stops a run only when its request asked for that.
 * A reader is served at its own pace: the next page of the log is read when the socket has taken the last, and who takes nothing for a
 * minute is dropped (G14).
 */
import { Readable } from 'node:stream';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { ERRORS, type ErrorCode, OracleError, refusal } from '../errors.ts';
import type { RunId, UserId } from '../ids.ts';
import { LIMITS } from '../limits.ts';
import type { FoldedRun, Frame, Run } from '../runs/run.ts';
import type { SidecarDeps } from './deps.ts';
import { buildDone, buildOpened, buildQueued, buildSse, type Cursor, encodeSse, type SseContext, type SseEvent } from './wire/build-sse.ts';

const HEARTBEAT = ': heartbeat\n\n';

export interface StreamOptions {
  /** Opened with a ticket, which is used up: said first, so that the reader knows how to come back. */
  readonly byTicket?: boolean;
  /** The reader closed the connection, or took nothing for too long, before the end. Not when the server goes. */
  readonly onLeft?: () => void;
}
export interface Watchers {
  /** Whether this account may open one more; asked before anything is written for it. */
  mayOpen(userId: UserId): boolean;
  /** Whether somebody reads this run over HTTP. */
  isWatched(run: RunId): boolean;
  /** Answers with events from after `from` to the end. */
  stream(request: FastifyRequest, reply: FastifyReply, run: Run, from: Cursor, options?: StreamOptions): Promise<FastifyReply>;
  /** Waits for the end; null when the caller left first. Throws what the run failed with. */
  outcome(request: FastifyRequest, run: Run, options?: Pick<StreamOptions, 'onLeft'>): Promise<FoldedRun | null>;
  /** The server goes: streams end without `done`, and their readers come back with Last-Event-ID. */
  close(): void;
}

type Source = Pick<SidecarDeps, 'viewers' | 'frames'>;

/** What one reader of a run is sent, from after `from` to the end; null is "still here". */
export async function* readEvents(
  run: Run,
  from: Cursor,
  { context, signal, textOf }: { context: SseContext; signal: AbortSignal; textOf: (run: RunId, end: Frame | null) => string },
  { viewers }: Pick<Source, 'viewers'>,
): AsyncGenerator<SseEvent | null, void, undefined> {
  let { pieces } = from;
  for await (const news of viewers.follow(run.id, { after: from.seq, idleMs: LIMITS.sseHeartbeatMs, signal })) {
    if (news.kind === 'idle') yield null;
    else if (news.kind === 'over') yield buildDone(context, { status: news.status, text: textOf(run.id, null), seq: null });
    else {
      for (const frame of news.frames) {
        if (frame.kind === 'end') yield buildDone(context, { ...frame.data, text: textOf(run.id, frame), seq: frame.seq });
        else yield* buildSse(frame, context, pieces);
        pieces = 0;
      }
    }
  }
}

/** The whole text at the end of a run; those who are handed the same last frame share one fold of the log. */
export function createTextReader(frames: Source['frames']): (run: RunId, end: Frame | null) => string {
  const known = new WeakMap<Frame, string>();
  return (run, end) => {
    const text = (end === null ? undefined : known.get(end)) ?? frames.fold(run).text;
    if (end !== null) known.set(end, text);
    return text;
  };
}

export function createWatchers({ viewers, frames, clock }: Source & Pick<SidecarDeps, 'clock'>): Watchers {
  const open = new Map<AbortController, { readonly userId: UserId; readonly runId: RunId }>();
  const textOf = createTextReader(frames);

  function enter(request: FastifyRequest, run: Run, onLeft: () => void): { signal: AbortSignal; leave: () => void; stop: () => void } {
    const controller = new AbortController();
    const { socket } = request.raw;
    const stop = () => {
      socket.off('close', leave);
      open.delete(controller);
      controller.abort();
    };
    function leave(): void {
      const wasOpen = open.has(controller);
      stop();
      if (wasOpen) onLeft();
    }
    open.set(controller, { userId: run.matrixUserId, runId: run.id });
    socket.once('close', leave);
    // Gone while the turn was opened: no event will say so.
    if (socket.destroyed) leave();
    return { signal: controller.signal, leave, stop };
  }

  async function* events(run: Run, from: Cursor, context: SseContext, signal: AbortSignal, byTicket: boolean) {
    // At once, so that headers go out and the reader knows that it was heard.
    if (byTicket) yield encodeSse(buildOpened(context, run));
    else yield from.seq === 0 && run.status === 'queued' ? encodeSse(buildQueued(context, run.attempt)) : ': open\n\n';
    for await (const event of readEvents(run, from, { context, signal, textOf }, { viewers })) {
      yield event === null ? HEARTBEAT : encodeSse(event);
    }
  }

  return {
    mayOpen: (userId) => [...open.values()].filter((one) => one.userId === userId).length < LIMITS.sseStreamsPerCaller,
    isWatched: (run) => [...open.values()].some(({ runId }) => runId === run),
    async stream(request, reply, run, from, { byTicket = false, onLeft = () => undefined } = {}) {
      const { signal, leave, stop } = enter(request, run, onLeft);
      const context: SseContext = { runId: run.id, sessionId: run.sessionId, requestId: request.id };

      async function* watched(): AsyncGenerator<string, void, undefined> {
        try {
          for await (const text of events(run, from, context, signal, byTicket)) {
            const stalled = clock.after(LIMITS.sseStalledMs, () => {
              leave();
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
    async outcome(request, run, { onLeft = () => undefined } = {}) {
      const { signal, stop } = enter(request, run, onLeft);
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
      const all = [...open.keys()];
      // Nobody left: it is we who go.
      open.clear();
      for (const controller of all) controller.abort();
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
