import { expect, test } from 'vitest';
import { OracleError, refusal } from '../../../src/errors.ts';
import { createLogger } from '../../../src/observe/logger.ts';

function logOf(err: unknown): { line: string; err: Record<string, unknown> } {
  const lines: string[] = [];
  const logger = createLogger({ level: 'debug', format: 'json', destination: { write: (line) => void lines.push(line) } });
  logger.error({ err }, 'a request failed');
  return { line: lines.join(''), err: (JSON.parse(lines[0] ?? '{}') as { err: Record<string, unknown> }).err };
}

test('of an error only name, message, stack, code and causes are written, whatever else hangs on it (G12)', () => {
  const answer = new OracleError(refusal('INTERNAL', { details: { partialText: 'what the oracle said' } }));
  const provider = Object.assign(new Error('400 from the provider'), {
    code: 'bad_request',
    error: { prompt: 'what Alice wrote' },
    lc_kwargs: { apiKey: 'sk-123' },
  });
  const wrapped = Object.assign(new Error('wrapped', { cause: provider }), { input: 'what Alice wrote' });

  for (const error of [answer, provider, wrapped]) expect(logOf(error).line).not.toMatch(/what |sk-123/u);
  expect(logOf(wrapped).err).toMatchObject({
    type: 'Error',
    message: 'wrapped',
    cause: { message: '400 from the provider', code: 'bad_request' },
  });
  expect(String(logOf(wrapped).err['stack'])).toContain('logger.test.ts');
});

test('errors of a commit that failed for many at once are written without their extras too (G12)', () => {
  const inner = Object.assign(new Error('inner'), { body: 'secret words' });
  const { line, err } = logOf(new AggregateError([inner], 'many'));

  expect(line).not.toContain('secret words');
  expect(err).toMatchObject({ type: 'AggregateError', message: 'many' });
});

test('causes that go in a circle and thrown values that are no errors end (G14)', () => {
  const a = new Error('a');
  a.cause = new Error('b', { cause: a });

  expect(logOf(a).err).toMatchObject({ message: 'a', cause: { message: 'b' } });
  expect(logOf('just text').err).toEqual({ type: 'string' });
  expect(logOf({ token: 'abc' }).err).toEqual({ type: 'object' });
});

test('a parser that quotes what it could not parse is not quoted (G12)', () => {
  const failure = (() => {
    try {
      return JSON.parse('my secret words');
    } catch (error) {
      return error;
    }
  })();

  const { line } = logOf(new Error('outer', { cause: failure }));

  expect(line).not.toContain('secret');
  expect(line).toContain('SyntaxError');
});
