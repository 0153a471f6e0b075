import { existsSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { readRegistration } from '../../../../appservice/registration.ts';
import { loadConfig } from '../../../../src/app/load-config.ts';
import { readKeyFile } from '../../../../src/ucan/signing-key.ts';
import { type CliFolder, createCliFolder } from '../../../cli-folder.ts';

let cli: CliFolder;
beforeEach(() => {
  cli = createCliFolder();
});
afterEach(() => cli.remove());

const ARGS = ['init', '--server-name', 'Example.org', '--model', 'small', '--model-url', 'http://127.0.0.1:9/v1'];
const FILES = ['data/registration.yaml', 'data/oracle.key', '.env'];
const text = (name: string): string => readFileSync(join(cli.dir, name), 'utf8');

test('init writes registration, key and settings that fit each other, for their owner only (G12)', async () => {
  const result = await cli.run(ARGS);

  expect(result).toMatchObject({ status: 0, stderr: '' });
  for (const name of FILES) expect(statSync(join(cli.dir, name)).mode & 0o777, name).toBe(0o600);
  expect(statSync(join(cli.dir, 'data')).mode & 0o777).toBe(0o700);
  const registration = readRegistration(text('data/registration.yaml'));
  const key = readKeyFile(text('data/oracle.key'));
  if (!registration.ok || !key.ok) throw new Error('unreadable');
  const loaded = await loadConfig({
    environment: { MATRIX_REGISTRATION_FILE: join(cli.dir, 'data/registration.yaml'), ORACLE_KEY_FILE: join(cli.dir, 'data/oracle.key') },
    settings: join(cli.dir, '.env'),
  });
  if (!loaded.ok) throw new Error(JSON.stringify(loaded.error));
  const { config } = loaded.value;
  expect(config.matrixAsToken.reveal()).toBe(registration.value.as_token);
  expect(config).toMatchObject({ oracleDid: key.value.did, matrixServerName: 'example.org', modelMain: 'small' });
  expect(config.publicUrl).toBe(`http://127.0.0.1:${config.port}`);
  expect(loaded.value.warnings).toEqual([]);
});

test('init says exactly what homeserver.yaml needs, and no token', async () => {
  const { stdout } = await cli.run(ARGS);

  expect(stdout).toContain(`app_service_config_files:\n  - ${join(cli.dir, 'data/registration.yaml')}\n`);
  expect(stdout).not.toContain('experimental_features');
  expect(stdout).toContain('Invite @oracle:example.org');
  const registration = readRegistration(text('data/registration.yaml'));
  if (!registration.ok) throw new Error('unreadable');
  expect(stdout).not.toContain(registration.value.as_token);
  expect(stdout).not.toContain(registration.value.hs_token);
});

test('init --keys appservice writes the flags of the registration, the setting, and what else Synapse needs', async () => {
  const { stdout } = await cli.run([...ARGS, '--keys', 'appservice']);

  const registration = readRegistration(text('data/registration.yaml'));
  expect(registration).toMatchObject({ ok: true, value: { receive_ephemeral: true, 'org.matrix.msc3202': true } });
  expect(text('.env')).toContain('\nCRYPTO_TRANSPORT=appservice\n');
  expect(stdout).toContain('experimental_features:\n  msc2409_to_device_messages_enabled: true\n  msc3202_transaction_extensions: true\n');
});

test('a second init changes nothing and says so', async () => {
  await cli.run(ARGS);
  const before = FILES.map(text);

  const result = await cli.run(ARGS);

  expect(result).toMatchObject({ status: 1, stdout: '' });
  expect(result.stderr).toContain('data/oracle.key');
  expect(result.stderr).toContain('--force');
  expect(FILES.map(text)).toEqual(before);
});

test('init --force makes new files and keeps every old one', async () => {
  await cli.run(ARGS);
  const first = text('data/oracle.key');
  await cli.run([...ARGS, '--force']);
  const second = text('data/oracle.key');

  const result = await cli.run([...ARGS, '--force']);

  expect(result.status).toBe(0);
  expect(new Set([text('data/oracle.key'), second, first]).size).toBe(3);
  expect(text('data/oracle.key.old')).toBe(first);
  expect(text('data/oracle.key.old1')).toBe(second);
  expect(statSync(join(cli.dir, 'data/oracle.key.old')).mode & 0o777).toBe(0o600);
});

test('one file in the way and nothing at all is written', async () => {
  writeFileSync(join(cli.dir, '.env'), '# mine\n');

  const result = await cli.run(ARGS);

  expect(result.status).toBe(1);
  expect(existsSync(join(cli.dir, 'data/registration.yaml'))).toBe(false);
});

test.each([
  ['a server name with a path', ['--server-name', 'example.org/x'], 'MATRIX_SERVER_NAME'],
  ['a homeserver without scheme', ['--homeserver', 'localhost:8008'], 'MATRIX_BASE_URL'],
  ['an own address without scheme', ['--url', 'oracle:9993'], '--url'],
  ['a local part with blanks', ['--localpart', 'my oracle'], 'MATRIX_ORACLE_LOCALPART'],
])('%s is refused before anything is written', async (_, change, named) => {
  const result = await cli.run([...ARGS, ...change]);

  expect(result).toMatchObject({ status: 1, stdout: '' });
  expect(result.stderr).toContain(named);
  expect(readdirSync(cli.dir)).toEqual([]);
});

test('an own address that is not loopback opens the listener to it', async () => {
  await cli.run([...ARGS, '--url', 'http://oracle.internal:7000']);

  expect(text('.env')).toContain('APPSERVICE_HOST=0.0.0.0\nAPPSERVICE_PORT=7000\n');
});
