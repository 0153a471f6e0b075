/**
 * The turn before the model, in the order of the lifecycle seed: authenticate (401/403) → check balance (402) → throttle (429) → open.
 * The checks only read; what they cost is written in `open`, one transaction, so a refused message leaves nothing but its audit row and a
 * crash between two checks leaves nothing at all. Each check's input type is the output of the one before it: the order is compiled.
 * Every ingress uses this one function, so a rule cannot hold in rooms and be missing over HTTP.
 */
import type { Refusal } from '../errors.ts';
import { err, ok, type Result } from '../result.ts';
import type { Authenticate, Authenticated } from './authenticate.ts';
import type { CheckBalance } from './check-balance.ts';
import type { Open, Opened } from './open.ts';
import type { Incoming } from './prompt.ts';
import type { Throttle } from './throttle.ts';

export interface TurnChecks {
  readonly authenticate: Authenticate;
  readonly checkBalance: CheckBalance;
  readonly throttle: Throttle;
  readonly open: Open;
  /** Duration of each stage in ms. */
  readonly observe: (stage: 'authenticate' | 'balance' | 'throttle' | 'open', durationMs: number) => void;
  readonly monotonic: () => number;
}

/** A refusal, with as much as is known of who was refused: the audit row and the notice rules need it. */
export interface Refused {
  readonly refusal: Refusal;
  readonly principal: Authenticated['principal'] | null;
}

export async function beginTurn(incoming: Incoming, checks: TurnChecks): Promise<Result<Opened, Refused>> {
  const timed = async <T>(stage: Parameters<TurnChecks['observe']>[0], work: () => Promise<T> | T): Promise<T> => {
    const from = checks.monotonic();
    const value = await work();
    checks.observe(stage, checks.monotonic() - from);
    return value;
  };
  const authenticated = await timed('authenticate', () => checks.authenticate(incoming));
  if (!authenticated.ok) return err({ refusal: authenticated.error, principal: null });
  const { principal } = authenticated.value;
  const funded = await timed('balance', () => checks.checkBalance(authenticated.value));
  if (!funded.ok) return err({ refusal: funded.error, principal });
  const paced = await timed('throttle', () => checks.throttle(funded.value));
  if (!paced.ok) return err({ refusal: paced.error, principal });
  const opened = await timed('open', () => checks.open(paced.value));
  return opened.ok ? ok(opened.value) : err({ refusal: opened.error, principal });
}
