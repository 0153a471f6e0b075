/**
 * The outbox's way into a room without network: one row of a lane at a time, in order, each as the real sender would send it
 * (`planRequest`), into a timeline that knows a txn id again, refuses edits of unknown events and 64 KiB, as a homeserver does. A test says when
 * rows move, and can stop a row between the homeserver's answer and our commit, where a crash hurts most.
 */
import { planRequest } from '../../appservice/plan-request.ts';
import type { EventId } from '../../src/ids.ts';
import { isJsonObject, type JsonObject, jsonBytes } from '../../src/json.ts';
import type { Outbox, OutboxRow } from '../../src/outbox/outbox.ts';
import type { Clock } from '../../src/time.ts';
import type { RoomEvent } from './fold-room.ts';

/** What outlives a crash of the oracle: the homeserver. */
export interface FakeTimeline {
  readonly events: RoomEvent[];
  put(row: OutboxRow, content: JsonObject): EventId | null;
}

const EVENT_BYTES = 65_536;
const ENVELOPE_BYTES = 700;

export function fakeTimeline(): FakeTimeline {
  const events: RoomEvent[] = [];
  const known = new Map<string, EventId>();
  return {
    events,
    put(row, content) {
      const again = known.get(row.txn_id);
      if (again !== undefined) return again;
      const relation = content['m.relates_to'];
      const target = isJsonObject(relation) && relation['rel_type'] === 'm.replace' ? relation['event_id'] : undefined;
      if (target !== undefined && !events.some((event) => event.event_id === target)) return null;
      if (jsonBytes(content) + ENVELOPE_BYTES > EVENT_BYTES) return null;
      const eventId = `$event${String(events.length + 1).padStart(38, '0')}` as EventId;
      known.set(row.txn_id, eventId);
      events.push({ event_id: eventId, type: row.event_type, content });
      return eventId;
    },
  };
}

export interface FakeSender {
  /** Sends the next due row and confirms it. @returns false when nothing is due. */
  sendOne(): Promise<boolean>;
  /** Sends everything, also what confirmations bring. */
  drain(): Promise<void>;
  /** The next row reaches the homeserver, but the process dies before it is confirmed. */
  sendUnconfirmed(): boolean;
  /** The homeserver refuses the next row for good. */
  refuseOne(): Promise<void>;
}

export interface FakeSenderOptions {
  readonly outbox: Outbox;
  readonly clock: Clock;
  readonly timeline: FakeTimeline;
  readonly onSent?: (row: OutboxRow, eventId: EventId, durationMs: number) => void;
  readonly durationMs?: number;
}

export function fakeSender({ outbox, clock, timeline, onSent, durationMs = 10 }: FakeSenderOptions): FakeSender {
  const next = (): OutboxRow | undefined => outbox.due(clock.now(), { limit: 1, busy: new Set() })[0];
  function put(row: OutboxRow): EventId | null {
    const request = planRequest(row, row.edits_txn === null ? null : outbox.eventIdOf(row.edits_txn));
    if (request.kind === 'unsendable') return null;
    const content: JsonObject = Buffer.isBuffer(request.body) ? JSON.parse(request.body.toString()) : request.body;
    return timeline.put(row, content);
  }
  const sender: FakeSender = {
    async sendOne() {
      const row = next();
      if (row === undefined) return false;
      const eventId = put(row);
      if (eventId === null) await outbox.park(row, 'M_UNKNOWN 400');
      else {
        onSent?.(row, eventId, durationMs);
        await outbox.markSent(row, eventId, clock.now());
      }
      return true;
    },
    async drain() {
      while (await sender.sendOne());
    },
    sendUnconfirmed() {
      const row = next();
      if (row !== undefined) put(row);
      return row !== undefined;
    },
    async refuseOne() {
      const row = next();
      if (row !== undefined) await outbox.park(row, 'M_FORBIDDEN 403');
    },
  };
  return sender;
}
