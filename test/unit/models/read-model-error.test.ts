import { describe, expect, test } from 'vitest';
import { OracleError, refusal } from '../../../src/errors.ts';
import { ModelStreamError } from '../../../src/models/model-fetch.ts';
import { planModelRetry, readModelError } from '../../../src/models/read-model-error.ts';

const status = (code: number, more: object = {}): Error =>
  Object.assign(new Error(`said with sk-secret ${code}`), { status: code, ...more });
const plan = (error: unknown, more: { attempt?: number; remainingMs?: number } = {}): number | null =>
  planModelRetry(error, { attempt: 1, remainingMs: Number.POSITIVE_INFINITY, chance: 0.5, ...more });

describe('what the person is told', () => {
  test.each([
    [status(429), 'MODEL_RATE_LIMITED'],
    [status(400), 'MODEL_REFUSED'],
    [status(401), 'MODEL_REFUSED'],
    [status(404), 'MODEL_REFUSED'],
    [status(408), 'MODEL_ERROR'],
    [status(500), 'MODEL_ERROR'],
    [status(529), 'MODEL_ERROR'],
    [new TypeError('terminated', { cause: Object.assign(new Error('reset'), { code: 'ECONNRESET' }) }), 'MODEL_ERROR'],
    [new Error('wrapped', { cause: new ModelStreamError('idle') }), 'MODEL_TIMEOUT'],
    [new Error('wrapped', { cause: new ModelStreamError('cut') }), 'MODEL_ERROR'],
    [Object.assign(new Error('x'), { name: 'APIConnectionTimeoutError' }), 'MODEL_TIMEOUT'],
    [Object.assign(new Error('Request was aborted.'), { name: 'AbortError' }), 'MODEL_ERROR'],
    [new Error('wrapped', { cause: new OracleError(refusal('EMPTY_ANSWER')) }), 'EMPTY_ANSWER'],
    ['a string', 'MODEL_ERROR'],
    [null, 'MODEL_ERROR'],
  ])('%o is %s', (error, code) => {
    expect(readModelError(error).code).toBe(code);
  });

  test('nothing of what the provider wrote is kept, but its status and code (G12)', () => {
    const read = readModelError(status(400, { code: 'context_length_exceeded', error: { message: 'sk-secret' } }));

    expect(read.details).toEqual({ status: 400, providerCode: 'context_length_exceeded' });
    expect(`${JSON.stringify(read)}${String((read.cause as Error).stack)}`).not.toContain('sk-secret');
  });

  test('a circle of causes ends', () => {
    const error = new Error('a');
    error.cause = error;

    expect(readModelError(error).code).toBe('MODEL_ERROR');
  });
});

describe('trying again', () => {
  test('waits longer each time and gives up after three tries', () => {
    expect([1, 2, 3, 4].map((attempt) => plan(status(503), { attempt }))).toEqual([500, 1_000, 2_000, null]);
  });

  test('follows Retry-After, but not for minutes and not past the deadline', () => {
    const limited = (seconds: string): Error => status(429, { headers: new Headers({ 'retry-after': seconds }) });

    expect(plan(limited('7'))).toBe(7_000);
    expect(plan(limited('61'))).toBeNull();
    expect(plan(limited('7'), { remainingMs: 7_000 })).toBeNull();
    expect(plan(limited('Wed, 21 Oct 2026'))).toBe(500);
  });

  test('a refusal, a silent model and an empty purse are not tried again', () => {
    expect(plan(status(401))).toBeNull();
    expect(plan(new ModelStreamError('idle'))).toBeNull();
    expect(plan(status(429, { code: 'insufficient_quota' }))).toBeNull();
    expect(plan(new OracleError(refusal('EMPTY_ANSWER')))).toBeNull();
  });
});
