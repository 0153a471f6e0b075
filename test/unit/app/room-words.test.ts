import { expect, test } from 'vitest';
import { createNoticeWords } from '../../../src/app/room-words.ts';
import { refusal } from '../../../src/errors.ts';
import type { Did } from '../../../src/ids.ts';
import { eventId, ROOM } from '../../fakes/events.ts';

const words = createNoticeWords({ oracleDid: 'did:key:z6MkOracle' as Did, oracleEntityDid: 'did:ixo:entity:1' as Did });
const notice = (direct: boolean) =>
  words.notice({
    kind: 'refusal',
    roomId: ROOM,
    cause: eventId('m'),
    threadRoot: null,
    direct,
    text: 'Please open a direct chat with me.',
    refusal: refusal('NO_AUTHORITY'),
  }).content;

test('who lacks a grant learns in a direct chat for whom it would be', () => {
  expect(notice(true)['ixo.oracle.delegation_required']).toMatchObject({ oracleDid: 'did:key:z6MkOracle' });
});

test('in a group the same refusal names no DID, no entity and no page (DESIGN §5 "Refusal notices")', () => {
  expect(JSON.stringify(notice(false))).not.toMatch(/did:|delegation_required|page/u);
  expect(notice(false)).toMatchObject({ msgtype: 'm.notice', body: 'Please open a direct chat with me.' });
});
