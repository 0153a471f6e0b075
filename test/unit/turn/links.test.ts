import { expect, test } from 'vitest';
import type { Did } from '../../../src/ids.ts';
import { createLinks } from '../../../src/turn/links.ts';
import { ALICE, BOB, OTHER_ROOM, ROOM } from '../../fakes/events.ts';
import { memoryStore } from '../../fakes/memory-store.ts';

const did = (n: number | string) => `did:key:z${n}` as Did;
function setup() {
  const store = memoryStore();
  const links = createLinks({ store });
  return {
    store,
    links,
    prove: (...args: Parameters<typeof links.prove> extends [unknown, ...infer Rest] ? Rest : never) =>
      store.write((tx) => links.prove(tx, ...args)),
  };
}

test('a link is of this DID and this account; a message in a group does not forget the direct room', async () => {
  const { links, prove } = setup();
  await prove({ did: did(1), userId: ALICE, directRoom: ROOM }, 1);
  await prove({ did: did(1), userId: BOB, directRoom: null }, 2);
  await prove({ did: did(1), userId: ALICE, directRoom: null }, 3);

  expect(links.of(did(1))).toEqual({ userId: ALICE, directRoom: ROOM });
  expect(links.of(did(1), BOB)).toEqual({ userId: BOB, directRoom: undefined });
  expect(links.of(did(2))).toBeUndefined();
  await prove({ did: did(1), userId: ALICE, directRoom: OTHER_ROOM }, 4);
  expect(links.of(did(1))?.directRoom).toBe(OTHER_ROOM);
});

test('the DIDs of an account come newest first, at most twenty however many it signed with (G14)', async () => {
  const { links, prove } = setup();
  for (let n = 0; n < 25; n += 1) await prove({ did: did(n), userId: ALICE, directRoom: ROOM }, n);
  await prove({ did: did(3), userId: ALICE, directRoom: ROOM }, 99);
  await prove({ did: did('bob'), userId: BOB, directRoom: ROOM }, 100);

  const dids = links.didsOf(ALICE);
  expect(dids).toHaveLength(20);
  expect(dids.slice(0, 3)).toEqual([did(3), did(24), did(23)]);
  expect(links.didsOf(BOB)).toEqual([did('bob')]);
});
