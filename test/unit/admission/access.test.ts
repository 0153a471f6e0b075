import fc from 'fast-check';
import { expect, test } from 'vitest';
import { type AccessRules, decideAccess, isListed, matchesGlob, mayInvite, mayUse } from '../../../src/admission/access.ts';
import type { UserId } from '../../../src/ids.ts';
import type { Tier } from '../../../src/turn/principal.ts';

const user = (text: string): UserId => text as UserId;
const rules = (change: Partial<AccessRules> = {}): AccessRules => ({
  access: 'own-server',
  trustedHomeservers: ['example.org'],
  allowedUsers: [],
  unsignedUsers: [],
  ...change,
});

test.each([
  ['@alice:example.org', '@alice:example.org', true],
  ['@alice:example.org', '@alic:example.org', false],
  ['@alice:example.org', '@*:example.org', true],
  ['@:example.org', '@*:example.org', true],
  ['@alice:example.org', '@a*e:example.org', true],
  ['@alice:example.org', '@a*l*e:example.org', true],
  ['@alice:example.org', '@*alice*:example.org', true],
  ['@alice:example.org', '@b*:example.org', false],
  ['@alice:example.org', '@*b:example.org', false],
  ['@ab:example.org', '@a?:example.org', true],
  ['@a:example.org', '@a?:example.org', false],
  ['@abc:example.org', '@a?:example.org', false],
  ['@a😀:example.org', '@a?:example.org', true],
  ['@aXbXc:example.org', '@*X?:example.org', true],
  ['@Alice:example.org', '@alice:example.org', false],
  ['@alice:EXAMPLE.org', '@alice:Example.org', true],
  // A server name is never a pattern, and no star reaches over the colon.
  ['@x:evil.net:example.org', '@*:example.org', false],
  ['@alice:evil.net', '@alice:*', false],
  ['@alice:example.org', '@alice*', false],
  ['@alice:example.org', '*', false],
  ['@alice:example.org', '', false],
  ['@a.c:example.org', '@a.c:example.org', true],
  ['@abc:example.org', '@a.c:example.org', false],
  ['@abc:example.org', '@[abc]*:example.org', false],
])('%s against %s is %s', (id, glob, expected) => {
  expect(matchesGlob(user(id), glob)).toBe(expected);
});

test('a glob means what the regular expression of its parts means', () => {
  const char = fc.constantFrom('a', 'b', '.', '*', '?');
  fc.assert(
    fc.property(fc.array(char, { maxLength: 8 }), fc.array(fc.constantFrom('a', 'b', '.'), { maxLength: 8 }), (pattern, name) => {
      const text = pattern.map((c) => (c === '*' ? '.*' : c === '?' ? '.' : c === '.' ? '\\.' : c)).join('');
      const expected = new RegExp(`^${text}$`, 'u').test(name.join(''));
      return matchesGlob(user(`@${name.join('')}:s`), `@${pattern.join('')}:s`) === expected;
    }),
  );
});

test('a hostile pair of name and glob is matched at once (G14)', () => {
  const started = process.hrtime.bigint();

  expect(matchesGlob(user(`@${'a'.repeat(240)}:s`), `@${'*a'.repeat(120)}b:s`)).toBe(false);

  expect(Number(process.hrtime.bigint() - started) / 1e6).toBeLessThan(100);
});

test('own-server lets in who is on a trusted server, whatever its case, and nobody who only looks like it', () => {
  expect(mayUse(user('@a:Example.ORG'), rules())).toBe(true);
  for (const id of ['@a:example.org.evil.net', '@a:evil.net', '@example.org:evil.net', '@a:example.org:8448'])
    expect(mayUse(user(id), rules())).toBe(false);
});

test('allowed lets in the listed accounts only, also on the own server; open lets in everybody', () => {
  const allowed = rules({ access: 'allowed', allowedUsers: ['@bob:elsewhere.net', '@team-*:example.org'] });

  expect([user('@bob:elsewhere.net'), user('@team-x:example.org'), user('@alice:example.org')].map((id) => mayUse(id, allowed))).toEqual([
    true,
    true,
    false,
  ]);
  expect(mayInvite(user('@alice:example.org'), allowed)).toBe(false);
  expect(mayUse(user('@x:anywhere.net'), rules({ access: 'open' }))).toBe(true);
});

