import fc from 'fast-check';
import { expect, test } from 'vitest';
import { createAnswerWriter, planRepair } from '../../../src/agent/answer-writer.ts';
import { hasText } from '../../../src/agent/turn-messages.ts';

function record(shown = ''): { text: (delta: string) => void; truncate: (length: number) => void; shown: () => string; deltas: string[] } {
  let all = shown;
  const deltas: string[] = [];
  return {
    deltas,
    shown: () => all,
    text: (delta) => {
      deltas.push(delta);
      all += delta;
    },
    truncate: (length) => {
      all = all.slice(0, length);
    },
  };
}

test('texts of several model calls are joined by an empty line, and white space alone is no text', () => {
  const output = record();
  const writer = createAnswerWriter(output, '');
  for (const message of [['  Hel', 'lo'], ['\n', ' '], ['Bye']]) {
    writer.startMessage();
    for (const delta of message) writer.push(delta);
    writer.endMessage();
  }

  expect(output.shown()).toBe('  Hello\n\nBye');
});

test('the folded frames are the answer, however the texts are cut into chunks', () => {
  fc.assert(
    fc.property(fc.array(fc.array(fc.string({ maxLength: 6 }), { maxLength: 6 }), { maxLength: 5 }), (messages) => {
      const output = record();
      const writer = createAnswerWriter(output, '');
      for (const chunks of messages) {
        writer.startMessage();
        for (const chunk of chunks) writer.push(chunk);
        writer.endMessage();
      }

      expect(output.shown()).toBe(
        messages
          .map((chunks) => chunks.join(''))
          .filter(hasText)
          .join('\n\n'),
      );
    }),
  );
});

test('repair makes any shown text into any other, without half a surrogate pair', () => {
  const text = fc.array(fc.constantFrom('a', 'b', '😀', '😁'), { maxLength: 8 }).map((parts) => parts.join(''));
  fc.assert(
    fc.property(text, text, (shown, wanted) => {
      const { keep, add } = planRepair(shown, wanted);

      expect(shown.slice(0, keep) + add).toBe(wanted);
      expect(shown.slice(0, keep).isWellFormed() && add.isWellFormed()).toBe(true);
    }),
  );
});

test('text that is already right is not sent again', () => {
  const output = record('Hello');

  createAnswerWriter(output, 'Hello').repair('Hello, you');

  expect(output.deltas).toEqual([', you']);
});
