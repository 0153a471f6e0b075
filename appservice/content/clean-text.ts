/**
 * Text of a model may hold anything: NUL bytes that databases and clients choke on, direction overrides that make a sentence read as
 * another one (CVE-2021-42574), halves of surrogate pairs that have no UTF-8 form and so no canonical JSON. They are removed before the text
 * is measured, split or shown, so that every later step counts the same characters. Marks that scripts need (ZWJ, ZWNJ, LRM, RLM) stay.
 * The rule looks at one character and its neighbour only: a text can be cleaned in pieces (`splitTail`) and comes out the same.
 */

// C0 and C1 controls but tab and newline, the nine direction embeddings, overrides and isolates, byte order marks, non-characters.
const REMOVED = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069\ufeff\ufffe\uffff]/gu;
const LINE_ENDS = /\r\n?|[\u2028\u2029]/gu;
const LONE_SURROGATE = /\p{Surrogate}/gu;

/** Idempotent. Lone surrogates become U+FFFD, line ends `\n`. */
export const cleanText = (text: string): string => text.replace(LINE_ENDS, '\n').replace(LONE_SURROGATE, '\ufffd').replace(REMOVED, '');

/** Cuts off a last character whose meaning the next piece decides: the first half of a surrogate pair, or a CR that may be half of a CRLF. */
export function splitTail(text: string): { settled: string; pending: string } {
  const last = text.charCodeAt(text.length - 1);
  const waits = last === 0x0d || (last >= 0xd800 && last <= 0xdbff);
  return waits ? { settled: text.slice(0, -1), pending: text.slice(-1) } : { settled: text, pending: '' };
}

/** At most `maxChars` UTF-16 units, never half a surrogate pair; `…` stands for what is cut. */
export function shorten(text: string, maxChars: number): string {
  if (text.length <= maxChars) return text;
  const cut = text.slice(0, maxChars - 1);
  return `${/[\ud800-\udbff]$/.test(cut) ? cut.slice(0, -1) : cut}…`;
}
