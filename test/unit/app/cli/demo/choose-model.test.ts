import { expect, test } from 'vitest';
import { chooseModel } from '../../../../../src/app/cli/demo/choose-model.ts';
import { startModelServer } from '../../../../../synapse-dev/model/server.ts';

const { signal } = new AbortController();

test('without key and address the demo brings its own model', async () => {
  expect(await chooseModel({ OPENAI_API_KEY: ' ' }, signal)).toEqual({ kind: 'demo' });
});

test('a model that is named is taken, and without a name one that the server lists', async () => {
  const server = await startModelServer({ models: ['first', 'second'] });
  const environment = { OPENAI_API_KEY: 'key', OPENAI_BASE_URL: `${server.baseUrl}/` };

  const named = await chooseModel({ ...environment, MODEL_MAIN: 'second' }, signal);
  const unnamed = await chooseModel(environment, signal);

  await server.close();
  expect(named).toEqual({ kind: 'given', baseUrl: server.baseUrl, name: 'second', apiKey: 'key' });
  expect(unnamed).toMatchObject({ name: 'first' });
});

test('a server that is not there is one sentence, without the key (G12)', async () => {
  const choice = chooseModel({ OPENAI_API_KEY: 'secret-key', OPENAI_BASE_URL: 'http://127.0.0.1:1/v1' }, signal);

  await expect(choice).rejects.toThrow(/^http:\/\/127\.0\.0\.1:1\/v1 does not answer: correct OPENAI_BASE_URL/u);
  await expect(choice).rejects.not.toThrow(/secret-key/u);
});
