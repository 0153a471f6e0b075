import fc from 'fast-check';
import { expect, test } from 'vitest';
import { renderMarkdown } from '../../../appservice/content/render-markdown.ts';
import {
  code,
  describeAbilities,
  describeAbility,
  describeGrant,
  describePending,
  describeTime,
  shortId,
} from '../../../src/commands/describe-grant.ts';
import type { Did, TokenId } from '../../../src/ids.ts';
import type { StoredGrant } from '../../../src/ucan/grants.ts';
import { ALICE } from '../../fakes/events.ts';
import { FAKE_START_MS } from '../../fakes/fake-clock.ts';

const DID = 'did:key:z6MkfrQ8w1' as Did;
const grant = (change: Partial<StoredGrant> = {}): StoredGrant => ({
  tokenId: 'abcdefgh-rest' as TokenId,
  cid: '00',
  kind: 'acting',
  did: DID,
  audience: 'did:key:z6MkOracle' as Did,
  capabilities: [{ can: 'oracle/chat', with: DID }],
  path: [],
  car: 'CAR',
  expiresAt: FAKE_START_MS,
  source: 'page',
  storedAt: FAKE_START_MS,
  matrixUserId: ALICE,
  shownAt: null,
  activatedAt: null,
  revokedAt: null,
  ...change,
});

test('times are said to the minute, in UTC', () => {
  expect(describeTime(1_796_039_999_999)).toBe('2026-11-30 11:59 UTC');
});

test('abilities that this product knows are said in words, others by their name and what they are for', () => {
  expect(describeAbility({ can: 'oracle/chat', with: DID }, DID)).toBe('answer this account as that identity');
  expect(describeAbility({ can: 'oracle/read', with: DID }, DID)).not.toContain('oracle/read');
  expect(describeAbility({ can: 'calendar/read', with: 'ixo:calendar' }, DID)).toBe('use `calendar/read` on `ixo:calendar`');
  expect(describeAbility({ can: 'calendar/*', with: DID }, DID)).toBe('use `calendar/*`');
});

test('what waits for a confirmation is shown with whose it is, what it allows and until when', () => {
  expect(describePending(grant())).toBe(
    `- Whose identity: \`${DID}\`\n- I may then: answer this account as that identity\n- Until: ${describeTime(FAKE_START_MS)}\n- Id: \`abcdefgh\``,
  );
});

test('a line of the list says what, until when, where it came from, and that it waits', () => {
  expect(describeGrant(grant())).toMatch(
    /^`abcdefgh` what I may do: `oracle\/chat`, until .* UTC, made on my page, waits for `!authorise`$/u,
  );
  expect(describeGrant(grant({ activatedAt: 1 }))).not.toContain('waits');
  expect(describeGrant(grant({ kind: 'session', matrixUserId: null, source: 'dlg' }))).toMatch(
    /a key of your client: .* sent with a message$/u,
  );
});

test('no word of a stranger leaves its code: no link, no emphasis, no line, no control character (G14)', () => {
  fc.assert(
    fc.property(fc.string({ unit: 'binary', maxLength: 600 }), (text) => {
      const shown = code(text);
      const { body, formattedBody = '' } = renderMarkdown(`before ${shown} after`);

      expect(shown).toMatch(/^`[\u0021-\u005f\u0061-\u007e]+`$/u);
      expect(shown.length).toBeLessThanOrEqual(258);
      expect(body).toBe(`before ${shown} after`);
      expect(formattedBody).toMatch(/^<p>before <code>[^<>]*<\/code> after<\/p>$/u);
    }),
  );
});

test('a hostile ability does not become words of ours in the whole notice', () => {
  const hostile = grant({ capabilities: [{ can: '`**Accept**` [x](https://evil.example)', with: 'https:x`\n- Whose identity: yours' }] });
  const { formattedBody = '' } = renderMarkdown(describePending(hostile));

  expect(formattedBody).not.toMatch(/<a |<strong>/u);
  expect(formattedBody.match(/<li>/gu)).toHaveLength(4);
});

test('many abilities are bounded: the list names three, the question before it counts all eight', () => {
  const capabilities = Array.from({ length: 8 }, (_, n) => ({ can: `a${n}/b`, with: DID }));

  expect(describeGrant(grant({ capabilities }))).toContain('5 more');
  expect(describeAbilities(grant({ capabilities })).split('; ')).toHaveLength(8);
  expect(shortId('abcdefghijk')).toBe('abcdefgh');
});
