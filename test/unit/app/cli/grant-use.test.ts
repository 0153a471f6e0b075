import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import type { Did } from '../../../../src/ids.ts';
import { openStore, type Store } from '../../../../src/store/store.ts';
import { createUseGrants } from '../../../../src/ucan/use-grants.ts';
import { type CliFolder, createCliFolder } from '../../../cli-folder.ts';

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

const DID = 'did:key:z6MkhaXgBZDvotDkL5257faiztiGiC2QtKLGpbnnEGta2doK' as Did;
const has = (did: Did = DID): boolean => createUseGrants({ store: running }).has(did);
const settle = (access: string) => writeFileSync(join(cli.dir, '.env'), `ACCESS=${access}\n`);

test('grant-use lets a DID in beside the running oracle, at once, and takes it off again', async () => {
  settle('granted');

  const added = await cli.run(['grant-use', DID]);
  expect(added).toMatchObject({ status: 0, stderr: '', stdout: `${DID} may use the oracle from now on.\n` });
  expect(has()).toBe(true);
  expect((await cli.run(['grant-use', DID])).stdout).toContain('on the list already');
  expect((await cli.run(['grant-use', '--list'])).stdout).toMatch(new RegExp(`^\\d{4}-\\d\\d-\\d\\dT\\S+Z {2}${DID}\n$`, 'u'));

  const removed = await cli.run(['grant-use', '--remove', DID]);
  expect(removed).toMatchObject({ status: 0, stderr: '' });
  expect(removed.stdout).toContain('its next message is refused');
  expect(has()).toBe(false);
  expect((await cli.run(['grant-use', '--list'])).stdout).toBe('Nobody is on the list.\n');
});

test.each([
  ['own-server', 'own-server'],
  ['everybody', 'not readable'],
])('whoever grants with ACCESS=%s is told that it has no effect yet, whatever else is missing', async (access, said) => {
  settle(access);

  const result = await cli.run(['grant-use', DID]);
  expect(result).toMatchObject({ status: 0, stderr: '' });
  expect(result.stdout).toContain(`no effect yet: ACCESS is ${said}`);
  expect(has()).toBe(true);
});

test('ACCESS is own-server where nothing is set', async () => {
  expect((await cli.run(['grant-use', '--list'])).stdout).toContain('ACCESS is own-server');
});

test.each([
  ['nobody', ['grant-use'], 'name one DID'],
  ['a DID and --list', ['grant-use', '--list', DID], 'name one DID'],
  ['--remove of nobody', ['grant-use', '--remove'], 'name one DID'],
  ['an account', ['grant-use', '@alice:example.org'], 'rows name DIDs'],
  ['a text', ['grant-use', 'alice\u001b[2J'], 'is not a DID'],
  ['--remove of somebody who is not there', ['grant-use', '--remove', DID], 'not on the list'],
])('%s is refused and nothing changes', async (_, args, said) => {
  const result = await cli.run(args);

  expect(result).toMatchObject({ status: 1, stdout: '' });
  expect(result.stderr).toContain(said);
  expect(result.stderr).not.toContain('\u001b');
  expect(has()).toBe(false);
});
