import { expect, test } from 'vitest';
import type { Did } from '../../../src/ids.ts';
import { openStore } from '../../../src/store/store.ts';
import { createUseGrants } from '../../../src/ucan/use-grants.ts';
import { fileStore, memoryStore } from '../../fakes/memory-store.ts';

const DID = 'did:key:zAlice' as Did;

test('a DID may use the oracle from the moment its row is there until it is gone, in this process or another', async () => {
  const file = fileStore();
  const store = file.open();
  const useGrants = createUseGrants({ store });
  const other = openStore({ path: file.path, now: 0 });

  expect(useGrants.has(DID)).toBe(false);
  await other.write((tx) => tx.run(other.sql.insertInto('use_grants').values({ did: DID, granted_at: 1 })));
  expect(useGrants.has(DID)).toBe(true);
  expect(useGrants.has(`${DID}x` as Did)).toBe(false);
  await other.write((tx) => tx.run(other.sql.deleteFrom('use_grants')));
  expect(useGrants.has(DID)).toBe(false);
  other.close();
  store.close();
});

test('nobody is let in by an empty list', () => {
  expect(createUseGrants({ store: memoryStore() }).has('' as Did)).toBe(false);
});
