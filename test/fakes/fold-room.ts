/**
 * What a client shows of the events that one account sent, by the rules of the spec: an edit counts when it targets an original of the same
 * sender, the newest one wins, an edit of an edit is ignored, and what it shows is `m.new_content` (spec v1.19, "Event replacements";
 * research/synapse.md §7). No kinder than a client: an edit without new content shows nothing.
 */
import { LIVE_KEY } from '../../appservice/content/build-answer.ts';
import { ERROR_KEY } from '../../appservice/content/build-notice.ts';
import { type RunField, readRunField } from '../../appservice/content/run-field.ts';
import { isJsonObject, type JsonObject } from '../../src/json.ts';

export interface RoomEvent {
  readonly event_id: string;
  readonly type: string;
  readonly content: JsonObject;
  readonly origin_server_ts?: number;
}

export interface ShownInRoom {
  readonly eventId: string;
  readonly msgtype: unknown;
  readonly body: string;
  readonly live: boolean;
  readonly run: RunField | undefined;
  readonly error: JsonObject | undefined;
  /** Relation of the original. */
  readonly relation: JsonObject | undefined;
  readonly edits: number;
}

/** `events` in the order of the timeline. */
export function foldRoom(events: readonly RoomEvent[]): ShownInRoom[] {
  const shown = new Map<string, ShownInRoom>();
  const latest = new Map<string, number>();
  for (const { event_id: eventId, type, content, origin_server_ts: at } of events) {
    if (type !== 'm.room.message') continue;
    const relation = isJsonObject(content['m.relates_to']) ? content['m.relates_to'] : undefined;
    if (relation?.['rel_type'] !== 'm.replace') {
      shown.set(eventId, { eventId, ...readContent(content), relation, edits: 0 });
      continue;
    }
    const original = shown.get(String(relation['event_id']));
    const replaced = content['m.new_content'];
    if (original === undefined) continue;
    const isOlder = at !== undefined && at < (latest.get(original.eventId) ?? at);
    if (isOlder) {
      shown.set(original.eventId, { ...original, edits: original.edits + 1 });
      continue;
    }
    if (at !== undefined) latest.set(original.eventId, at);
    const version = readContent(isJsonObject(replaced) ? replaced : {});
    shown.set(original.eventId, { ...original, ...version, edits: original.edits + 1 });
  }
  return [...shown.values()];
}

function readContent(content: JsonObject): Pick<ShownInRoom, 'msgtype' | 'body' | 'live' | 'run' | 'error'> {
  const run = readRunField(content);
  const error = content[ERROR_KEY];
  return {
    msgtype: content['msgtype'],
    body: typeof content['body'] === 'string' ? content['body'] : '',
    live: Object.hasOwn(content, LIVE_KEY),
    run: run.ok ? run.value : undefined,
    error: isJsonObject(error) ? error : undefined,
  };
}
