/**
 * From what a homeserver calls an event to what the inbox stores, the same for pushes, `/sync` and `/messages`. Only shape and size are
 * judged here, because receiving never decides (DESIGN §2): what cannot be read now cannot be read later, so it is left out, with its
 * reason, while its neighbours go on (G14, G17).
 */
import type { RoomId } from '../src/ids.ts';
import type { IncomingEvent } from '../src/inbox/inbox.ts';
import type { JsonObject } from '../src/json.ts';
import type { LogFields, Logger } from '../src/observe/logger.ts';
import type { Result } from '../src/result.ts';
import type { EventProblem, RoomEvent } from './wire/event.ts';
import { readRoomEvent } from './wire/read-event.ts';

export interface ReadIncomingOptions {
  readonly source: IncomingEvent['source'];
  /** `/sync` leaves `room_id` out of the events of a room. */
  readonly roomId?: RoomId;
}
export interface ReadEvent {
  readonly json: unknown;
  readonly read: Result<RoomEvent, EventProblem>;
}
export interface Incoming {
  readonly events: IncomingEvent[];
  readonly skipped: EventProblem[];
}

/** Events in their order; each was looked at alone. */
export function readIncoming(list: readonly unknown[], options: ReadIncomingOptions): Incoming {
  const room = options.roomId === undefined ? {} : { roomId: options.roomId };
  return buildIncoming(
    list.map((json) => ({ json, read: readRoomEvent(json, room) })),
    options,
  );
}

export function buildIncoming(list: readonly ReadEvent[], { source, roomId }: ReadIncomingOptions): Incoming {
  const events: IncomingEvent[] = [];
  const skipped: EventProblem[] = [];
  for (const { json, read } of list) {
    if (!read.ok) {
      skipped.push(read.error);
      continue;
    }
    const event = roomId === undefined ? (json as JsonObject) : { ...(json as JsonObject), room_id: roomId };
    const { eventId, sender, type, ageMs } = read.value;
    events.push({ eventId, roomId: read.value.roomId, sender, type, event, ageMs: ageMs ?? null, source });
  }
  return { events, skipped };
}

export type OnSkipped = (reason: EventProblem['reason']) => void;

/** One line per event that was left out; it names the reason and never the content (G12, G17). */
export function logSkipped(
  skipped: readonly EventProblem[],
  { logger, onSkipped, fields = {} }: { logger: Logger; onSkipped?: OnSkipped | undefined; fields?: LogFields },
): void {
  for (const { reason, eventId, roomId, type } of skipped) {
    const known = {
      ...(eventId === undefined ? {} : { event_id: eventId }),
      ...(roomId === undefined ? {} : { room_id: roomId }),
      ...(type === undefined ? {} : { type }),
    };
    logger.warn({ ...fields, ...known, reason }, 'an event cannot be read and was skipped');
    onSkipped?.(reason);
  }
}
