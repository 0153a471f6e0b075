import fc from 'fast-check';
import { expect, test } from 'vitest';
import { createSseReader } from '../../../src/models/read-sse.ts';

const bytes = (text: string): Uint8Array => new TextEncoder().encode(text);
const readAll = (...pieces: Uint8Array[]) => {
  const reader = createSseReader();
  return [...pieces.flatMap((piece) => reader.push(piece)), ...reader.end()];
};

test.each([
  ['LF', 'data: a\n\ndata:b\n\n'],
  ['CRLF', 'data: a\r\n\r\ndata:b\r\n\r\n'],
  ['CR', 'data: a\r\rdata:b\r\r'],
  ['no line after the last event', 'data: a\n\ndata: b'],
  ['comments and unknown fields between', ': hi\ndata: a\nid: 3\n\nretry: 1\n\ndata: b\n\n'],
])('events are read with %s', (_name, text) => {
  expect(readAll(bytes(text)).map(({ data }) => data)).toEqual(['a', 'b']);
});

test('several data lines are one event, and an event may have a name', () => {
  expect(readAll(bytes('event: error\ndata: a\ndata:  b\n\ndata: c\n\n'))).toEqual([
    { event: 'error', data: 'a\n b' },
    { event: '', data: 'c' },
  ]);
});

test('where the pieces end makes no difference, also inside a character or a line end', () => {
  const line = fc.stringMatching(/^[aé😀: ]{0,8}$/u);
  fc.assert(
    fc.property(fc.array(line), fc.constantFrom('\n', '\r\n', '\r'), fc.array(fc.nat({ max: 200 })), (lines, newline, cuts) => {
      const whole = bytes(lines.map((text) => `data: ${text}${newline}${newline}`).join(''));
      const ends = [...cuts.filter((cut) => cut < whole.length).sort((a, b) => a - b), whole.length];
      const pieces = ends.map((cut, index) => whole.subarray(ends[index - 1] ?? 0, cut));
      expect(readAll(...pieces)).toEqual(lines.map((data) => ({ event: '', data })));
    }),
  );
});
