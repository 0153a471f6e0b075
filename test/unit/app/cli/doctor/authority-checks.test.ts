import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import Sqlite from 'better-sqlite3';
import { afterEach, beforeEach, expect, test } from 'vitest';
import {
  type AccessSettings,
  checkBlocksync,
  checkSigningKey,
  countUseGrants,
  decideAccess,
  planOldKeyChecks,
} from '../../../../../src/app/cli/doctor/authority-checks.ts';
import { buildLine } from '../../../../../src/app/cli/doctor/check.ts';
import { parseDid } from '../../../../../src/ids.ts';
import { createGuardedFetch, type GuardedFetch } from '../../../../../src/net/guarded-fetch.ts';
import { err, ok } from '../../../../../src/result.ts';
import { openStore } from '../../../../../src/store/store.ts';
import { systemClock } from '../../../../../src/system-clock.ts';
import { createResolveKeys } from '../../../../../src/ucan/did/resolve-keys.ts';
import { createOracleKeys, OLD_KEYS_FILE } from '../../../../../src/ucan/oracle-keys.ts';
import { generateKey } from '../../../../../src/ucan/signing-key.ts';
import { type BlocksyncServer, buildIxoDocument, startBlocksync } from '../../../../../synapse-dev/blocksync/server.ts';

const parsed = parseDid('did:ixo:ixo1oracle');
if (!parsed.ok) throw new Error('no DID');
const DID = parsed.value;

let fetch: GuardedFetch;
const servers: BlocksyncServer[] = [];
let dir: string;
beforeEach(() => {
  fetch = createGuardedFetch({ clock: systemClock });
  dir = mkdtempSync(join(tmpdir(), 'matrix-oracle-doctor-'));
});
afterEach(async () => {
  await fetch.close();
  await Promise.all(servers.splice(0).map((server) => server.close()));
  rmSync(dir, { recursive: true });
});
async function start(options: Parameters<typeof startBlocksync>[0] = {}): Promise<BlocksyncServer> {
  const server = await startBlocksync(options);
  servers.push(server);
  return server;
}
const blocksync = (url: string | undefined) => checkBlocksync({ blocksyncGraphqlUrl: url, oracleDid: DID }, fetch);

test('an indexer that answers is fine, whether it knows us or not, and whether it knows services or not', async () => {
  const knowing = await start();
  knowing.put(DID, buildIxoDocument({ keys: [generateKey().did] }));

  expect((await blocksync(knowing.url)).status).toBe('ok');
  expect((await blocksync((await start()).url)).status).toBe('ok');
  const older = await blocksync((await start({ knowsService: false })).url);
  expect(older.status).toBe('ok');
  expect(older.detail).toContain('TRUSTED_HOMESERVERS');
});

test('an indexer that is not set is skipped; one that is not there, or is something else, is a fault', async () => {
  const other = await start();
  other.fail({ status: 200, text: '{"live":true}' });

  expect((await blocksync(undefined)).status).toBe('skipped');
  expect((await blocksync('http://127.0.0.1:1/graphql')).status).toBe('failed');
  expect((await blocksync(other.url)).status).toBe('failed');
});

test('the signing key must be that of ORACLE_DID', async () => {
  const key = generateKey();
  const server = await start();
  server.put(DID, buildIxoDocument({ keys: [generateKey().did, key.did] }));
  const keysOf = createResolveKeys({ blocksyncUrl: server.url, fetch, clock: systemClock });
  const nobody = createResolveKeys({ blocksyncUrl: null, fetch, clock: systemClock });
  const statusOf = async (options: Parameters<typeof checkSigningKey>[0]) => (await checkSigningKey(options)).status;

  expect(await statusOf({ did: key.did, key: ok(key), keysOf: nobody })).toBe('ok');
  expect(await statusOf({ did: key.did, key: ok(generateKey()), keysOf })).toBe('failed');
  expect(await statusOf({ did: DID, key: ok(key), keysOf })).toBe('ok');
  expect(await statusOf({ did: DID, key: ok(generateKey()), keysOf })).toBe('failed');
  expect(await statusOf({ did: DID, key: ok(key), keysOf: nobody })).toBe('failed');
  expect(await statusOf({ did: DID, key: ok(null), keysOf })).toBe('skipped');
  expect(await statusOf({ did: DID, key: err({ message: 'unreadable.', remedy: 'Correct it.' }), keysOf })).toBe('failed');
});

test('an old key that was lost is a warning, a broken list of them a fault', () => {
  const keys = createOracleKeys({ did: DID, current: null, old: [] });
  const lost = { name: OLD_KEYS_FILE, message: 'gone.', remedy: 'Restore it.' };
  const exposed = { name: 'ORACLE_KEY_FILE', message: 'seen.', remedy: 'Run chmod.' };

  expect(planOldKeyChecks(ok({ keys, warnings: [exposed, lost] })).map(buildLine)).toEqual(['! old keys: gone. Restore it.']);
  expect(planOldKeyChecks(err(lost)).map(({ status }) => status)).toEqual(['failed']);
});

const SETTINGS: AccessSettings = {
  access: 'own-server',
  allowedUsers: [],
  unsignedUsers: [],
  trustedHomeservers: ['example.org'],
  matrixServerName: 'example.org',
  httpLegacyAuth: false,
};
test.each<[string, Partial<AccessSettings>, number | null, string[]]>([
  ['the defaults', {}, 0, ['ok']],
  ['everybody', { access: 'open', trustedHomeservers: [] }, null, ['ok']],
  ['granted, with somebody', { access: 'granted' }, 1, ['ok']],
  ['granted, with nobody', { access: 'granted' }, 0, ['warning']],
  ['granted, before the first start', { access: 'granted' }, null, ['warning']],
  ['granted, and unsigned accounts', { access: 'granted', unsignedUsers: ['@*:example.org'] }, 1, ['warning']],
  ['a list that nobody reads', { allowedUsers: ['@a:example.org'] }, 0, ['warning']],
  ['a list that is read', { access: 'allowed', allowedUsers: ['@a:example.org'] }, 0, ['ok']],
  ['the own server among strangers', { trustedHomeservers: ['other.org'] }, 0, ['warning']],
  ['unbound tokens', { httpLegacyAuth: true }, 0, ['warning']],
])('who may use it: %s', (_name, change, granted, statuses) => {
  expect(decideAccess({ ...SETTINGS, ...change }, granted).map(({ status }) => status)).toEqual(statuses);
});

test('grants of the use are counted without changing the database', () => {
  const path = join(dir, 'oracle.db');
  expect(countUseGrants(path)).toBeNull();
  openStore({ path, now: 0 }).close();
  expect(countUseGrants(path)).toBe(0);
  const database = new Sqlite(path);
  database.exec("INSERT INTO use_grants (did, granted_at) VALUES ('did:key:z', 1)");
  database.close();
  expect(countUseGrants(path)).toBe(1);
});
