import { afterAll, describe, expect, test } from 'vitest';
import { createCliFolder } from '../../../cli-folder.ts';

const cli = createCliFolder();
afterAll(() => cli.remove());

describe.concurrent('help and the command line', { timeout: 30_000 }, () => {
  test.each([
    '',
    'init',
    'start',
    'doctor',
    'plugins',
    'plugin',
    'plugin new',
    'mint',
    'mint key',
    'mint grant',
    'mint message',
    'mint request',
    'crypto',
    'crypto status',
    'crypto export',
    'crypto import',
    'crypto new-device',
    'crypto new-identity',
    'inbox',
    'inbox list',
    'inbox requeue',
    'runs',
    'runs list',
    'runs show',
    'runs cancel',
    'runs retry',
    'audit',
    'grant-use',
    'credits',
    'credits grant',
    'credits show',
    'credits list',
    'demo',
  ])('`%s --help` shows an example', async (command) => {
    const result = await cli.run([...command.split(' ').filter((word) => word !== ''), '--help']);

    expect(result).toMatchObject({ status: 0, stderr: '' });
    expect(result.stdout).toContain('Example:\n  $ matrix-oracle ');
  });

  test('--version prints the version of the package', async () => {
    const result = await cli.run(['--version']);

    expect(result).toMatchObject({ status: 0, stderr: '' });
    expect(result.stdout).toMatch(/^\d+\.\d+\.\d+\n$/u);
  });

  test.each([
    ['an unknown command', ['strat'], "unknown command 'strat'"],
    ['an unknown option', ['start', '--fast'], "unknown option '--fast'"],
    ['a missing option', ['init'], '--server-name'],
    ['a bad number', ['inbox', 'list', '--limit', '0'], 'whole number'],
  ])('%s is status 2 and one line on stderr', async (_, args, said) => {
    const result = await cli.run(args);

    expect(result).toMatchObject({ status: 2, stdout: '' });
    expect(result.stderr).toContain(said);
    expect(result.stderr).not.toContain('    at ');
  });

  test('no command at all shows the help and is a fault', async () => {
    const result = await cli.run([]);

    expect(result.status).toBe(2);
    expect(result.stderr).toContain('Usage: matrix-oracle');
  });
});
