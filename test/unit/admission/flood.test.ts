import fc from 'fast-check';
import { expect, test } from 'vitest';
import { type Bucket, createFloodGuard, takeToken } from '../../../src/admission/flood.ts';
import type { UserId } from '../../../src/ids.ts';
import { LIMITS } from '../../../src/limits.ts';
import { ALICE, STRANGER } from '../../fakes/events.ts';

const allowedOf = (guard: ReturnType<typeof createFloodGuard>, users: readonly UserId[], now: number): number =>
  users.filter((user) => guard.allows(user, now)).length;
const times = (count: number, user: UserId): UserId[] => Array.from({ length: count }, () => user);

test('a sender has a burst and then one a second (G14)', () => {
  const guard = createFloodGuard({ isTrusted: () => true });

  expect(allowedOf(guard, times(100, ALICE), 0)).toBe(LIMITS.senderBucketBurst);
  expect(allowedOf(guard, times(5, ALICE), 999)).toBe(0);
  expect(allowedOf(guard, times(5, ALICE), 3_000)).toBe(3);
  expect(allowedOf(guard, times(100, ALICE), 3_600_000)).toBe(LIMITS.senderBucketBurst);
});

test('an untrusted server has one bucket for all its accounts, a trusted one none, and both leave others alone', () => {
  const guard = createFloodGuard({ isTrusted: (user) => user.endsWith(':example.org') });
  const crowd = (server: string) => Array.from({ length: 1_000 }, (_, n) => `@u${n}:${server}` as UserId);

  expect(allowedOf(guard, crowd('Elsewhere.net'), 0)).toBe(LIMITS.serverBucketBurst);
  expect(guard.allows(STRANGER, 0)).toBe(false);
  expect(allowedOf(guard, crowd('example.org'), 0)).toBe(1_000);
  expect(guard.allows('@a:third.net' as UserId, 0)).toBe(true);
});

test('a clock that stands still or goes back gives no tokens', () => {
  fc.assert(
    fc.property(fc.array(fc.integer({ min: -1_000, max: 0 }), { minLength: 1, maxLength: 50 }), (steps) => {
      let bucket: Bucket | undefined;
      let now = 0;
      let allowed = 0;
      for (const step of steps) {
        now += step;
        const taken = takeToken(bucket, now, { burst: 3, perSecond: 1 });
        bucket = taken.bucket;
        if (taken.allowed) allowed += 1;
      }
      return allowed <= 3;
    }),
  );
});

test('whatever times the events claim, to and fro, they buy the burst and the seconds between the first and the last (G14)', () => {
  fc.assert(
    fc.property(fc.array(fc.integer({ min: 0, max: 20_000 }), { minLength: 1, maxLength: 200 }), (claimed) => {
      let bucket: Bucket | undefined;
      let allowed = 0;
      for (const now of claimed) {
        const taken = takeToken(bucket, now, { burst: 3, perSecond: 1 });
        bucket = taken.bucket;
        if (taken.allowed) allowed += 1;
      }
      return allowed <= 3 + (Math.max(...claimed) - (claimed[0] ?? 0)) / 1_000;
    }),
  );
});
