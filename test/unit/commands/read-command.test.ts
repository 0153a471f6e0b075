import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { afterMention, COMMANDS, type Command, readCommand } from '../../../src/commands/read-command.ts';

const kindOf = (text: string, isReply = false) => readCommand(text, { isReply })?.kind ?? null;

test.each<[string, Command | null]>([
  ['!authorise', { kind: 'authorise' }],
  ['  !Authorise \n', { kind: 'authorise' }],
  ['!authorize', { kind: 'authorise' }],
  ['!AUTHORISE   Confirm', { kind: 'confirm' }],
  ['!authorise\u00a0confirm', { kind: 'confirm' }],
  ['`!authorise confirm`', { kind: 'confirm' }],
  ['!grants', { kind: 'grants' }],
  ['!revoke all', { kind: 'revoke_all' }],
  ['!revoke ALL', { kind: 'revoke_all' }],
  ['!revoke aB3-_x12', { kind: 'revoke', prefix: 'aB3-_x12' }],
  ['!revoke `aB3-_x12`', { kind: 'revoke', prefix: 'aB3-_x12' }],
  ['!help', { kind: 'help' }],
  ['!Help me please', { kind: 'help' }],
  ['!stop', { kind: 'stop' }],
  ['!verify', { kind: 'verify' }],
  ['  !Verify ', { kind: 'verify' }],
  [' !STOP ', { kind: 'stop' }],
  ['!mode', { kind: 'mode', mode: null }],
  ['!mode show', { kind: 'mode', mode: null }],
  ['!mode Steer', { kind: 'mode', mode: 'steer' }],
  ['!mode enqueue', { kind: 'mode', mode: 'enqueue' }],
  ['!mode interrupt', { kind: 'mode', mode: 'interrupt' }],
])('%j is a command', (text, command) => {
  expect(readCommand(text)).toEqual(command);
});

test.each([
  '!authorise confirmed',
  '!authorise now',
  '!authorise confirm please',
  '!grants all',
  '!revoke',
  '!revoke all of them',
  '!revoke <script>',
  `!revoke ${'a'.repeat(44)}`,
  '!stop it',
  '!verify me',
  '!mode faster',
  '!mode steer please',
  `!authorise ${' '.repeat(300)}confirm`,
])('%j begins like one and changes nothing: its usage is shown', (text) => {
  expect(kindOf(text)).toBe('usage');
});

test.each([
  '',
  '!',
  'authorise',
  'please !authorise',
  'text\n!authorise confirm',
  '! authorise',
  '!authorised',
  '!new',
  '!stopped',
  '!oracle hello',
  '! grants',
  '/authorise',
])('%j is an ordinary message for the agent', (text) => {
  expect(readCommand(text)).toBeNull();
});

describe('a reply', () => {
  const reply = '> <@oracle:example.org> Send `!authorise confirm` to accept it.\n> second line\n\n!authorise confirm';

  test('of an old client has the quoted message in front, which is not looked at', () => {
    expect(kindOf(reply, true)).toBe('confirm');
    expect(kindOf('> !revoke all\n\nwhat does that do?', true)).toBeNull();
  });

  test('is only taken apart when it is one', () => {
    expect(kindOf(reply)).toBeNull();
  });
});

test('in a group the command follows the name that it is addressed to', () => {
  const names = ['@oracle:example.org', 'My Oracle'];

  expect(
    ['my oracle: !grants', '@oracle:example.org !grants', '  My Oracle , !grants', '!grants'].map((text) => afterMention(text, names)),
  ).toEqual(['!grants', '!grants', '!grants', '!grants']);
  expect(afterMention('see My Oracle: !grants', names)).toBe('see My Oracle: !grants');
});

test('any text gives a command or none, never a throw, and an id only of its own alphabet (G14)', () => {
  const words = fc.constantFrom(
    '!help',
    '!authorise',
    '!AUTHORIZE',
    '!grants',
    '!revoke',
    '!stop',
    '!mode',
    'steer',
    'confirm',
    'all',
    '> q',
    '\n',
    '\u2028',
    '`',
  );
  const text = fc.oneof(
    fc.string({ unit: 'binary', maxLength: 300 }),
    fc.array(fc.oneof(words, fc.string({ maxLength: 8 }))).map((parts) => parts.join(' ')),
  );
  fc.assert(
    fc.property(text, fc.boolean(), (said, isReply) => {
      const command = readCommand(said, { isReply });
      if (command?.kind === 'revoke') expect(command.prefix).toMatch(/^[A-Za-z0-9_-]{1,43}$/u);
      // Nothing acts that does not begin with one of our words.
      if (command !== null && !isReply)
        expect(said.trim().replace(/^`\s*/u, '').toLowerCase()).toMatch(/^!(?:help|authori[sz]e|grants|revoke|stop|mode)/u);
    }),
    { numRuns: 2_000 },
  );
});

test('however it is spaced and capitalised, the same words are the same command', () => {
  const space = fc.string({ unit: fc.constantFrom(' ', '\t', '\n', '\u00a0', '\u3000'), maxLength: 5 });
  const between = space.filter((text) => text !== '');
  fc.assert(
    fc.property(
      fc.constantFrom('!authorise confirm', '!grants', '!revoke all'),
      space,
      between,
      space,
      fc.boolean(),
      (form, before, gap, after, upper) => {
        const spaced = `${before}${form.replace(' ', gap)}${after}`;

        expect(readCommand(upper ? spaced.toUpperCase() : spaced)).toEqual(readCommand(form));
      },
    ),
  );
});

test('every form that is shown is one that is understood', () => {
  for (const { uses } of COMMANDS) for (const { form } of uses) expect(kindOf(form.replace('<id>', 'abcd1234'))).not.toBe('usage');
});
