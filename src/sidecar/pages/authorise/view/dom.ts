/**
 * Elements from values, never from HTML text: a name that an operator or a server chose cannot become markup. One screen at a time; each new one gets
 * the focus on its heading, so that a screen reader starts where the person does.
 */
export type Child = Node | string | null;
interface Props {
  readonly id?: string;
  readonly className?: string;
  readonly tabIndex?: number;
  readonly attributes?: Readonly<Record<string, string>>;
}

export function el<Tag extends keyof HTMLElementTagNameMap>(tag: Tag, props: Props = {}, ...children: Child[]): HTMLElementTagNameMap[Tag] {
  const element = document.createElement(tag);
  const { attributes = {}, ...rest } = props;
  Object.assign(element, rest);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children.filter((child) => child !== null));
  return element;
}

export const text = (...children: Child[]): HTMLElement => el('p', {}, ...children);
export const quiet = (...children: Child[]): HTMLElement => el('p', { className: 'quiet' }, ...children);
/** A DID, an account, a command: not to be translated by the browser. */
export const code = (value: string): HTMLElement => el('code', { className: 'did', attributes: { translate: 'no' } }, value);
/** Said at once by a screen reader. */
export const problem = (message: string): HTMLElement => el('p', { className: 'problem', attributes: { role: 'alert' } }, message);
export const facts = (...pairs: readonly (readonly [string, Child])[]): HTMLElement =>
  el('dl', {}, ...pairs.flatMap(([term, what]) => [el('dt', {}, term), el('dd', {}, what)]));

/** Pressed twice it acts once: until the work is over it says that it is busy, and keeps the focus. */
export function button(
  label: string,
  act: () => void | Promise<void>,
  { main = false, describes }: { main?: boolean; describes?: string } = {},
): HTMLButtonElement {
  const node = el('button', { className: main ? 'main' : '', attributes: { type: 'button' } }, label);
  // The accessible name starts with what is to be read on the button.
  if (describes !== undefined) node.setAttribute('aria-label', `${label}: ${describes}`);
  const press = whenFree(node, act);
  node.addEventListener('click', press);
  return node;
}

/** A form that Enter sends, too; it is never sent to a server. */
export function form(
  submit: string,
  act: () => void | Promise<void>,
  fields: readonly Child[],
  others: readonly HTMLButtonElement[] = [],
): HTMLFormElement {
  const send = el('button', { className: 'main', attributes: { type: 'submit' } }, submit);
  const node = el(
    'form',
    { attributes: { autocomplete: 'off', novalidate: '' } },
    ...fields,
    el('div', { className: 'buttons' }, send, ...others),
  );
  const press = whenFree(send, act);
  node.addEventListener('submit', (event) => {
    event.preventDefault();
    press();
  });
  return node;
}

function whenFree(node: HTMLElement, act: () => void | Promise<void>): () => void {
  let busy = false;
  return () => {
    if (busy) return;
    const work = act();
    if (work === undefined) return;
    busy = true;
    node.setAttribute('aria-disabled', 'true');
    void work.finally(() => {
      busy = false;
      node.removeAttribute('aria-disabled');
    });
  };
}

/** Text that must not reach a spell checker's server, a password manager or a form history. */
export const PRIVATE_INPUT: Readonly<Record<string, string>> = {
  autocomplete: 'off',
  autocapitalize: 'none',
  autocorrect: 'off',
  spellcheck: 'false',
  translate: 'no',
  'data-1p-ignore': '',
  'data-lpignore': 'true',
};

export interface Field<Input extends HTMLInputElement | HTMLTextAreaElement> {
  readonly nodes: readonly HTMLElement[];
  readonly input: Input;
  /** Shows what is wrong beside the field, and goes there. */
  complain(message: string): void;
}

export function field<Tag extends 'input' | 'textarea'>(tag: Tag, id: string, label: string, hint = ''): Field<HTMLElementTagNameMap[Tag]> {
  const input = el(tag, { id, attributes: { ...PRIVATE_INPUT, ...(tag === 'input' ? { type: 'text' } : { rows: '4' }) } });
  const error = el('p', { id: `${id}-problem`, className: 'problem', attributes: { role: 'alert', hidden: '' } });
  const described = hint === '' ? null : el('p', { id: `${id}-hint`, className: 'quiet' }, hint);
  input.setAttribute('aria-describedby', [described?.id, error.id].filter((name) => name !== undefined).join(' '));
  return {
    nodes: [el('label', { className: 'field', attributes: { for: id } }, label), ...(described === null ? [] : [described]), input, error],
    input,
    complain(message) {
      error.textContent = message;
      error.hidden = message === '';
      input.setAttribute('aria-invalid', String(message !== ''));
      if (message !== '') input.focus();
    },
  };
}

/** A line that can be sent as it is. */
export function lineToSend(line: string, say: (message: string) => void): HTMLElement {
  const copy = button(
    'Copy',
    async () => {
      try {
        await navigator.clipboard.writeText(line);
        say('Copied.');
      } catch {
        say('This browser does not let pages copy. Select the line and copy it yourself.');
      }
    },
    { describes: line },
  );
  return el('p', { className: 'line' }, code(line), copy);
}

export interface Shell {
  /** Replaces the screen. */
  show(title: string, ...children: Child[]): void;
  /** Says something in passing, for eyes and ears. */
  say(message: string): void;
}

export function createShell(): Shell {
  const view = document.getElementById('view');
  const status = document.getElementById('status');
  if (view === null || status === null) throw new Error('the page has lost its frame');
  return {
    show(title, ...children) {
      const heading = el('h1', { tabIndex: -1 }, title);
      view.replaceChildren(heading, ...children.filter((child) => child !== null));
      status.textContent = '';
      document.title = title;
      heading.focus();
      scrollTo(0, 0);
    },
    say(message) {
      status.textContent = message;
    },
  };
}
