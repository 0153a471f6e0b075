import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { defineOraclePlugin, defineTool } from 'matrix-oracle';
import { afterAll, expect, test } from 'vitest';
import { z } from 'zod';
import { createOracleApp, type OracleAppOptions } from '../../../src/app/create-oracle-app.ts';
import { NotAvailableError } from '../../../src/errors.ts';
import { fakeLogger } from '../../fakes/fake-logger.ts';

const folder = mkdtempSync(join(tmpdir(), 'matrix-oracle-app-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const SETTINGS = {
  DATA_DIR: folder,
  MATRIX_BASE_URL: 'http://127.0.0.1:9',
  MATRIX_SERVER_NAME: 'example.org',
  MATRIX_AS_TOKEN: 'a_token_of_this_test_only',
  MATRIX_HS_TOKEN: 'another_token_of_this_test',
  ORACLE_DID: 'did:key:z6MkiTBz1ymuepAQ4HEHYSF1H8quG5GLVVQR3djdX3mDooWp',
  OPENAI_BASE_URL: 'http://127.0.0.1:9/v1',
  MODEL_MAIN: 'small',
  APPSERVICE_PORT: '0',
  METRICS_PORT: '0',
  PORT: '0',
};

/** What a program of its own looks like (docs/plugins.md). */
const dice = defineOraclePlugin({
  name: 'dice',
  version: '1.0.0',
  manifest: { title: 'Dice', summary: 'Rolls dice.', whenToUse: ['The user wants to roll dice.'], visibility: 'always' },
  configSchema: z.object({ DICE_SIDES: z.coerce.number().int().min(2).default(6).describe('Sides of a die.') }),
  getTools: ({ config }) => [
    defineTool({
      name: 'roll',
      description: 'Rolls one die.',
      schema: z.object({ seed: z.number().int() }),
      handler: ({ seed }) => 1 + (seed % config.DICE_SIDES),
    }),
  ],
});
const example: OracleAppOptions = {
  config: { ...SETTINGS, ORACLE_NAME: 'Dicey', DICE_SIDES: '20' },
  features: { memory: false },
  manifestOverrides: { clock: { visibility: 'on-demand' } },
  plugins: [dice],
  hooks: {
    resolveModel: ({ model }) => (model === 'small' ? 'large' : null),
    getRoomTitle: (roomId) => (roomId === '!games:example.org' ? 'Games' : null),
  },
  logger: fakeLogger(),
};

test('a program with a plugin, switches and hooks of its own knows before the start what will be loaded', async () => {
  const app = await createOracleApp(example);

  const { loaded, excluded } = app.plugins.status();
  expect(loaded.find(({ name }) => name === 'dice')).toEqual({
    name: 'dice',
    version: '1.0.0',
    visibility: 'always',
    origin: 'given',
    because: 'on unless switched off',
  });
  expect(loaded.find(({ name }) => name === 'clock')?.visibility).toBe('on-demand');
  expect(excluded).toContainEqual({ name: 'memory', reason: 'switched off' });
});

test.each(['checkpointerForUser', 'safetyModel'] as const)(
  'the hook %s, which can do nothing yet, says so instead of being forgotten',
  async (hook) => {
    const app = createOracleApp({ ...example, hooks: { [hook]: () => null } });

    await expect(app).rejects.toBeInstanceOf(NotAvailableError);
    await expect(app).rejects.toThrow(`hooks.${hook}`);
  },
);

test('wrong settings are told all at once, before anything listens', async () => {
  const { MODEL_MAIN: _, ...incomplete } = SETTINGS;
  const app = createOracleApp({ ...example, config: { ...incomplete, PORT: 'none', MODEL_MAIN: undefined } });

  await expect(app).rejects.toMatchObject({ code: 'START_REFUSED', message: expect.stringMatching(/MODEL_MAIN.*PORT|PORT.*MODEL_MAIN/su) });
});

test('wrong plugins likewise: the switches in code and in FEATURES, the overrides, the plugins themselves', async () => {
  const app = createOracleApp({
    ...example,
    config: { ...SETTINGS, FEATURES: 'dice=on', DICE_SIDES: 'many' },
    features: { nobody: false },
  });

  await expect(app).rejects.toMatchObject({
    code: 'START_REFUSED',
    problems: [{ code: 'boot.plugin.unknown' }, { code: 'boot.plugin.env_invalid', plugin: 'dice' }],
  });
});
