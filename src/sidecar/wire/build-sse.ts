/**
 * One frame of the log → the SSE events that clients of this family know (docs/wire-formats.md "HTTP"). Pure. No event is larger than
 * LIMITS.sseFrameBytes, because proxies and parsers cut what is (G14). A text too long for one event becomes several pieces with the
 * ids `<seq>.1`, `<seq>.2`, … `<seq>`, so that a reader cut off between two pieces resumes without a letter twice or missing (G7).
 */
import { createHash } from 'node:crypto';
import type { RunId, SessionId } from '../../ids.ts';
import { isJsonObject } from '../../json.ts';
import { LIMITS } from '../../limits.ts';
import { err, ok, type Result } from '../../result.ts';
import type { Frame, FrameData, RunStatus } from '../../runs/run.ts';
import { isoTime } from './iso.ts';

export interface SseEvent {
  readonly event: 'message' | 'tool_call' | 'run' | 'error' | 'done';
  readonly id?: string;
  readonly data: Readonly<Record<string, unknown>>;
}
/** What every event of one response has in common. */
export interface SseContext {
  readonly runId: RunId;
  readonly sessionId: SessionId;
  readonly requestId: string;
}
/** Where a reader stopped: `seq` was seen whole, and `pieces` of the frame after it. */
export interface Cursor {
  readonly seq: number;
  readonly pieces: number;
}
export const START: Cursor = { seq: 0, pieces: 0 };

/** JSON spells a UTF-16 unit with at most six bytes (a backslash, `u` and four digits): so a piece always fits, whatever the text. */
const PIECE_UNITS = 10_000;

const CURSOR = /^(\d{1,9})(?:\.(\d{1,6}))?$/u;
/** Reads `Last-Event-ID` or `after`. */
export function readCursor(text: string): Result<Cursor, 'BAD_CURSOR'> {
  const match = CURSOR.exec(text);
  if (match === null) return err('BAD_CURSOR');
  const seq = Number(match[1]);
  if (match[2] === undefined) return ok({ seq, pieces: 0 });
  return seq === 0 ? err('BAD_CURSOR') : ok({ seq: seq - 1, pieces: Number(match[2]) });
}

/** @param skip pieces of this very frame that the reader has already. */
export function buildSse(frame: Exclude<Frame, { kind: 'end' }>, context: SseContext, skip = 0): SseEvent[] {
  const id = String(frame.seq);
  switch (frame.kind) {
    case 'text': {
      const pieces = splitText(frame.data.delta, PIECE_UNITS);
      return pieces
        .map((content, index) => ({
          event: 'message' as const,
          id: index === pieces.length - 1 ? id : `${id}.${index + 1}`,
          data: { content, timestamp: isoTime(frame.at) },
        }))
        .slice(skip);
    }
    case 'tool_call':
      return [{ event: 'tool_call', id, data: buildToolCall(frame.data, context) }];
    case 'run':
      return [{ event: 'run', id, data: { runId: context.runId, ...frame.data } }];
    case 'truncate':
      return [{ event: 'run', id, data: { runId: context.runId, state: 'resumed', partialLength: frame.data.length } }];
    case 'error':
      return [{ event: 'error', id, data: buildError(frame, context) }];
  }
}

/** Before a run has a log: a busy session answers 200 and says so. Without id: it is in no log, and is not resumed from. */
export const buildQueued = (context: SseContext, attempt: number): SseEvent => ({
  event: 'run',
  data: { runId: context.runId, state: 'queued', attempt },
});

/** The terminal event says how long the whole text is, its hash, and where to read it. */
export function buildDone(
  context: SseContext,
  { status, text, usage, model, seq }: { status: RunStatus; text: string; seq: number | null } & Pick<FrameData['end'], 'usage' | 'model'>,
): SseEvent {
  const whole = status === 'completed';
  return {
    event: 'done',
    ...(seq === null ? {} : { id: String(seq) }),
    data: {
      ...{ runId: context.runId, sessionId: context.sessionId, messageId: context.runId, status },
      ...{ length: text.length, sha256: createHash('sha256').update(text).digest('base64url') },
      read: `/messages/${encodeURIComponent(context.sessionId)}`,
      ...(usage === undefined ? {} : { usage }),
      ...(model === undefined ? {} : { model }),
      ...(status === 'cancelled' ? { aborted: true } : {}),
      ...(status === 'interrupted' ? { interrupted: true } : {}),
      ...(status === 'failed' || status === 'expired' ? { failed: true } : {}),
      ...(whole || text === '' || text.length > PIECE_UNITS ? {} : { partialText: text }),
    },
  };
}

export function encodeSse({ event, id, data }: SseEvent): string {
  return `event: ${event}\n${id === undefined ? '' : `id: ${id}\n`}data: ${JSON.stringify(data)}\n\n`;
}

/** On this wire `toolName` is the literal `toolCall`; the tool's own name is in `args`. */
function buildToolCall(call: FrameData['tool_call'], { sessionId, requestId }: SseContext): SseEvent['data'] {
  const { id, name, status, args, output } = call;
  const common = { sessionId, requestId, toolName: 'toolCall', status, eventId: id.slice(0, 255) };
  const named = { toolName: name };
  const full = {
    ...common,
    args: { ...(isJsonObject(args) ? args : args === undefined ? {} : { input: args }), ...named },
    ...(output === undefined ? {} : { output }),
  };
  if (fits(full)) return full;
  const short = output === undefined ? {} : { output: splitText(output, PIECE_UNITS / 2)[0], outputLength: output.length };
  const cut = { ...full, ...short };
  return fits(cut) ? cut : { ...common, args: named, argsOmitted: true, ...short };
}

const ROOM_FOR_NAMES = 256;
const fits = (data: SseEvent['data']): boolean => Buffer.byteLength(JSON.stringify(data)) <= LIMITS.sseFrameBytes - ROOM_FOR_NAMES;

function buildError({ data, at }: Extract<Frame, { kind: 'error' }>, { runId, sessionId, requestId }: SseContext): SseEvent['data'] {
  const { code, message, status, retryable } = data;
  const error = message.slice(0, PIECE_UNITS / 2);
  return {
    ...{ error, code, kind: kindOf(code, status), source: 'platform', status, retryable },
    ...{ runId, sessionId, requestId, timestamp: isoTime(at) },
  };
}

/** The closed list of kinds that clients of this family show. */
function kindOf(code: string, status: number): 'rate_limit' | 'billing' | 'auth' | 'timeout' | 'server' | 'unknown' {
  if (status === 429 || code === 'MODEL_RATE_LIMITED') return 'rate_limit';
  if (status === 402) return 'billing';
  if (status === 401 || status === 403) return 'auth';
  if (status === 504) return 'timeout';
  return status >= 500 ? 'server' : 'unknown';
}

/** At least one piece; no surrogate pair is cut. */
function splitText(text: string, units: number): string[] {
  const pieces: string[] = [];
  for (let from = 0; from < text.length; ) {
    let to = Math.min(text.length, from + units);
    if (to < text.length && isHighSurrogate(text.charCodeAt(to - 1))) to -= 1;
    pieces.push(text.slice(from, to));
    from = to;
  }
  return pieces.length === 0 ? [''] : pieces;
}
const isHighSurrogate = (unit: number): boolean => unit >= 0xd800 && unit <= 0xdbff;
