/**
 * What every implementation of `MatrixApi` owes its callers. The fake passes the same suite as the client over HTTP, so what is tested on the fake
 * holds for the real thing.
 */
import { beforeEach, describe, expect, test } from 'vitest';
import { type MatrixApi, type MatrixConnection, MatrixError, matrixPath } from '../../appservice/matrix-api.ts';
import type { DeviceId, UserId } from '../../src/ids.ts';
import { type FakeHomeserver, registerOracle } from '../fakes/fake-homeserver.ts';

export const ORACLE = '@oracle:oracle.local' as UserId;
export const DEVICE = 'ORACLE' as DeviceId;

export function describeMatrixApi(name: string, open: () => Promise<{ homeserver: FakeHomeserver; connection: MatrixConnection }>): void {
  describe(`MatrixApi: ${name}`, () => {
    let homeserver: FakeHomeserver;
    let connection: MatrixConnection;
    let api: MatrixApi;
    let room: string;
    beforeEach(async () => {
      ({ homeserver, connection } = await open());
      await registerOracle(connection);
      api = connection.as({ userId: ORACLE, deviceId: DEVICE });
      room = homeserver.createRoom({ creator: '@alice:oracle.local', invite: [ORACLE] });
      await api.request('POST', matrixPath`/_matrix/client/v3/rooms/${room}/join`, { body: {} });
    });
    const send = (txnId: string, body: object | Buffer = { msgtype: 'm.text', body: 'x' }) =>
      api.request<{ event_id: string }>('PUT', matrixPath`/_matrix/client/v3/rooms/${room}/send/${'m.room.message'}/${txnId}`, { body });
    const failureOf = (work: Promise<unknown>) =>
      work.then(
        () => expect.fail('should have failed'),
        (error: unknown) => error as MatrixError,
      );

    test('user and device are asserted together, the device by its stable name (G4)', async () => {
      expect(await api.request('GET', '/_matrix/client/v3/account/whoami')).toEqual({ user_id: ORACLE, device_id: DEVICE });

      expect(homeserver.requests.at(-1)?.query).toMatchObject({ user_id: ORACLE, device_id: DEVICE });
      expect(homeserver.requests.at(-1)?.query).not.toHaveProperty('org.matrix.msc3202.device_id');
    });

    test('the same txn id is the same event, also after a restart of the homeserver (G4)', async () => {
      const first = await send('answer.1');
      homeserver.stop();
      homeserver.start();

      expect(await send('answer.1')).toEqual(first);
    });

    test('a body that is already text travels unchanged', async () => {
      const { event_id: id } = await send('answer.2', Buffer.from('{"msgtype":"m.text","body":"é \\u00e9"}'));

      expect(homeserver.timeline(room).find(({ event_id }) => event_id === id)?.content).toEqual({ msgtype: 'm.text', body: 'é é' });
    });

    test('a list is an answer too', async () => {
      expect(Array.isArray(await api.request('GET', matrixPath`/_matrix/client/v3/rooms/${room}/state`))).toBe(true);
    });

    test('a refusal of the homeserver is certain', async () => {
      const error = await failureOf(send('answer.3', { msgtype: 'm.text', body: 'x'.repeat(70_000) }));

      expect(error).toBeInstanceOf(MatrixError);
      expect(error).toMatchObject({ errcode: 'M_TOO_LARGE', status: 413, certain: true });
    });

    test('a rate limit says how long to wait', async () => {
      homeserver.trouble(/send/, { kind: 'answer', status: 429, body: { errcode: 'M_LIMIT_EXCEEDED', retry_after_ms: 1_234 } });

      expect(await failureOf(send('answer.4'))).toMatchObject({ errcode: 'M_LIMIT_EXCEEDED', retryAfterMs: 1_234, certain: true });
    });

    test('a server error may have had its effect', async () => {
      homeserver.trouble(/send/, { kind: 'answer', status: 500, body: { errcode: 'M_UNKNOWN' } });

      expect(await failureOf(send('answer.5'))).toMatchObject({ status: 500, certain: false });
    });

    test('a page of a proxy is no answer', async () => {
      homeserver.trouble(/send/, { kind: 'answer', status: 502, body: '<html>Bad gateway</html>' });

      expect(await failureOf(send('answer.6'))).toMatchObject({ errcode: 'NOT_JSON', status: 502, certain: false });
    });

    test('a lost answer is not certain, and the repeated request has one effect (G4)', async () => {
      // GET and PUT are repeated once at once by the client over HTTP, hence two.
      homeserver.trouble(/send/, { kind: 'lose_answer' }, { kind: 'lose_answer' });

      const error = await failureOf(send('answer.7'));
      const { event_id: id } = await send('answer.7');

      expect(error).toMatchObject({ errcode: 'CONNECTION_LOST', status: 0, certain: false });
      expect(homeserver.timeline(room).filter(({ event_id }) => event_id === id)).toHaveLength(1);
      expect(homeserver.timeline(room).filter(({ type }) => type === 'm.room.message')).toHaveLength(1);
    });

    const upload = (bytes: Buffer, contentType: string) =>
      api.request<{ content_uri: string }>('POST', '/_matrix/media/v3/upload', {
        body: bytes,
        contentType,
        query: { filename: 'a b.bin' },
      });
    const download = (uri: string, bytesUpTo: number) =>
      api.request<Buffer>('GET', `/_matrix/client/v1/media/download/${uri.slice('mxc://'.length)}`, { bytesUpTo });
    const EVERY_BYTE = Buffer.from(Array.from({ length: 256 }, (_value, byte) => byte));

    test('a file travels as its bytes, both ways', async () => {
      const { content_uri: uri } = await upload(EVERY_BYTE, 'image/png');
      const back = await download(uri, 256);

      expect(homeserver.media.get(uri)).toMatchObject({ contentType: 'image/png', fileName: 'a b.bin' });
      expect(Buffer.isBuffer(back) && back.equals(EVERY_BYTE)).toBe(true);
    });

    test('a file that looks like JSON stays bytes, and so does an empty one', async () => {
      const json = Buffer.from('{"errcode":"M_FORBIDDEN"}');
      const uris = await Promise.all([json, Buffer.alloc(0)].map((bytes) => upload(bytes, 'application/octet-stream')));

      expect((await download(uris[0]?.content_uri ?? '', 100)).equals(json)).toBe(true);
      expect(await download(uris[1]?.content_uri ?? '', 100)).toHaveLength(0);
    });

    test('a file past the limit of whoever asks is an error, not a part of it (G14)', async () => {
      const { content_uri: uri } = await upload(EVERY_BYTE, 'image/png');

      expect(await failureOf(download(uri, 255))).toMatchObject({ errcode: 'TOO_LARGE' });
    });

    test('a file that is not there is a refusal, whatever the asker expects', async () => {
      expect(await failureOf(download('mxc://oracle.local/none', 255))).toMatchObject({
        errcode: 'M_NOT_FOUND',
        status: 404,
        certain: true,
      });
    });

    test('an aborted request ends with the request', async () => {
      homeserver.trouble(/send/, { kind: 'hang' });
      const abort = new AbortController();
      const work = api.request('PUT', matrixPath`/_matrix/client/v3/rooms/${room}/send/${'m.room.message'}/answer.8`, {
        body: {},
        signal: abort.signal,
      });
      const failed = failureOf(work);

      setTimeout(() => abort.abort(new Error('stop')), 20);

      expect(await failed).toMatchObject({ errcode: 'ABORTED', certain: false });
    });
  });
}
