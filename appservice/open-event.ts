/**
 * Own events and events that a tool asks for, as their readers see them. They are read, not admitted: no replay is judged and nobody waits for a
 * key, so one that cannot be decrypted stays what it is.
 */
import type { RoomId, UserId } from '../src/ids.ts';
import { type IncomingEvent, isOwnMessage } from '../src/inbox/inbox.ts';
import type { JsonObject } from '../src/json.ts';
import type { Outbox } from '../src/outbox/outbox.ts';

/** `CryptoService.read`: the event as if it had been sent in the clear, its relation from outside; null when it cannot be read. */
export type ReadSealed = (event: JsonObject, room: RoomId) => Promise<JsonObject | null>;

export async function openEvent(event: JsonObject, room: RoomId, read: ReadSealed | undefined): Promise<JsonObject> {
  if (read === undefined || event['type'] !== 'm.room.encrypted' || event['state_key'] !== undefined) return event;
  return (await read(event, room)) ?? event;
}

export interface OpenOwnOptions {
  readonly read: ReadSealed;
  readonly outbox: Pick<Outbox, 'isConfirmed'>;
  readonly oracle: UserId;
}
/** An own encrypted event as it was before; any other one as it is. @throws CryptoUnavailable */
export type OpenOwn = (event: IncomingEvent) => Promise<IncomingEvent>;

/**
 * What reconciliation meets and this database did not send was sent by another one, lost or restored since: its answers name the prompts that must not
 * be answered again, and may still say "growing" (DESIGN §2). What the outbox knows is not decrypted, so in ordinary operation this costs a look-up.
 */
export function createOpenOwn({ read, outbox, oracle }: OpenOwnOptions): OpenOwn {
  return async (incoming) => {
    if (incoming.type !== 'm.room.encrypted' || !isOwnMessage(incoming, oracle) || outbox.isConfirmed(incoming.eventId)) return incoming;
    const event = await openEvent(incoming.event, incoming.roomId, read);
    return { ...incoming, type: typeof event['type'] === 'string' ? event['type'] : incoming.type, event };
  };
}
