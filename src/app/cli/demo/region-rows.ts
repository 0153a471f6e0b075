/**
 * What the terminal shows below the person's last line: answers as far as they have grown, and what was typed elsewhere. Pure, so that the
 * growing can be tested without a terminal. Text of rooms is a stranger's: no control character of theirs reaches the screen (G14).
 */
import { isJsonObject, type JsonObject } from '../../../json.ts';

/** As `SeenMessage` of synapse-dev/homeserver/room-watch.ts has it. */
export interface ShownMessage {
  readonly eventId: string;
  readonly sender: string;
  readonly text: string;
  readonly content: JsonObject;
  readonly live: boolean;
  readonly redacted: boolean;
}
export interface RegionOptions {
  /** The person's account. */
  readonly me: string;
  /** Text by event id that stands further up already and can no longer be changed there. */
  readonly settled: ReadonlyMap<string, string>;
  readonly width: number;
  readonly style: Style;
}
export interface Style {
  readonly dim: (text: string) => string;
  readonly name: (text: string) => string;
}

export const PLAIN: Style = { dim: (text) => text, name: (text) => text };
export const COLOURED: Style = {
  dim: (text) => `\u001b[2m${text}\u001b[22m`,
  name: (text) => `\u001b[1m${text}\u001b[22m`,
};

export function buildRows(messages: readonly ShownMessage[], options: RegionOptions): string[] {
  return messages.flatMap((message) => buildMessageRows(message, options));
}

function buildMessageRows(message: ShownMessage, { me, settled, width, style }: RegionOptions): string[] {
  const before = settled.get(message.eventId);
  if (message.redacted || before === message.text) return [];
  const continued = before !== undefined && before !== '' && message.text.startsWith(before);
  const speaker = message.sender === me ? 'you (elsewhere)' : 'oracle';
  const head = continued ? `${speaker}> … ` : `${speaker}> `;
  const text = cleanForTerminal(continued ? message.text.slice(before.length) : message.text);
  const [first = '', ...rest] = wrap(head + text, width);
  const tools = toolsOf(message.content);
  return [
    ...(tools.length === 0 || continued ? [] : [style.dim(wrap(`        used ${tools.join(', ')}`, width)[0] ?? '')]),
    style.name(first.slice(0, head.length)) + first.slice(head.length),
    ...rest,
  ];
}

function toolsOf(content: JsonObject): string[] {
  const run = content['ixo.oracle.run'];
  const tools = isJsonObject(run) ? run['tools'] : undefined;
  return Array.isArray(tools) ? tools.filter((tool) => typeof tool === 'string').map((tool) => cleanForTerminal(tool)) : [];
}

/** Keeps line breaks; escape sequences, other controls and signs that turn the writing direction become nothing. */
export const cleanForTerminal = (text: string): string =>
  text
    .replace(/\r\n?/gu, '\n')
    .replace(/\t/gu, '    ')
    .replace(/[\u0000-\u0009\u000b-\u001f\u007f-\u009f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/gu, '');

const graphemes = new Intl.Segmenter(undefined, { granularity: 'grapheme' });
const WIDE =
  /\p{Emoji_Presentation}|\ufe0f|[\u1100-\u115f\u2e80-\u303e\u3041-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60\uffe0-\uffe6]|[\u{20000}-\u{3fffd}]/u;
const widthOf = (grapheme: string): number => (/^\p{M}+$/u.test(grapheme) ? 0 : WIDE.test(grapheme) ? 2 : 1);

/** Rows of at most `width` columns, broken at spaces where there are some. Rows, because the terminal is told how many to go up. */
export function wrap(text: string, width: number): string[] {
  return text.split('\n').flatMap((line) => wrapLine(line, Math.max(width, 20)));
}

function wrapLine(line: string, width: number): string[] {
  const rows: string[] = [];
  let row = '';
  let columns = 0;
  let lastSpace = -1;
  for (const { segment } of graphemes.segment(line)) {
    const wide = widthOf(segment);
    if (columns + wide > width) {
      const cut = lastSpace > 0 ? lastSpace : row.length;
      rows.push(row.slice(0, cut));
      row = row.slice(cut).replace(/^ /u, '');
      columns = [...graphemes.segment(row)].reduce((sum, { segment: one }) => sum + widthOf(one), 0);
      lastSpace = -1;
    }
    if (segment === ' ' && row.trim() !== '') lastSpace = row.length;
    row += segment;
    columns += wide;
  }
  return [...rows, row];
}
