import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { readInboxItem } from '../../../../appservice/read-inbox-item.ts';
import {
  isStateGrant,
  readGrantContent,
  readRevokeContent,
  readStateGrantContent,
} from '../../../../appservice/wire/read-authority-event.ts';
import type { UserId } from '../../../../src/ids.ts';
import type { JsonObject, JsonValue } from '../../../../src/json.ts';
import { LIMITS } from '../../../../src/limits.ts';

const ORACLE = '@oracle:oracle.local' as UserId;
const TOKEN_ID = 'A'.repeat(43);
const MAX_CHARS = Math.ceil(LIMITS.delegationBytes / 3) * 4;
const event = (type: string, content: JsonObject, more: JsonObject = {}): JsonObject => ({
  event_id: '$1',
  room_id: '!r',
  sender: '@alice:oracle.local',
  type,
  origin_server_ts: 5,
  content,
  ...more,
});
const read = (json: JsonObject) => {
  const item = readInboxItem(json, ORACLE);
  return item.ok ? item.value : item.error.reason;
};
const stateGrant = (content: JsonObject, more: JsonObject = {}) =>
  event('ixo.room.state', content, { state_key: 'ucan_delegation', ...more });

describe('what is said about grants', () => {
  test('is read from its own type; unknown fields are ignored', () => {
    expect(read(event('ixo.oracle.grant', { v: 1, dlg: 'CAR', body: 'A grant', more: 1 }))).toMatchObject({ kind: 'grant', dlg: 'CAR' });
    expect(read(event('ixo.oracle.revoke', { token_id: TOKEN_ID, body: 'x' }))).toMatchObject({ kind: 'revoke', tokenId: TOKEN_ID });
    expect(read(stateGrant({ data: 'eJw=' }))).toMatchObject({ kind: 'state_grant', data: 'eJw=' });
  });

  test('an empty state is a revocation by the older client', () => {
    expect([{}, { data: '' }, { data: null }, { other: 1 }].map((content) => read(stateGrant(content)))).toMatchObject([
      { data: null },
      { data: null },
      { data: null },
      { data: null },
    ]);
  });

  test('the state counts from this very type and key only', () => {
    expect(read(stateGrant({ data: 'x' }, { state_key: '' }))).toMatchObject({ kind: 'other' });
    expect(read(event('ixo.room.states', { data: 'x' }, { state_key: 'ucan_delegation' }))).toMatchObject({ kind: 'other' });
    expect(read(event('ixo.room.state', { data: 'x' }))).toMatchObject({ kind: 'other' });
    expect(read(event('ixo.oracle.grant', { v: 1, dlg: 'CAR' }, { state_key: '' }))).toMatchObject({ kind: 'other' });
    expect([stateGrant({}), stateGrant({}, { state_key: '' }), null, 'x', []].map(isStateGrant)).toEqual([
      true,
      false,
      false,
      false,
      false,
    ]);
  });

  test('the own echo is an own event, a redacted one nothing to act on, and the state of an older self is read', () => {
    expect(read(event('ixo.oracle.grant', { v: 1, dlg: 'CAR' }, { sender: ORACLE }))).toMatchObject({ kind: 'own' });
    const redacted = { unsigned: { redacted_because: { type: 'm.room.redaction' } } };
    expect(read(event('ixo.oracle.grant', {}, redacted))).toMatchObject({ kind: 'other' });
    expect(read(stateGrant({ data: 'x' }, { sender: ORACLE }))).toMatchObject({ kind: 'state_grant', sender: ORACLE });
  });
});

test.each<[string, JsonObject, string]>([
  ['no version', event('ixo.oracle.grant', { dlg: 'CAR' }), 'bad_grant'],
  ['another version', event('ixo.oracle.grant', { v: 2, dlg: 'CAR' }), 'bad_grant'],
  ['an empty grant', event('ixo.oracle.grant', { v: 1, dlg: '' }), 'bad_grant'],
  ['a list of grants', event('ixo.oracle.grant', { v: 1, dlg: ['CAR'] }), 'bad_grant'],
  ['a grant one past the limit', event('ixo.oracle.grant', { v: 1, dlg: 'a'.repeat(MAX_CHARS + 1) }), 'bad_grant'],
  ['no token id', event('ixo.oracle.revoke', {}), 'bad_revoke'],
  ['a short token id', event('ixo.oracle.revoke', { token_id: TOKEN_ID.slice(1) }), 'bad_revoke'],
  ['a token id of another alphabet', event('ixo.oracle.revoke', { token_id: `${TOKEN_ID.slice(1)}+` }), 'bad_revoke'],
  ['state that is no text', stateGrant({ data: 7 }), 'bad_state_grant'],
  ['state one past the limit', stateGrant({ data: 'a'.repeat(LIMITS.stateGrantBytes + 1) }), 'bad_state_grant'],
])('%s is skipped with its reason (G17)', (_name, json, reason) => {
  expect(read(json)).toBe(reason);
});

test('a grant at the limit is read (G14)', () => {
  expect(read(event('ixo.oracle.grant', { v: 1, dlg: 'a'.repeat(MAX_CHARS) }))).toMatchObject({ kind: 'grant' });
});

test('whatever the content, there is a value or a reason, never a throw, and no size past its limit (G14)', () => {
  const key = fc.constantFrom('v', 'dlg', 'token_id', 'data', 'body', '__proto__');
  const value = fc.oneof(fc.constant(1), fc.string({ maxLength: 60 }), fc.constant(TOKEN_ID), fc.jsonValue({ maxDepth: 3 }));
  fc.assert(
    fc.property(fc.dictionary(key, value as fc.Arbitrary<JsonValue>), (content) => {
      const [grant, revoke, state] = [readGrantContent(content), readRevokeContent(content), readStateGrantContent(content)];
      if (grant.ok) expect(grant.value.dlg).toBe(content['dlg']);
      if (revoke.ok) expect(revoke.value.tokenId).toMatch(/^[A-Za-z0-9_-]{43}$/u);
      if (state.ok) expect(state.value.data === null || state.value.data.length > 0).toBe(true);
    }),
  );
});
