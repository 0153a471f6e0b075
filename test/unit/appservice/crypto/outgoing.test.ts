import { describe, expect, test } from 'vitest';
import type { OutgoingRequest } from '../../../../appservice/crypto/engine-request.ts';
import { createOutgoing } from '../../../../appservice/crypto/outgoing.ts';
import { MatrixError, type MatrixRequest } from '../../../../appservice/matrix-api.ts';
import { LIMITS } from '../../../../src/limits.ts';

const UPLOAD: OutgoingRequest = { kind: 'keys_upload', id: 'u', body: '{"one_time_keys":{}}' };
const QUERY: OutgoingRequest = { kind: 'keys_query', id: 'q', body: '{"device_keys":{"@a:x":[]}}' };
const CLAIM: OutgoingRequest = { kind: 'keys_claim', id: 'c', body: '{"one_time_keys":{}}' };
const TO_DEVICE: OutgoingRequest = { kind: 'to_device', id: 't', eventType: 'm.room/x', txnId: 'tx#1', body: '{"messages":{}}' };
const SIGNATURES: OutgoingRequest = { kind: 'signatures', id: null, body: '{"@a:x":{}}' };
const MESSAGE: OutgoingRequest = {
  kind: 'room_message',
  id: 'm',
  roomId: '!r' as never,
  eventType: 'm.key.verification.done',
  txnId: 'v',
  body: '{}',
};

const failure = (errcode: string, status: number) => new MatrixError({ errcode, status, retryAfterMs: null, certain: true });

/** An engine that hands out what is not marked, and a homeserver that answers by path. */
function setUp(waiting: readonly OutgoingRequest[], answer: (path: string) => object = () => ({})) {
  const marked: [string | null, string][] = [];
  const calls: { path: string; request: MatrixRequest }[] = [];
  const messages: string[] = [];
  const outgoing = createOutgoing({
    engine: {
      outgoing: async () => waiting.filter(({ id }) => !marked.some(([done]) => done === id)),
      markSent: async ({ id }, text) => void marked.push([id, text]),
    },
    api: {
      async request<T extends object>(method: string, path: string, request: MatrixRequest = {}) {
        calls.push({ path: `${method} ${path.replace('/_matrix/client/v3', '')}`, request });
        await Promise.resolve();
        return answer(path) as T;
      },
    },
    onRoomMessage: ({ id }) => void messages.push(id),
  });
  return { outgoing, marked, calls, messages };
}
const bodyOf = ({ body }: MatrixRequest): unknown => JSON.parse(String(body));

describe('what the engine wants sent', () => {
  test('each goes to its own address with its own text, and the engine is told the answer', async () => {
    const { outgoing, calls, marked } = setUp([UPLOAD, QUERY, CLAIM, TO_DEVICE], (path) => ({ path: path.split('/').at(-1) ?? '' }));

    await outgoing.flush();

    expect(calls.map(({ path }) => path)).toEqual([
      'POST /keys/upload',
      'POST /keys/query',
      'POST /keys/claim',
      'PUT /sendToDevice/m.room%2Fx/tx%231',
    ]);
    expect(String(calls[0]?.request.body)).toBe(UPLOAD.body);
    expect(marked).toEqual([
      ['u', '{"path":"upload"}'],
      ['q', '{"path":"query"}'],
      ['c', '{"path":"claim"}'],
      ['t', '{"path":"tx%231"}'],
    ]);
  });

  test('our homeserver is asked to give up on other servers before we give up on it', async () => {
    const { outgoing, calls } = setUp([QUERY, CLAIM]);

    await outgoing.flush();

    for (const { request } of calls) {
      expect((bodyOf(request) as { timeout: number }).timeout).toBeLessThan(request.timeoutMs ?? 0);
      expect(bodyOf(request)).not.toEqual({ timeout: expect.anything() });
    }
  });

  test('two flushes at once send nothing twice', async () => {
    const { outgoing, calls } = setUp([UPLOAD, QUERY]);

    await Promise.all([outgoing.flush(), outgoing.flush(), outgoing.askForDevices()]);

    expect(calls).toHaveLength(2);
  });

  test('one that is refused waits, the others go, and the caller hears of it', async () => {
    const { outgoing, marked } = setUp([UPLOAD, QUERY], (path) => {
      if (path.endsWith('upload')) throw failure('M_UNKNOWN', 400);
      return {};
    });

    await expect(outgoing.flush()).rejects.toMatchObject({ errcode: 'M_UNKNOWN' });

    expect(marked.map(([id]) => id)).toEqual(['q']);
  });

  test('a homeserver that is away is asked once', async () => {
    const { outgoing, calls } = setUp([UPLOAD, QUERY, CLAIM], () => {
      throw failure('UNREACHABLE', 0);
    });

    await expect(outgoing.flush()).rejects.toMatchObject({ errcode: 'UNREACHABLE' });

    expect(calls).toHaveLength(1);
  });

  test('a failed flush does not stop the next', async () => {
    let isUp = false;
    const { outgoing, marked } = setUp([UPLOAD], () => {
      if (!isUp) throw failure('UNREACHABLE', 0);
      return {};
    });
    await expect(outgoing.flush()).rejects.toThrow();
    isUp = true;

    await outgoing.flush();

    expect(marked).toHaveLength(1);
  });

  test('asking for devices sends nothing else', async () => {
    const { outgoing, calls } = setUp([UPLOAD, QUERY, TO_DEVICE]);

    await outgoing.askForDevices();

    expect(calls.map(({ path }) => path)).toEqual(['POST /keys/query']);
  });

  test('a message of a verification is handed on and not marked: only its event is its answer', async () => {
    const { outgoing, calls, marked, messages } = setUp([MESSAGE]);

    await outgoing.flush();

    expect({ calls, marked, messages }).toEqual({ calls: [], marked: [], messages: ['m'] });
  });

  test('a request by hand is sent as well, and its answer comes back', async () => {
    const { outgoing } = setUp([], () => ({ failures: {} }));

    const answer = await outgoing.send(SIGNATURES);

    expect(answer).toEqual({ failures: {} });
  });

  test('an abort ends a flush between two requests', async () => {
    const stopping = new AbortController();
    const { outgoing, calls } = setUp([UPLOAD, QUERY], () => {
      stopping.abort(new Error('stop'));
      return {};
    });

    await expect(outgoing.flush(stopping.signal)).rejects.toThrow('stop');

    expect(calls).toHaveLength(1);
  });
});

test('of the devices that a homeserver names of one person the engine is told a bounded number (G14)', async () => {
  const devices = Object.fromEntries(Array.from({ length: LIMITS.devicesPerUser + 1 }, (_value, n) => [`D${n}`, {}]));
  const { outgoing, marked } = setUp([QUERY], () => ({ device_keys: { '@a:x': devices, '@b:x': { ONE: {} } }, failures: {} }));

  await outgoing.flush();

  const told = JSON.parse(marked[0]?.[1] ?? '{}');
  expect(Object.keys(told.device_keys['@a:x'])).toHaveLength(LIMITS.devicesPerUser);
  expect(told).toMatchObject({ device_keys: { '@b:x': { ONE: {} } }, failures: {} });
});
