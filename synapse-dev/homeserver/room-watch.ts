/**
 * What a person sees in a room: every event with the time it arrived, and messages with all their versions, because an oracle's answer
 * is one message that grows by edits. The base of the end-to-end tests, of the bench and of the demo's display.
 */
import { isJsonObject, type JsonObject } from '../../src/json.ts';
import { type RunStatus, TERMINAL } from '../../src/runs/run.ts';
import type { MatrixEvent } from './user-client.ts';

export interface SeenEvent {
  /** Arrival by `performance.now()`: compare with a reading of your own before the send. */
  readonly at: number;
  readonly event: MatrixEvent;
}
export interface Version {
  readonly at: number;
  readonly eventId: string;
  /** `body` of the visible content. */
  readonly text: string;
  /** The visible content: of the message itself, or `m.new_content` of the edit. */
  readonly content: JsonObject;
  /** The whole event that brought it. */
  readonly event: MatrixEvent;
}
/** One message with its edits. */
export interface SeenMessage {
  readonly eventId: string;
  readonly sender: string;
  /** In order of arrival; never empty. */
  readonly versions: readonly Version[];
  /** The version that clients show: newest `origin_server_ts`, then greatest event id (as the homeserver aggregates). */
  readonly final: Version;
  readonly text: string;
  readonly content: JsonObject;
  /** Root of the thread it stands in. */
  readonly threadRoot: string | undefined;
  readonly inReplyTo: string | undefined;
  /** Whether its newest version says that it still grows (MSC4357). */
  readonly live: boolean;
  readonly redacted: boolean;
}
export interface TypingSeen {
  readonly at: number;
  readonly userIds: readonly string[];
}

export interface RoomWatch {
  readonly roomId: string;
  /** In the order of the room, as far as it was seen. */
  readonly events: readonly SeenEvent[];
  readonly typing: readonly TypingSeen[];
  /** The first event, past or coming, that fits. Rejects after `timeoutMs` (default 30 s) with what was seen instead. */
  waitFor(predicate: (seen: SeenEvent) => boolean, timeoutMs?: number): Promise<SeenEvent>;
  /** All messages with their versions, by `sender` if given, edits not counted as messages. */
  messages(sender?: string): SeenMessage[];
  /** `messages` of everybody but this client's user: in a direct room, the oracle's. */
  answers(sender?: string): SeenMessage[];
  /** Messages that answer this event: named in `ixo.oracle.run` / `prompts`, replied to, or in the thread it began; parts in order. */
  answersTo(eventId: string): SeenMessage[];
  /** Resolves as soon as `choose` returns something for the present state of the room: asked after every change. */
  waitUntil<T>(choose: (watch: RoomWatch) => T | undefined | false, timeoutMs?: number): Promise<T>;
  /** The answer's messages as soon as none of them grows any more. */
  waitForAnswerTo(eventId: string, timeoutMs?: number): Promise<SeenMessage[]>;
  /** Called for every change; the return value unsubscribes. */
  onChange(callback: () => void): () => void;
}

/** The writing end, for whoever feeds it. */
export interface RoomLog {
  readonly watch: RoomWatch;
  append(events: readonly MatrixEvent[], at: number): void;
  appendTyping(typing: TypingSeen): void;
}

const DEFAULT_WAIT_MS = 30_000;
const LIVE = 'org.matrix.msc4357.live';
const RUN = 'ixo.oracle.run';

export function createRoomLog({ roomId, me, signal }: { roomId: string; me: string; signal: AbortSignal }): RoomLog {
  const events: SeenEvent[] = [];
  const known = new Set<string>();
  const typing: TypingSeen[] = [];
  const listeners = new Set<() => void>();
  const notify = () => {
    for (const listener of [...listeners]) listener();
  };

  const watch: RoomWatch = {
    roomId,
    events,
    typing,
    waitFor: (predicate, timeoutMs) => watch.waitUntil(() => events.find(predicate), timeoutMs),
    messages: (sender) => readMessages(events).filter((message) => sender === undefined || message.sender === sender),
    answers: (sender) =>
      readMessages(events).filter((message) => (sender === undefined ? message.sender !== me : message.sender === sender)),
    answersTo: (eventId) =>
      watch
        .messages()
        .filter((message) => message.sender !== me && isAnswerTo(message, eventId))
        .sort((a, b) => partOf(a) - partOf(b)),
    waitForAnswerTo: (eventId, timeoutMs) =>
      watch.waitUntil(() => {
        const parts = watch.answersTo(eventId);
        return parts.every((part) => !part.live) && isFinished(parts.at(-1)) && parts;
      }, timeoutMs),
    onChange(callback) {
      listeners.add(callback);
      return () => listeners.delete(callback);
    },
    waitUntil<T>(choose: (watch: RoomWatch) => T | undefined | false, timeoutMs = DEFAULT_WAIT_MS): Promise<T> {
      return new Promise<T>((resolve, reject) => {
        const end = () => {
          clearTimeout(timer);
          listeners.delete(look);
          signal.removeEventListener('abort', onAbort);
        };
        const look = () => {
          const chosen = attempt(() => choose(watch));
          if ('error' in chosen) {
            end();
            reject(chosen.error);
          } else if (chosen.value !== undefined && chosen.value !== false) {
            end();
            resolve(chosen.value);
          }
        };
        const onAbort = () => {
          end();
          reject(signal.reason);
        };
        const timer = setTimeout(() => {
          end();
          reject(new Error(`not seen in ${roomId} within ${timeoutMs} ms; the room holds:\n${describe(events)}`));
        }, timeoutMs);
        if (signal.aborted) return onAbort();
        listeners.add(look);
        signal.addEventListener('abort', onAbort, { once: true });
        look();
      });
    },
  };
  return {
    watch,
    append(incoming, at) {
      const fresh = incoming.filter((event) => !known.has(event.event_id));
      for (const event of fresh) {
        known.add(event.event_id);
        events.push({ at, event });
      }
      if (fresh.length > 0) notify();
    },
    appendTyping(seen) {
      typing.push(seen);
      notify();
    },
  };
}

