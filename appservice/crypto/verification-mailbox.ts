/**
 * Between the engine's verifications and the outbox: what they send into a room goes out like anything else there, once, and encrypted where the room is.
 */
import { LRUCache } from 'lru-cache';
import { type OutboxTxnId, type RoomId, verifyTxnId } from '../../src/ids.ts';
import { isJsonObject, type JsonObject } from '../../src/json.ts';
import type { Logger } from '../../src/observe/logger.ts';
import type { Clock, Timer } from '../../src/time.ts';
import type { OutgoingRequest } from './engine-request.ts';

/** One event that a verification sends into a room. */
export interface VerificationMessage {
  readonly txnId: OutboxTxnId;
  readonly roomId: RoomId;
  readonly type: string;
  readonly content: JsonObject;
}
/** Writes it into the outbox as a notice; the same txn id again changes nothing. */
export type PostVerification = (message: VerificationMessage) => Promise<void>;

type RoomMessage = Extract<OutgoingRequest, { kind: 'room_message' }>;

export interface VerificationMailbox {
  /** For `Outgoing.onRoomMessage`. */
  post(request: RoomMessage): Promise<void>;
  /** The other side has said that it is done with the verification of this request. */
  release(flow: string): void;
  /** What is held back then is never sent: the verification is over with the process. */
  stop(): void;
}

/**
 * Two messages that reach a client in one answer are handled side by side by matrix-js-sdk 43, which may drop the second, and then its verification never
 * ends (seen). So "done" waits for theirs, which says that our MAC was read, or for as long as this.
 */
const DONE_AFTER_MS = 5_000;
const FLOWS = 200;

export interface VerificationMailboxOptions {
  readonly post: PostVerification;
  readonly clock: Clock;
  readonly logger: Logger;
}

export function createVerificationMailbox({ post, clock, logger }: VerificationMailboxOptions): VerificationMailbox {
  const held = new Map<string, { readonly message: VerificationMessage; readonly timer: Timer }>();
  const released = new LRUCache<string, true>({ max: FLOWS });

  function release(flow: string): void {
    released.set(flow, true);
    const waiting = held.get(flow);
    if (waiting === undefined) return;
    held.delete(flow);
    waiting.timer.cancel();
    const { message } = waiting;
    // It stays among the engine's requests until it was sent, and each flush brings it again.
    post(message).catch((error: unknown) => logger.warn({ room_id: message.roomId, err: error }, 'a step of a verification failed'));
  }
  return {
    async post(request) {
      const message = buildVerificationMessage(request);
      const flow = readFlow(message.content);
      if (message.type !== 'm.key.verification.done' || flow === null || released.has(flow)) return post(message);
      if (!held.has(flow)) held.set(flow, { message, timer: clock.after(DONE_AFTER_MS, () => release(flow)) });
    },
    release,
    stop() {
      for (const { timer } of held.values()) timer.cancel();
      held.clear();
    },
  };
}

/** The id by which both sides call a verification: of its request in a room, of its own by to-device. */
export function readFlow({ 'm.relates_to': relation, transaction_id: transaction }: JsonObject): string | null {
  if (isJsonObject(relation)) return typeof relation['event_id'] === 'string' ? relation['event_id'] : null;
  return typeof transaction === 'string' ? transaction : null;
}

const buildVerificationMessage = ({ id, roomId, eventType, body }: RoomMessage): VerificationMessage => ({
  txnId: verifyTxnId(id),
  roomId,
  type: eventType,
  content: JSON.parse(body) as JsonObject,
});
