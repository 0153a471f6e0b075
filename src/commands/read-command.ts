/**
 * Chat commands as data, and how a message is read as one. A command acts on the person's own grants without a model in between, so what is
 * one must be plain: the whole message is the command, its first word is known, and a message that begins so and goes on otherwise gets the
 * usage instead of an answer, because it was meant for us and not for the model. Any other `!word` is an ordinary message. Pure.
 */
import type { TokenId } from '../ids.ts';
import { isMultitask, type Multitask } from '../runs/inputs.ts';

export interface CommandSpec {
  readonly name: 'help' | 'authorise' | 'grants' | 'revoke' | 'balance' | 'stop' | 'mode' | 'verify';
  /** What is about one person's authority is for the direct room: in a group only a hint is given. */
  readonly where: 'direct' | 'anywhere';
  /** First words that mean it, in lower case; the first is the one that is shown. */
  readonly words: readonly string[];
  readonly uses: readonly { readonly form: string; readonly summary: string }[];
}

export const COMMANDS: readonly CommandSpec[] = [
  { name: 'help', where: 'anywhere', words: ['!help'], uses: [{ form: '!help', summary: 'see what I understand' }] },
  {
    name: 'authorise',
    where: 'direct',
    words: ['!authorise', '!authorize'],
    uses: [
      { form: '!authorise', summary: 'get a link to authorise me, or see what waits for your confirmation' },
      { form: '!authorise confirm', summary: 'accept what I have shown you' },
    ],
  },
  { name: 'grants', where: 'direct', words: ['!grants'], uses: [{ form: '!grants', summary: 'list what you have granted me' }] },
  {
    name: 'revoke',
    where: 'direct',
    words: ['!revoke'],
    uses: [
      { form: '!revoke <id>', summary: 'take back one authorisation; `!grants` shows the ids' },
      { form: '!revoke all', summary: 'take back all of them' },
    ],
  },
  { name: 'balance', where: 'direct', words: ['!balance'], uses: [{ form: '!balance', summary: 'see how many credits you have' }] },
  { name: 'stop', where: 'anywhere', words: ['!stop'], uses: [{ form: '!stop', summary: 'stop what I am answering here' }] },
  {
    name: 'mode',
    where: 'anywhere',
    words: ['!mode'],
    uses: [
      { form: '!mode show', summary: 'see what I do with a message that comes while I answer another of yours' },
      { form: '!mode steer', summary: 'take it into the answer I am working on' },
      { form: '!mode enqueue', summary: 'answer it afterwards' },
      { form: '!mode interrupt', summary: 'stop, and answer it instead' },
    ],
  },
  {
    name: 'verify',
    where: 'anywhere',
    words: ['!verify'],
    uses: [{ form: '!verify', summary: 'see the fingerprint of my device, to compare it with what your app shows' }],
  },
];

/** What is done to runs; the rest is about authority. */
export type ControlCommand =
  | { readonly kind: 'stop' }
  /** Null: only show it. */
  | { readonly kind: 'mode'; readonly mode: Multitask | null };
/** It needs no more than the oracle's own keys. */
export interface VerifyCommand {
  readonly kind: 'verify';
}
export type Command = AuthorityCommand | ControlCommand | VerifyCommand;
export const isControl = (command: Command): command is ControlCommand => command.kind === 'stop' || command.kind === 'mode';

export type AuthorityCommand =
  | { readonly kind: 'authorise' }
  | { readonly kind: 'confirm' }
  | { readonly kind: 'grants' }
  | { readonly kind: 'balance' }
  /** The first characters of a token id. */
  | { readonly kind: 'revoke'; readonly prefix: string }
  | { readonly kind: 'revoke_all' }
  /** By its whole id: the event `ixo.oracle.revoke`. */
  | { readonly kind: 'revoke_token'; readonly tokenId: TokenId }
  /** All of them. */
  | { readonly kind: 'help' }
  /** A known first word, and then something that it does not take. */
  | { readonly kind: 'usage'; readonly of: CommandSpec };

/** It says how to talk to the oracle and nothing of a person, so that a group may see it as well. */
export const isPublic = (command: Command): command is AuthorityCommand =>
  command.kind === 'help' || (command.kind === 'usage' && command.of.where === 'anywhere');

/** Longer than any command: then the rest is not looked at. */
const MAX_CHARS = 200;
const ID_PREFIX = /^[A-Za-z0-9_-]{1,43}$/u;

/** @returns null when it is none. `isReply`: old clients put the message they reply to in front, as a quote. */
export function readCommand(text: string, { isReply = false }: { isReply?: boolean } = {}): Command | null {
  const said = unwrap((isReply ? afterQuote(text) : text).trim());
  const [first = '', ...rest] = said.slice(0, MAX_CHARS).split(/\s+/u);
  const spec = COMMANDS.find(({ words }) => words.includes(first.toLowerCase()));
  if (spec === undefined) return null;
  return (said.length > MAX_CHARS ? null : readForm(spec, rest)) ?? { kind: 'usage', of: spec };
}

function readForm({ name }: CommandSpec, [argument, ...more]: readonly string[]): Command | null {
  // Whoever asks for help in more words is helped as well.
  if (name === 'help') return { kind: 'help' };
  if (more.length > 0) return null;
  const word = argument?.toLowerCase();
  switch (name) {
    case 'authorise':
      if (word === undefined) return { kind: 'authorise' };
      return word === 'confirm' ? { kind: 'confirm' } : null;
    case 'grants':
      return word === undefined ? { kind: 'grants' } : null;
    case 'stop':
      return word === undefined ? { kind: 'stop' } : null;
    case 'balance':
      return word === undefined ? { kind: 'balance' } : null;
    case 'verify':
      return word === undefined ? { kind: 'verify' } : null;
    case 'mode':
      if (word === undefined || word === 'show') return { kind: 'mode', mode: null };
      return isMultitask(word) ? { kind: 'mode', mode: word } : null;
    case 'revoke': {
      if (argument === undefined) return null;
      if (word === 'all') return { kind: 'revoke_all' };
      const prefix = unwrap(argument);
      return ID_PREFIX.test(prefix) ? { kind: 'revoke', prefix } : null;
    }
  }
}

/** Copied from a client that shows the markdown of our own notice. */
const unwrap = (text: string): string => (/^`[^`]*`$/u.test(text) ? text.slice(1, -1).trim() : text);

function afterQuote(text: string): string {
  const lines = text.split('\n');
  const end = lines.findIndex((line) => !line.startsWith('>'));
  return end <= 0 ? text : lines.slice(end).join('\n');
}

/** In a group the oracle is addressed first, by its name or id: what follows may be a command. */
export function afterMention(text: string, names: readonly string[]): string {
  const said = text.trimStart();
  for (const name of names) {
    if (name === '' || !said.toLowerCase().startsWith(name.toLowerCase())) continue;
    return said.slice(name.length).replace(/^\s*[:,]?\s*/u, '');
  }
  return said;
}
