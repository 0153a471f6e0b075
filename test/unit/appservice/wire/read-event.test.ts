import { readFileSync } from 'node:fs';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import type { RoomEvent } from '../../../../appservice/wire/event.ts';
import { readRoomEvent } from '../../../../appservice/wire/read-event.ts';
import { parseRoomId } from '../../../../src/ids.ts';

type Json = Record<string, any>;
const fixture: Json = JSON.parse(readFileSync(new URL('../../../fixtures/synapse-1.163.2.json', import.meta.url), 'utf8'));
const room = '!WLWW042eguIx4tzbPjPYW7whwuo8CZHhcNZZSCNQ9fc';

/** Every event of a captured situation, in order. */
const eventsOf = (situation: string): Json[] => fixture[situation].flatMap((transaction: Json) => transaction['body'].events);
const pushed: Json[] = Object.values(fixture)
  .filter(Array.isArray)
  .flat()
  .flatMap((transaction: Json) => transaction['body']?.events ?? []);

function message(more: Json = {}): Json {
  return {
    type: 'm.room.message',
    event_id: '$e',
    room_id: '!r:s',
    sender: '@alice:s',
    origin_server_ts: 1,
    content: { msgtype: 'm.text', body: 'hi' },
    ...more,
  };
}

function read(json: unknown): RoomEvent {
  const result = readRoomEvent(json);
  if (!result.ok) throw new Error(result.error.reason);
  return result.value;
}
const reasonOf = (json: unknown): string => {
  const result = readRoomEvent(json);
  return result.ok ? 'read' : result.error.reason;
};

describe('what Synapse 1.163.2 sends', () => {
  test('every pushed event of the capture is read, and keeps its content as it came', () => {
    expect(pushed.length).toBeGreaterThan(40);
    for (const json of pushed) expect(read(json).content).toBe(json['content']);
  });

  test('events of /messages are read', () => {
    for (const json of [...fixture['messages_gap_page'].chunk, ...fixture['messages_back_after_join'].chunk]) {
      expect(readRoomEvent(json).ok, JSON.stringify(json)).toBe(true);
    }
  });

  test('events of /sync name no room: the caller does', () => {
    const roomId = parseRoomId(room);
    if (!roomId.ok) throw new Error('fixture');
    const events: Json[] = fixture['sync_incremental_limited'].rooms.join[room].timeline.events;

    const results = events.map((json) => readRoomEvent(json, { roomId: roomId.value }));

    expect(results.every((result) => result.ok && result.value.roomId === room)).toBe(true);
    expect(reasonOf(events[0])).toBe('bad_room_id');
    expect(readRoomEvent(message(), { roomId: roomId.value })).toMatchObject({ ok: false, error: { reason: 'bad_room_id' } });
  });

  test('an invite tells its kind and the state of the room', () => {
    expect(read(eventsOf('invite_direct')[0])).toMatchObject({
      kind: 'member',
      membership: 'invite',
      target: '@oracle:oracle.local',
      isDirect: true,
      ageMs: 59,
    });
    expect(read(eventsOf('invite_encrypted_trusted')[0])).toMatchObject({ membership: 'invite' });
  });

  test('a join names the membership before it, a kick its reason', () => {
    expect(read(eventsOf('join_own')[0])).toMatchObject({ membership: 'join', previous: 'invite', inviteState: [] });
    expect(read(eventsOf('kicked')[0])).toMatchObject({ membership: 'leave', previous: 'join', reason: 'bye' });
  });

  test('mention, thread, reply, edit, reaction and redaction are read', () => {
    const mention = read(eventsOf('text_mention')[0]);
    expect(mention.kind === 'message' && [...(mention.mentions?.userIds ?? [])]).toEqual(['@oracle:oracle.local']);
    expect(read(eventsOf('text_in_thread')[0])).toMatchObject({ relation: { thread: { root: expect.stringMatching(/^\$/) } } });
    expect(read(eventsOf('text_in_thread')[0])).not.toHaveProperty('relation.inReplyTo');
    expect(read(eventsOf('text_reply')[0])).toMatchObject({ relation: { inReplyTo: expect.stringMatching(/^\$/) } });
    expect(read(eventsOf('edit')[0])).toMatchObject({
      relation: { replace: { target: expect.stringMatching(/^\$/), newBody: { body: 'plain, edited' } } },
    });
    expect(read(eventsOf('reaction')[0])).toMatchObject({ kind: 'reaction', key: expect.any(String) });
    expect(read(eventsOf('redaction_of_message_with_reason')[0])).toMatchObject({ kind: 'redaction', reason: expect.any(String) });
    expect(read(eventsOf('state_name_topic')[0])).toMatchObject({ kind: 'other', type: 'm.room.name', stateKey: '' });
  });
});