test('unsigned users must be listed and on a server that we trust (DESIGN §5)', () => {
  const listing = rules({ unsignedUsers: ['@alice:example.org', '@*:elsewhere.net'] });

  expect(isListed(user('@alice:example.org'), listing)).toBe(true);
  expect(isListed(user('@bob:example.org'), listing)).toBe(false);
  expect(isListed(user('@bob:elsewhere.net'), listing)).toBe(false);
  expect(isListed(user('@alice:example.org'), rules())).toBe(false);
});

test('granted lets trusted servers in, and from anywhere what is signed; the rows are asked later; invites come from trusted servers', () => {
  const granted = rules({ access: 'granted' });

  expect(mayUse(user('@alice:example.org'), granted)).toBe(true);
  expect(mayUse(user('@alice:elsewhere.net'), granted)).toBe(false);
  expect(mayUse(user('@alice:elsewhere.net'), granted, true)).toBe(true);
  expect([user('@alice:example.org'), user('@alice:elsewhere.net')].map((id) => mayInvite(id, granted))).toEqual([true, false]);
});

test('a signature opens no other mode', () => {
  const foreign = user('@alice:elsewhere.net');

  expect(mayUse(foreign, rules(), true)).toBe(false);
  expect(mayUse(foreign, rules({ access: 'allowed', allowedUsers: ['@bob:elsewhere.net'] }), true)).toBe(false);
});

