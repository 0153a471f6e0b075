/** Events and people of the tests. Ids have the shape of real ones; an event is what the homeserver sends, an item what admission sees. */
import type { MessageItem } from '../../src/admission/inbox-item.ts';
import type { EventId, PrincipalId, RoomId, UserId } from '../../src/ids.ts';
import type { IncomingEvent } from '../../src/inbox/inbox.ts';
import type { JsonObject } from '../../src/json.ts';
import { NO_GRANTS, type Principal } from '../../src/turn/principal.ts';
import { FAKE_START_MS } from './fake-clock.ts';

export const ORACLE = '@oracle:example.org' as UserId;
export const ALICE = '@alice:example.org' as UserId;
export const BOB = '@bob:example.org' as UserId;
export const STRANGER = '@stranger:elsewhere.net' as UserId;
export const ROOM = '!room:example.org' as RoomId;
export const OTHER_ROOM = '!other:example.org' as RoomId;
export const eventId = (name: string): EventId => `$${name}` as EventId;
export const roomId = (name: string): RoomId => `!${name}:example.org` as RoomId;

export const listed = (user: UserId = ALICE): Principal => ({
  id: `matrix:u/${user.slice(1)}` as PrincipalId,
  did: null,
  matrixUserId: user,
  tier: 'listed',
  grants: NO_GRANTS,
  trust: 'clear',
});

/** A message as the endpoint hands it over. */
export function incoming(name: string, change: Partial<IncomingEvent> & { text?: string; content?: JsonObject } = {}): IncomingEvent {
  const { text = name, content, ...rest } = change;
  const base = {
    eventId: eventId(name),
    roomId: ROOM,
    sender: ALICE as string,
    type: 'm.room.message',
    ageMs: 0,
    source: 'push' as const,
    ...rest,
  };
  return {
    ...base,
    event: rest.event ?? {
      event_id: base.eventId,
      room_id: base.roomId,
      sender: base.sender,
      type: base.type,
      origin_server_ts: FAKE_START_MS,
      content: content ?? { msgtype: 'm.text', body: text },
    },
  };
}

/** A message as admission sees it. */
export function message(change: Partial<MessageItem> = {}): MessageItem {
  const text = change.text ?? 'Hello';
  return {
    kind: 'message',
    eventId: eventId('m'),
    roomId: ROOM,
    sender: ALICE,
    sentAt: FAKE_START_MS,
    msgtype: 'm.text',
    text,
    wordless: false,
    trust: 'clear',
    thread: null,
    inReplyTo: null,
    mentions: null,
    content: { msgtype: 'm.text', body: text },
    eventType: 'm.room.message',
    ...change,
  };
}
