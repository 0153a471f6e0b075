import { expect, test } from 'vitest';
import { removeTracingVariables } from '../../../src/models/remove-tracing-variables.ts';

test('variables that would send prompts to a tracing service are removed, others stay (G12)', () => {
  const env: Record<string, string | undefined> = {
    LANGSMITH_TRACING: 'true',
    LANGCHAIN_API_KEY: 'x',
    langchain_tracing_v2: 'true',
    PATH: '/bin',
  };

  expect(removeTracingVariables(env)).toEqual(['LANGSMITH_TRACING', 'LANGCHAIN_API_KEY', 'langchain_tracing_v2']);
  expect(env).toEqual({ PATH: '/bin' });
});
