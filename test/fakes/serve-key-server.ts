/** The key server over HTTP, as Synapse has it, for commands that run as processes. The device is asserted by query parameters. */
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { MatrixError, type MatrixMethod } from '../../appservice/matrix-api.ts';
import type { DeviceId, UserId } from '../../src/ids.ts';
import type { FakeKeyServer } from './fake-key-server.ts';

export interface ServedKeyServer {
  readonly url: string;
  close(): Promise<void>;
}

export async function serveKeyServer(server: FakeKeyServer): Promise<ServedKeyServer> {
  const http = createServer(async (request, response) => {
    const { pathname, searchParams } = new URL(request.url ?? '', 'http://localhost');
    const { user_id: userId, device_id: deviceId, ...query } = Object.fromEntries(searchParams);
    const api = server.api({ userId: userId as UserId, ...(deviceId === undefined ? {} : { deviceId: deviceId as DeviceId }) });
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk);
    const text = Buffer.concat(chunks).toString();
    const answer = await api
      .request(request.method as MatrixMethod, pathname, { query, ...(text === '' ? {} : { body: Buffer.from(text) }) })
      .then(
        (body) => ({ status: 200, body }),
        (error: unknown) => {
          if (!(error instanceof MatrixError)) throw error;
          return { status: error.status, body: { errcode: error.errcode, error: 'no' } };
        },
      );
    response.writeHead(answer.status, { 'content-type': 'application/json' }).end(JSON.stringify(answer.body));
  });
  await new Promise<void>((resolve) => http.listen(0, '127.0.0.1', resolve));
  return {
    url: `http://127.0.0.1:${(http.address() as AddressInfo).port}`,
    async close() {
      http.closeAllConnections();
      await new Promise((resolve) => http.close(resolve));
    },
  };
}
