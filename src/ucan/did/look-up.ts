/**
 * Asking the network who somebody is, at most as often as needed: what succeeded is kept for a minute, so that a key taken out of a document
 * stops counting within that; a failure is never kept, so that a short outage does not outlast itself. Many messages of one person ask
 * once, and however many identities a stranger invents, few questions are open at a time and none waits longer than 3 s (G14). Who was found
 * before has turns of his own, so that invented identities keep nobody out.
 */
import { LRUCache } from 'lru-cache';
import { LIMITS } from '../../limits.ts';
import { err, ok, type Result } from '../../result.ts';
import type { Clock } from '../../time.ts';

const AT_ONCE = 16;
const AT_ONCE_AGAIN = 8;
const MAX_WAITING = 256;

export interface LookUpOptions<T, E> {
  readonly clock: Clock;
  /** Settles within `timeoutMs`. */
  readonly ask: (key: string, timeoutMs: number) => Promise<Result<T, E>>;
  /** When nobody can be asked in time. */
  readonly failure: E;
}

interface Turns {
  /** False when no turn came in time. */
  take(withinMs: number): Promise<boolean>;
  /** To who waits longest. */
  give(): void;
}

function createTurns(clock: Clock, atOnce: number): Turns {
  const waiting = new Set<() => void>();
  let open = 0;
  return {
    take(withinMs) {
      if (open < atOnce) {
        open += 1;
        return Promise.resolve(true);
      }
      if (waiting.size >= MAX_WAITING) return Promise.resolve(false);
      return new Promise((resolve) => {
        const start = () => {
          timer.cancel();
          resolve(true);
        };
        const timer = clock.after(withinMs, () => {
          waiting.delete(start);
          resolve(false);
        });
        waiting.add(start);
      });
    },
    give() {
      const [next] = waiting;
      // The turn is handed on, so `open` stays as it is.
      if (next === undefined) open -= 1;
      else {
        waiting.delete(next);
        next();
      }
    },
  };
}

export function createLookUp<T extends object, E>({ clock, ask, failure }: LookUpOptions<T, E>): (key: string) => Promise<Result<T, E>> {
  /** Entries stay when their time is over: they tell who was found before. */
  const known = new LRUCache<string, { readonly value: T; readonly until: number }>({ max: LIMITS.didsCached });
  const underWay = new Map<string, Promise<Result<T, E>>>();
  const turns = { first: createTurns(clock, AT_ONCE), again: createTurns(clock, AT_ONCE_AGAIN) } as const;

  async function lookUp(key: string): Promise<Result<T, E>> {
    const deadline = clock.monotonic() + LIMITS.didTimeoutMs;
    const turn = known.has(key) ? turns.again : turns.first;
    if (!(await turn.take(LIMITS.didTimeoutMs))) return err(failure);
    try {
      const askedAt = clock.monotonic();
      if (askedAt >= deadline) return err(failure);
      const answer = await ask(key, deadline - askedAt);
      // From the question on: the answer may be as old as that.
      if (answer.ok) known.set(key, { value: answer.value, until: askedAt + LIMITS.didCacheMs });
      return answer;
    } finally {
      turn.give();
    }
  }

  return (key) => {
    const kept = known.get(key);
    if (kept !== undefined && clock.monotonic() < kept.until) return Promise.resolve(ok(kept.value));
    const current = underWay.get(key);
    if (current !== undefined) return current;
    const started = lookUp(key).finally(() => underWay.delete(key));
    underWay.set(key, started);
    return started;
  };
}
