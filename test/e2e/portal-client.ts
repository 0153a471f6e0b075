/** Signed HTTP requests as a portal sends them; every claim can be set, so that a test forges as easily as it signs. */
import type { RoomId, SessionId, UserId } from '../../src/ids.ts';
import type { JsonObject } from '../../src/json.ts';
import { mintRequestInvocation, newNonce } from '../../src/ucan/mint.ts';
import type { SigningKey } from '../../src/ucan/signing-key.ts';
import type { TestOracle } from './harness.ts';

export interface Call {
  readonly oracle: TestOracle;
  readonly key: SigningKey;
  readonly sender: string;
  readonly room?: string | undefined;
  readonly method?: 'GET' | 'POST' | 'PUT' | 'DELETE';
  readonly path: string;
  readonly thread?: string;
  readonly body?: JsonObject | string;
  readonly token?: string;
}
const bodyOf = ({ body }: Call): string | undefined => (body === undefined || typeof body === 'string' ? body : JSON.stringify(body));
export const tokenFor = (call: Call): string =>
  mintRequestInvocation({
    key: call.key,
    audience: call.oracle.did,
    method: call.method ?? 'POST',
    path: call.path,
    body: bodyOf(call),
    sender: call.sender as UserId,
    room: call.room as RoomId | undefined,
    thread: call.thread as SessionId | undefined,
    ts: Date.now(),
    nonce: newNonce(),
  });
export function send(call: Call, signal?: AbortSignal): Promise<Response> {
  const body = bodyOf(call);
  return fetch(`${call.oracle.sidecarUrl()}${call.path}`, {
    method: call.method ?? 'POST',
    headers: {
      authorization: `Bearer ${call.token ?? tokenFor(call)}`,
      'x-auth-type': 'ucan',
      ...(body === undefined ? {} : { 'content-type': 'application/json' }),
    },
    ...(body === undefined ? {} : { body }),
    ...(signal === undefined ? {} : { signal }),
  });
}
