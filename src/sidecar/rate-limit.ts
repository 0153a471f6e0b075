/**
 * What an address may ask for before anything is decoded or verified: cryptography is the expensive part of a request, and a guesser must
 * not get it for nothing (G14). Counts live in memory and last a minute; the throttle of turns is durable and elsewhere (src/turn).
 */
import { isIPv6 } from 'node:net';
import { RateLimiterMemory, RateLimiterRes } from 'rate-limiter-flexible';
import { type Refusal, refusal } from '../errors.ts';
import { err, ok, type Result } from '../result.ts';

export interface AddressLimits {
  /** Counts a request. */
  enter(address: string): Promise<Result<void, Refusal>>;
  /** Whether this address was refused too often to be listened to. */
  mayTry(address: string): Promise<Result<void, Refusal>>;
  /** A request of it was refused with 401 or 403. */
  wasRefused(address: string): Promise<void>;
}

const WINDOW_S = 60;

export function createAddressLimits({ requests, refused }: { requests: number; refused: number }): AddressLimits {
  const entering = new RateLimiterMemory({ points: requests, duration: WINDOW_S });
  const failing = new RateLimiterMemory({ points: refused, duration: WINDOW_S });
  return {
    enter: (address) => consume(entering, keyOf(address)),
    async mayTry(address) {
      const state = await failing.get(keyOf(address));
      return state !== null && state.consumedPoints >= refused ? tooMany(state.msBeforeNext) : ok(undefined);
    },
    async wasRefused(address) {
      await failing.penalty(keyOf(address));
    },
  };
}

/** One of `points` per minute and key. */
export function createPace(points: number): (key: string) => Promise<Result<void, Refusal>> {
  const pace = new RateLimiterMemory({ points, duration: WINDOW_S });
  return (key) => consume(pace, key);
}

async function consume(limiter: RateLimiterMemory, key: string): Promise<Result<void, Refusal>> {
  try {
    await limiter.consume(key);
    return ok(undefined);
  } catch (rejected) {
    if (rejected instanceof RateLimiterRes) return tooMany(rejected.msBeforeNext);
    throw rejected;
  }
}

const tooMany = (retryAfterMs: number): Result<never, Refusal> => err(refusal('RATE_LIMITED', { details: { retryAfterMs } }));

/** An IPv6 customer has a /64 at least: counted by address, anybody would have endless ones. */
function keyOf(address: string): string {
  if (!isIPv6(address) || address.startsWith('::ffff:')) return address;
  const [head = '', tail] = address.split('::');
  const first = head.split(':').filter((group) => group !== '');
  const last = (tail ?? '').split(':').filter((group) => group !== '');
  const zeros = tail === undefined ? [] : Array<string>(Math.max(0, 8 - first.length - last.length)).fill('0');
  return [...first, ...zeros, ...last].slice(0, 4).join(':');
}
