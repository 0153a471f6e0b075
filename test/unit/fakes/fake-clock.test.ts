import { expect, test } from 'vitest';
import { sleep } from '../../../src/time.ts';
import { FAKE_START_MS, fakeClock } from '../../fakes/fake-clock.ts';

test('timers fire in the order they fall due and see their own due time', () => {
  const clock = fakeClock(1_000);
  const seen: string[] = [];
  clock.after(20, () => seen.push(`b@${clock.now()}`));
  clock.after(10, () => seen.push(`a@${clock.now()}`));
  clock.after(20, () => seen.push(`c@${clock.now()}`));

  clock.advance(25);

  expect(seen).toEqual(['a@1010', 'b@1020', 'c@1020']);
  expect(clock.now()).toBe(1_025);
});

test('a timer set by a callback fires within the same advance, a cancelled one never', () => {
  const clock = fakeClock();
  const seen: number[] = [];
  const again = (): void => {
    seen.push(clock.monotonic());
    clock.after(10, again);
  };
  clock.after(10, again);
  clock.after(15, () => seen.push(-1)).cancel();

  clock.advance(35);

  expect(seen).toEqual([10, 20, 30]);
  expect(clock.pending()).toBe(1);
});

test('a jump moves wall time only and fires nothing', () => {
  const clock = fakeClock();
  let fired = false;
  clock.after(10, () => {
    fired = true;
  });

  clock.jump(-3_600_000);

  expect(fired).toBe(false);
  expect(clock.now()).toBe(FAKE_START_MS - 3_600_000);
  expect(clock.monotonic()).toBe(0);
});

test('advanceAsync lets code between two waits go on', async () => {
  const clock = fakeClock();
  const done = (async () => {
    await sleep(clock, 10);
    await sleep(clock, 10);
    return clock.monotonic();
  })();

  await clock.advanceAsync(20);

  expect(await done).toBe(20);
});
