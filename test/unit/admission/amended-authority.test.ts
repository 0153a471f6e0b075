/** An amended prompt runs under what the prompt rested on: the edit must not bring in words of anybody or anything else. */
import { expect, test } from 'vitest';
import type { RoomId, UserId } from '../../../src/ids.ts';
import type { JsonObject } from '../../../src/json.ts';
import { gateDelegation } from '../../../src/ucan/gate.ts';
import { mintGrant, newNonce, type Signer, signContent } from '../../../src/ucan/mint.ts';
import { keyFromSeed } from '../../../src/ucan/signing-key.ts';
import { ALICE_KEY, buildCore, type Core, ORACLE_KEY } from '../../fakes/core.ts';
import { ALICE, BOB, eventId, incoming, OTHER_ROOM, ROOM } from '../../fakes/events.ts';

const sessionOf = (core: Core, seed: number): Signer => {
  const key = keyFromSeed(Buffer.alloc(32, seed));
  const car = mintGrant({
    key: ALICE_KEY,
    audience: key.did,
    capabilities: [{ can: 'oracle/message', with: ALICE_KEY.did }],
    expiresAt: core.clock.now() + 3_600_000,
    nonce: newNonce(),
  });
  const gated = gateDelegation(car);
  if (!gated.ok) throw new Error(gated.error);
  return { key, as: ALICE_KEY.did, proofs: [gated.value] };
};
interface Change {
  signer?: Signer | null;
  sender?: UserId;
  room?: RoomId;
}
function sign(
  core: Core,
  content: JsonObject,
  { signer = { key: ALICE_KEY }, sender = ALICE, room = ROOM }: Change,
  edits?: string,
): JsonObject {
  if (signer === null) return content;
  const more = edits === undefined ? {} : { edits: eventId(edits) };
  const message = { audience: ORACLE_KEY.did, room, sender, type: 'm.room.message', ts: core.clock.now(), nonce: newNonce(), ...more };
  return signContent({ ...message, ...signer }, content);
}
const prompt = (core: Core, change: Change = {}) =>
  incoming('a', {
    sender: change.sender ?? ALICE,
    roomId: change.room ?? ROOM,
    content: sign(core, { msgtype: 'm.text', body: 'a' }, change),
  });
const edit = (core: Core, change: Change = {}) => {
  const content = { msgtype: 'm.text', body: '* b', 'm.new_content': { msgtype: 'm.text', body: 'b' } };
  const relation = { 'm.relates_to': { rel_type: 'm.replace', event_id: eventId('a') } };
  return incoming('e', {
    sender: change.sender ?? ALICE,
    roomId: change.room ?? ROOM,
    content: { ...sign(core, content, change, 'a'), ...relation },
  });
};
async function waitingWorld(): Promise<Core> {
  const core = buildCore();
  core.execute = null;
  await core.joinDirect();
  await core.joinDirect(OTHER_ROOM);
  return core;
}
const textOf = (core: Core) => core.store.read.get(core.store.sql.selectFrom('pending_inputs').select('text'))?.text;
const audited = (core: Core) =>
  core.store.read.all(core.store.sql.selectFrom('audit').select(['event_id', 'decision', 'code']).orderBy('id')).at(-1);

test.each<[string, Change, Change]>([
  ['in another room', { signer: null }, { signer: null, room: OTHER_ROOM }],
  ['signed for another room', {}, { room: OTHER_ROOM }],
  ['by another account of the same DID', {}, { sender: BOB }],
])('an edit %s changes nothing and is in the audit log', async (_name, before, after) => {
  const core = await waitingWorld();
  await core.take(prompt(core, before));
  expect(await core.take(edit(core, after))).toEqual(['ignored:edit_of_another']);
  expect([textOf(core), audited(core)]).toEqual(['a', { event_id: '$e', decision: 'refused', code: 'NOT_ALLOWED' }]);
});

test('an edit that rests on a grant which its prompt does not rest on changes nothing: revoking it would not stop the run (G8)', async () => {
  const core = await waitingWorld();
  await core.take(prompt(core));
  expect(await core.take(edit(core, { signer: sessionOf(core, 9) }))).toEqual(['ignored:edit_of_another']);
  expect(textOf(core)).toBe('a');
});

test('an edit on the grant of its prompt, or by the root key itself, amends it', async () => {
  for (const root of [false, true]) {
    const core = await waitingWorld();
    const signer = sessionOf(core, 9);
    await core.take(prompt(core, { signer }));
    expect(await core.take(edit(core, root ? {} : { signer }))).toEqual(['amended:edit']);
    expect([textOf(core), audited(core)]).toEqual(['b', { event_id: '$e', decision: 'allowed', code: null }]);
  }
});

test('an edit with a token that fails says why in the audit log', async () => {
  const core = await waitingWorld();
  await core.take(prompt(core));
  const good = edit(core);
  const content = { ...(good.event['content'] as JsonObject), 'm.new_content': { msgtype: 'm.text', body: 'changed' } };
  await core.take({ ...good, event: { ...good.event, content } });
  expect([textOf(core), audited(core)]).toEqual(['a', { event_id: '$e', decision: 'refused', code: 'WRONG_CONTENT' }]);
});
