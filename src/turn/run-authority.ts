/**
 * Whether a run may still act: what it rests on is judged against now before every call of a model or a tool, because a grant may end or be taken
 * back while the answer is written (G8). The signature was checked when the turn opened; what is asked here are clock and revocations, some ten
 * microseconds a time.
 */
import { type ErrorCode, refusal } from '../errors.ts';
import type { TokenId, UserId } from '../ids.ts';
import type { Runs } from '../runs/ledger.ts';
import type { Run } from '../runs/run.ts';
import type { Scheduler } from '../runs/scheduler.ts';
import { type Grants, revokersOf, type StoredGrant } from '../ucan/grants.ts';

export interface RunAuthority {
  /** GRANT_EXPIRED or REVOKED; null while the run may go on. */
  judge(run: Run, now: number): ErrorCode | null;
  /** Before a run starts: what it rests on must last as long as the run may. */
  judgeStart(run: Run, now: number): ErrorCode | null;
  /** What its principal granted the oracle, as far as it counts now; nothing below `signed`, and nothing once the run may not go on. */
  actingGrants(run: Run, now: number): StoredGrant[];
  /** Ends the running runs that rest on one of these, at once; what they said stays. Runs that wait end when they start. */
  stopRestingOn(tokenIds: readonly TokenId[]): void;
}

export interface RunAuthorityOptions {
  readonly grants: Pick<Grants, 'isRevoked' | 'actingOf'>;
  readonly runs: Pick<Runs, 'running'>;
  readonly scheduler: Pick<Scheduler, 'cancel'>;
}

export function createRunAuthority({ grants, runs, scheduler }: RunAuthorityOptions): RunAuthority {
  /** Whoever issued a link, or one above it, may take it back. */
  const isRevoked = ({ path }: Run['grants']): boolean => path.some((ref, at) => grants.isRevoked(ref, revokersOf(path, at)));

  /** No skew here: it was for the clocks of others, and this is our own clock, later. */
  function judge({ grants: restsOn }: Run, now: number): ErrorCode | null {
    if (isRevoked(restsOn)) return 'REVOKED';
    const isOver = restsOn.path.some(({ expiresAt }) => expiresAt <= now) || (restsOn.until !== null && restsOn.until <= now);
    return isOver ? 'GRANT_EXPIRED' : null;
  }

  return {
    judge,
    judgeStart(run, now) {
      const ended = judge(run, now);
      if (ended !== null) return ended;
      const { until } = run.grants;
      return until !== null && run.deadlineAt !== null && until < run.deadlineAt ? 'EXPIRES_TOO_SOON' : null;
    },
    actingGrants: (run, now) =>
      run.did === null || run.tier !== 'signed' || judge(run, now) !== null
        ? []
        : grants.actingOf(run.did, now).filter((grant) => isForAccount(grant, run.matrixUserId)),
    stopRestingOn(tokenIds) {
      const ended = new Set(tokenIds);
      for (const run of runs.running()) {
        // A token that was never stored is in no list of ids, and is revoked all the same.
        if (run.grants.path.some(({ tokenId }) => ended.has(tokenId)) || isRevoked(run.grants))
          scheduler.cancel(run.sessionId, run.id, refusal('REVOKED'));
      }
    },
  };
}

/** A grant may say for which account it is; whoever has a key of the same DID's session speaks from another one. */
const isForAccount = ({ capabilities }: StoredGrant, user: UserId): boolean =>
  capabilities.every(({ nb = {} }) => !Object.hasOwn(nb, 'sender') || nb['sender'] === user);
