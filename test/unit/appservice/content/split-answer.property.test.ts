import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { buildAnswerContent, buildAnswerEdit } from '../../../../appservice/content/build-answer.ts';
import { cleanText } from '../../../../appservice/content/clean-text.ts';
import { EMPTY_SPLIT, growSplit, type Part, partsOf, type SplitState, splitAnswer } from '../../../../appservice/content/split-answer.ts';
import type { EventId, RunId, SessionId } from '../../../../src/ids.ts';
import { canonicalJson } from '../../../../src/json.ts';
import { LIMITS } from '../../../../src/limits.ts';

const joined = (parts: readonly Part[]): string => parts.map(({ raw }) => raw).join('');
const utf8 = (text: string): number => Buffer.byteLength(text);

const RUN = {
  runId: '01JEXAMP0E0000000000000000' as RunId,
  sessionId: `$${'s'.repeat(43)}` as SessionId,
  prompts: [`$${'p'.repeat(43)}` as EventId],
  seq: 123,
  status: 'running' as const,
};
const TARGET = `$${'t'.repeat(43)}` as EventId;

function eventBytes({ part, text }: Part): number {
  const sizes = [true, false].flatMap((live) =>
    [buildAnswerEdit({ ...RUN, part, text, live, target: TARGET }), buildAnswerContent({ ...RUN, part, text, live })].map((content) => {
      const json = canonicalJson(content);
      if (!json.ok) throw new Error('not canonical');
      return utf8(json.value);
    }),
  );
  return Math.max(...sizes);
}

const PROSE = 'Words of a sentence, **some bold**, a `name` and a "quote" with [a link](https://example.org/page). ';
const samples: [string, string][] = [
  ['prose', `${PROSE.repeat(4)}\n\n`.repeat(250)],
  ['a line without spaces', 'x'.repeat(100_000)],
  ['emoji families', '👨‍👩‍👧‍👦'.repeat(4_000)],
  ['quotes and newlines', '"\n'.repeat(50_000)],
  ['control characters', '\u0001a'.repeat(20_000)],
  ['one long fence', `Look:\n\n\`\`\`py\n${'print("x < y & z")\n'.repeat(5_000)}\`\`\`\n\nDone.`],
  ['a long table', `|a|b|\n|-|-|\n${'|1|2|\n'.repeat(8_000)}`],
  ['many headings', '# a\n'.repeat(12_000)],
  ['nested quotes', '> > > a\n\n'.repeat(5_000)],
  ['dense code spans', '`a` '.repeat(15_000)],
  ['three-byte text', '漢字'.repeat(20_000)],
  ['backslashes', '\\'.repeat(60_000)],
];

