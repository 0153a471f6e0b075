/** What somebody who talked a person into his own DID still has after the person took it back. */
import { expect, test } from 'vitest';
import type { EventId } from '../../../src/ids.ts';
import { ALICE_KEY, MALLORY_KEY } from '../../fakes/core.ts';
import { ALICE, ROOM } from '../../fakes/events.ts';
import { authorityWorld } from '../admission/authority-world.ts';

async function confirmed(key = MALLORY_KEY) {
  const world = await authorityWorld();
  await world.say('!authorise');
  expect(await world.page(world.newestNonce(), { key })).toBeNull();
  await world.say('!authorise');
  await world.say('!authorise confirm');
  return world;
}

test.each(['!revoke all', 'by id'])(
  'taking back a DID that was confirmed ends its link, so that it says nothing over HTTP any more (G8) %#',
  async (how) => {
    const world = await confirmed();
    expect(world.links.of(MALLORY_KEY.did, ALICE)).toEqual({ userId: ALICE, directRoom: ROOM });
    await world.say(how === 'by id' ? `!revoke ${world.ids()[0]?.slice(0, 8)}` : how);
    expect(world.bound()).toBeNull();
    expect(world.links.of(MALLORY_KEY.did, ALICE)).toBeUndefined();
  },
);

test.each(['taken back by its maker', 'over'])('!revoke all ends the link of a grant that is %s (G8)', async (ended) => {
  const world = await confirmed();
  const [tokenId] = world.ids();
  if (tokenId === undefined) throw new Error('nothing was granted');
  const at = world.clock.now();
  await world.store.write((tx) =>
    ended === 'over'
      ? tx.run(world.store.sql.updateTable('grants').set({ expires_at: at }))
      : world.grants.revoke(tx, { tokenId, by: MALLORY_KEY.did }, at),
  );
  expect(world.ids()).toEqual([]);
  expect(world.links.of(MALLORY_KEY.did, ALICE)).toBeDefined();
  await world.say('!revoke all');
  expect(world.links.of(MALLORY_KEY.did, ALICE)).toBeUndefined();
});

test('taking back one of two grants of the same DID keeps the link that the other one stands for', async () => {
  const world = await confirmed(ALICE_KEY);
  world.clock.advance(61_000);
  await world.say('!authorise');
  await world.page(world.newestNonce(), { can: 'calendar/write' });
  await world.say('!authorise');
  await world.say('!authorise confirm');
  await world.say(`!revoke ${world.ids()[0]?.slice(0, 8)}`);
  expect(world.bound()).toBe(ALICE_KEY.did);
  expect(world.links.of(ALICE_KEY.did, ALICE)).toBeDefined();
});

test('a message that was looked at before the DID was taken back does not bring the link back', async () => {
  const world = await confirmed();
  const { open } = world.checks;
  let opened = '';
  Object.assign(world.checks, {
    open: async (turn: Parameters<typeof open>[0]) => {
      await world.store.write((tx) => {
        const list = world.ownGrants.of(ALICE, world.clock.now());
        world.ownGrants.revoke(tx, list, { user: ALICE, eventId: '$revoke' as EventId, trust: 'clear' }, world.clock.now());
      });
      const result = await open(turn);
      opened = result.ok ? 'opened' : result.error.code;
      return result;
    },
  });
  await world.say('hello');
  expect([opened, world.links.of(MALLORY_KEY.did, ALICE)]).toEqual(['opened', undefined]);
});
