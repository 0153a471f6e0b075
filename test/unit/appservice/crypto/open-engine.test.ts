import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import v8 from 'node:v8';
import Sqlite from 'better-sqlite3';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { systemClock } from '../../../../src/system-clock.ts';
import { fakeKeyServer } from '../../../fakes/fake-key-server.ts';
import { openKeyMachine } from '../../../fakes/key-machine.ts';

const server = fakeKeyServer({ clock: systemClock });
let folder: string;
let path: string;
beforeEach(async () => {
  folder = mkdtempSync(join(tmpdir(), 'open-engine-'));
  path = join(folder, 'crypto.db');
  const machine = await openKeyMachine({ server, user: '@oracle:x', device: 'KEYS', path, uploads: false });
  await machine.close();
});
afterEach(() => rmSync(folder, { recursive: true }));

const open = (more: { user?: string; device?: string; storeKey?: Uint8Array } = {}): Promise<string> =>
  openKeyMachine({ server, user: '@oracle:x', device: 'KEYS', path, uploads: false, ...more }).then(
    async (machine) => {
      await machine.close();
      return 'opened';
    },
    (error: Error) => error.message,
  );

test('a store opens with its key, for its account and device, and for nobody else; what was refused has changed nothing', async () => {
  const refused = [await open({ storeKey: new Uint8Array(32) }), await open({ device: 'OTHER' }), await open({ user: '@other:x' })];

  expect(refused).toEqual(['STORE_KEY_WRONG', 'STORE_OF_ANOTHER', 'STORE_OF_ANOTHER']);
  expect(await open()).toBe('opened');
});

test.each<[string, (sqlite: Sqlite.Database) => void]>([
  [
    'a record that is not the engine’s',
    (sqlite) => sqlite.prepare("UPDATE idb_rec SET val = ? WHERE store = 'core'").run(v8.serialize({ no: 'thing' })),
  ],
  ['a record that is no value at all', (sqlite) => sqlite.exec("UPDATE idb_rec SET val = x'00'")],
  ['a schema that cannot be read', (sqlite) => sqlite.exec("UPDATE idb_schema SET stores = '{}'")],
])('a store with %s is called damaged', async (_name, damage) => {
  const sqlite = new Sqlite(path);
  damage(sqlite);
  sqlite.close();

  expect(await open()).toBe('CRYPTO_DB_DAMAGED');
});
