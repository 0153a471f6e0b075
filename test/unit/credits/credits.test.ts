import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { createCredits } from '../../../src/credits/credits.ts';
import { type PrincipalId, type RunId, type UserId, unsignedPrincipalId } from '../../../src/ids.ts';
import type { CreditPolicy } from '../../../src/plugin-api/define-oracle-plugin.ts';
import type { Store } from '../../../src/store/store.ts';
import { memoryStore } from '../../fakes/memory-store.ts';

const ALICE = 'did:key:z6MkAlice' as PrincipalId;
const BOB = 'did:key:z6MkBob' as PrincipalId;
const POLICY: CreditPolicy = { hold: 10, initial: 0, priceOf: ({ outputTokens }) => outputTokens };
const tokens = (outputTokens: number) => ({ model: 'm', inputTokens: 0, outputTokens });

function world({ store = memoryStore(), policy = POLICY as CreditPolicy | null } = {}) {
  const credits = createCredits({ store, policy: () => policy });
  let runs = 0;
  return {
    store,
    credits,
    give: (amount: number, to = ALICE) => store.write((tx) => credits.accounts.grant(tx, to, amount, { reason: 'test', now: 1 })),
    /** A run row as `open` writes it, without its hold. */
    async run(principalId = ALICE, matrixUserId = '@alice:test' as UserId) {
      runs += 1;
      const run = { id: `01J${String(runs).padStart(23, '0')}` as RunId, principalId, matrixUserId };
      await store.write((tx) => insertRun(store, tx, run));
      return run;
    },
    end: (id: RunId) =>
      store.write((tx) => tx.run(store.sql.updateTable('runs').set({ status: 'completed', ended_at: 5 }).where('run_id', '=', id))),
    hold: (run: { id: RunId; principalId: PrincipalId; matrixUserId: UserId }) => store.write((tx) => credits.hold(tx, run, 1)),
    held: () => store.read.all(store.sql.selectFrom('credit_holds').selectAll()),
    balance: (of = ALICE) => credits.accounts.balance(store.read, of),
    sumOfEntries: (of = ALICE) => credits.accounts.entries(of, 10_000).reduce((sum, { amount }) => sum + amount, 0),
  };
}
function insertRun(store: Store, tx: Store['read'], { id, principalId }: { id: RunId; principalId: PrincipalId }): void {
  const session = '$session' as never;
  tx.run(
    store.sql
      .insertInto('sessions')
      .values({
        ...{ session_id: session, room_id: '!r' as never, owner: principalId, kind: 'thread', thread_root: null, title: null },
        ...{ created_at: 1, last_at: 1, retired_at: null },
      })
      .onConflict((oc) => oc.doNothing()),
  );
  tx.run(
    store.sql.insertInto('runs').values({
      ...{ run_id: id, session_id: session, room_id: '!r' as never, thread_root: null, owner: principalId, principal_id: principalId },
      ...{
        matrix_user_id: '@a:b' as never,
        tier: 'signed',
        client: 'matrix',
        request_id: 'r',
        parent: null,
        grants: null,
        hints: '{"v":1}',
      },
      ...{ direct: 1, status: 'queued', created_at: 1, started_at: null, ended_at: null, deadline_at: null, model_asked: null },
      ...{ model_answered: null, usage: null, error: null },
    }),
  );
}

