import { expect, test } from 'vitest';
import { createAccounts } from '../../../src/credits/accounts.ts';
import { type Did, type PrincipalId, unsignedPrincipalId } from '../../../src/ids.ts';
import { ALICE_KEY } from '../../fakes/core.ts';
import { ALICE, BOB } from '../../fakes/events.ts';
import { authorityWorld, type World } from '../admission/authority-world.ts';

const POLICY = { hold: 10, initial: 0, priceOf: () => 1 };

const give = (world: World, principal: PrincipalId, amount: number) => {
  const accounts = createAccounts({ store: world.store, initial: () => 0 });
  return world.store.write((tx) => accounts.grant(tx, principal, amount, { reason: null, now: 0 }));
};

test('!balance says what the person may spend, and nothing of anybody else (G13)', async () => {
  const world = await authorityWorld({ policy: POLICY });
  await give(world, unsignedPrincipalId(ALICE), 7);
  await give(world, unsignedPrincipalId(BOB), 1_000);

  expect(await world.say('!balance')).toEqual(['You have 7 credits.']);
});

test('who pays under several identities is told of each', async () => {
  const world = await authorityWorld({ policy: POLICY });
  await world.store.write((tx) => world.links.prove(tx, { did: ALICE_KEY.did as Did, userId: ALICE, directRoom: null }, 1));
  await give(world, unsignedPrincipalId(ALICE), 7);
  await give(world, ALICE_KEY.did as Did, 1);

  expect(await world.say('!balance')).toEqual([
    `You have:\n\n- 1 credit as \`${ALICE_KEY.did}\`\n- 7 credits as \`${unsignedPrincipalId(ALICE)}\``,
  ]);
});

test('who has nothing is told so, and where answers cost nothing that is said', async () => {
  expect(await (await authorityWorld({ policy: POLICY })).say('!balance')).toEqual(['You have no credits.']);
  expect(await (await authorityWorld()).say('!balance')).toEqual(['Answers cost nothing here.']);
});
