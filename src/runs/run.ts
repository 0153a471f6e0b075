/**
 * A run is the durable record of one execution of an agent for a turn; a frame is one numbered entry of its log. Matrix edits, SSE and
 * records are projections of frames (DESIGN §1), so this file is the vocabulary that all of them share.
 */
import { z } from 'zod';
import type { Did, EventId, OwnerId, PrincipalId, RoomId, RunId, SessionId, UserId } from '../ids.ts';
import type { RestsOn, Tier } from '../turn/principal.ts';

export type RunStatus = 'queued' | 'running' | 'waiting' | 'completed' | 'failed' | 'cancelled' | 'interrupted' | 'expired';
export const TERMINAL: ReadonlySet<RunStatus> = new Set(['completed', 'failed', 'cancelled', 'interrupted', 'expired']);

/** Kinds of the log; this release writes text, tool_call, truncate, run, error, end. The rest have their place for what comes. */
export type FrameKind =
  | 'text'
  | 'reasoning'
  | 'tool_call'
  | 'action_call'
  | 'render_component'
  | 'browser_tool_call'
  | 'router'
  | 'message_cache_invalidation'
  | 'interaction'
  | 'state'
  | 'truncate'
  | 'run'
  | 'error'
  | 'end';

export interface Usage {
  readonly inputTokens: number;
  readonly outputTokens: number;
}

/** Data of a frame by kind. `text.delta` is appended to the answer; `truncate.length` cuts it back to so many UTF-16 units (resume). */
export type FrameData = {
  readonly text: { readonly delta: string };
  readonly truncate: { readonly length: number };
  readonly tool_call: {
    readonly id: string;
    readonly name: string;
    readonly status: 'isRunning' | 'done' | 'error';
    readonly args?: unknown;
    readonly output?: string;
  };
  readonly run: { readonly state: 'queued' | 'started' | 'resumed'; readonly attempt: number };
  readonly error: { readonly code: string; readonly message: string; readonly retryable: boolean; readonly status: number };
  readonly end: { readonly status: RunStatus; readonly usage?: Usage; readonly model?: string };
};
export type WrittenKind = keyof FrameData;
export type Frame = {
  [K in WrittenKind]: { readonly seq: number; readonly at: number; readonly kind: K; readonly data: FrameData[K] };
}[WrittenKind];

const usage = z.object({ inputTokens: z.number(), outputTokens: z.number() });
const READERS: { [K in WrittenKind]: z.ZodType<unknown> } = {
  text: z.object({ delta: z.string() }),
  truncate: z.object({ length: z.number().int().nonnegative() }),
  tool_call: z.object({
    id: z.string(),
    name: z.string(),
    status: z.enum(['isRunning', 'done', 'error']),
    args: z.unknown().optional(),
    output: z.string().optional(),
  }),
  run: z.object({ state: z.enum(['queued', 'started', 'resumed']), attempt: z.number() }),
  error: z.object({ code: z.string(), message: z.string(), retryable: z.boolean(), status: z.number() }),
  end: z.object({ status: z.string(), usage: usage.optional(), model: z.string().optional() }),
};

/** Reads a stored frame row. Throws on a row that no release wrote: that is a bug or a damaged file, never a stranger's doing. */
export function readFrame(row: { seq: number; kind: string; data: string; at: number }): Frame {
  const reader = READERS[row.kind as WrittenKind];
  if (reader === undefined) throw new Error(`frame kind ${row.kind} is not known to this release`);
  return { seq: row.seq, at: row.at, kind: row.kind, data: reader.parse(JSON.parse(row.data)) } as Frame;
}

/** What a reader sees of a run: a pure fold over its frames, the same for the room, SSE and the record. */
export interface FoldedRun {
  readonly lastSeq: number;
  readonly text: string;
  readonly tools: readonly FrameData['tool_call'][];
  readonly error: FrameData['error'] | null;
  readonly end: FrameData['end'] | null;
  readonly attempt: number;
}
export const EMPTY_FOLD: FoldedRun = { lastSeq: 0, text: '', tools: [], error: null, end: null, attempt: 0 };

export function foldFrame(fold: FoldedRun, frame: Frame): FoldedRun {
  const next = { ...fold, lastSeq: frame.seq };
  switch (frame.kind) {
    case 'text':
      return { ...next, text: fold.text + frame.data.delta };
    case 'truncate':
      return { ...next, text: fold.text.slice(0, frame.data.length) };
    case 'tool_call':
      return { ...next, tools: [...fold.tools.filter((tool) => tool.id !== frame.data.id), frame.data] };
    case 'run':
      return { ...next, attempt: frame.data.attempt };
    case 'error':
      return { ...next, error: frame.data };
    case 'end':
      return { ...next, end: frame.data };
  }
}

/** A run as the rest of the program reads it. */
export interface Run {
  readonly id: RunId;
  readonly sessionId: SessionId;
  readonly roomId: RoomId;
  /** Null: the answer stands unthreaded in the direct room. */
  readonly threadRoot: EventId | null;
  readonly owner: OwnerId;
  readonly principalId: PrincipalId;
  /** Null for users who sign nothing. */
  readonly did: Did | null;
  readonly matrixUserId: UserId;
  readonly tier: Tier;
  /** What it rests on; judged again before each call of a model or a tool (G8). */
  readonly grants: RestsOn;
  /** Its model's input held text that its principal did not write, in this attempt or an earlier one. */
  readonly tainted: boolean;
  readonly client: 'portal' | 'matrix' | 'slack';
  readonly requestId: string;
  readonly hints: TurnHints;
  readonly direct: boolean;
  readonly status: RunStatus;
  readonly attempt: number;
  readonly createdAt: number;
  readonly startedAt: number | null;
  readonly deadlineAt: number | null;
  readonly fence: number;
  /** In order of arrival. */
  readonly prompts: readonly Prompt[];
}
export interface Prompt {
  /** Event id, or `http:<token id>`. */
  readonly id: string;
  readonly text: string;
  readonly receivedAt: number;
}
export const turnHints = z.object({
  timezone: z.string().max(64).optional(),
  model: z.string().max(200).optional(),
  multitask: z.string().max(32).optional(),
});
export type TurnHints = z.infer<typeof turnHints>;
