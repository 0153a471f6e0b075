/** A confirmation is about what its author had just been shown, whatever was shown before and however long it was under way. */
import { expect, test } from 'vitest';
import { ALICE_KEY, MALLORY_KEY } from '../../fakes/core.ts';
import { authorityWorld } from '../admission/authority-world.ts';

test('of two grants that wait, the one that was shown before the last is not confirmed in its place (G8)', async () => {
  const world = await authorityWorld();
  await world.say('!authorise');
  const first = world.newestNonce();
  world.clock.advance(61_000);
  await world.say('!authorise');
  const second = world.newestNonce();
  await world.page(first, { key: MALLORY_KEY });
  expect(await world.say('!authorise')).toEqual([expect.stringContaining(MALLORY_KEY.did)]);
  world.clock.advance(1_000);
  await world.page(second, { key: ALICE_KEY });
  expect(await world.say('!authorise')).toEqual([expect.stringContaining(ALICE_KEY.did)]);
  const [shown] = world.grants.list({ did: ALICE_KEY.did }, world.clock.now());
  if (shown === undefined) throw new Error('nothing waits');
  await world.store.write((tx) => world.grants.revoke(tx, { tokenId: shown.tokenId, by: ALICE_KEY.did }, world.clock.now()));

  const [reply = ''] = await world.say('!authorise confirm');
  expect([reply.includes(MALLORY_KEY.did), reply.includes('does not count yet'), world.bound()]).toEqual([true, true, null]);
});

test('a confirmation that was sent before the grant was shown confirms nothing (G8)', async () => {
  const world = await authorityWorld();
  await world.say('!authorise');
  await world.page(world.newestNonce(), { key: MALLORY_KEY });
  await world.say('!authorise');
  world.clock.advance(10_000);
  const [reply = ''] = await world.say('!authorise confirm', { ageMs: 60_000 });
  expect([reply.includes('does not count yet'), world.bound()]).toEqual([true, null]);
  world.clock.advance(5_000);
  await world.say('!authorise confirm', { ageMs: 4_000 });
  expect(world.bound()).toBe(MALLORY_KEY.did);
});
