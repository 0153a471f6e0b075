/**
 * What a test can make the model do, as one union: every way a real provider answers, stalls, breaks or lies that research found to
 * matter (a cleanly closed stream without `finish_reason` passes as a good answer in the agent library, so it must be testable).
 * A reply is data; `plan-stream.ts` turns it into steps and `play.ts` performs them, so a test reads what will happen before it does.
 */
import type { JsonObject } from '../../src/json.ts';
import type { ChatRequest } from './chat-request.ts';

/** How fast pieces of text leave. `instant` coalesces them into few writes: the cheapest for a bench. */
export type Pace = 'instant' | { readonly tokensPerSecond: number } | { readonly chunkChars: number; readonly delayMs: number };

/** A person reads along at about this speed. */
export const NATURAL_PACE: Pace = { tokensPerSecond: 60 };

/** A door inside an answer: the server waits in front of it, the test opens it. Opened before it is reached, it does not hold. */
export interface Gate {
  /** Settles when the first answer stands in front of the gate; everything before it is on the wire. */
  readonly reached: Promise<void>;
  release(): void;
}

/** The side of a gate that only the server uses. */
export interface GateInternals extends Gate {
  readonly released: Promise<void>;
  arrive(): void;
}

export function createGate(): GateInternals {
  const reached = Promise.withResolvers<void>();
  const released = Promise.withResolvers<void>();
  return { reached: reached.promise, released: released.promise, arrive: () => reached.resolve(), release: () => released.resolve() };
}

/** `before: 'headers'` holds the whole response; a number holds the piece with that index (0 = before the first piece of text). */
export interface Hold {
  readonly gate: Gate;
  readonly before: 'headers' | number;
}

export interface ScriptedToolCall {
  readonly name: string;
  /** An object is sent as JSON; a string goes out as it is, so that broken arguments can be tested. */
  readonly args: JsonObject | string;
  /** Unique in the process when absent. */
  readonly id?: string;
}

/** A string is split into token-like pieces; an array is sent piece by piece as given. */
export type ReplyText = string | readonly string[];

export type Reply =
  /** A complete answer. */
  | {
      readonly kind: 'text';
      readonly text: ReplyText;
      /** Streamed before the text as `reasoning_content`. */
      readonly reasoning?: string;
      readonly pace?: Pace;
      readonly holds?: readonly Hold[];
      readonly finishReason?: 'stop' | 'length' | 'content_filter';
      /** Says nothing of tokens, although it was asked to: some servers do not know `stream_options`. */
      readonly withoutUsage?: true;
    }
  /** Tool calls, with text before them when given. The next request takes the next reply. */
  | {
      readonly kind: 'toolCalls';
      readonly calls: readonly ScriptedToolCall[];
      readonly text?: ReplyText;
      readonly reasoning?: string;
      readonly pace?: Pace;
      readonly holds?: readonly Hold[];
    }
  /** Silence after some pieces with the connection open: for ever, or `forMs` and then the rest of the answer. */
  | {
      readonly kind: 'stall';
      readonly text: ReplyText;
      readonly afterChunks: number;
      readonly forMs?: number;
      /** While it lasts, a comment this often, as proxies and slow models send: no silence, and no text. */
      readonly keepAliveMs?: number;
      readonly pace?: Pace;
    }
  /**
   * Breaks after `fraction` of the pieces (0.6 when absent): an error object inside the stream, a TCP reset, or a TCP reset in the middle of the next
   * piece, and there behind the first byte of a character when it has one of many bytes.
   */
  | {
      readonly kind: 'errorMidStream';
      readonly text: ReplyText;
      readonly how: 'sse_error' | 'reset' | 'reset_in_piece';
      readonly fraction?: number;
      readonly pace?: Pace;
    }
  /** Closes cleanly after `fraction` of the pieces (1 when absent), with neither `finish_reason` nor `[DONE]`. */
  | { readonly kind: 'cut'; readonly text: ReplyText; readonly fraction?: number; readonly pace?: Pace }
  /** An HTTP error in OpenAI's shape. Message, type and code have the provider's usual value for the status when absent. */
  | {
      readonly kind: 'status';
      readonly status: number;
      readonly message?: string;
      readonly type?: string;
      readonly code?: string;
      readonly retryAfterS?: number;
    }
  /** 200 without an answer: no bytes at all, only `[DONE]`, or a proper stream (finish_reason stop) without any text. */
  | { readonly kind: 'empty'; readonly how: 'no_body' | 'only_done' | 'no_text' }
  /** Response headers come late, then the other reply. */
  | { readonly kind: 'slowHeaders'; readonly delayMs: number; readonly reply: Reply }
  /** Every character of more than one byte is torn by a write boundary; the bytes as a whole are a correct stream. */
  | { readonly kind: 'splitUtf8'; readonly text: ReplyText };

/** A reply, or a function of the request that gives one. */
export type ScriptedReply = Reply | ((request: ChatRequest) => Reply);

export const textReply = (text: ReplyText, more: { pace?: Pace; holds?: readonly Hold[]; reasoning?: string } = {}): Reply => ({
  kind: 'text',
  text,
  ...more,
});

export const toolCallsReply = (...calls: readonly ScriptedToolCall[]): Reply => ({ kind: 'toolCalls', calls });

/** `head` is on the wire, then the gate holds the answer until the test releases it, then `tail` follows. */
export const heldReply = (gate: Gate, head: string, tail: string): Reply => ({
  kind: 'text',
  text: [head, tail],
  holds: [{ gate, before: 1 }],
});

/** Pieces about as long as a tokenizer makes them, white space at their front. Joined they are the text; no code point is torn. */
export function splitIntoTokens(text: string): string[] {
  return text.match(/\s?[\p{L}\p{N}]{1,6}|\s?[^\s\p{L}\p{N}]{1,3}|\s+/gu) ?? [];
}

/** Pieces of `chunkChars` code units at least; a surrogate pair stays together. */
export function splitByLength(text: string, chunkChars: number): string[] {
  const size = Math.max(1, Math.floor(chunkChars));
  const pieces: string[] = [];
  for (let from = 0; from < text.length; ) {
    let to = Math.min(text.length, from + size);
    const last = text.charCodeAt(to - 1);
    if (to < text.length && last >= 0xd800 && last <= 0xdbff) to += 1;
    pieces.push(text.slice(from, to));
    from = to;
  }
  return pieces;
}

export function splitText(text: ReplyText, pace: Pace): readonly string[] {
  if (typeof text !== 'string') return text;
  return typeof pace === 'object' && 'chunkChars' in pace ? splitByLength(text, pace.chunkChars) : splitIntoTokens(text);
}

/** Milliseconds between two pieces. */
export function pieceDelayMs(pace: Pace): number {
  if (pace === 'instant') return 0;
  return 'tokensPerSecond' in pace ? 1_000 / pace.tokensPerSecond : pace.delayMs;
}
