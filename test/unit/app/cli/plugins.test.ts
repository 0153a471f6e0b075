import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { type CliFolder, createCliFolder } from '../../../cli-folder.ts';

let cli: CliFolder;
beforeEach(() => {
  cli = createCliFolder();
});
afterEach(() => cli.remove());

test('without any other setting it says what is loaded, what is not and why; .env counts as for start', async () => {
  writeFileSync(join(cli.dir, '.env'), 'FEATURES=memory=off\nMCP_CONFIG_FILE=./mcp.json\n');

  const { status, stdout, stderr } = await cli.run(['plugins']);

  expect([status, stderr]).toEqual([0, '']);
  expect(stdout).toMatch(/^Loaded, in this order \(4\):\n {2}clock +1\.0\.0 +always +on unless switched off\n/u);
  expect(stdout).toMatch(/\n {2}mcp +\S+ +on-demand +it is configured\n/u);
  expect(stdout).toMatch(/Not loaded \(2\):\n {2}memory +switched off\n {2}credits +not configured: set CREDITS_PRICES/u);
});

test('--json is one document with the same', async () => {
  const { status, stdout } = await cli.run(['plugins', '--json'], { FEATURES: 'room=off' });

  const { loaded, excluded, softGaps, warnings } = JSON.parse(stdout);
  expect(status).toBe(0);
  expect(loaded[0]).toEqual({
    name: 'clock',
    version: '1.0.0',
    visibility: 'always',
    origin: 'bundled',
    because: 'on unless switched off',
  });
  expect(excluded).toContainEqual({ name: 'room', reason: 'switched off' });
  expect([softGaps, warnings].every(Array.isArray)).toBe(true);
});

test('what would stop the start is told at once, with what to do, and is status 1', async () => {
  const environment = { FEATURES: 'mcp=on,clok=off' };

  const [text, json] = await Promise.all([cli.run(['plugins'], environment), cli.run(['plugins', '--json'], environment)]);

  expect(text).toMatchObject({ status: 1, stdout: '' });
  expect(text.stderr).toContain('2 plugin problems');
  expect(text.stderr).toContain('✗ FEATURES names "clok", which is no plugin here.');
  expect(text.stderr).toContain('✗ Plugin mcp is switched on, but it is not configured: set MCP_CONFIG_FILE');
  expect(text.stderr).not.toContain('    at ');
  expect(json.status).toBe(1);
  expect(JSON.parse(json.stdout).problems.map(({ code }: { code: string }) => code)).toEqual([
    'boot.plugin.unknown',
    'boot.plugin.env_missing',
  ]);
});

test('a list that cannot be read is told by its name', async () => {
  const { status, stderr } = await cli.run(['plugins'], { PLUGINS: 'x'.repeat(300) });

  expect(status).toBe(1);
  expect(stderr).toContain('PLUGINS is not valid.');
});

test('words of other people’s plugins cannot steer the terminal', async () => {
  writeFileSync(
    join(cli.dir, 'odd.mjs'),
    "export default { name: 'odd', version: '1\\u001b[31m', manifest: { title: 'T', summary: 'S.', whenToUse: ['x'] } };",
  );

  const { stdout } = await cli.run(['plugins'], { PLUGINS: './odd.mjs' });

  expect(stdout).toContain('1?[31m');
  expect(stdout).not.toContain('\u001b');
});
