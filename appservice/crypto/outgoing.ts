/**
 * Sends what the engine wants sent and tells it the answer. One flush at a time, because the engine hands out a request until it is told. Every call has a
 * deadline, and the homeserver a shorter one for asking other servers: devices that cannot be asked for must not hold a room's answer back.
 */
import { isJsonObject, type JsonObject, type JsonValue } from '../../src/json.ts';
import { LIMITS } from '../../src/limits.ts';
import { isMatrixError, isOutage, type MatrixApi, type MatrixMethod, matrixPath } from '../matrix-api.ts';
import type { Engine } from './engine.ts';
import type { OutgoingRequest } from './engine-request.ts';
import { createLock } from './lock.ts';

export interface OutgoingOptions {
  readonly engine: Pick<Engine, 'outgoing' | 'markSent'>;
  /** As the key-holding device. */
  readonly api: MatrixApi;
  /** A message of a verification: it goes through the outbox, and the engine is told when it has become an event. May come more than once. */
  readonly onRoomMessage: (request: Extract<OutgoingRequest, { kind: 'room_message' }>) => void | Promise<void>;
}
export interface Outgoing {
  /** All that waits, each tried. @throws MatrixError of the first that failed; it still waits. */
  flush(signal?: AbortSignal): Promise<void>;
  /** Only the questions about people's devices, which a room key waits for. @throws MatrixError */
  askForDevices(signal?: AbortSignal): Promise<void>;
  /** One request, and the engine is told. @returns what the homeserver answered. @throws MatrixError */
  send(request: OutgoingRequest, signal?: AbortSignal): Promise<JsonObject>;
}

const REQUEST_TIMEOUT_MS = 10_000;
/** How long our homeserver waits for others; what it has heard by then it answers. */
const OTHER_SERVERS_MS = 6_000;

export function createOutgoing({ engine, api, onRoomMessage }: OutgoingOptions): Outgoing {
  const alone = createLock();

  async function send(request: OutgoingRequest, signal?: AbortSignal): Promise<JsonObject> {
    if (request.kind === 'room_message') {
      await onRoomMessage(request);
      return {};
    }
    const { method, path, body } = buildCall(request);
    const whole = await api.request<JsonObject>(method, path, {
      body,
      timeoutMs: REQUEST_TIMEOUT_MS,
      ...(signal === undefined ? {} : { signal }),
    });
    const answer = request.kind === 'keys_query' ? cutDevices(whole) : whole;
    await engine.markSent(request, JSON.stringify(answer));
    return answer;
  }

  const sendAll = (isMeant: (request: OutgoingRequest) => boolean, signal?: AbortSignal): Promise<void> =>
    alone(async () => {
      const failures: unknown[] = [];
      for (const request of (await engine.outgoing()).filter(isMeant)) {
        signal?.throwIfAborted();
        try {
          await send(request, signal);
        } catch (error) {
          if (!isMatrixError(error) || isOutage(error)) throw error;
          failures.push(error);
        }
      }
      if (failures.length > 0) throw failures[0];
    });

  return {
    send,
    flush: (signal) => sendAll(() => true, signal),
    askForDevices: (signal) => sendAll(({ kind }) => kind === 'keys_query', signal),
  };
}

interface Call {
  readonly method: MatrixMethod;
  readonly path: string;
  readonly body: Buffer;
}

function buildCall(request: Exclude<OutgoingRequest, { kind: 'room_message' }>): Call {
  switch (request.kind) {
    case 'keys_upload':
      return { method: 'POST', path: '/_matrix/client/v3/keys/upload', body: Buffer.from(request.body) };
    case 'keys_query':
      return { method: 'POST', path: '/_matrix/client/v3/keys/query', body: withTimeout(request.body) };
    case 'keys_claim':
      return { method: 'POST', path: '/_matrix/client/v3/keys/claim', body: withTimeout(request.body) };
    case 'signatures':
      return { method: 'POST', path: '/_matrix/client/v3/keys/signatures/upload', body: Buffer.from(request.body) };
    case 'to_device': {
      const path = matrixPath`/_matrix/client/v3/sendToDevice/${request.eventType}/${request.txnId}`;
      return { method: 'PUT', path, body: Buffer.from(request.body) };
    }
  }
}

/** Whoever has more devices reads on the others (G14). */
function cutDevices(answer: JsonObject): JsonObject {
  const people = answer['device_keys'];
  if (!isJsonObject(people)) return answer;
  const cut = Object.entries(people).map(([user, devices]): [string, JsonValue] => [
    user,
    isJsonObject(devices) ? Object.fromEntries(Object.entries(devices).slice(0, LIMITS.devicesPerUser)) : devices,
  ]);
  return { ...answer, device_keys: Object.fromEntries(cut) };
}

function withTimeout(body: string): Buffer {
  const parsed: unknown = JSON.parse(body);
  return Buffer.from(JSON.stringify({ ...(isJsonObject(parsed) ? parsed : {}), timeout: OTHER_SERVERS_MS }));
}
