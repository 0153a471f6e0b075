import { expect, test } from 'vitest';
import { buildLocalTime, decideTimeZone, readTimeZone } from '../../../src/runtime-context/local-time.ts';

const MIDNIGHT_UTC = 1_767_225_600_000;

test.each([
  ['UTC', '2026-01-01T00:00:00+00:00'],
  ['Europe/Berlin', '2026-01-01T01:00:00+01:00'],
  ['Asia/Kathmandu', '2026-01-01T05:45:00+05:45'],
  ['America/St_Johns', '2025-12-31T20:30:00-03:30'],
])('midnight in Greenwich is told in %s', (zone, iso) => {
  expect(buildLocalTime(MIDNIGHT_UTC, zone).iso).toBe(iso);
});

test('the day of the week is that of the zone', () => {
  expect(['UTC', 'America/New_York'].map((zone) => buildLocalTime(MIDNIGHT_UTC, zone).weekday)).toEqual(['Thursday', 'Wednesday']);
});

test.each([undefined, '', 'Mars/Olympus', '../etc/passwd', 'x'.repeat(10_000)])('a zone that does not exist is none', (name) => {
  expect(readTimeZone(name)).toBeNull();
});

test("the message's own zone comes first, then the person's preference; what is no zone counts as none", () => {
  expect(decideTimeZone('Europe/Paris', { timezone: 'Asia/Tokyo' })).toBe('Europe/Paris');
  expect(decideTimeZone(undefined, { timezone: 'Asia/Tokyo' })).toBe('Asia/Tokyo');
  expect(decideTimeZone('Nowhere', { timezone: 'Asia/Tokyo' })).toBe('Asia/Tokyo');
  expect(decideTimeZone(undefined, { timezone: 5 })).toBeNull();
  expect(decideTimeZone(undefined, {})).toBeNull();
});
