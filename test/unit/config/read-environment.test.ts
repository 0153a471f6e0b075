import { expect, test, vi } from 'vitest';
import { readEnvironment } from '../../../src/config.ts';

test("the agent library's tracing variables are gone from the process, so that no prompt is sent elsewhere (G12)", () => {
  vi.stubEnv('LANGSMITH_TRACING', 'true');
  vi.stubEnv('LANGCHAIN_API_KEY', 'ls-key');
  vi.stubEnv('MODEL_MAIN', 'kept');

  const environment = readEnvironment();

  expect(Object.keys(process.env).filter((name) => /^LANG(SMITH|CHAIN)_/u.test(name))).toEqual([]);
  expect(environment).toMatchObject({ MODEL_MAIN: 'kept' });
  expect(environment).not.toHaveProperty('LANGSMITH_TRACING');
  vi.unstubAllEnvs();
});
