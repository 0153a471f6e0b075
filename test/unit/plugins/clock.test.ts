import { createTestRuntime } from 'matrix-oracle/testing';
import { expect, test } from 'vitest';
import { currentTime } from '../../../plugins/clock/plugin.ts';

const NOON_UTC = 1_796_040_000_000;

test("the clock tells the time in the user's zone", async () => {
  const runtime = createTestRuntime({ now: NOON_UTC, timezone: 'Europe/Berlin' });

  expect(await runtime.call(currentTime, {})).toBe('2026-11-30T13:00:00+01:00 (time zone Europe/Berlin)');
});

test.each([undefined, 'Not/AZone'])('without a zone that exists (%s) it says that this is UTC', async (timezone) => {
  const runtime = createTestRuntime({ now: NOON_UTC, ...(timezone === undefined ? {} : { timezone }) });

  expect(await runtime.call(currentTime, {})).toMatch(/^2026-11-30T12:00:00\+00:00 \(UTC/u);
});
