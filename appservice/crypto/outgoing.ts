/**
 * Sends what the engine wants sent and tells it the answer. One flush at a time, because the engine hands out a request until it is told. Every call has a
 * deadline: a homeserver that hangs on another server's devices must not hold the room's answer back.
 */
import type { MatrixApi } from '../matrix-api.ts';
import type { Engine, OutgoingRequest } from './engine.ts';

export interface OutgoingOptions {
  readonly engine: Engine;
  /** As the key-holding device. */
  readonly api: MatrixApi;
  /** A message of a verification: goes through the outbox; the engine is told when it has become an event (`markSent`). */
  readonly onRoomMessage: (request: Extract<OutgoingRequest, { kind: 'room_message' }>) => void | Promise<void>;
}
export interface Outgoing {
  /** All that waits, each tried. @throws MatrixError of the first that failed; it still waits. */
  flush(signal?: AbortSignal): Promise<void>;
  /** One request, and the engine is told. @throws MatrixError */
  send(request: OutgoingRequest, signal?: AbortSignal): Promise<void>;
}

export declare function createOutgoing(options: OutgoingOptions): Outgoing;