describe('hostile events (G14, G17)', () => {
  test.each([
    ['not_an_object', null],
    ['not_an_object', []],
    ['not_an_object', 'text'],
    ['bad_event_id', message({ event_id: 7 })],
    ['bad_event_id', message({ event_id: `$${'a'.repeat(255)}` })],
    ['bad_room_id', message({ room_id: undefined })],
    ['bad_sender', message({ sender: 'alice' })],
    ['bad_type', message({ type: {} })],
    ['bad_type', message({ type: 'x'.repeat(256) })],
    ['bad_state_key', message({ state_key: 1 })],
    ['bad_timestamp', message({ origin_server_ts: 1.5 })],
    ['bad_timestamp', message({ origin_server_ts: -1 })],
    ['bad_content', message({ content: null })],
    ['bad_content', message({ content: [] })],
    ['bad_body', message({ content: {} })],
    ['bad_body', message({ content: { msgtype: 'm.text', body: 3 } })],
    ['bad_relation', message({ content: { msgtype: 'm.text', body: '', 'm.relates_to': 5 } })],
    ['bad_relation', message({ content: { msgtype: 'm.text', body: '', 'm.relates_to': { rel_type: 'm.thread' } } })],
    ['bad_edit', message({ content: { msgtype: 'm.text', body: '', 'm.relates_to': { rel_type: 'm.replace', event_id: '$x' } } })],
    ['bad_member', message({ type: 'm.room.member', state_key: '@a:s', content: { membership: 'king' } })],
    ['bad_state_key', message({ type: 'm.room.member', state_key: 'a', content: { membership: 'join' } })],
    ['bad_state_key', message({ type: 'm.room.member', content: { membership: 'join' } })],
    ['bad_redaction', message({ type: 'm.room.redaction', content: {} })],
    ['too_large', message({ content: { msgtype: 'm.text', body: 'x'.repeat(300_000) } })],
  ])('%s', (reason, json) => {
    expect(reasonOf(json)).toBe(reason);
  });

  test('nesting is refused before anything recurses into it', () => {
    let nested: unknown = 1;
    for (let depth = 0; depth < 200_000; depth += 1) nested = [nested];

    expect(['too_deep', 'too_large']).toContain(reasonOf(message({ content: { msgtype: 'm.text', body: 'x', nested } })));
  });

  test('a problem names the event and never its content (G12)', () => {
    const result = readRoomEvent(message({ content: { body: 5, msgtype: 'm.text', secret: 'hunter2' } }));

    expect(result).toEqual({ ok: false, error: { reason: 'bad_body', eventId: '$e', roomId: '!r:s', type: 'm.room.message' } });
  });

  test('floats in content are read: only signing forbids them', () => {
    expect(reasonOf(message({ content: { msgtype: 'm.text', body: 'x', score: 0.5 } }))).toBe('read');
  });

  test.each([
    [5, 5],
    [-3, 0],
    [1.9, 1],
    [1e300, undefined],
    ['7', undefined],
  ])('an age of %s is read as %s', (age, ageMs) => {
    expect(read(message({ unsigned: { age } })).ageMs).toBe(ageMs);
  });

  test('m.mentions that cannot be read mention nobody, and are not absent', () => {
    const event = read(message({ content: { msgtype: 'm.text', body: 'x', 'm.mentions': 5 } }));

    expect(event).toMatchObject({ mentions: { room: false } });
    expect(read(message())).not.toHaveProperty('mentions');
  });

  test('an encryption whose content is broken still means encrypted (G11)', () => {
    expect(read(message({ type: 'm.room.encryption', state_key: '', content: {} }))).toMatchObject({ kind: 'encryption' });
  });

  test('a redacted message is known as such', () => {
    const redacted = read(message({ content: {}, unsigned: { redacted_because: { type: 'm.room.redaction' } } }));

    expect(redacted).toMatchObject({ kind: 'redacted', redacted: true });
  });

  test('an encrypted edit has a target and no text', () => {
    const content = { algorithm: 'm.megolm.v1.aes-sha2', 'm.relates_to': { rel_type: 'm.replace', event_id: '$t' } };

    expect(read(message({ type: 'm.room.encrypted', content }))).toMatchObject({
      relation: { other: { relType: 'm.replace', target: '$t' } },
    });
  });

  test('no JSON makes the reader throw', () => {
    const json = fc.jsonValue({ maxDepth: 4 }) as fc.Arbitrary<unknown>;
    const keys = [
      'type',
      'event_id',
      'room_id',
      'sender',
      'origin_server_ts',
      'content',
      'unsigned',
      'state_key',
      'age',
      'redacts',
      'prev_content',
    ];
    const types = ['m.room.message', 'm.room.member', 'm.room.redaction', 'm.reaction', 'm.room.encryption', 'm.room.encrypted', 'x'];
    const contentKeys = ['msgtype', 'body', 'm.relates_to', 'm.mentions', 'm.new_content', 'membership', 'redacts', '__proto__'];

    fc.assert(
      fc.property(
        json,
        fc.dictionary(fc.constantFrom(...keys), json),
        fc.constantFrom(...types),
        fc.dictionary(fc.constantFrom(...contentKeys), json),
        (any, overrides, type, content) => {
          readRoomEvent(any);
          readRoomEvent(message({ type, content, ...overrides }));
          readRoomEvent(message({ type, content, state_key: '@a:s' }));
        },
      ),
      { numRuns: 500 },
    );
  });
});
