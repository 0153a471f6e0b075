import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { createAccounts } from '../../../../src/credits/accounts.ts';
import { type Did, type PrincipalId, type UserId, unsignedPrincipalId } from '../../../../src/ids.ts';
import { openStore, type Store } from '../../../../src/store/store.ts';
import { type CliFolder, createCliFolder } from '../../../cli-folder.ts';

const DID = 'did:key:z6MkhaXgBZDvotDkL5257faiztiGiC2QtKLGpbnnEGta2doK' as Did;
const ALICE = '@alice:example.org' as UserId;

let cli: CliFolder;
let running: Store;
beforeEach(() => {
  cli = createCliFolder();
  mkdirSync(join(cli.dir, 'data'));
  running = openStore({ path: join(cli.dir, 'data', 'oracle.db'), now: 0 });
});
afterEach(() => {
  running.close();
  cli.remove();
});
const balance = (of: PrincipalId): number => createAccounts({ store: running, initial: () => 0 }).balance(running.read, of);
const link = (did: Did) =>
  running.write((tx) => tx.run(running.sql.insertInto('links').values({ did, matrix_user_id: ALICE, room_id: null, proven_at: 1 })));

test('an operator gives credits beside the running oracle, and sees what became of them', async () => {
  const given = await cli.run(['credits', 'grant', DID, '100', '--reason', 'welcome']);
  expect(given).toMatchObject({ status: 0, stderr: '', stdout: `${DID} has 100 credits now.\n` });
  expect(balance(DID)).toBe(100);

  await cli.run(['credits', 'grant', DID, '-30']);
  const shown = await cli.run(['credits', 'show', DID]);
  expect(shown.stdout).toContain(`${DID} has 70 credits.`);
  expect(shown.stdout).toMatch(/-30 +70 {2}by the operator\n.*100 +100 {2}welcome/u);
  expect((await cli.run(['credits', 'list'])).stdout).toContain(`70  ${DID}`);
});

test('nobody can be left with less than nothing (G8)', async () => {
  await cli.run(['credits', 'grant', DID, '10']);

  const taken = await cli.run(['credits', 'grant', DID, '-11']);

  expect(taken.status).not.toBe(0);
  expect(taken.stderr).toContain('has 10 credits');
  expect(balance(DID)).toBe(10);
});

test('an account means the DID that it speaks for, or itself when it speaks for none', async () => {
  await cli.run(['credits', 'grant', ALICE, '5']);
  expect(balance(unsignedPrincipalId(ALICE))).toBe(5);

  await link(DID);
  await cli.run(['credits', 'grant', ALICE, '7']);
  expect(balance(DID)).toBe(7);
});

test('an account that speaks for several DIDs is asked about', async () => {
  await link(DID);
  await link('did:key:z6MkpTHR8VNsBxYAAWHut2Geadd9jSwuBV8xRoAnwWsdvktH' as Did);

  expect((await cli.run(['credits', 'grant', ALICE, '7'])).stderr).toContain('speaks for 2 DIDs');
});

test.each([
  ['half a credit', [DID, '0.5'], 'whole number'],
  ['nothing', [DID, '0'], 'whole number'],
  ['somebody without a name', ['alice', '5'], 'neither a DID nor an account'],
])('%s is no grant', async (_case, args, said) => {
  const result = await cli.run(['credits', 'grant', ...args]);
  expect(result.status).not.toBe(0);
  expect(result.stderr).toContain(said);
});
