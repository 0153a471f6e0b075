/**
 * Token buckets before any cryptography (G14): a stranger who sends thousands of events must not make us verify thousands of signatures.
 * Events beyond the bucket are ignored without a notice, because a notice would answer a flood with a flood. Kept in memory and bounded:
 * what a restart forgets is at most one burst.
 */
import { LRUCache } from 'lru-cache';
import { serverOf, type UserId } from '../ids.ts';
import { LIMITS } from '../limits.ts';

export interface Bucket {
  readonly tokens: number;
  /** Monotonic ms of the last change. */
  readonly at: number;
}
export interface BucketRate {
  readonly burst: number;
  readonly perSecond: number;
}

/** Takes one token. Pure: the caller keeps the returned bucket. */
export function takeToken(bucket: Bucket | undefined, now: number, { burst, perSecond }: BucketRate): { allowed: boolean; bucket: Bucket } {
  const filled = bucket === undefined ? burst : Math.min(burst, bucket.tokens + (Math.max(0, now - bucket.at) / 1000) * perSecond);
  return filled >= 1 ? { allowed: true, bucket: { tokens: filled - 1, at: now } } : { allowed: false, bucket: { tokens: filled, at: now } };
}

const SENDER: BucketRate = { burst: LIMITS.senderBucketBurst, perSecond: LIMITS.senderBucketPerSecond };
const SERVER: BucketRate = { burst: LIMITS.serverBucketBurst, perSecond: LIMITS.serverBucketPerSecond };

export interface FloodGuard {
  /** Whether this sender may be looked at now; counts the event. */
  allows(sender: UserId, now: number): boolean;
}

export function createFloodGuard({ isTrusted }: { isTrusted: (user: UserId) => boolean }): FloodGuard {
  const buckets = new LRUCache<string, Bucket>({ max: LIMITS.floodBucketsKept });
  function take(key: string, now: number, rate: BucketRate): boolean {
    const { allowed, bucket } = takeToken(buckets.get(key), now, rate);
    buckets.set(key, bucket);
    return allowed;
  }
  return {
    allows(sender, now) {
      const ofSender = take(sender, now, SENDER);
      const ofServer = isTrusted(sender) || take(`server:${serverOf(sender)}`, now, SERVER);
      return ofSender && ofServer;
    },
  };
}