function attempt<T>(choose: () => T): { value: T } | { error: unknown } {
  try {
    return { value: choose() };
  } catch (error) {
    return { error };
  }
}

/** Messages with their valid edits: same sender, `m.new_content` there, target a message that was seen. */
export function readMessages(events: readonly SeenEvent[]): SeenMessage[] {
  const byId = new Map<string, { first: SeenEvent; edits: SeenEvent[] }>();
  const edits: [string, SeenEvent][] = [];
  const redacted = new Set<string>();
  for (const seen of events) {
    const { event } = seen;
    if (event.type === 'm.room.redaction') redacted.add(String(event.content['redacts'] ?? event.redacts));
    if (event.type !== 'm.room.message') continue;
    const target = relationOf(event.content, 'm.replace');
    if (target === undefined) byId.set(event.event_id, { first: seen, edits: [] });
    else edits.push([target, seen]);
  }
  // Afterwards, because an edit may be decrypted before what it replaces.
  for (const [target, seen] of edits) {
    const original = byId.get(target);
    if (original?.first.event.sender === seen.event.sender && isJsonObject(seen.event.content['m.new_content'])) original.edits.push(seen);
  }
  return [...byId.values()].map(({ first, edits: own }) =>
    buildMessage(
      first,
      own.filter(({ event }) => !redacted.has(event.event_id)),
      redacted,
    ),
  );
}

function buildMessage(first: SeenEvent, edits: readonly SeenEvent[], redacted: ReadonlySet<string>): SeenMessage {
  const original = buildVersion(first);
  const newer = edits.map(buildVersion);
  const versions = [original, ...newer];
  const final = newer.reduce((best, version) => (best === original || isLater(version.event, best.event) ? version : best), original);
  const { content, event_id: eventId, sender } = first.event;
  const relation = content['m.relates_to'];
  const reply = isJsonObject(relation) && isJsonObject(relation['m.in_reply_to']) ? relation['m.in_reply_to']['event_id'] : undefined;
  return {
    eventId,
    sender,
    versions,
    final,
    text: final.text,
    content: final.content,
    threadRoot: relationOf(content, 'm.thread'),
    inReplyTo: typeof reply === 'string' ? reply : undefined,
    live: isLive(final),
    redacted: redacted.has(eventId) || first.event.unsigned?.['redacted_because'] !== undefined,
  };
}

function buildVersion({ at, event }: SeenEvent): Version {
  const edited = event.content['m.new_content'];
  const content = isJsonObject(edited) ? edited : event.content;
  return { at, eventId: event.event_id, text: String(content['body'] ?? ''), content, event };
}

const isLater = (a: MatrixEvent, b: MatrixEvent): boolean =>
  a.origin_server_ts === b.origin_server_ts ? a.event_id > b.event_id : a.origin_server_ts > b.origin_server_ts;

const isLive = (version: Version): boolean => LIVE in version.content || LIVE in version.event.content;

function relationOf(content: JsonObject, relType: string): string | undefined {
  const relation = content['m.relates_to'];
  if (!isJsonObject(relation) || relation['rel_type'] !== relType) return undefined;
  return typeof relation['event_id'] === 'string' ? relation['event_id'] : undefined;
}

function isAnswerTo(message: SeenMessage, eventId: string): boolean {
  const { prompts } = runOf(message) ?? {};
  if (Array.isArray(prompts)) return prompts.includes(eventId);
  return message.inReplyTo === eventId || message.threadRoot === eventId;
}

function runOf({ content, versions: [original] }: SeenMessage): JsonObject | undefined {
  const run = content[RUN] ?? original?.content[RUN];
  return isJsonObject(run) ? run : undefined;
}
const partOf = (message: SeenMessage): number => Number(runOf(message)?.['part'] ?? 1);

/** The newest part of a run tells whether more parts may follow; a message of no run (a bare bot's, a notice) is whole as it is. */
function isFinished(newest: SeenMessage | undefined): boolean {
  if (newest === undefined) return false;
  const status = runOf(newest)?.['status'];
  return status === undefined || TERMINAL.has(status as RunStatus);
}

const describe = (events: readonly SeenEvent[]): string =>
  events
    .slice(-15)
    .map(({ event }) => `  ${event.sender} ${event.type} ${JSON.stringify(event.content).slice(0, 160)}`)
    .join('\n');
