/** The checks of a turn and the transaction that opens it, put together once: rooms and portals pass the very same ones. */
import type { Config } from '../config.ts';
import type { Credits } from '../credits/credits.ts';
import type { Metrics } from '../observe/metrics.ts';
import type { Clock } from '../time.ts';
import { createAuthenticate } from '../turn/authenticate.ts';
import { createCheckBalance } from '../turn/check-balance.ts';
import { createOpen, type OpenOptions } from '../turn/open.ts';
import { createThrottle } from '../turn/throttle.ts';
import type { TurnChecks } from '../turn/turn.ts';
import type { Authority } from './authority.ts';

export interface TurnChecksOptions
  extends Pick<
    OpenOptions,
    'store' | 'sessions' | 'runs' | 'inputs' | 'replacing' | 'settings' | 'transcript' | 'newRunId' | 'onInterrupt'
  > {
  readonly config: Config;
  readonly authority: Authority;
  readonly credits: Credits;
  readonly clock: Clock;
  readonly metrics: Metrics;
}

export function createTurnChecks({ config, authority, credits, clock, metrics, ...parts }: TurnChecksOptions): TurnChecks {
  const { rules, links, grants, keysOf, verifier, registerGrant, useGrants } = authority;
  const { store } = parts;
  const now = () => clock.now();
  const rule = { limit: config.rateLimit, windowMs: config.rateLimitWindowS * 1_000 };
  return {
    authenticate: createAuthenticate({
      oracleDid: config.oracleDid,
      rules,
      maxLatenessMs: config.maxEventLatenessS * 1_000,
      runDeadlineMs: config.runDeadlineS * 1_000,
      verify: verifier.invocation,
      keysOf,
      grants,
      registerGrant,
      useGrants,
      links,
      store,
      now,
    }),
    checkBalance: createCheckBalance({ credits }),
    throttle: createThrottle({ store, rule, now }),
    open: createOpen({ ...parts, links, grants, credits, rule, now }),
    observe: (stage, durationMs) => metrics.stage(stage, durationMs),
    monotonic: () => clock.monotonic(),
  };
}
