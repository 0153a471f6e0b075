/**
 * 429 before any model call, per DID and per account (DESIGN §5), so that a second key or a second client gains nothing. The check reads;
 * `open` writes the count in its own transaction, so a refused message costs nothing and a restart forgets nothing.
 */
import { type Refusal, refusal } from '../errors.ts';
import { err, ok, type Result } from '../result.ts';
import type { Store, Tx } from '../store/store.ts';
import type { Funded } from './check-balance.ts';
import type { Principal } from './principal.ts';

export interface RateRule {
  readonly limit: number;
  readonly windowMs: number;
}
declare const paced: unique symbol;
export type Paced = Funded & { readonly [paced]: true };
export type Throttle = (turn: Funded) => Result<Paced, Refusal>;

export function createThrottle({ store, rule, now }: { store: Store; rule: RateRule; now: () => number }): Throttle {
  return (turn) =>
    overLimit(store, store.read, turn.principal, rule, now())
      ? err(refusal('RATE_LIMITED', { details: { retryAfterMs: rule.windowMs } }))
      : ok(turn as Paced);
}

const keysOf = (principal: Principal): string[] => [...new Set([`principal:${principal.id}`, `account:${principal.matrixUserId}`])];

export const overLimit = (store: Store, tx: Tx, principal: Principal, rule: RateRule, now: number): boolean =>
  keysOf(principal).some((key) => isOverRate(store, tx, key, rule, now));

export function countTurn(store: Store, tx: Tx, principal: Principal, rule: RateRule, now: number): void {
  for (const key of keysOf(principal)) countRate(store, tx, key, rule, now);
}

/** For whatever else is counted by the window. `key` names its kind first, `principal:` and `account:` are the turns'. */
export function isOverRate(store: Store, tx: Tx, key: string, { limit, windowMs }: RateRule, now: number): boolean {
  const row = tx.get(
    store.sql
      .selectFrom('rate_counts')
      .select((eb) => eb.fn.countAll<number>().as('count'))
      .where('key', '=', key)
      .where('at', '>', now - windowMs),
  );
  return (row?.count ?? 0) >= limit;
}

export function countRate(store: Store, tx: Tx, key: string, { windowMs }: RateRule, now: number): void {
  tx.run(
    store.sql
      .deleteFrom('rate_counts')
      .where('key', '=', key)
      .where('at', '<=', now - windowMs),
  );
  tx.run(store.sql.insertInto('rate_counts').values({ key, at: now }));
}
