import { expect, test } from 'vitest';
import { createApi, readFailure, UNREACHABLE } from '../../../../src/sidecar/pages/authorise/api.ts';
import { createPageClock } from '../../../../src/sidecar/pages/authorise/clock.ts';
import { sayFailure } from '../../../../src/sidecar/pages/authorise/sentences.ts';

const clockAt = (now: number) =>
  createPageClock(
    () => now,
    (text) => Date.parse(text),
  );
const api = (answer: () => Promise<Response>, seen: [string, RequestInit][] = []) =>
  createApi(
    ((path: string, init: RequestInit) => {
      seen.push([path, init]);
      return answer();
    }) as never,
    clockAt(0),
  );

test('a device whose clock is wrong counts as the oracle does', () => {
  const clock = clockAt(1_000_000);

  clock.learn(new Date(1_600_000).toUTCString());

  expect(clock.now()).toBe(1_600_000);
});

test.each([null, 'nonsense', new Date(1_003_000).toUTCString()])(
  'a clock that is right, or an answer without time, changes nothing: %s',
  (header) => {
    const clock = clockAt(1_000_000);

    clock.learn(header);

    expect(clock.now()).toBe(1_000_000);
  },
);

test('a known code is said with what to do, an unknown one with the oracle’s sentence and its request', () => {
  expect(sayFailure({ code: 'BAD_LINK', message: 'x', requestId: 'r' })).toContain('!authorise');
  expect(sayFailure({ code: 'BAD_GRANT', message: 'It cannot be stored.', requestId: 'r-1' })).toBe(
    'It cannot be stored. (BAD_GRANT, request r-1)',
  );
  expect(sayFailure({ code: 'constructor', message: '', requestId: '' })).toContain('(constructor)');
});

test.each([null, [], 'text', { code: 1, message: {} }])('an answer that is no problem is one all the same: %j', (answer) => {
  expect(readFailure(answer)).toEqual({ code: 'INTERNAL', message: '', requestId: '' });
});

test('no answer is UNREACHABLE, and a success that is no object is a failure', async () => {
  expect(await api(() => Promise.reject(new TypeError('offline'))).oracle()).toMatchObject({ error: { code: UNREACHABLE } });
  expect(await api(async () => new Response('<html>')).oracle()).toMatchObject({ ok: false, error: { code: 'INTERNAL' } });
});

test('the nonce is in the body and in no address or header (G12)', async () => {
  const seen: [string, RequestInit][] = [];

  await api(async () => Response.json({}), seen).context('NONCE');

  const [path, { body, ...init }] = seen[0]!;
  expect(body).toBe('{"nonce":"NONCE"}');
  expect(path + JSON.stringify(init)).not.toContain('NONCE');
  expect(init).toMatchObject({ credentials: 'omit', redirect: 'error', referrerPolicy: 'no-referrer' });
});
