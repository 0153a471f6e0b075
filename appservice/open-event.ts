/**
 * Own events and events that a tool asks for, as their readers see them. They are read, not admitted: no replay is judged and nobody waits for a
 * key, so one that cannot be decrypted stays what it is.
 */
import type { RoomId } from '../src/ids.ts';
import type { JsonObject } from '../src/json.ts';

/** `CryptoService.read`: the event as if it had been sent in the clear, its relation from outside; null when it cannot be read. */
export type ReadSealed = (event: JsonObject, room: RoomId) => Promise<JsonObject | null>;

export async function openEvent(event: JsonObject, room: RoomId, read: ReadSealed | undefined): Promise<JsonObject> {
  if (read === undefined || event['type'] !== 'm.room.encrypted' || event['state_key'] !== undefined) return event;
  return (await read(event, room)) ?? event;
}
