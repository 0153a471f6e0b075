/**
 * 402 before any model call (lifecycle seed, "SubscriptionMiddleware"): only when a plugin brought a ledger. Reads the balance; the hold,
 * whose id is the run's, belongs to `open`.
 */
import { type Refusal, refusal } from '../errors.ts';
import type { PrincipalId } from '../ids.ts';
import { err, ok, type Result } from '../result.ts';
import type { Authenticated } from './authenticate.ts';

export interface CreditLedger {
  balance(principal: PrincipalId): Promise<number>;
}
declare const funded: unique symbol;
export type Funded = Authenticated & { readonly [funded]: true };
export type CheckBalance = (turn: Authenticated) => Promise<Result<Funded, Refusal>>;

export function createCheckBalance({ ledger }: { ledger: CreditLedger | null }): CheckBalance {
  return async (turn) => {
    if (ledger !== null && (await ledger.balance(turn.principal.id)) <= 0) return err(refusal('OUT_OF_CREDITS'));
    return ok(turn as Funded);
  };
}
