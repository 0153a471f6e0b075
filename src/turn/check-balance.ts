/**
 * 402 before any model call (lifecycle seed, "SubscriptionMiddleware"): only where a plugin brings prices. Reads the balance; the hold, whose id is
 * the run's, belongs to `open`.
 */
import type { Credits } from '../credits/credits.ts';
import { type Refusal, refusal } from '../errors.ts';
import { err, ok, type Result } from '../result.ts';
import type { Authenticated } from './authenticate.ts';

declare const funded: unique symbol;
export type Funded = Authenticated & { readonly [funded]: true };
export type CheckBalance = (turn: Authenticated) => Promise<Result<Funded, Refusal>>;

export function createCheckBalance({ credits }: { credits: Pick<Credits, 'canBegin'> }): CheckBalance {
  return async (turn) => (credits.canBegin(turn.principal) ? ok(turn as Funded) : err(refusal('OUT_OF_CREDITS')));
}
