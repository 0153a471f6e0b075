/** What is granted, to whom, for which account and until when, in plain words before anything is signed; and the one line to send afterwards. */
import type { Ability, LinkContext } from '../api.ts';
import { MAX_EXTRA } from '../limits.ts';
import { button, code, el, facts, form, lineToSend, problem, quiet, type Shell, text } from './dom.ts';

export interface Choice {
  readonly days: number;
  readonly abilities: readonly Ability[];
}

const DAYS = [1, 7, 30] as const;
const PREFERRED_DAYS = 7;

export interface AskForGrant {
  readonly context: LinkContext;
  readonly did: string;
  readonly endsAt: (days: number) => number;
  /** @returns what went wrong, in words; null when the next screen is there. */
  readonly sign: (choice: Choice) => Promise<string | null>;
  readonly back: () => void;
}

export function askForGrant(shell: Shell, { context, did, endsAt, sign, back }: AskForGrant): void {
  const { oracle, matrixUserId, abilities, maxDays } = context;
  const days = DAYS.filter((count) => count <= maxDays).map((count) => ({
    count,
    input: el('input', { id: `days-${count}`, attributes: { type: 'radio', name: 'days', value: String(count) } }),
  }));
  for (const { count, input } of days) input.checked = count === Math.min(PREFERRED_DAYS, maxDays);
  const extras = abilities.map((ability, at) => ({
    ability,
    input: el('input', { id: `ability-${at}`, attributes: { type: 'checkbox' } }),
  }));
  const chat = el('input', { id: 'chat', attributes: { type: 'checkbox', disabled: '' } });
  chat.checked = true;

  const choice = (): Choice => ({
    days: days.find(({ input }) => input.checked)?.count ?? 1,
    abilities: extras.filter(({ input }) => input.checked).map(({ ability }) => ability),
  });
  const summary = el('p', { id: 'summary', attributes: { 'aria-live': 'polite' } });
  const trouble = el('div');
  const summarise = () => {
    const { days: count, abilities: chosen } = choice();
    summary.replaceChildren(
      ...['You allow ', el('strong', {}, oracle.name), ' to answer ', code(matrixUserId), ' in your name'],
      chosen.length === 0 ? '' : `, and to use: ${chosen.map(({ title }) => title).join('; ')}`,
      `. This ends on ${formatTime(endsAt(count))}, or earlier when you take it back.`,
    );
  };
  summarise();

  const node = form(
    'Sign and send',
    async () => {
      const chosen = choice();
      trouble.replaceChildren();
      if (chosen.abilities.length > MAX_EXTRA)
        return trouble.replaceChildren(problem(`One permission can name ${MAX_EXTRA} further things at most. Choose fewer.`));
      shell.say('Signing and sending …');
      const failure = await sign(chosen);
      if (failure === null) return;
      shell.say('');
      trouble.replaceChildren(problem(failure));
    },
    [
      el(
        'fieldset',
        {},
        el('legend', {}, 'Until when'),
        ...days.map(({ count, input }) =>
          el('label', { className: 'choice', attributes: { for: input.id } }, input, count === 1 ? '1 day' : `${count} days`),
        ),
      ),
      el(
        'fieldset',
        {},
        el('legend', {}, 'What it may do'),
        el('label', { className: 'choice', attributes: { for: chat.id } }, chat, 'Answer your messages in Matrix (always part of it)'),
        ...extras.map(({ ability, input }) =>
          el(
            'label',
            { className: 'choice', attributes: { for: input.id } },
            input,
            el('span', {}, ability.title, el('br'), code(`${ability.can} ${ability.with}`)),
          ),
        ),
      ),
      el('h2', {}, 'What you sign'),
      summary,
      trouble,
    ],
    [button('Back', back)],
  );
  node.addEventListener('change', summarise);
  shell.show(
    `What ${oracle.name} may do`,
    facts(
      ['Oracle', oracle.name],
      ['Identity of the oracle', code(oracle.did)],
      ['Your Matrix account', code(matrixUserId)],
      ['Your account here', code(did)],
    ),
    node,
  );
}

export interface Done {
  readonly oracle: { readonly name: string };
  readonly did: string;
  readonly kept: boolean;
  readonly manage: () => void;
}

export function showDone(shell: Shell, { oracle, did, kept, manage }: Done): void {
  shell.show(
    `Now send one line to ${oracle.name}`,
    text('Your permission is signed and with the oracle, but it does not count yet. In your direct chat with it, send:'),
    lineToSend('!authorise', shell.say),
    el(
      'ol',
      {},
      el('li', {}, `${oracle.name} answers with what it received: whose permission it is, for what, and until when.`),
      el(
        'li',
        {},
        'Compare the account it names with yours: ',
        code(did),
        '. If it is another one, stop: somebody else made that permission.',
      ),
      el('li', {}, 'If it is yours, send ', code('!authorise confirm'), '. From then on it counts.'),
    ),
    quiet(
      'You take it back with ',
      code('!revoke all'),
      kept
        ? ', or on this page: this browser may show and take back your permissions for a day, afterwards it asks for your words.'
        : ', or on this page with your words.',
    ),
    el('div', { className: 'buttons' }, button('Show my permissions', manage)),
  );
}

/** With its time zone, because the person and the oracle may have two. */
export const formatTime = (at: number): string =>
  new Intl.DateTimeFormat(undefined, {
    year: 'numeric',
    month: 'long',
    day: 'numeric',
    hour: '2-digit',
    minute: '2-digit',
    timeZoneName: 'short',
  }).format(at);
