import { expect, test } from 'vitest';
import { prepare } from '../../../src/store/prepared.ts';
import { openStore } from '../../../src/store/store.ts';

test('a statement is built once and takes the values of each call, null included', async () => {
  const store = openStore({ path: ':memory:', now: 0 });
  let built = 0;
  const insert = prepare((row: { run_id: string; stage: string | null; at: number }) => {
    built += 1;
    return store.sql.insertInto('audit').values({ at: row.at, run_id: row.run_id as never, tier: row.stage, decision: 'allowed' });
  });
  await store.write((tx) => tx.run(insert({ run_id: 'a', stage: null, at: 1 })) + tx.run(insert({ run_id: 'b', stage: 'signed', at: 2 })));
  const last = prepare(({ count, before }: { count: number; before: number }) =>
    store.sql.selectFrom('audit').select(['run_id', 'tier', 'decision']).where('at', '<', before).orderBy('at', 'desc').limit(count),
  );

  expect(store.read.all(last({ count: 5, before: 3 }))).toEqual([
    { run_id: 'b', tier: 'signed', decision: 'allowed' },
    { run_id: 'a', tier: null, decision: 'allowed' },
  ]);
  expect(store.read.all(last({ count: 1, before: 2 }))).toEqual([{ run_id: 'a', tier: null, decision: 'allowed' }]);
  expect(built).toBe(1);
  store.close();
});
