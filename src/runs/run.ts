/**
 * A run is the durable record of one execution of an agent for a turn; a frame is one numbered entry of its log. Matrix edits, SSE and
 * records are projections of frames (DESIGN §1), so this file is the vocabulary that all of them share.
 */
import { z } from 'zod';
import type { Did, EventId, OwnerId, PrincipalId, RoomId, RunId, SessionId, UserId } from '../ids.ts';
import type { RestsOn, SenderTrust, Tier } from '../turn/principal.ts';

export type RunStatus = 'queued' | 'running' | 'waiting' | 'completed' | 'failed' | 'cancelled' | 'interrupted' | 'expired';
export const TERMINAL: ReadonlySet<RunStatus> = new Set(['completed', 'failed', 'cancelled', 'interrupted', 'expired']);

/** Kinds of the log. `interaction` and `state` have their shape and their fold; nothing writes them yet. */
export type FrameKind = keyof FrameData;
/** Kinds that plugins add by `rtCtx.emit`, beside `tool_call`. */
export type EmittedKind = 'reasoning' | 'action_call' | 'render_component' | 'browser_tool_call' | 'router' | 'message_cache_invalidation';

export interface Usage {
  readonly inputTokens: number;
  readonly outputTokens: number;
  /** A provider reported nothing for one of the calls at least. */
  readonly estimated?: boolean;
}

/** Data of a frame by kind. `text.delta` is appended to the answer; `truncate.length` cuts it back to so many UTF-16 units (resume). */
export type FrameData = {
  readonly text: { readonly delta: string };
  readonly truncate: { readonly length: number };
  /** Pieces of what the model thinks aloud, in order; the last one may say that it is complete. */
  readonly reasoning: {
    readonly reasoning: string;
    readonly reasoningDetails?: readonly { readonly type: string; readonly text: string }[];
    readonly isComplete?: boolean;
  };
  readonly tool_call: {
    readonly id: string;
    readonly name: string;
    readonly status: 'isRunning' | 'done' | 'error';
    readonly args?: unknown;
    readonly output?: string;
  };
  /** Something that the person's client is to do; a later frame of the same `toolCallId` says how it went. */
  readonly action_call: {
    readonly toolCallId: string;
    readonly toolName: string;
    readonly status?: 'isRunning' | 'done' | 'error';
    readonly args?: unknown;
    readonly output?: string;
    readonly result?: unknown;
    readonly error?: string;
  };
  /** A later frame of the same `eventId` takes the place of the earlier one. */
  readonly render_component: {
    readonly componentName: string;
    readonly args?: unknown;
    readonly status?: 'isRunning' | 'done' | 'error';
    readonly eventId?: string;
  };
  readonly browser_tool_call: { readonly toolCallId: string; readonly toolName: string; readonly args: unknown };
  readonly router: { readonly step: string };
  readonly message_cache_invalidation: { readonly status?: string };
  /** A question to the person; `revision` only grows, and the newest counts. */
  readonly interaction: {
    readonly id: string;
    readonly revision: number;
    readonly status: 'waiting' | 'answered' | 'expired' | 'cancelled';
    readonly request?: unknown;
    readonly answer?: unknown;
  };
  /** A value of the run's shared state; `null` takes it away. */
  readonly state: { readonly key: string; readonly value: unknown };
  readonly run: { readonly state: 'queued' | 'started' | 'resumed'; readonly attempt: number };
  readonly error: { readonly code: string; readonly message: string; readonly retryable: boolean; readonly status: number };
  readonly end: { readonly status: RunStatus; readonly usage?: Usage; readonly model?: string };
};
export type Frame = {
  [K in FrameKind]: { readonly seq: number; readonly at: number; readonly kind: K; readonly data: FrameData[K] };
}[FrameKind];

const usage = z.object({ inputTokens: z.number(), outputTokens: z.number(), estimated: z.boolean().optional() });
const callStatus = z.enum(['isRunning', 'done', 'error']);
const READERS: { [K in FrameKind]: z.ZodType<unknown> } = {
  text: z.object({ delta: z.string() }),
  truncate: z.object({ length: z.number().int().nonnegative() }),
  tool_call: z.object({
    id: z.string(),
    name: z.string(),
    status: callStatus,
    args: z.unknown().optional(),
    output: z.string().optional(),
  }),
  reasoning: z.object({
    reasoning: z.string(),
    reasoningDetails: z.array(z.object({ type: z.string(), text: z.string() })).optional(),
    isComplete: z.boolean().optional(),
  }),
  action_call: z.object({
    toolCallId: z.string(),
    toolName: z.string(),
    status: callStatus.optional(),
    args: z.unknown().optional(),
    output: z.string().optional(),
    result: z.unknown().optional(),
    error: z.string().optional(),
  }),
  render_component: z.object({
    componentName: z.string(),
    args: z.unknown().optional(),
    status: callStatus.optional(),
    eventId: z.string().optional(),
  }),
  browser_tool_call: z.object({ toolCallId: z.string(), toolName: z.string(), args: z.unknown() }),
  router: z.object({ step: z.string() }),
  message_cache_invalidation: z.object({ status: z.string().optional() }),
  interaction: z.object({
    id: z.string(),
    revision: z.number().int(),
    status: z.enum(['waiting', 'answered', 'expired', 'cancelled']),
    request: z.unknown().optional(),
    answer: z.unknown().optional(),
  }),
  state: z.object({ key: z.string(), value: z.unknown() }),
  run: z.object({ state: z.enum(['queued', 'started', 'resumed']), attempt: z.number() }),
  error: z.object({ code: z.string(), message: z.string(), retryable: z.boolean(), status: z.number() }),
  end: z.object({ status: z.string(), usage: usage.optional(), model: z.string().optional() }),
};