const TRUSTED = user('@alice:example.org');
const OTHER = user('@alice:elsewhere.net');
/** Every combination: mode, tier, server, row; for `allowed` both with the account listed and without. */
test.each<[AccessRules['access'], 'listed account' | '', Tier, 'trusted' | 'foreign', 'row' | 'no row', string]>([
  ['own-server', '', 'signed', 'trusted', 'row', 'in'],
  ['own-server', '', 'signed', 'trusted', 'no row', 'in'],
  ['own-server', '', 'signed', 'foreign', 'row', 'NOT_ALLOWED'],
  ['own-server', '', 'signed', 'foreign', 'no row', 'NOT_ALLOWED'],
  ['own-server', '', 'sender-bound', 'trusted', 'row', 'in'],
  ['own-server', '', 'sender-bound', 'trusted', 'no row', 'in'],
  ['own-server', '', 'sender-bound', 'foreign', 'row', 'NOT_ALLOWED'],
  ['own-server', '', 'sender-bound', 'foreign', 'no row', 'NOT_ALLOWED'],
  ['own-server', '', 'listed', 'trusted', 'row', 'in'],
  ['own-server', '', 'listed', 'trusted', 'no row', 'in'],
  ['own-server', '', 'listed', 'foreign', 'row', 'NOT_ALLOWED'],
  ['own-server', '', 'listed', 'foreign', 'no row', 'NOT_ALLOWED'],
  ['allowed', 'listed account', 'signed', 'trusted', 'row', 'in'],
  ['allowed', 'listed account', 'signed', 'trusted', 'no row', 'in'],
  ['allowed', 'listed account', 'signed', 'foreign', 'row', 'in'],
  ['allowed', 'listed account', 'signed', 'foreign', 'no row', 'in'],
  ['allowed', 'listed account', 'sender-bound', 'trusted', 'row', 'in'],
  ['allowed', 'listed account', 'sender-bound', 'trusted', 'no row', 'in'],
  ['allowed', 'listed account', 'sender-bound', 'foreign', 'row', 'UNTRUSTED_SERVER'],
  ['allowed', 'listed account', 'sender-bound', 'foreign', 'no row', 'UNTRUSTED_SERVER'],
  ['allowed', 'listed account', 'listed', 'trusted', 'row', 'in'],
  ['allowed', 'listed account', 'listed', 'trusted', 'no row', 'in'],
  ['allowed', 'listed account', 'listed', 'foreign', 'row', 'UNTRUSTED_SERVER'],
  ['allowed', 'listed account', 'listed', 'foreign', 'no row', 'UNTRUSTED_SERVER'],
  ['allowed', '', 'signed', 'trusted', 'row', 'NOT_ALLOWED'],
  ['allowed', '', 'signed', 'trusted', 'no row', 'NOT_ALLOWED'],
  ['allowed', '', 'signed', 'foreign', 'row', 'NOT_ALLOWED'],
  ['allowed', '', 'signed', 'foreign', 'no row', 'NOT_ALLOWED'],
  ['allowed', '', 'sender-bound', 'trusted', 'row', 'NOT_ALLOWED'],
  ['allowed', '', 'sender-bound', 'trusted', 'no row', 'NOT_ALLOWED'],
  ['allowed', '', 'sender-bound', 'foreign', 'row', 'NOT_ALLOWED'],
  ['allowed', '', 'sender-bound', 'foreign', 'no row', 'NOT_ALLOWED'],
  ['allowed', '', 'listed', 'trusted', 'row', 'NOT_ALLOWED'],
  ['allowed', '', 'listed', 'trusted', 'no row', 'NOT_ALLOWED'],
  ['allowed', '', 'listed', 'foreign', 'row', 'NOT_ALLOWED'],
  ['allowed', '', 'listed', 'foreign', 'no row', 'NOT_ALLOWED'],
  ['granted', '', 'signed', 'trusted', 'row', 'in'],
  ['granted', '', 'signed', 'trusted', 'no row', 'NOT_ALLOWED'],
  ['granted', '', 'signed', 'foreign', 'row', 'in'],
  ['granted', '', 'signed', 'foreign', 'no row', 'NOT_ALLOWED'],
  ['granted', '', 'sender-bound', 'trusted', 'row', 'in'],
  ['granted', '', 'sender-bound', 'trusted', 'no row', 'NOT_ALLOWED'],
  ['granted', '', 'sender-bound', 'foreign', 'row', 'NOT_ALLOWED'],
  ['granted', '', 'sender-bound', 'foreign', 'no row', 'NOT_ALLOWED'],
  ['granted', '', 'listed', 'trusted', 'row', 'in'],
  ['granted', '', 'listed', 'trusted', 'no row', 'NOT_ALLOWED'],
  ['granted', '', 'listed', 'foreign', 'row', 'NOT_ALLOWED'],
  ['granted', '', 'listed', 'foreign', 'no row', 'NOT_ALLOWED'],
  ['open', '', 'signed', 'trusted', 'row', 'in'],
  ['open', '', 'signed', 'trusted', 'no row', 'in'],
  ['open', '', 'signed', 'foreign', 'row', 'in'],
  ['open', '', 'signed', 'foreign', 'no row', 'in'],
  ['open', '', 'sender-bound', 'trusted', 'row', 'in'],
  ['open', '', 'sender-bound', 'trusted', 'no row', 'in'],
  ['open', '', 'sender-bound', 'foreign', 'row', 'UNTRUSTED_SERVER'],
  ['open', '', 'sender-bound', 'foreign', 'no row', 'UNTRUSTED_SERVER'],
  ['open', '', 'listed', 'trusted', 'row', 'in'],
  ['open', '', 'listed', 'trusted', 'no row', 'in'],
  ['open', '', 'listed', 'foreign', 'row', 'UNTRUSTED_SERVER'],
  ['open', '', 'listed', 'foreign', 'no row', 'UNTRUSTED_SERVER'],
])('ACCESS=%s%s, tier %s, %s server, %s: %s (G8)', (access, isAllowed, tier, server, row, expected) => {
  const allowedUsers = isAllowed === '' ? ['@bob:example.org'] : [TRUSTED, OTHER];

  const answer = decideAccess(
    { user: server === 'trusted' ? TRUSTED : OTHER, tier, isGranted: () => row === 'row' },
    rules({ access, allowedUsers, unsignedUsers: ['@*:example.org'] }),
  );

  expect(answer ?? 'in').toBe(expected);
});
