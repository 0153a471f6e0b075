/** An oracle inside a program: the whole start, with a homeserver that does not answer yet. Here because it listens, which is too slow for every save. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { defineOraclePlugin } from 'matrix-oracle';
import { afterAll, expect, test } from 'vitest';
import { createOracleApp } from '../../../../src/app/create-oracle-app.ts';
import { fakeLogger } from '../../../fakes/fake-logger.ts';

const folder = mkdtempSync(join(tmpdir(), 'matrix-oracle-embedded-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

test('it serves the routes of its plugin, says what is loaded, and closes the plugin when it is stopped', async () => {
  const closed: string[] = [];
  const app = await createOracleApp({
    config: {
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
    },
    features: { memory: false },
    plugins: [
      defineOraclePlugin({
        name: 'dice',
        version: '1.0.0',
        manifest: { title: 'Dice', summary: 'Rolls dice.', whenToUse: ['The user wants to roll dice.'] },
        getRoutes: () => async (routes) => {
          routes.get('/dice/sides', async () => 6);
          routes.get('/dice/mine', async () => 'secret');
        },
        getAuthExcludedRoutes: () => [{ path: '/dice/sides' }],
        close: async () => void closed.push('dice'),
      }),
    ],
    logger: fakeLogger(),
  });

  const oracle = await app.start();
  const url = await oracle.sidecarUrl;
  const ask = async (path: string) => (await fetch(`${url}${path}`)).text();
  const said = [await ask('/dice/sides'), await ask('/dice/mine'), await ask('/health')];
  await oracle.stop();

  expect(said[0]).toBe('6');
  expect(JSON.parse(said[1] ?? '')).toMatchObject({ code: 'UNAUTHENTICATED' });
  expect(said[2]).toContain('4 loaded: clock, room, user-preferences, dice; 3 not loaded: memory (switched off)');
  expect(closed).toEqual(['dice']);
  await expect(app.start()).rejects.toThrow('started already');
});
