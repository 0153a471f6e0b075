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
  readonly event:
    | 'message'
    | 'reasoning'
    | 'tool_call'
    | 'action_call'
    | 'render_component'
    | 'browser_tool_call'
    | 'router_update'
    | 'message_cache_invalidation'
    | 'interaction'
    | 'run'
    | 'error'
    | 'done';
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
  const { sessionId, requestId, runId } = context;
  const id = String(frame.seq);
  const one = (event: SseEvent['event'], data: SseEvent['data']): SseEvent[] => [{ event, id, data }];
  switch (frame.kind) {
    case 'text':
      return inPieces('message', frame.seq, frame.data.delta, (content) => ({ content, timestamp: isoTime(frame.at) }), skip);
    case 'reasoning':
      return inPieces(
        'reasoning',
        frame.seq,
        frame.data.reasoning,
        (reasoning, isLast) => buildReasoning(frame, context, reasoning, isLast),
        skip,
      );
    case 'tool_call':
      return one('tool_call', buildToolCall(frame.data, context));
    case 'action_call':
      return one('action_call', buildActionCall(frame.data, context));
    case 'render_component': {
      const { componentName, args, status, eventId } = frame.data;
      const named = {
        ...{ sessionId, requestId, componentName: cut(componentName, NAME_UNITS) },
        ...(status === undefined ? {} : { status }),
        ...(eventId === undefined ? {} : { eventId: cut(eventId, NAME_UNITS) }),
      };
      return one('render_component', withArgs(named, args));
    }
    case 'browser_tool_call': {
      const { toolCallId, toolName, args } = frame.data;
      return one(
        'browser_tool_call',
        withArgs({ sessionId, requestId, toolCallId: cut(toolCallId, NAME_UNITS), toolName: cut(toolName, NAME_UNITS) }, args),
      );
    }
    case 'router':
      return one('router_update', { sessionId, requestId, step: cut(frame.data.step, PIECE_UNITS / 2) });
    case 'message_cache_invalidation': {
      const { status } = frame.data;
      return one('message_cache_invalidation', {
        sessionId,
        requestId,
        ...(status === undefined ? {} : { status: cut(status, NAME_UNITS) }),
      });
    }
    case 'interaction': {
      const { id: interactionId, revision, status, request, answer } = frame.data;
      const named = { runId, sessionId, requestId, interactionId: cut(interactionId, NAME_UNITS), revision, status };
      const full = { ...named, ...(request === undefined ? {} : { request }), ...(answer === undefined ? {} : { answer }) };
      return one('interaction', fits(full) ? full : { ...named, requestOmitted: true });
    }
    // The run's own book-keeping: no event of this wire.
    case 'state':
      return [];
    case 'run':
      return one('run', { runId, ...frame.data });
    case 'truncate':
      return one('run', { runId, state: 'resumed', partialLength: frame.data.length });
    case 'error':
      return one('error', buildError(frame, context));
  }
}

function inPieces(
  event: SseEvent['event'],
  seq: number,
  text: string,
  build: (piece: string, isLast: boolean) => SseEvent['data'],
  skip: number,
): SseEvent[] {
  const pieces = splitText(text, PIECE_UNITS);
  const last = pieces.length - 1;
  return pieces
    .map((piece, index) => ({ event, id: index === last ? String(seq) : `${seq}.${index + 1}`, data: build(piece, index === last) }))
    .slice(skip);
}

/** Before a run has a log: a busy session answers 200 and says so. Without id: it is in no log, and is not resumed from. */
export const buildQueued = (context: SseContext, attempt: number): SseEvent => ({
  event: 'run',
  data: { runId: context.runId, state: 'queued', attempt },
});

/**
 * The first word to a reader that came with a ticket: the ticket is used up, and `EventSource` comes back by itself with the same address, which is
 * then refused (401) and ends it. `renew` is where the next ticket is asked for. Without id, as above.
 */
export const buildOpened = (context: SseContext, { status, attempt }: { status: RunStatus; attempt: number }): SseEvent => ({
  event: 'run',
  data: { runId: context.runId, state: 'opened', status, attempt, renew: `/runs/${context.runId}/ticket` },
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
  const common = { sessionId, requestId, toolName: 'toolCall', status, eventId: cut(id, NAME_UNITS) };
  const named = { toolName: name };
  const full = {
    ...common,
    args: { ...(isJsonObject(args) ? args : args === undefined ? {} : { input: args }), ...named },
    ...(output === undefined ? {} : { output }),
  };
  if (fits(full)) return full;
  const short = output === undefined ? {} : { output: cut(output, PIECE_UNITS / 2), outputLength: output.length };
  const shorter = { ...full, ...short };
  return fits(shorter) ? shorter : { ...common, args: named, argsOmitted: true, ...short };
}

/** Without its arguments: on this wire they go to the browser over a socket. */
function buildActionCall(call: FrameData['action_call'], { sessionId, requestId }: SseContext): SseEvent['data'] {
  const { status, output, result, error } = call;
  const named = {
    ...{ sessionId, requestId, toolCallId: cut(call.toolCallId, NAME_UNITS), toolName: cut(call.toolName, NAME_UNITS) },
    ...(status === undefined ? {} : { status }),
  };
  const full = {
    ...named,
    ...(output === undefined ? {} : { output }),
    ...(result === undefined ? {} : { result }),
    ...(error === undefined ? {} : { error }),
  };
  if (fits(full)) return full;
  return {
    ...named,
    ...(output === undefined ? {} : { output: cut(output, PIECE_UNITS / 4), outputLength: output.length }),
    ...(result === undefined ? {} : { resultOmitted: true }),
    ...(error === undefined ? {} : { error: cut(error, PIECE_UNITS / 4) }),
  };
}

function buildReasoning(
  { data, at }: Extract<Frame, { kind: 'reasoning' }>,
  { sessionId, requestId }: SseContext,
  reasoning: string,
  isLast: boolean,
): SseEvent['data'] {
  const { reasoningDetails, isComplete } = data;
  const said = {
    ...{ sessionId, requestId, reasoning },
    ...(isComplete === undefined ? {} : { isComplete: isComplete && isLast }),
    timestamp: isoTime(at),
  };
  const full = reasoningDetails === undefined || !isLast ? said : { ...said, reasoningDetails };
  return fits(full) ? full : said;
}

function withArgs(named: SseEvent['data'], args: unknown): SseEvent['data'] {
  if (args === undefined) return named;
  const full = { ...named, args };
  return fits(full) ? full : { ...named, argsOmitted: true };
}

/** Names and ids are a plugin's own words. */
const NAME_UNITS = 255;
const cut = (text: string, units: number): string => splitText(text, units)[0] ?? '';

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
