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

/** Takes one token. Pure: the caller keeps the returned bucket, whose time never goes back, so that nobody fills it twice for the same second. */
export function takeToken(bucket: Bucket | undefined, now: number, { burst, perSecond }: BucketRate): { allowed: boolean; bucket: Bucket } {
  const filled = bucket === undefined ? burst : Math.min(burst, bucket.tokens + (Math.max(0, now - bucket.at) / 1000) * perSecond);
  const at = Math.max(now, bucket?.at ?? now);
  return filled >= 1 ? { allowed: true, bucket: { tokens: filled - 1, at } } : { allowed: false, bucket: { tokens: filled, at } };
}

const SENDER: BucketRate = { burst: LIMITS.senderBucketBurst, perSecond: LIMITS.senderBucketPerSecond };
const SERVER: BucketRate = { burst: LIMITS.serverBucketBurst, perSecond: LIMITS.serverBucketPerSecond };

export interface FloodGuard {
  /**
   * Whether this sender may be looked at; counts the event. `sentAt`, monotonic ms, is when it set out: what was written in ten minutes is no
   * flood because an outage delivers it in one second.
   */
  allows(sender: UserId, sentAt: number): boolean;
}

export function createFloodGuard({ isTrusted }: { isTrusted: (user: UserId) => boolean }): FloodGuard {
  const buckets = new LRUCache<string, Bucket>({ max: LIMITS.floodBucketsKept });
  function take(key: string, now: number, rate: BucketRate): boolean {
    const { allowed, bucket } = takeToken(buckets.get(key), now, rate);
    buckets.set(key, bucket);
    return allowed;
  }
  return {
    allows(sender, sentAt) {
      const ofSender = take(sender, sentAt, SENDER);
      const ofServer = isTrusted(sender) || take(`server:${serverOf(sender)}`, sentAt, SERVER);
      return ofSender && ofServer;
    },
  };
}
