/**
 * An event may have 64 KiB and an edit carries its text twice, so a long answer goes on in further messages. While it streams, a message that
 * was left behind must never change again (it would need edits nobody budgeted, and text would jump between messages). So where a part ends
 * depends only on text that can no longer change: the part is measured at fixed distances, and the first distance that does not fit decides,
 * whatever comes after. The same text gives the same parts, in one piece or in a thousand (property tests).
 * Cost: each call looks at the open part only; a closed part is never touched again. Measuring renders the part every STEP_CHARS characters.
 */
import { jsonBytes } from '../../src/json.ts';
import { LIMITS } from '../../src/limits.ts';
import { cleanText, splitTail } from './clean-text.ts';
import { closesFence, closing, type Fence, openFence, reopening, stepFence } from './fences.ts';
import { renderMarkdown } from './render-markdown.ts';

export interface Part {
  /** From 1; `part` of `ixo.oracle.run`. */
  readonly part: number;
  /** Exactly this part's share of the answer: all `raw` joined are the cleaned text. */
  readonly raw: string;
  /** What is sent: `raw` with a fence reopened at its start and closed at its end where the answer was split inside one. */
  readonly text: string;
  /** A closed part never changes again; the last part of an answer is open. */
  readonly closed: boolean;
}

/** Opaque to callers: start with `EMPTY_SPLIT`, grow it, read the parts. Immutable. */
export interface SplitState {
  readonly closed: readonly Part[];
  /** Text of the open part. */
  readonly raw: string;
  /** Fence that was open where the open part begins. */
  readonly fence: Fence | undefined;
  /** Half a character that waits for its other half. */
  readonly pending: string;
  /** Up to here the open part has been measured and fits. */
  readonly measured: number;
}

export const EMPTY_SPLIT: SplitState = { closed: [], raw: '', fence: undefined, pending: '', measured: 0 };

/** Distance between two measurements. Smaller: fuller parts, more rendering. */
const STEP_CHARS = 512;
/** Of an event's bytes, what text and HTML may take at a measurement; the rest is for metadata (both copies), fallback and one more step. */
const MEASURED_BYTES = LIMITS.partEventBytes - 10_000;
/** A reopened and a closing fence: two markers, an info string, indentation. */
const FENCE_BYTES = 256;
const TEXT_BYTES = LIMITS.partTextBytes - FENCE_BYTES;
/** A boundary earlier than this share of what fits wastes messages. */
const MIN_FILL = 0.5;

/** All parts of a text that is complete as it stands. At least one part; the last one is open. */
export const splitAnswer = (text: string): Part[] => partsOf(growSplit(EMPTY_SPLIT, text));

/** Adds what came since. Equal to splitting the whole text again, without the cost. */
export function growSplit(state: SplitState, delta: string): SplitState {
  const { settled, pending } = splitTail(state.pending + delta);
  const closed = [...state.closed];
  let open = { raw: state.raw + cleanText(settled), fence: state.fence, measured: state.measured };
  for (;;) {
    const fit = measure(open);
    if (fit.end === undefined) return { closed, raw: open.raw, fence: open.fence, pending, measured: fit.measured };
    const cut = decideCut(open.raw, fit.end, open.fence);
    const raw = open.raw.slice(0, cut);
    closed.push(buildPart(closed.length + 1, raw, open.fence, true));
    open = { raw: open.raw.slice(cut), fence: openFence(raw, open.fence), measured: 0 };
  }
}

/** The parts as they stand; the last is the open one and may still change. A half character at the end is not shown yet. */
export function partsOf(state: SplitState): Part[] {
  if (state.raw === '' && state.closed.length > 0) return [...state.closed];
  return [...state.closed, buildPart(state.closed.length + 1, state.raw, state.fence, false)];
}

function buildPart(part: number, raw: string, start: Fence | undefined, closed: boolean): Part {
  let text = raw;
  let fence = start;
  if (start !== undefined) {
    // The fence ended exactly here: an empty code block would be all that is left of it.
    const lineEnd = raw.indexOf('\n');
    const firstLine = lineEnd === -1 ? raw : raw.slice(0, lineEnd);
    if (closesFence(start, firstLine)) {
      text = raw.slice(firstLine.length);
      fence = undefined;
    } else {
      text = reopening(start) + raw;
    }
  }
  const end = closed ? openFence(text, fence === start ? undefined : fence) : undefined;
  if (end !== undefined) text += closing(end, text);
  return { part, raw, text: text.replace(/^\n+/u, '').trimEnd(), closed };
}

type Open = { readonly raw: string; readonly fence: Fence | undefined; readonly measured: number };