describe('holds', () => {
  test('what a run did not spend comes back with its end, whoever ends it (G10)', async () => {
    const { credits, give, run, hold, end, held, sumOfEntries, balance } = world();
    await give(30);
    const one = await run();

    expect(await hold(one)).toBe(true);
    expect(balance(ALICE)).toBe(20);
    await credits.spend(one, tokens(4));
    await end(one.id);

    expect(balance(ALICE)).toBe(26);
    expect(held()).toEqual([]);
    expect(sumOfEntries()).toBe(26);
  });

  test('a run that ends twice is settled once (G10)', async () => {
    const { credits, give, run, hold, end, balance } = world();
    await give(30);
    const one = await run();
    await hold(one);
    await credits.spend(one, tokens(4));

    await end(one.id);
    await end(one.id);

    expect(balance(ALICE)).toBe(26);
    expect(credits.accounts.entries(ALICE, 10).filter(({ kind }) => kind === 'settle')).toHaveLength(1);
  });

  test('nobody begins with less than a hold (G8)', async () => {
    const { credits, give, run, hold, held, balance } = world();
    await give(9);

    expect(credits.canBegin({ id: ALICE, matrixUserId: '@alice:test' as UserId })).toBe(false);
    expect(await hold(await run())).toBe(false);
    expect(held()).toEqual([]);
    expect(balance(ALICE)).toBe(9);
  });

  test('the same run is held once, however often its opening is repeated (G4)', async () => {
    const { give, run, hold, balance } = world();
    await give(30);
    const one = await run();

    await hold(one);
    await hold(one);

    expect(balance(ALICE)).toBe(20);
  });

  test('a run without a hold gets one before its first model call', async () => {
    const { credits, give, run, held, balance } = world();
    await give(10);

    expect(await credits.maySpend(await run(), 2)).toBe(true);

    expect(held()).toHaveLength(1);
    expect(balance(ALICE)).toBe(0);
  });

  test('a run that has ended gets none: nobody would settle it', async () => {
    const { credits, give, run, end, held, balance } = world();
    await give(10);
    const one = await run();
    await end(one.id);

    expect(await credits.maySpend(one, 2)).toBe(false);

    expect(held()).toEqual([]);
    expect(balance(ALICE)).toBe(10);
  });
});

describe('spending', () => {
  test('a used-up hold is raised from what is left, and then the run may spend no more (G8)', async () => {
    const { credits, give, run, hold, balance } = world();
    await give(13);
    const one = await run();
    await hold(one);

    await credits.spend(one, tokens(10));
    expect(await credits.maySpend(one, 2)).toBe(true);
    expect(balance(ALICE)).toBe(0);
    await credits.spend(one, tokens(3));
    expect(await credits.maySpend(one, 3)).toBe(false);
  });

  test('a call that costs more than there is takes all there is and nothing beyond', async () => {
    const { credits, give, run, hold, end, sumOfEntries, balance } = world();
    await give(15);
    const one = await run();
    await hold(one);

    await credits.spend(one, tokens(1_000));
    await end(one.id);

    expect(balance(ALICE)).toBe(0);
    expect(sumOfEntries()).toBe(0);
  });

  test.each([Number.NaN, Number.POSITIVE_INFINITY, -5, 0])('a price of %s costs nothing', async (price) => {
    const { credits, give, run, hold, end, balance } = world({ policy: { ...POLICY, priceOf: () => price } });
    await give(15);
    const one = await run();
    await hold(one);

    await credits.spend(one, tokens(1));
    await end(one.id);

    expect(balance(ALICE)).toBe(15);
  });

  test('a part of a credit counts as a whole one', async () => {
    const { credits, give, run, hold, end, balance } = world({ policy: { ...POLICY, priceOf: () => 0.2 } });
    await give(15);
    const one = await run();
    await hold(one);

    await credits.spend(one, tokens(1));
    await end(one.id);

    expect(balance(ALICE)).toBe(14);
  });

  test('a tool that is billed costs its own price, and nothing where nothing costs anything', async () => {
    const { credits, give, run, hold, end, balance } = world();
    await give(15);
    const one = await run();
    await hold(one);
    await credits.bill(one, 6);
    await end(one.id);
    expect(balance()).toBe(9);

    const free = world({ policy: null });
    await free.credits.bill(await free.run(), 6);
    expect(free.held()).toEqual([]);
  });

  test('what a straggler spends after the end is nobody’s', async () => {
    const { credits, give, run, hold, end, balance } = world();
    await give(15);
    const one = await run();
    await hold(one);
    await end(one.id);

    await credits.spend(one, tokens(5));

    expect(balance(ALICE)).toBe(15);
  });
});

