import { expect, test } from 'vitest';
import type { UserId } from '../../../src/ids.ts';
import { LIMITS } from '../../../src/limits.ts';
import { ALICE, DM, grantsWorld } from './grants-world.ts';

const BOB = '@bob:example.org' as UserId;
const setup = () => {
  const { store, authoriseLinks, clock, count, nonceFor } = grantsWorld();
  return {
    ...{ store, clock, count, nonceFor },
    issue: (user: UserId = ALICE) => store.write((tx) => authoriseLinks.issue(tx, { user, room: DM }, clock.now())),
    holder: (nonce: string) => authoriseLinks.holder(nonce, clock.now()),
    use: (nonce: string) => store.write((tx) => authoriseLinks.use(tx, nonce, clock.now())),
  };
};

test('a nonce belongs to the account it was sent to and works once', async () => {
  const { nonceFor, holder, use } = setup();
  const nonce = await nonceFor();

  expect(holder(nonce)).toEqual({ user: ALICE, room: DM });
  expect(await use(nonce)).toBe(true);
  expect(await use(nonce)).toBe(false);
  expect(holder(nonce)).toBeUndefined();
  expect(holder(`${nonce}x`)).toBeUndefined();
  expect(await use('')).toBe(false);
});

test('of twenty uses at once exactly one counts', async () => {
  const { nonceFor, use } = setup();
  const nonce = await nonceFor();

  const used = await Promise.all(Array.from({ length: 20 }, () => use(nonce)));
  expect(used.filter(Boolean)).toHaveLength(1);
});

test('a nonce ends after a quarter of an hour, to the millisecond', async () => {
  const { nonceFor, holder, use, clock } = setup();
  const nonce = await nonceFor();

  clock.advance(LIMITS.authoriseLinkMs - 1);
  expect(holder(nonce)?.user).toBe(ALICE);
  clock.advance(1);
  expect(holder(nonce)).toBeUndefined();
  expect(await use(nonce)).toBe(false);
});

test('an account gets one link a minute, whatever others get', async () => {
  const { issue, clock, count } = setup();

  expect(await issue()).not.toBeNull();
  expect(await issue()).toBeNull();
  expect(await issue(BOB)).not.toBeNull();
  clock.advance(LIMITS.authoriseLinkRepeatMs);
  expect(await issue()).not.toBeNull();
  expect(count('authorise_links')).toBe(3);
});

test('the database holds no nonce (G12)', async () => {
  const { nonceFor, store } = setup();
  const nonce = await nonceFor();

  expect(JSON.stringify(store.read.all(store.sql.selectFrom('authorise_links').selectAll()))).not.toContain(nonce);
});
