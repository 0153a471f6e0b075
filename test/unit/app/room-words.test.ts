import { describe, expect, test } from 'vitest';
import type { NoticeToSay } from '../../../src/admission/notices.ts';
import { createRoomWords } from '../../../src/app/room-words.ts';
import { refusal } from '../../../src/errors.ts';
import type { Did, TokenId } from '../../../src/ids.ts';
import { eventId, ROOM } from '../../fakes/events.ts';

const words = createRoomWords({ oracleDid: 'did:key:z6MkOracle' as Did, oracleEntityDid: 'did:ixo:entity:1' as Did });
// A nonce may hold what markdown takes for emphasis.
const URL = 'https://oracle.example.org/authorise#_a_b_-__c__AAAAAAA';
const notice = (change: Partial<NoticeToSay> = {}) =>
  words.notice({
    kind: 'refusal',
    roomId: ROOM,
    cause: eventId('m'),
    threadRoot: null,
    text: 'You have not authorised me.',
    refusal: refusal('NO_AUTHORITY'),
    authorise: null,
    ...change,
  }).content;

describe('a missing grant', () => {
  test('is said in a direct chat with the oracle it is for and the link, which no markdown breaks', () => {
    const content = notice({ authorise: { url: URL } });

    expect(content['ixo.oracle.delegation_required']).toEqual({
      oracleDid: 'did:key:z6MkOracle',
      oracleEntityDid: 'did:ixo:entity:1',
      url: URL,
      body: 'You have not authorised me.',
    });
    expect(content['body']).toBe(`You have not authorised me.\n\n${URL}`);
    expect(content['formatted_body']).toContain(`<a href="${URL}">${URL}</a>`);
    expect(content['ixo.oracle.error']).toMatchObject({ status: 401, code: 'NO_AUTHORITY' });
  });

  test('without a page has no link', () => {
    expect(notice({ authorise: { url: null } })['ixo.oracle.delegation_required']).not.toHaveProperty('url');
  });

  test('in a group names no DID, no entity and no page (DESIGN §5 "Refusal notices")', () => {
    const content = notice({ text: 'Please open a direct chat with me.' });

    expect(JSON.stringify(content)).not.toMatch(/did:|delegation_required|https?:/u);
    expect(content).toMatchObject({ msgtype: 'm.notice', body: 'Please open a direct chat with me.' });
  });
});

test('a notice replies to its message, stands in its thread, or in another room alone', () => {
  expect(notice()['m.relates_to']).toEqual({ 'm.in_reply_to': { event_id: '$m' } });
  expect(notice({ threadRoot: eventId('root') })['m.relates_to']).toMatchObject({ rel_type: 'm.thread', event_id: '$root' });
  expect(notice({ cause: null })).not.toHaveProperty('m.relates_to');
});

test('a reply to a command is a notice, which no bot answers, and says for programs when it is a refusal', () => {
  const reply = { roomId: ROOM, cause: eventId('m'), threadRoot: null, text: 'Taken back: `x`', link: null };

  expect(words.reply({ ...reply, refusal: null }).content).toMatchObject({
    msgtype: 'm.notice',
    body: 'Taken back: `x`',
    'm.mentions': {},
  });
  expect(words.reply({ ...reply, refusal: refusal('LINKED_TO_ANOTHER') }).content).toHaveProperty(
    ['ixo.oracle.error', 'code'],
    'LINKED_TO_ANOTHER',
  );
});

test('a receipt has token, end in milliseconds and abilities, a readable body, and no caveats', () => {
  const receipt = words.receipt({
    tokenId: 'abcdefghijk' as TokenId,
    did: 'did:key:z6MkAlice' as Did,
    kind: 'session',
    expiresAt: 1_796_039_999_000,
    capabilities: [{ can: 'oracle/message', with: 'did:key:z6MkAlice', nb: { link: 'nonce' } }],
    pending: false,
    matrixUserId: null,
    cause: eventId('grant'),
  });

  expect(receipt).toEqual({
    eventType: 'ixo.oracle.grant_receipt',
    content: {
      token_id: 'abcdefghijk',
      expires_at: 1_796_039_999_000,
      capabilities: [{ can: 'oracle/message', with: 'did:key:z6MkAlice' }],
      body: 'I know the key of your client until 2026-11-30 11:59 UTC. `!revoke abcdefgh` takes it back.',
      'm.relates_to': { rel_type: 'm.reference', event_id: '$grant' },
    },
  });
});