/** Reads a stored frame row. Throws on a row that no release wrote: that is a bug or a damaged file, never a stranger's doing. */
export function readFrame(row: { seq: number; kind: string; data: string; at: number }): Frame {
  const reader = READERS[row.kind as FrameKind];
  if (reader === undefined) throw new Error(`frame kind ${row.kind} is not known to this release`);
  return { seq: row.seq, at: row.at, kind: row.kind, data: reader.parse(JSON.parse(row.data)) } as Frame;
}

/** What a reader sees of a run: a pure fold over its frames, the same for the room, SSE and the record. */
export interface FoldedRun {
  readonly lastSeq: number;
  readonly text: string;
  readonly reasoning: string;
  readonly tools: readonly FrameData['tool_call'][];
  readonly actions: readonly FrameData['action_call'][];
  readonly components: readonly FrameData['render_component'][];
  readonly browserCalls: readonly FrameData['browser_tool_call'][];
  readonly interactions: readonly FrameData['interaction'][];
  /** Newest value of each key. */
  readonly state: readonly FrameData['state'][];
  /** What the router said last. */
  readonly step: string | null;
  /** How often viewers were told to read the messages again. */
  readonly invalidations: number;
  readonly error: FrameData['error'] | null;
  readonly end: FrameData['end'] | null;
  readonly attempt: number;
}
const NOTHING = Object.freeze([]);
export const EMPTY_FOLD: FoldedRun = {
  lastSeq: 0,
  text: '',
  reasoning: '',
  tools: NOTHING,
  actions: NOTHING,
  components: NOTHING,
  browserCalls: NOTHING,
  interactions: NOTHING,
  state: NOTHING,
  step: null,
  invalidations: 0,
  error: null,
  end: null,
  attempt: 0,
};

export function foldFrame(fold: FoldedRun, frame: Frame): FoldedRun {
  const next = { ...fold, lastSeq: frame.seq };
  switch (frame.kind) {
    case 'text':
      return { ...next, text: fold.text + frame.data.delta };
    case 'truncate':
      return { ...next, text: fold.text.slice(0, frame.data.length) };
    case 'reasoning':
      return { ...next, reasoning: fold.reasoning + frame.data.reasoning };
    case 'tool_call':
      return { ...next, tools: [...fold.tools.filter((tool) => tool.id !== frame.data.id), frame.data] };
    case 'action_call':
      return { ...next, actions: [...fold.actions.filter((call) => call.toolCallId !== frame.data.toolCallId), frame.data] };
    case 'render_component': {
      const { eventId } = frame.data;
      return { ...next, components: [...fold.components.filter((one) => eventId === undefined || one.eventId !== eventId), frame.data] };
    }
    case 'browser_tool_call':
      return { ...next, browserCalls: [...fold.browserCalls.filter((call) => call.toolCallId !== frame.data.toolCallId), frame.data] };
    case 'router':
      return { ...next, step: frame.data.step };
    case 'message_cache_invalidation':
      return { ...next, invalidations: fold.invalidations + 1 };
    case 'interaction': {
      const { id, revision } = frame.data;
      const known = fold.interactions.find((one) => one.id === id);
      if (known !== undefined && known.revision >= revision) return next;
      return { ...next, interactions: [...fold.interactions.filter((one) => one.id !== id), frame.data] };
    }
    case 'state': {
      const others = fold.state.filter(({ key }) => key !== frame.data.key);
      return { ...next, state: frame.data.value === null ? others : [...others, frame.data] };
    }
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
  /** Of the device of its first prompt; null over HTTP and in runs of older releases. */
  readonly trust: SenderTrust | null;
  /** What it rests on; judged again before each call of a model or a tool (G8). */
  readonly grants: RestsOn;
  /** Its model's input held text that its principal did not write, in this attempt or an earlier one. */
  readonly tainted: boolean;
  readonly client: 'portal' | 'matrix' | 'slack';
  readonly requestId: string;
  readonly hints: TurnHints;
  readonly direct: boolean;
  /** The run whose message this one writes anew, because its prompt was edited. */
  readonly replaces: RunId | null;
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
