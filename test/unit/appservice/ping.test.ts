import { expect, test } from 'vitest';
import { type MatrixApi, MatrixError } from '../../../appservice/matrix-api.ts';
import { createPing } from '../../../appservice/ping.ts';

const failing = (errcode: string, status: number, before: () => void = () => {}): MatrixApi => ({
  request: () => {
    before();
    return Promise.reject(new MatrixError({ errcode, status, retryAfterMs: null, certain: false }));
  },
});
const pingOn = (api: MatrixApi) =>
  createPing({ api, registrationId: 'matrix-oracle', url: 'http://127.0.0.1:9993', newId: () => 'ping-1' });

test('a good ping says how long it took', async () => {
  const api = { request: async <T>() => ({ duration_ms: 7 }) as T };

  expect(await pingOn(api).send()).toEqual({ kind: 'reached', durationMs: 7 });
});

test('a ping that our endpoint saw reached us, whatever the homeserver answers', async () => {
  const ping = pingOn(failing('M_CONNECTION_FAILED', 502, () => ping.seen('ping-1')));

  expect(await ping.send()).toEqual({ kind: 'reached', durationMs: null });
});

test('somebody else’s ping does not count as ours', async () => {
  const ping = pingOn(
    failing('M_CONNECTION_FAILED', 502, () => {
      ping.seen('ping-0');
      ping.seen(null);
    }),
  );

  expect(await ping.send()).toMatchObject({ kind: 'unreachable' });
});

test.each([
  ['M_BAD_STATUS', 502, 'unreachable'],
  ['M_CONNECTION_TIMEOUT', 504, 'unreachable'],
  ['M_URL_NOT_SET', 400, 'unreachable'],
  ['UNREACHABLE', 0, 'homeserver_down'],
  ['NOT_JSON', 502, 'homeserver_down'],
  ['M_UNKNOWN', 500, 'homeserver_down'],
  ['M_FORBIDDEN', 403, 'refused'],
] as const)('%s %d means %s', async (errcode, status, kind) => {
  expect(await pingOn(failing(errcode, status)).send()).toMatchObject({ kind });
});

test('an endpoint that answers and refuses points to the tokens, not to the network', async () => {
  expect(await pingOn(failing('M_BAD_STATUS', 502)).send()).toMatchObject({ remedy: expect.stringContaining('hs_token') });
});