describe('accounts', () => {
  test('without a policy everything may be done and nothing is written', async () => {
    const { credits, run, hold, store } = world({ policy: null });
    const one = await run();

    expect(credits.canBegin({ id: ALICE, matrixUserId: '@alice:test' as UserId })).toBe(true);
    expect(await hold(one)).toBe(true);
    expect(await credits.maySpend(one, 1)).toBe(true);
    await credits.spend(one, tokens(5));

    expect(store.read.all(store.sql.selectFrom('credit_accounts').selectAll())).toEqual([]);
  });

  test('a new account is given its first credits once', async () => {
    const { credits, run, hold, end, balance } = world({ policy: { ...POLICY, initial: 12 } });
    expect(balance(ALICE)).toBe(12);
    const one = await run();
    await hold(one);
    await credits.spend(one, tokens(10));
    await end(one.id);

    expect(balance(ALICE)).toBe(2);
    expect(await hold(await run())).toBe(false);
  });

  test('another identity of the same account in Matrix is given none: identities cost nothing', async () => {
    const { credits, run, hold, balance, sumOfEntries } = world({ policy: { ...POLICY, initial: 12 } });
    const alice = '@alice:test' as UserId;
    await hold(await run());

    for (const other of ['did:key:z6MkOther' as PrincipalId, unsignedPrincipalId(alice)]) {
      expect(credits.canBegin({ id: other, matrixUserId: alice })).toBe(false);
      expect(await hold(await run(other))).toBe(false);
      expect(sumOfEntries(other)).toBe(0);
    }
    expect(await hold(await run(BOB, '@bob:test' as UserId))).toBe(true);
    expect(balance(ALICE)).toBe(2);
  });

  test('an account that was filled before its owner came is given its first credits too', async () => {
    const { give, run, hold, balance } = world({ policy: { ...POLICY, initial: 12 } });
    await give(5);

    expect(balance(ALICE)).toBe(17);
    await hold(await run());
    expect(balance(ALICE)).toBe(7);
  });

  test('an operator can take back no more than there is', async () => {
    const { give, balance } = world();
    await give(5);

    expect(await give(-6)).toBeNull();
    expect(await give(-5)).toBe(0);
    expect(balance(ALICE)).toBe(0);
  });

  test('what one person spends is not taken from another (G13)', async () => {
    const { credits, give, run, hold, end, balance } = world();
    await give(20);
    await give(20, BOB);
    const one = await run(BOB);
    await hold(one);
    await credits.spend(one, tokens(7));
    await end(one.id);

    expect(balance(ALICE)).toBe(20);
    expect(balance(BOB)).toBe(13);
  });
});

test('whatever runs do side by side, no account falls below zero and the entries are the balance and what is held (G8, G10)', async () => {
  const step = fc.oneof(
    fc.record({ do: fc.constant('begin' as const) }),
    fc.record({ do: fc.constant('spend' as const), run: fc.nat(9), price: fc.nat(25) }),
    fc.record({ do: fc.constant('ask' as const), run: fc.nat(9) }),
    fc.record({ do: fc.constant('end' as const), run: fc.nat(9) }),
    fc.record({ do: fc.constant('grant' as const), amount: fc.integer({ min: -30, max: 60 }) }),
  );
  await fc.assert(
    fc.asyncProperty(fc.array(step, { maxLength: 60 }), async (steps) => {
      const { credits, give, run, hold, end, held, sumOfEntries, balance } = world();
      const begun: Awaited<ReturnType<typeof run>>[] = [];
      await Promise.all(
        steps.map(async (one) => {
          const target = 'run' in one ? begun[one.run] : undefined;
          if (one.do === 'grant') await give(one.amount);
          else if (one.do === 'begin') {
            const next = await run();
            begun.push(next);
            await hold(next);
          } else if (target === undefined) return;
          else if (one.do === 'spend') await credits.spend(target, tokens(one.price));
          else if (one.do === 'ask') await credits.maySpend(target, 1);
          else await end(target.id);
        }),
      );
      const reserved = held().reduce((sum, { amount }) => sum + amount, 0);
      expect(balance(ALICE)).toBeGreaterThanOrEqual(0);
      expect(sumOfEntries()).toBe(balance(ALICE) + reserved);
    }),
    { numRuns: 40 },
  );
});
