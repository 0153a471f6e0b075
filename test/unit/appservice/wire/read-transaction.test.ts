import { readFileSync } from 'node:fs';
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { readTransaction } from '../../../../appservice/wire/read-transaction.ts';

type Json = Record<string, any>;
const fixture: Json = JSON.parse(readFileSync(new URL('../../../fixtures/synapse-1.163.2.json', import.meta.url), 'utf8'));
const transactions: Json[] = Object.values(fixture)
  .filter(Array.isArray)
  .flat()
  .filter((entry: Json) => entry['path']?.includes('/transactions/'));

test('every captured transaction is read, and every event in it', () => {
  expect(transactions.length).toBeGreaterThan(40);
  for (const { body } of transactions) {
    const result = readTransaction(body);

    expect(result.ok && result.value.events.every(({ read }) => read.ok)).toBe(true);
    expect(result.ok && result.value.events.length).toBe(body.events.length);
  }
});

test('one malformed event does not cost the others (G17)', () => {
  const good = fixture['text'][0].body.events[0];

  const result = readTransaction({ events: [null, good, { type: 'x' }, good] });

  expect(result.ok && result.value.events.map(({ read }) => read.ok)).toEqual([false, true, false, true]);
  expect(result.ok && result.value.events[1]?.json).toBe(good);
});

test.each([
  ['not_an_object', null],
  ['not_an_object', []],
  ['events_not_an_array', {}],
  ['events_not_an_array', { events: {} }],
  ['too_many_events', { events: Array.from({ length: 1_001 }, () => ({})) }],
])('%s is not a transaction', (problem, body) => {
  expect(readTransaction(body)).toEqual({ ok: false, error: problem });
});

test('extensions are read under stable and unstable names; an empty stable list hides nothing', () => {
  const device = { type: 'm.dummy' };

  expect(readTransaction({ events: [], to_device: [device] })).toMatchObject({ value: { toDevice: [device] } });
  expect(readTransaction({ events: [], to_device: [], 'de.sorunome.msc2409.to_device': [device, 5] })).toMatchObject({
    value: { toDevice: [device] },
  });
  expect(readTransaction({ events: [], 'de.sorunome.msc2409.ephemeral': [device] })).toMatchObject({ value: { ephemeral: [device] } });
  expect(readTransaction({ events: [], device_lists: { changed: ['@a:s', 'x'], left: 5 } })).toMatchObject({
    value: { deviceLists: { changed: ['@a:s'], left: [] } },
  });
  expect(readTransaction(fixture['to_device'][0].body)).toMatchObject({
    value: { toDevice: [{ type: 'm.dummy' }], oneTimeKeyCounts: { '@oracle:oracle.local': { ORACLE1: {} } } },
  });
});

test('no JSON makes the reader throw', () => {
  const json = fc.jsonValue({ maxDepth: 3 });
  fc.assert(
    fc.property(json, fc.dictionary(fc.constantFrom('events', 'ephemeral', 'to_device', 'device_lists'), json), (any, body) => {
      readTransaction(any);
      readTransaction({ events: [], ...body });
    }),
  );
});
