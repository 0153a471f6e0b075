/**
 * An answer that still says "growing" although the database that wrote it is gone would grow for ever in the reader's eyes. Reconciliation
 * meets it as an own event whose run is unknown here and whose status is not terminal: it gets one last edit with a marker (DESIGN §2 "A lost
 * or restored database"). What the room shows now is asked for first, because pages are read backwards and the event met may be an old version.
 * Cost: nothing in ordinary operation, one request per such message otherwise.
 */
import { type EventId, noticeTxnId, parseEventId, type RoomId, type RunId, type UserId } from '../src/ids.ts';
import type { IncomingEvent } from '../src/inbox/inbox.ts';
import { isJsonObject, type JsonObject } from '../src/json.ts';
import type { Outbox } from '../src/outbox/outbox.ts';
import type { Store, Tx } from '../src/store/store.ts';
import type { Clock } from '../src/time.ts';
import { buildAnswerEdit, LIVE_KEY } from './content/build-answer.ts';
import { withMarker } from './content/mark-answer.ts';
import { isTerminal, readRunField } from './content/run-field.ts';
import { isMatrixError, type MatrixApi, matrixPath } from './matrix-api.ts';
import { openEvent, type ReadSealed } from './open-event.ts';

export interface OrphansOptions {
  readonly api: MatrixApi;
  readonly store: Store;
  readonly outbox: Pick<Outbox, 'insert' | 'wake'>;
  readonly oracle: UserId;
  readonly clock: Clock;
  /** Without it, what an encrypted answer shows now is not known, and it is left alone. */
  readonly read?: ReadSealed;
}
export interface Orphans {
  /** Looks at these events and the room; the returned function writes the last edits into the caller's transaction. */
  plan(events: readonly IncomingEvent[]): Promise<(tx: Tx) => number>;
  /** After the commit, when edits were written. */
  announce(): void;
}

/** Per page of events: each costs a request. */
const MAX_PER_PAGE = 50;

export function createOrphans({ api, store, outbox, oracle, clock, read }: OrphansOptions): Orphans {
  const isKnown = (run: RunId): boolean =>
    store.read.get(store.sql.selectFrom('runs').select('run_id').where('run_id', '=', run)) !== undefined;

  async function currentVersion(room: RoomId, target: EventId): Promise<Current | null> {
    try {
      const event = await api.request<JsonObject>('GET', matrixPath`/_matrix/client/v3/rooms/${room}/event/${target}`);
      return event['sender'] === oracle ? readCurrent(await openEvent(latestVersion(event, oracle), room, read)) : null;
    } catch (error) {
      if (isMatrixError(error) && (error.status === 403 || error.status === 404)) return null;
      throw error;
    }
  }

  return {
    announce: () => outbox.wake(),
    async plan(events) {
      const found = planOrphans(events, { oracle, isKnown }).slice(0, MAX_PER_PAGE);
      const edits: { roomId: RoomId; target: EventId; content: JsonObject; after: number }[] = [];
      for (const { roomId, target } of found) {
        const shown = await currentVersion(roomId, target);
        const content = shown === null ? null : buildInterruption(shown.content, target);
        if (shown !== null && content !== null) edits.push({ roomId, target, content, after: shown.at });
      }
      return (tx) => {
        for (const { roomId, target, content, after } of edits) {
          const txnId = noticeTxnId('interrupted', target);
          outbox.insert(tx, { txnId, lane: txnId, roomId, kind: 'notice', eventType: 'm.room.message', content, after }, clock.now());
        }
        return edits.length;
      };
    },
  };
}

/** Pure: messages of unknown runs that may still look unfinished, each once, by the event that edits target. */
export function planOrphans(
  events: readonly IncomingEvent[],
  { oracle, isKnown }: { oracle: UserId; isKnown: (run: RunId) => boolean },
): { roomId: RoomId; target: EventId }[] {
  const targets = new Map<EventId, RoomId>();
  for (const { sender, event, eventId, roomId } of events) {
    if (sender !== oracle || event['state_key'] !== undefined) continue;
    const field = readRunField(event['content']);
    if (!field.ok || field.value === undefined || isTerminal(field.value) || !isLive(event['content']) || isKnown(field.value.runId))
      continue;
    const target = targetOf(event) ?? eventId;
    targets.set(target, roomId);
  }
  return [...targets].map(([target, roomId]) => ({ roomId, target }));
}

/** Of an answer in several messages only the last one carries the end; the finished ones before it keep `running`, and are complete. */
const isLive = (content: unknown): boolean => isJsonObject(content) && Object.hasOwn(content, LIVE_KEY);

function targetOf(event: JsonObject): EventId | null {
  const content = isJsonObject(event['content']) ? event['content'] : {};
  const relation = isJsonObject(content['m.relates_to']) ? content['m.relates_to'] : {};
  const target = parseEventId(relation['event_id']);
  return relation['rel_type'] === 'm.replace' && target.ok ? target.value : null;
}

/** What the room shows, and since when: the last edit must be later to count. */
interface Current {
  readonly content: JsonObject;
  readonly at: number;
}

/** The homeserver bundles the latest edit of an event with it (research/synapse.md §7). */
function latestVersion(event: JsonObject, oracle: UserId): JsonObject {
  const unsigned = isJsonObject(event['unsigned']) ? event['unsigned'] : {};
  const relations = isJsonObject(unsigned['m.relations']) ? unsigned['m.relations'] : {};
  const latest = relations['m.replace'];
  return isJsonObject(latest) && latest['sender'] === oracle ? latest : event;
}

function readCurrent({ content, origin_server_ts: at }: JsonObject): Current | null {
  if (!isJsonObject(content)) return null;
  const shown = content['m.new_content'];
  return { content: isJsonObject(shown) ? shown : content, at: typeof at === 'number' ? at : 0 };
}

/** Pure: the last edit, or null when what is shown grows no more (a part in front of another one keeps `running`) or is not an answer. */
export function buildInterruption(shown: JsonObject, target: EventId): JsonObject | null {
  const field = readRunField(shown);
  const body = shown['body'];
  if (!field.ok || field.value === undefined || isTerminal(field.value) || !isLive(shown) || typeof body !== 'string') return null;
  return buildAnswerEdit({ ...field.value, text: withMarker(body, 'interrupted'), live: false, status: 'interrupted', target });
}
