import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import Sqlite from 'better-sqlite3';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { type CryptoDb, openCryptoDb, type ToDeviceBatch } from '../../../../appservice/crypto/crypto-db.ts';

const NOTHING: ToDeviceBatch = { events: [], changed: [], left: [], oneTimeKeys: null, unusedFallback: null };
const event = (n: number) => ({ type: 'm.room.encrypted', sender: '@a:x', content: { n } });

describe('the file of everything cryptographic', () => {
  let folder: string;
  let path: string;
  let open: CryptoDb[];
  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), 'crypto-db-'));
    path = join(folder, 'crypto.db');
    open = [];
  });
  afterEach(() => {
    for (const db of open) db.close();
    rmSync(folder, { recursive: true });
  });
  function opened(): CryptoDb {
    const result = openCryptoDb(path);
    if (!result.ok) throw new Error(result.error.code);
    open.push(result.value);
    return result.value;
  }
  function reopened(db: CryptoDb): CryptoDb {
    db.close();
    open = open.filter((other) => other !== db);
    return opened();
  }
  const codeOf = () => {
    const result = openCryptoDb(path);
    if (result.ok) open.push(result.value);
    return result.ok ? 'opened' : result.error.code;
  };

  test('every commit is synced to the disk, what was used is overwritten, and nothing is shared with others', () => {
    const { sqlite } = opened();
    const pragma = (name: string) => sqlite.pragma(name, { simple: true });

    expect([pragma('synchronous'), pragma('journal_mode'), pragma('secure_delete'), pragma('locking_mode')]).toEqual([
      2,
      'wal',
      1,
      'exclusive',
    ]);
    expect(existsSync(`${path}-shm`)).toBe(false);
  });

  test('a second open is refused while the first lives, and not after it', () => {
    const first = opened();
    const while_ = codeOf();
    first.close();
    open = [];

    expect([while_, codeOf()]).toEqual(['CRYPTO_DB_LOCKED', 'opened']);
  });

  test('a file of a newer release is refused and not changed', () => {
    opened().close();
    open = [];
    const sqlite = new Sqlite(path);
    sqlite.pragma('user_version = 2');
    sqlite.close();

    expect(codeOf()).toBe('CRYPTO_DB_NEWER');
    expect(new Sqlite(path, { readonly: true }).pragma('user_version', { simple: true })).toBe(2);
  });

  test('a file that is none is called damaged, and a folder that is not there is not', () => {
    writeFileSync(path, 'this is not a database, whatever its name says, and it is long enough to have a header');
    const damaged = codeOf();
    path = join(folder, 'nowhere', 'crypto.db');

    expect([damaged, codeOf()]).toEqual(['CRYPTO_DB_DAMAGED', 'CRYPTO_DB_UNUSABLE']);
  });

  test('what is remembered of the device is there after a restart', () => {
    const db = opened();
    db.meta.set({ user_id: '@o:x', device_id: 'DEV' });
    db.meta.set({ device_id: 'DEV2' });

    const { meta } = reopened(db);

    expect([meta.get('user_id'), meta.get('device_id'), meta.get('since')]).toEqual(['@o:x', 'DEV2', null]);
  });

  test('events and the position that acknowledges them are there together after a restart, oldest first', () => {
    const db = opened();
    db.toDevice.put({ ...NOTHING, events: [event(1)] }, 's1');
    db.toDevice.put({ ...NOTHING, events: [event(2)], changed: ['@b:x'], oneTimeKeys: { signed_curve25519: 3 } }, 's2');

    const { toDevice } = reopened(db);

    expect(toDevice.since()).toBe('s2');
    expect(toDevice.pending()).toEqual([
      { id: 1, tries: 0, ...NOTHING, events: [event(1)] },
      { id: 2, tries: 0, ...NOTHING, events: [event(2)], changed: ['@b:x'], oneTimeKeys: { signed_curve25519: 3 } },
    ]);
  });

  test('neither is there when the transaction fails', () => {
    const db = opened();
    db.toDevice.put(NOTHING, 's1');
    db.sqlite.exec("CREATE TRIGGER full BEFORE INSERT ON meta BEGIN SELECT RAISE(ABORT, 'disk full'); END");

    expect(() => db.toDevice.put({ ...NOTHING, events: [event(1)] }, 's2')).toThrow('disk full');

    db.sqlite.exec('DROP TRIGGER full');
    expect({ since: db.toDevice.since(), pending: db.toDevice.pending() }).toEqual({ since: 's1', pending: [] });
    db.toDevice.put({ ...NOTHING, events: [event(1)] }, 's2');
    expect(db.toDevice.pending()).toHaveLength(1);
  });

  test('an event that comes again is not stored again, also when the first is done and after a restart', () => {
    const db = opened();
    db.toDevice.put({ ...NOTHING, events: [event(1)] }, 's1');
    db.toDevice.done(1);

    const { toDevice } = reopened(db);
    toDevice.put({ ...NOTHING, events: [event(1), event(2), event(2)] }, 's2');

    expect(toDevice.pending().map(({ events }) => events)).toEqual([[event(2)]]);
  });

  test('a batch that says nothing new is not stored, but its position is', () => {
    const { toDevice } = opened();
    const counts = { oneTimeKeys: { signed_curve25519: 50 }, unusedFallback: ['signed_curve25519'] };
    toDevice.put({ ...NOTHING, ...counts }, 's1');
    toDevice.done(1);

    toDevice.put({ ...NOTHING, ...counts }, 's2');

    expect({ pending: toDevice.pending(), since: toDevice.since() }).toEqual({ pending: [], since: 's2' });
  });

  test('counts are handed to the engine when they changed, and once by every process', () => {
    const db = opened();
    const counts = (signed_curve25519: number) => ({ ...NOTHING, oneTimeKeys: { signed_curve25519 } });
    db.toDevice.put(counts(50), 's1');
    db.toDevice.put(counts(49), 's2');
    for (const { id } of db.toDevice.pending()) db.toDevice.done(id);

    const { toDevice } = reopened(db);
    toDevice.put(counts(49), 's3');

    expect(toDevice.pending().map(({ oneTimeKeys }) => oneTimeKeys)).toEqual([{ signed_curve25519: 49 }]);
  });

  test('a change of device lists is always handed on: it may have changed again', () => {
    const { toDevice } = opened();
    toDevice.put({ ...NOTHING, changed: ['@b:x'] }, null);
    toDevice.put({ ...NOTHING, changed: ['@b:x'] }, null);

    expect(toDevice.pending()).toHaveLength(2);
    expect(toDevice.since()).toBeNull();
  });

  test('marks of events seen are bounded, and the newest are kept', () => {
    const { toDevice, sqlite } = opened();
    const many = Array.from({ length: 20_050 }, (_, n) => event(n));
    for (let from = 0; from < many.length; from += 1_000) toDevice.put({ ...NOTHING, events: many.slice(from, from + 1_000) }, null);
    for (const { id } of toDevice.pending()) toDevice.done(id);

    toDevice.put({ ...NOTHING, events: [event(20_049), event(0)] }, null);

    // A repeated event may use up a number.
    const kept = sqlite.prepare('SELECT count(*) FROM to_device_seen').pluck().get();
    expect(kept).toBeLessThanOrEqual(20_000);
    expect(kept).toBeGreaterThan(19_990);
    expect(toDevice.pending().map(({ events }) => events)).toEqual([[event(0)]]);
  });

  test('its size is known', () => {
    expect(opened().bytes()).toBeGreaterThan(4_096);
  });
});
