import fc from 'fast-check';
import { expect, test } from 'vitest';
import { buildRows, cleanForTerminal, PLAIN, type ShownMessage, wrap } from '../../../../../src/app/cli/demo/region-rows.ts';

const message = (text: string, more: Partial<ShownMessage> = {}): ShownMessage => ({
  eventId: '$answer',
  sender: '@oracle:oracle.local',
  text,
  content: {},
  live: false,
  redacted: false,
  ...more,
});
const rows = (messages: readonly ShownMessage[], settled: Record<string, string> = {}) =>
  buildRows(messages, { me: '@demo:oracle.local', settled: new Map(Object.entries(settled)), width: 40, style: PLAIN });

test('an answer names its speaker and the tools it used', () => {
  const content = { 'ixo.oracle.run': { tools: ['current_time'] } };

  expect(rows([message('It is noon.', { content })])).toEqual(['        used current_time', 'oracle> It is noon.']);
});

test('what the person typed in another client is shown as theirs', () => {
  expect(rows([message('hi', { sender: '@demo:oracle.local' })])).toEqual(['you (elsewhere)> hi']);
});

test('of an answer that grew after it had scrolled up only the rest is shown', () => {
  expect(rows([message('one two')], { $answer: 'one' })).toEqual(['oracle> …  two']);
  expect(rows([message('one')], { $answer: 'one' })).toEqual([]);
  expect(rows([message('another text')], { $answer: 'one' })).toEqual(['oracle> another text']);
});

test('a redacted message is not shown', () => {
  expect(rows([message('gone', { redacted: true })])).toEqual([]);
});

test('escape sequences and bidirectional overrides of a message never reach the terminal (G14)', () => {
  expect(cleanForTerminal('\u001b[31mred\u001b]0;title\u0007\u202etxt.exe\r\nnext\ttab')).toBe('[31mred]0;titletxt.exe\nnext    tab');
});

test('rows break at spaces and count wide characters twice', () => {
  expect(wrap('aaaa bbbb cccc dddd eeee', 20)).toEqual(['aaaa bbbb cccc dddd', 'eeee']);
  expect(wrap('漢'.repeat(12), 20)).toEqual(['漢'.repeat(10), '漢'.repeat(2)]);
  expect(wrap('a\n\nb', 20)).toEqual(['a', '', 'b']);
});

test('wrapping loses nothing but the spaces at its breaks', () => {
  const squeeze = (text: string) => text.replace(/\s/gu, '');
  fc.assert(
    fc.property(fc.string({ unit: 'grapheme', maxLength: 300 }), fc.integer({ min: 20, max: 60 }), (text, width) => {
      expect(squeeze(wrap(text, width).join(''))).toBe(squeeze(text));
    }),
  );
});
