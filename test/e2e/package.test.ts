/**
 * What is published, as a user gets it: `npm pack` of a copy of this tree, installed in an empty project where neither our overrides nor our
 * workspaces reach. The hardened decoders must be inside (a token with a `__proto__` key is refused by the oracle that runs there), the parts that
 * matrix-bot-sdk drags along must not, and an author's types and imports must work.
 */
import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { cpSync, existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { findFreePort } from '../../synapse-dev/homeserver/ports.ts';
import { textReply, toolCallsReply } from '../../synapse-dev/model/reply.ts';
import { isSealed, useCryptoWorld } from './crypto-world.ts';

const world = useCryptoWorld({ oracles: 1 });
const run = promisify(execFile);
const ROOT = join(import.meta.dirname, '../..');
const folder = mkdtempSync(join(tmpdir(), 'matrix-oracle-package-'));
const project = join(folder, 'project');
/** The Node of this process first, as `npm run` would have it. */
const environment = { ...process.env, PATH: `${join(ROOT, 'node_modules/.bin')}:${process.env['PATH']}`, NODE_OPTIONS: '' };

beforeAll(async () => {
  const copy = join(folder, 'copy');
  mkdirSync(copy);
  // Packing changes package.json for a moment, which must not happen under other tests.
  const { stdout } = await run('git', ['ls-files', '--cached', '--others', '--exclude-standard', '--', '.', ':!test'], { cwd: ROOT });
  // The one test that is shipped: `plugin new` copies it.
  for (const file of `${stdout}\ntest/unit/plugins/template.test.ts`
    .split('\n')
    .filter((name) => name !== '' && existsSync(join(ROOT, name))))
    cpSync(join(ROOT, file), join(copy, file));
  symlinkSync(join(ROOT, 'node_modules'), join(copy, 'node_modules'));
  await run('npm', ['pack', '--silent', '--pack-destination', folder], { cwd: copy, env: environment });
  expect(readFileSync(join(copy, 'package.json'), 'utf8')).toBe(readFileSync(join(ROOT, 'package.json'), 'utf8'));

  const tarball = readdirSync(folder).find((name) => name.endsWith('.tgz'));
  mkdirSync(project);
  writeFileSync(join(project, 'package.json'), JSON.stringify({ name: 'empty', private: true, type: 'module' }));
  await run('npm', ['install', '--silent', '--prefer-offline', '--no-audit', '--no-fund', join(folder, tarball ?? '')], {
    cwd: project,
    env: environment,
  });
}, 600_000);
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const installed = (path: string) => join(project, 'node_modules', path);
const evaluate = async (code: string): Promise<string> =>
  (await run(process.execPath, ['--input-type=module', '--eval', code], { cwd: project, env: environment })).stdout.trim();

test('there is one SQLite, ours, which needs neither a download nor a compiler to be installed', () => {
  const copies = readdirSync(join(project, 'node_modules'), { recursive: true, encoding: 'utf8' }).filter((path) =>
    /(?:^|node_modules\/)better-sqlite3$/u.test(path),
  );

  expect(copies).toEqual(['better-sqlite3']);
});

test('the installed command says its version and its commands', async () => {
  const bin = installed('.bin/matrix-oracle');
  const { stdout } = await run(process.execPath, [bin, '--help'], { cwd: project, env: environment });

  expect(stdout).toContain('start');
  expect((await run(process.execPath, [bin, '--version'], { cwd: project, env: environment })).stdout.trim()).toMatch(/^\d+\.\d+\.\d+/u);
});

test('an author imports one instance of the package, for plugins and for their tests', async () => {
  const code = `
    import { defineTool, OracleError } from 'matrix-oracle';
    import { createTestRuntime } from 'matrix-oracle/testing';
    import { createOracleApp } from 'matrix-oracle/app';
    console.log(typeof defineTool, typeof OracleError, typeof createTestRuntime, typeof createOracleApp);`;

  expect(await evaluate(code)).toBe('function function function function');
});

test('the source condition is gone, and nothing but the build was packed', () => {
  const manifest = JSON.parse(readFileSync(installed('matrix-oracle/package.json'), 'utf8'));

  expect(JSON.stringify(manifest.exports)).not.toContain('matrix-oracle-source');
  expect(manifest.scripts).toBeUndefined();
  expect(existsSync(installed('matrix-oracle/src'))).toBe(false);
});

test('neither matrix-bot-sdk nor another CBOR decoder is installed beside the bundle', () => {
  for (const name of ['matrix-bot-sdk', 'request', '@ipld/dag-ucan', '@ipld/dag-cbor', 'cborg'])
    expect(existsSync(installed(name)), name).toBe(false);
});

test('types resolve for an author without our settings', async () => {
  writeFileSync(
    join(project, 'plugin.ts'),
    `import { defineTool } from 'matrix-oracle';
     import { createOracleApp } from 'matrix-oracle/app';
     import { z } from 'zod';
     // @ts-expect-error a feature is on, off or auto
     export const app = createOracleApp({ features: { memory: 'sometimes' } });
     export const tool = defineTool({ name: 'echo', description: 'Echoes.', schema: z.object({ text: z.string() }), handler: ({ text }) => text });
     // @ts-expect-error a tool needs a name
     defineTool({ description: 'x', schema: z.object({}), handler: () => '' });`,
  );
  const options = ['--noEmit', '--strict', '--skipLibCheck', '--target', 'es2025', '--module', 'nodenext', '--types', '', 'plugin.ts'];

  await run(join(ROOT, 'node_modules/.bin/tsc'), options, { cwd: project, env: environment });
});

test('a plugin that the installed command scaffolds passes its test, is compiled against the types, and answers in an encrypted room', async () => {
  const scaffolded = await run(process.execPath, [installed('.bin/matrix-oracle'), 'plugin', 'new', 'shopping-list'], {
    cwd: project,
    env: environment,
  });
  const plugin = join(project, 'shopping-list');
  // As `npm install --save-dev` with what was printed would, without another two minutes of downloading.
  for (const name of ['@types/node', 'typescript', 'vitest']) {
    mkdirSync(join(installed(name), '..'), { recursive: true });
    if (!existsSync(installed(name))) symlinkSync(join(ROOT, 'node_modules', name), installed(name));
  }
  symlinkSync(plugin, installed('shopping-list'));
  const inPlugin = { cwd: plugin, env: { ...environment, VITEST: '' } };
  await run('npm', ['run', 'build'], inPlugin);
  const tested = await run('npm', ['test'], inPlugin);

  expect(scaffolded.stdout).toContain('npm install --save-dev ./shopping-list');
  expect(tested.stdout).toContain('6 passed');
  expect(readFileSync(join(plugin, 'dist/plugin.d.ts'), 'utf8')).toContain('SHOPPING_LIST_MAX_ITEMS');

  const oracle = await world.oracle({ PLUGINS: 'shopping-list' });
  await oracle.startProcess({}, { installedIn: project });
  oracle.model.enqueue(toolCallsReply({ name: 'shopping_list_add', args: { item: 'oat milk' } }), textReply('It is on your list.'));
  const talk = await (await world.person()).direct(oracle);
  const answer = await talk.ask('Put oat milk on my list.');

  expect(answer.text).toBe('It is on your list.');
  const [, second] = oracle.model.requests;
  expect(second?.chat?.messages.at(-1)).toMatchObject({ role: 'tool', text: 'It is on the list.' });
  expect(oracle.rows('SELECT plugin, value FROM plugin_storage')).toEqual([{ plugin: 'shopping-list', value: 'oat milk' }]);
  const messages = (await talk.history()).filter(({ type }) => type === 'm.room.message' || type === 'm.room.encrypted');
  expect(messages.every(isSealed)).toBe(true);
}, 240_000);

/** A good token but for a fact `{ "__proto__": … }`, which no signature covers and a decoder before cborg 6 makes readable. */
const PROTO_TOKEN = (
  JSON.parse(readFileSync(join(ROOT, 'test/vectors/ucan/e-encoding.json'), 'utf8')) as { name: string; token: string }[]
).find(({ name }) => name === 'proto-in-a-fact')?.token;

test('the installed oracle passes its decoder self-test, listens, and refuses a token with a __proto__ key', async () => {
  const port = await findFreePort();
  const oracle = spawn(process.execPath, [installed('.bin/matrix-oracle'), 'start'], {
    cwd: project,
    env: {
      PATH: environment.PATH,
      MATRIX_BASE_URL: 'http://127.0.0.1:9',
      MATRIX_SERVER_NAME: 'example.org',
      MATRIX_AS_TOKEN: 'a_token_of_the_package_test',
      MATRIX_HS_TOKEN: 'another_token_of_the_package_test',
      ORACLE_DID: 'did:key:z6MkiTBz1ymuepAQ4HEHYSF1H8quG5GLVVQR3djdX3mDooWp',
      OPENAI_BASE_URL: 'http://127.0.0.1:9/v1',
      MODEL_MAIN: 'none',
      APPSERVICE_PORT: '0',
      METRICS_PORT: '0',
      PORT: String(port),
    },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  try {
    await expect
      .poll(
        () =>
          fetch(`http://127.0.0.1:${port}/health`).then(
            ({ status }) => status,
            () => null,
          ),
        { timeout: 30_000 },
      )
      .toBe(200);
    const answer = await fetch(`http://127.0.0.1:${port}/sessions`, {
      headers: { authorization: `Bearer ${PROTO_TOKEN}`, 'x-auth-type': 'ucan' },
    });

    expect([answer.status, ((await answer.json()) as { code: string }).code]).toEqual([401, 'UCAN_MALFORMED']);
    expect((await fetch(`http://127.0.0.1:${port}/authorise`)).headers.get('content-security-policy')).toContain("frame-ancestors 'none'");
  } finally {
    const ended = once(oracle, 'close');
    oracle.kill('SIGTERM');
    await ended;
  }
});