describe('parts', () => {
  test.each(samples)('%s: all of it is readable, no text over 12 kB, no event over 40 kB', (_name, text) => {
    const parts = splitAnswer(text);

    expect(joined(parts)).toBe(cleanText(text));
    for (const part of parts) {
      expect(utf8(part.text)).toBeLessThanOrEqual(LIMITS.partTextBytes);
      expect(eventBytes(part)).toBeLessThanOrEqual(LIMITS.partEventBytes);
    }
    expect(parts.map(({ part }) => part)).toEqual(parts.map((_part, index) => index + 1));
  });

  test('a text of many small elements is split where it can still be formatted', () => {
    const [first] = splitAnswer('# a\n'.repeat(12_000));

    expect(buildAnswerContent({ ...RUN, part: 1, text: first!.text, live: false })).toHaveProperty('formatted_body');
  });

  test('a short answer is one open part', () => {
    expect(splitAnswer('hi')).toEqual([{ part: 1, raw: 'hi', text: 'hi', closed: false }]);
    expect(splitAnswer('')).toEqual([{ part: 1, raw: '', text: '', closed: false }]);
  });

  test('the split is between blocks when there is one in the second half', () => {
    const [first, second] = splitAnswer(`${PROSE.repeat(4)}\n\n`.repeat(60));

    expect(first!.raw).toMatch(/\n\n$/);
    expect(second!.raw).toMatch(/^Words/);
  });

  test('else at a line, else at a word', () => {
    expect(splitAnswer(`${'a'.repeat(70)}\n`.repeat(400))[0]!.raw).toMatch(/\n$/);
    expect(splitAnswer('word '.repeat(4_000))[0]!.raw).toMatch(/word $/);
  });

  test('never inside a character as people see it', () => {
    for (const { raw } of splitAnswer('👨‍👩‍👧‍👦'.repeat(4_000))) expect(raw.length % '👨‍👩‍👧‍👦'.length).toBe(0);
  });

  test('a fence is closed and reopened with its language', () => {
    const parts = splitAnswer(`\`\`\`py\n${'print(1)\n'.repeat(3_000)}\`\`\`\nend`);

    expect(parts.length).toBeGreaterThan(2);
    for (const part of parts.slice(0, -1)) expect(part.text).toMatch(/^```py\nprint\(1\)\n[\s\S]*\n```$/);
    expect(parts.at(-1)!.text).toMatch(/^```py\n[\s\S]*\n```\nend$/);
  });

  test('a fence before the cut goes to the next part whole when it fits there', () => {
    const [first, second] = splitAnswer(`${PROSE.repeat(80)}\n\n\`\`\`js\n${'let a = 1;\n'.repeat(500)}\`\`\`\n`);

    expect(first!.text).not.toContain('```');
    expect(second!.text).toMatch(/^```js\n/);
  });
});

describe('growth', () => {
  test.each(samples)('%s: grown in pieces it is the same as at once, and a closed part never changes', (_name, text) => {
    const chars = text.slice(0, 40_000);
    let state: SplitState = EMPTY_SPLIT;
    for (let at = 0; at < chars.length; at += 333) {
      const before = state.closed;
      state = growSplit(state, chars.slice(at, at + 333));
      expect(state.closed.slice(0, before.length)).toEqual(before);
    }

    expect(partsOf(state)).toEqual(splitAnswer(chars));
  });

  test('for any text and any pieces, closed parts stay and the parts do not depend on the pieces', () => {
    const block = fc.oneof(
      fc.constantFrom('```js\n', '```\n', '~~~\n', '\n\n', '# h\n', '- x\n', '|a|b|\n', '|-|-|\n', '👩‍🚀', '\r\n', '"', '\\'),
      fc.string({ unit: 'binary', maxLength: 30 }),
      fc
        .tuple(fc.constantFrom('word ', 'x', 'line of text\n', '**b** ', '|1|2|\n'), fc.integer({ min: 1, max: 900 }))
        .map(([text, times]) => text.repeat(times)),
    );
    fc.assert(
      fc.property(
        fc.array(block, { maxLength: 10 }),
        fc.array(fc.integer({ min: 700, max: 5_000 }), { minLength: 1, maxLength: 5 }),
        (blocks, steps) => {
          const text = blocks.join('');
          let state: SplitState = EMPTY_SPLIT;
          for (let at = 0, turn = 0; at < text.length; turn += 1) {
            const step = steps[turn % steps.length]!;
            const before = state.closed;
            state = growSplit(state, text.slice(at, at + step));
            at += step;
            expect(state.closed.slice(0, before.length)).toEqual(before);
            expect(splitAnswer(text.slice(0, at)).filter(({ closed }) => closed)).toEqual(state.closed);
          }
          expect(joined(partsOf(state))).toBe(cleanText(text.replace(/[\r\ud800-\udbff]$/, '')));
          for (const part of partsOf(state)) {
            expect(utf8(part.text)).toBeLessThanOrEqual(LIMITS.partTextBytes);
            expect(eventBytes(part)).toBeLessThanOrEqual(LIMITS.partEventBytes);
          }
        },
      ),
      { numRuns: 40 },
    );
  });

  test('a piece may end in the middle of an emoji or of a line end', () => {
    const state = growSplit(growSplit(EMPTY_SPLIT, 'a\ud83d'), '\ude80b\r');

    expect(partsOf(growSplit(state, '\nc'))[0]!.raw).toBe('a🚀b\nc');
    expect(partsOf(state)[0]!.raw).toBe('a🚀b');
  });
});
