import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { type KeyDevice, readKeySync, readPushedKeys } from '../../../../appservice/crypto/to-device-batch.ts';
import { readTransaction } from '../../../../appservice/wire/read-transaction.ts';
import type { DeviceId, UserId } from '../../../../src/ids.ts';
import { isJsonObject, type JsonObject } from '../../../../src/json.ts';
import { LIMITS } from '../../../../src/limits.ts';
import fixture from '../../../fixtures/synapse-1.163.2.json' with { type: 'json' };

const ORACLE: KeyDevice = { user: '@oracle:oracle.local' as UserId, device: 'ORACLE1' as DeviceId };
const event = (more: JsonObject = {}): JsonObject => ({ type: 'm.room.encrypted', sender: '@alice:oracle.local', content: {}, ...more });
const read = (answer: object) => {
  const result = readKeySync({ next_batch: 's1', ...answer });
  if (!result.ok) throw new Error(result.error);
  return result.value;
};
const pushed = (body: object, device = ORACLE) => {
  const transaction = readTransaction({ events: [], ...body });
  if (!transaction.ok) throw new Error(transaction.error);
  return readPushedKeys(transaction.value, device);
};
function nested(depth: number): JsonObject {
  let value: JsonObject = {};
  for (let level = 0; level < depth; level += 1) value = { value };
  return value;
}

describe('an answer of /sync', () => {
  test('is read with its lists and counts', () => {
    const result = read({
      to_device: { events: [event()] },
      device_lists: { changed: ['@alice:oracle.local', '@alice:oracle.local'], left: ['@bob:oracle.local'] },
      device_one_time_keys_count: { signed_curve25519: 50 },
      device_unused_fallback_key_types: ['signed_curve25519'],
    });

    expect(result).toEqual({
      nextBatch: 's1',
      skipped: 0,
      cut: false,
      batch: {
        events: [event()],
        changed: ['@alice:oracle.local'],
        left: ['@bob:oracle.local'],
        oneTimeKeys: { signed_curve25519: 50 },
        unusedFallback: ['signed_curve25519'],
      },
    });
  });

  test.each([null, [], 'text', {}, { next_batch: 5 }, { next_batch: '' }, { next_batch: 'x'.repeat(1_025) }])(
    'without a position it is none: what could not be acknowledged is not taken (%j)',
    (answer) => {
      expect(readKeySync(answer)).toEqual({ ok: false, error: 'no_position' });
    },
  );

  test.each([undefined, {}, { signed_curve25519: 'many' }, { signed_curve25519: -1 }, { signed_curve25519: 0.5 }, []])(
    'a count that nobody gave stays unknown, it is not none left: %j',
    (counts) => {
      expect(read({ device_one_time_keys_count: counts }).batch.oneTimeKeys).toBeNull();
    },
  );

  test('none left is said with a 0', () => {
    expect(read({ device_one_time_keys_count: { signed_curve25519: 0 } }).batch.oneTimeKeys).toEqual({ signed_curve25519: 0 });
  });

  test('an event that cannot be one is left out, and its neighbours stay in order (G17)', () => {
    const [first, last] = [event({ content: { nr: 1 } }), event({ content: { nr: 2 } })];
    const broken = [
      null,
      5,
      [],
      event({ type: 5 }),
      event({ type: '' }),
      event({ type: 'x'.repeat(256) }),
      event({ sender: 'alice' }),
      event({ content: 'text' }),
      event({ content: { text: 'x'.repeat(LIMITS.toDeviceEventBytes) } }),
      event({ content: nested(200) }),
    ];

    const result = read({ to_device: { events: [first, ...broken, last] } as never });

    expect(result.batch.events).toEqual([first, last]);
    expect(result.skipped).toBe(broken.length);
  });

  test.each([
    ['at', 0, false],
    ['over', 1, true],
    ['far over', 5_000, true],
  ])('%s the limit of events, what is cut is known', (_name, more, cut) => {
    const result = read({ to_device: { events: Array.from({ length: LIMITS.toDeviceEvents + more }, () => event()) } });

    expect(result.batch.events.length).toBe(LIMITS.toDeviceEvents);
    expect([result.cut, result.skipped]).toEqual([cut, more]);
  });

  test('lists of users are bounded, and what is cut is known', () => {
    const changed = Array.from({ length: LIMITS.deviceListUsers + 1 }, (_, index) => `@u${index}:s`);

    expect(read({ device_lists: { changed } }).batch.changed.length).toBe(LIMITS.deviceListUsers);
    expect(read({ device_lists: { changed } }).cut).toBe(true);
    expect(read({ device_lists: { changed: changed.slice(1) } }).cut).toBe(false);
  });

  test('a hostile name of an algorithm is not taken for a prototype', () => {
    const answer = JSON.parse('{"next_batch":"s1","device_one_time_keys_count":{"__proto__":5,"signed_curve25519":1}}');

    expect(read(answer).batch.oneTimeKeys).toBeNull();
  });

  test('no JSON makes the reader throw', () => {
    const json = fc.jsonValue({ maxDepth: 4 });
    const names = fc.constantFrom(
      'to_device',
      'device_lists',
      'device_one_time_keys_count',
      'device_unused_fallback_key_types',
      'events',
      'changed',
    );
    fc.assert(
      fc.property(json, fc.dictionary(names, fc.oneof(json, fc.dictionary(names, json))), (any, answer) => {
        readKeySync(any);
        readKeySync({ next_batch: 's1', ...answer });
      }),
    );
  });
});

describe('a transaction', () => {
  test('brings what is addressed to the very device, without the address', () => {
    const own = event({ to_user_id: ORACLE.user, to_device_id: ORACLE.device });
    const others = [
      event({ to_user_id: '@oracle_bob:oracle.local', to_device_id: ORACLE.device }),
      event({ to_user_id: ORACLE.user, to_device_id: 'ORACLE1R' }),
      event(),
    ];

    expect(pushed({ to_device: [...others, own] })?.batch.events).toEqual([event()]);
  });

  test('counts are those of the device; an empty map is none left there', () => {
    const counts = (value: unknown) => ({ 'org.matrix.msc3202.device_one_time_keys_count': { [ORACLE.user]: value } });

    expect(pushed(counts({ ORACLE1: { signed_curve25519: 7 }, other: {} }))?.batch.oneTimeKeys).toEqual({ signed_curve25519: 7 });
    expect(pushed(counts({ ORACLE1: {} }))?.batch.oneTimeKeys).toEqual({ signed_curve25519: 0 });
    expect(pushed(counts({ other: {} }))).toBeNull();
  });

  test('that says nothing about keys is nothing', () => {
    expect(pushed({})).toBeNull();
    expect(pushed({ to_device: [] })).toBeNull();
  });

  test('every captured one is read', () => {
    const bodies = Object.values(fixture)
      .flatMap((entries): unknown[] => (Array.isArray(entries) ? entries : []))
      .flatMap((entry) => (isJsonObject(entry) && isJsonObject(entry['body']) && 'events' in entry['body'] ? [entry['body']] : []));
    const found = bodies.map((body) => pushed(body)).filter((result) => result !== null);

    expect(found.length).toBeGreaterThan(10);
    expect(found.flatMap(({ batch }) => batch.events.map(({ type, sender }) => [type, sender]))).toEqual([
      ['m.dummy', '@alice:oracle.local'],
    ]);
  });
});
