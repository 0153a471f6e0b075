import { afterEach, beforeEach, expect, test } from 'vitest';
import { describeStartError } from '../../../../src/app/cli/describe-start-error.ts';
import { type CliFolder, createCliFolder } from '../../../cli-folder.ts';

let cli: CliFolder;
beforeEach(() => {
  cli = createCliFolder();
});
afterEach(() => cli.remove());

const PORTS = { appservicePort: 9993, port: 3000, metricsPort: 9464, dataDir: './data' };

test('start and doctor name every wrong setting at once and stop', async () => {
  const environment = { PORT: 'http', ACCESS: 'everybody' };

  const [start, doctor] = await Promise.all([cli.run(['start'], environment), cli.run(['doctor'], environment)]);

  const named = (text: string) => [...text.matchAll(/✗ (?:config: )?(?<name>[A-Z_]+) /gu)].map((match) => match.groups?.['name']).sort();
  const wrong = ['ACCESS', 'MATRIX_AS_TOKEN', 'MATRIX_BASE_URL', 'MATRIX_HS_TOKEN', 'MATRIX_SERVER_NAME', 'MODEL_MAIN', 'OPENAI_API_KEY'];
  expect(named(start.stderr)).toEqual([...wrong, 'ORACLE_DID', 'PORT'].sort());
  expect(named(doctor.stdout)).toEqual(named(start.stderr));
  expect(start.stderr).not.toContain('    at ');
  expect(start.stderr).toContain('matrix-oracle init --help');
  expect(start).toMatchObject({ status: 1, stdout: '' });
  expect(doctor.status).toBe(1);
});

test('a plugin that would stop the start fails in doctor as well', async () => {
  const environment = {
    MATRIX_BASE_URL: 'http://127.0.0.1:9',
    MATRIX_SERVER_NAME: 'example.org',
    MATRIX_AS_TOKEN: 'a'.repeat(40),
    MATRIX_HS_TOKEN: 'h'.repeat(40),
    ORACLE_DID: 'did:key:z6MkhaXgBZDvotDkL5257faiztiGiC2QtKLGpbnnEGta2doK',
    OPENAI_BASE_URL: 'http://127.0.0.1:9/v1',
    MODEL_MAIN: 'm',
  };
  const linesOf = async (more: Record<string, string>) =>
    (await cli.run(['doctor'], { ...environment, ...more })).stdout.split('\n').filter((line) => line.includes('plugins:'));

  expect(await linesOf({ PLUGINS: './gone.ts' })).toEqual([
    '✗ plugins: one problem stops the start. PLUGINS names "./gone.ts", which does not exist. Correct the path, or take it out of PLUGINS.',
  ]);
  expect(await linesOf({})).toEqual([expect.stringMatching(/^✓ plugins: \d+ are loaded/u)]);
});

test('an --settings that is not there is named', async () => {
  const result = await cli.run(['start', '--settings', 'nowhere.env']);

  expect(result.status).toBe(1);
  expect(result.stderr).toContain('nowhere.env cannot be read (ENOENT)');
});

test.each([
  [{ code: 'EADDRINUSE', port: 3000 }, 'set PORT to another port'],
  [{ code: 'EADDRINUSE', port: 9464 }, 'set METRICS_PORT to another port'],
  [{ code: 'EADDRINUSE', port: 9993 }, 'set APPSERVICE_PORT (and `url` in the registration) to another port'],
  [{ code: 'EACCES', port: 3000 }, 'above 1023'],
  [{ code: 'EACCES', path: '/data' }, '/data cannot be written'],
  [{ code: 'EADDRNOTAVAIL', address: '10.1.1.1' }, '10.1.1.1'],
  [{ code: 'ENOSPC' }, 'is full'],
  [{ code: 'SQLITE_NOTADB' }, 'restore a backup'],
  [{ code: 'START_REFUSED', message: 'another process has the folder.' }, 'another process has the folder.'],
])('%j is said as one sentence with its remedy', (error, said) => {
  expect(describeStartError(error, PORTS)).toContain(said);
});

test('what is nobody else’s fault stays a bug with its stack', () => {
  expect(describeStartError(new TypeError('x is not a function'), PORTS)).toBeUndefined();
  expect(describeStartError('a string', PORTS)).toBeUndefined();
});