/** `end`: the text does not fit, and this much of it does. Otherwise everything measured so far fits. */
function measure({ raw, fence, measured }: Open): { end?: number; measured: number } {
  const textEnd = overTextLimit(raw);
  const limit = textEnd ?? raw.length;
  let fits = measured;
  for (let step = nextStep(measured); step <= limit; step += STEP_CHARS) {
    const end = wholeCharacter(raw, step);
    if (!fitsEvent(raw.slice(0, end), fence)) return { end: wholeCharacter(raw, fits), measured: fits };
    fits = step;
  }
  return textEnd === undefined ? { measured: fits } : { end: textEnd, measured: fits };
}

const nextStep = (measured: number): number => (Math.floor(measured / STEP_CHARS) + 1) * STEP_CHARS;

/** First position whose text is past the limit of bytes, or none. */
function overTextLimit(raw: string): number | undefined {
  if (raw.length * 3 <= TEXT_BYTES) return undefined;
  let bytes = 0;
  for (let at = 0; at < raw.length; ) {
    const code = raw.codePointAt(at) ?? 0;
    bytes += code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    if (bytes > TEXT_BYTES) return at;
    at += code < 0x10000 ? 1 : 2;
  }
  return undefined;
}

function fitsEvent(raw: string, fence: Fence | undefined): boolean {
  if (estimateBytes(raw) <= MEASURED_BYTES) return true;
  const { body, formattedBody = '', tooRich = false } = renderMarkdown(fence === undefined ? raw : reopening(fence) + raw);
  return !tooRich && jsonBytes(body) + jsonBytes(formattedBody) <= MEASURED_BYTES;
}

/** What a character may cost in the HTML beyond itself: a newline may end a list item and its list, a bar a table cell, a `>` opens a quote. */
const MARKUP_BYTES: Readonly<Record<string, number>> = {
  '\n': 40,
  '|': 16,
  '>': 34,
  '<': 4,
  '&': 5,
  '"': 1,
  '\\': 1,
  '*': 10,
  _: 10,
  '~': 8,
  '`': 8,
  ']': 18,
  '#': 12,
  '-': 30,
  '+': 30,
  '.': 8,
  ')': 8,
  '=': 12,
};

/** At least what text and HTML take for ordinary markdown, without rendering it: most measurements end here. */
function estimateBytes(raw: string): number {
  let bytes = 2 * Buffer.byteLength(raw) + 64;
  for (const character of raw) bytes += MARKUP_BYTES[character] ?? 0;
  return bytes;
}

/** Steps back from the middle of a surrogate pair. */
function wholeCharacter(text: string, at: number): number {
  const before = text.charCodeAt(at - 1);
  return before >= 0xd800 && before <= 0xdbff ? at - 1 : at;
}

/**
 * Where to split text of which `end` characters fit: between blocks, else at a line, a word, a character as people see it.
 * Looks at nothing past the one character after `end`, because that may not exist yet.
 */
function decideCut(raw: string, end: number, start: Fence | undefined): number {
  const least = Math.max(1, Math.floor(end * MIN_FILL));
  const { block, line } = lastBoundaries(raw.slice(0, end), start);
  if (block >= least) return block;
  if (line >= least) return line;
  for (let at = end; at >= least; at -= 1) {
    if (/\s/u.test(raw.charAt(at - 1))) return at;
  }
  return graphemeStart(raw, end);
}

/** Last place between two blocks and last start of a line. */
function lastBoundaries(text: string, start: Fence | undefined): { block: number; line: number } {
  let block = 0;
  let line = 0;
  let at = 0;
  let fence = start;
  let afterBlock = false;
  const lines = text.split('\n');
  for (const [index, content] of lines.entries()) {
    const before = fence;
    fence = stepFence(before, content);
    if (at > 0) {
      line = at;
      const opens = before === undefined && (fence !== undefined || /^#{1,6} /u.test(content));
      const begins = afterBlock && before === undefined && /^[^\s]/u.test(content);
      if (opens || begins) block = at;
    }
    afterBlock = (before === undefined && content.trim() === '') || (before !== undefined && fence === undefined);
    if (index < lines.length - 1) at += content.length + 1;
  }
  return { block, line };
}

const graphemes = new Intl.Segmenter('en', { granularity: 'grapheme' });
/** Longest emoji sequences have some 30 units; what is longer is no character but an attack. */
const GRAPHEME_WINDOW = 64;

/** Start of the visible character that covers `end`, or `end` itself when it is a boundary. */
function graphemeStart(raw: string, end: number): number {
  const from = wholeCharacter(raw, Math.max(0, end - GRAPHEME_WINDOW));
  const next = raw.codePointAt(end);
  const window = raw.slice(from, end) + (next === undefined ? '' : String.fromCodePoint(next));
  let cut = end;
  for (const { index } of graphemes.segment(window)) if (from + index <= end) cut = from + index;
  return cut > from ? cut : end;
}
