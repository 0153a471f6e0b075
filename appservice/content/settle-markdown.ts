/**
 * While an answer streams, its last line is half written, and markdown gives half lines another meaning: `text\n-` makes a heading of the
 * paragraph, `**bol` shows stars, a table is a row of bars until its second line ends. Each edit would flash it. So before an unfinished text is
 * rendered, its end is settled: markers that say nothing yet are held back, open emphasis, code and links are closed. Only what is shown is
 * touched; the text itself, and the final rendering, are not. Pure, total, one pass over the last paragraph.
 */
import { openFence } from './fences.ts';

/** A last line of markers only: a list bullet, heading, rule, quote or number that has no text yet. */
const MARKERS_ONLY = /(?:^|\n)[ \t]*(?:[-+*=_#>~`]+|\d{1,9}[.)]?)[ \t]*$/u;
/** In a fence only the fence itself can be half written. */
const HALF_FENCE = /\n[ \t]*(?:`{1,32}|~{1,32})$/u;
/** The row of dashes that makes the line above it a table header. */
const DELIMITER_ROW = /^(?=[^-]*-)(?=[^|]*\|)[|:\- \t]+$/u;
const HALF_LINK = /!?\[([^[\]\n]{0,1000})\]\([^()\n]{0,2000}$/u;
/** More than any paragraph needs; keeps the work per edit flat. */
const TAIL_CHARS = 4_000;

export function settleMarkdown(text: string): string {
  const fence = openFence(text);
  if (fence !== undefined) return text.replace(HALF_FENCE, '');
  const paragraph = text.lastIndexOf('\n\n');
  const from = Math.max(paragraph === -1 ? 0 : paragraph + 2, text.length - TAIL_CHARS, 0);
  return text.slice(0, from) + settleTail(text.slice(from));
}

function settleTail(tail: string): string {
  const table = halfTable(tail);
  if (table !== undefined) return tail.slice(0, table);
  return closeInline(tail.replace(MARKERS_ONLY, '').replace(HALF_LINK, '$1').trimEnd());
}

/** Where a header begins whose delimiter row is not finished; three rows without one are no table. */
function halfTable(tail: string): number | undefined {
  const lines = tail.split('\n');
  let first = lines.length;
  while (first > 0 && lines[first - 1]?.trimStart().startsWith('|')) first -= 1;
  const rows = lines.slice(first);
  if (rows.length === 0 || rows.length > 2 || rows.slice(0, -1).some((row) => DELIMITER_ROW.test(row))) return undefined;
  return lines.slice(0, first).join('\n').length;
}

/** Closes code, then bold, of the last paragraph; an opener with nothing behind it is dropped instead. */
function closeInline(tail: string): string {
  const code = tail.split('`').length - 1;
  if (code % 2 === 1) return tail.endsWith('`') ? tail.slice(0, -1) : `${tail}\``;
  const outside = tail.replace(/`[^`]*`/gu, '');
  const bold = outside.split('**').length - 1;
  if (bold % 2 === 0) return tail;
  return tail.endsWith('**') ? tail.slice(0, -2) : `${tail}${tail.endsWith('*') ? '*' : '**'}`;
}
