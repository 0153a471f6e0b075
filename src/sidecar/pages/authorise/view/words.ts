/** The three screens on which words are to be seen: shown once, asked for, typed in. What was typed leaves the page with its screen. */
import { pickTwo, randomBelow, readWords } from '../words.ts';
import { button, type Child, el, field, form, quiet, type Shell, text } from './dom.ts';

export function showNewWords(shell: Shell, words: readonly string[], { next, back }: { next: () => void; back: () => void }): void {
  shell.show(
    'Write down these 12 words',
    text('They are your account. Write them on paper, in this order, and keep them where only you find them.'),
    el(
      'ol',
      { className: 'words notranslate', attributes: { translate: 'no', 'aria-label': 'Your 12 words', role: 'list' } },
      ...words.map((word) => el('li', {}, word)),
    ),
    text(
      'Whoever has these words can act as you. Nobody can give them back to you: this page does not keep them, and the oracle never sees them.',
    ),
    el('div', { className: 'buttons' }, button('I have written them down', next, { main: true }), button('Back', back)),
  );
}

export function askForTwoWords(
  shell: Shell,
  words: readonly string[],
  { next, again }: { next: () => void | Promise<void>; again: () => void },
): void {
  const asked = pickTwo(words.length, randomBelow).map((at) => ({ at, ...field('input', `word-${at + 1}`, `Word ${at + 1}`) }));
  shell.show(
    'Check what you wrote down',
    form(
      'Go on',
      () => {
        for (const { complain } of asked) complain('');
        const wrong = asked.find(({ at, input }) => input.value.trim().toLowerCase() !== words[at]);
        if (wrong !== undefined) return wrong.complain(`This is not word ${wrong.at + 1}. Look at what you wrote down.`);
        return next();
      },
      [text('Type these two words from your paper.'), ...asked.flatMap(({ nodes }) => nodes)],
      [button('Show the words again', again)],
    ),
  );
}

export interface AskForWords {
  readonly title: string;
  readonly before: readonly Child[];
  readonly submit: string;
  readonly next: (words: string) => Promise<void>;
  readonly back: { readonly label: string; readonly act: () => void } | null;
}

export function askForWords(shell: Shell, { title, before, submit, next, back }: AskForWords): void {
  const typed = field('textarea', 'words', 'Your words', 'All of them, in order, with a space between each.');
  const exact = el('input', { id: 'exact', attributes: { type: 'checkbox' } });
  const override = el(
    'div',
    { attributes: { hidden: '' } },
    el(
      'label',
      { className: 'choice', attributes: { for: 'exact' } },
      exact,
      'My words come from another app, and every letter is right. Use them exactly as typed.',
    ),
  );
  shell.show(
    title,
    ...before,
    form(
      submit,
      () => {
        typed.complain('');
        const read = readWords(typed.input.value);
        if (read.kind === 'good') return next(read.words);
        if (read.kind === 'unusable') return typed.complain(WHY_UNUSABLE[read.why]);
        if (exact.checked && !override.hidden) return next(read.asTyped);
        override.hidden = false;
        return typed.complain(sayDoubt(read));
      },
      [...typed.nodes, override, quiet('Your words stay on this device. They are not stored and not sent.')],
      back === null ? [] : [button(back.label, back.act)],
    ),
  );
}

const WHY_UNUSABLE = {
  empty: 'Type your words first.',
  short: 'These are too few words.',
  long: 'This is too long to be the words of an account.',
} as const;

function sayDoubt({ unknown, count }: { unknown: readonly string[]; count: number }): string {
  if (unknown.length > 0)
    return `These words are not on the list of words that accounts are made of: ${unknown.slice(0, 5).join(', ')}. Look for a typing mistake.`;
  if (count !== 12) return `An account made here has 12 words, and these are ${count}.`;
  return 'These words do not belong together: one of them is wrong, or their order is.';
}
