/**
 * Where a text stands inside a code fence decides three things: where an answer may be split, how the next part begins, and how an unfinished
 * text is closed before it is shown. One scanner for all three, so that they cannot disagree. Rules: CommonMark 0.31 §4.5; indentation is not
 * counted, because models put fences into list items, where four spaces are not code.
 */

export interface Fence {
  /** The run of backticks or tildes that opened it. */
  readonly marker: string;
  /** Info string, usually the language. */
  readonly info: string;
  readonly indent: string;
}

/** Longer runs than this are a decoration, not a fence; reopening one would cost its length in every part. */
const OPENING = /^([ \t]*)(`{3,32}(?!`)|~{3,32}(?!~))([^\n]*)$/;
const INFO_CHARS = 64;

/** State after one line (without its newline). */
export function stepFence(open: Fence | undefined, line: string): Fence | undefined {
  if (open !== undefined) return closesFence(open, line) ? undefined : open;
  // Cheap first look: the pattern below is only for lines that begin like a fence.
  if (!/^[ \t]*(?:```|~~~)/.test(line)) return undefined;
  const match = OPENING.exec(line);
  if (match === null) return undefined;
  const [, indent = '', marker = '', rest = ''] = match;
  if (marker.startsWith('`') && rest.includes('`')) return undefined;
  const info = rest.trim();
  return { marker, info: info.length <= INFO_CHARS ? info : '', indent };
}

export function closesFence(open: Fence, line: string): boolean {
  const text = line.trim();
  return text.length >= open.marker.length && text === open.marker.charAt(0).repeat(text.length);
}

/** The fence that is open at the end of `text`, given the one open at its start. */
export function openFence(text: string, start?: Fence): Fence | undefined {
  let fence = start;
  for (const line of text.split('\n')) fence = stepFence(fence, line);
  return fence;
}

/** First line of a part that goes on inside a fence. */
export const reopening = (fence: Fence): string => `${fence.marker}${fence.info}\n`;

/** What closes it, on a line of its own. */
export const closing = (fence: Fence, text: string): string => `${text.endsWith('\n') ? '' : '\n'}${fence.indent}${fence.marker}`;
