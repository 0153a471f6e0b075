/**
 * What comes in at the door of the homeserver: sent twice, broken, hostile, or by somebody else. Events are made up here and pushed by hand, so
 * that it is known which transaction carries what.
 */
import { randomBytes } from 'node:crypto';
import { expect, test } from 'vitest';
import type { JsonObject } from '../../src/json.ts';
import { textReply } from '../../synapse-dev/model/reply.ts';
import { messagesIn, type Talk, type TestOracle, textsAt, useWorld } from './harness.ts';

const world = useWorld({ oracles: 6 });

async function listedRoom(): Promise<{ oracle: TestOracle; talk: Talk }> {
  const oracle = await world.oracle();
  await oracle.start();
  oracle.model.respond(({ lastUserText }) => textReply(`Re: ${lastUserText}`));
  const talk = await (await world.person({ listed: true })).direct(oracle);
  return { oracle, talk };
}
const newEventId = (): string => `$${randomBytes(32).toString('base64url')}`;
const messageIn = (talk: Talk, body: string, more: JsonObject = {}): JsonObject => ({
  event_id: newEventId(),
  room_id: talk.roomId,
  sender: talk.person.userId,
  type: 'm.room.message',
  origin_server_ts: Date.now(),
  unsigned: { age: 12 },
  content: { msgtype: 'm.text', body },
  ...more,
});
const isStored = (oracle: TestOracle, event: JsonObject): boolean =>
  [...oracle.rows('select event_id from seen'), ...oracle.rows('select event_id from inbox')].some(
    (row) => row['event_id'] === event['event_id'],
  );

test('a transaction with a wrong hs_token is refused with 403 and nothing of it is stored', async () => {
  const { oracle, talk } = await listedRoom();
  const event = messageIn(talk, 'let me in');

  const refused = await Promise.all(
    ['', 'wrong', oracle.registration.as_token, `${oracle.registration.hs_token}x`].map((token) =>
      oracle.push({ events: [event] }, { token }),
    ),
  );

  expect(refused.map(({ status, body }) => [status, body['errcode']])).toEqual(Array.from({ length: 4 }, () => [403, 'M_FORBIDDEN']));
  expect(isStored(oracle, event)).toBe(false);
  // Control: the same with the right one.
  expect(await oracle.push({ events: [event] })).toEqual({ status: 200, body: {} });
  expect(isStored(oracle, event)).toBe(true);
  expect((await talk.answerTo(String(event['event_id']))).text).toBe('Re: let me in');
});

test('what is no transaction is answered 400 with an errcode, and nothing of it is stored', async () => {
  const { oracle, talk } = await listedRoom();
  const half = messageIn(talk, 'half');
  const event = JSON.stringify(half);

  const answers = await Promise.all(
    ['', 'hello', `{"events":[${event}]`, `{"events":[${event},]}`, 'null', '[]', `"events"`, '{}', `{"events":{"0":${event}}}`].map(
      (body) => oracle.push(body),
    ),
  );

  expect(answers.map(({ status }) => status)).toEqual(answers.map(() => 400));
  for (const { body } of answers)
    expect(body).toEqual({ errcode: expect.stringMatching(/^M_(NOT_JSON|BAD_JSON)$/u), error: expect.any(String) });
  expect(isStored(oracle, half)).toBe(false);
  const page = await fetch(`http://127.0.0.1:${new URL(oracle.registration.url).port}/_matrix/app/v1/users/@oracle:oracle.local`);
  expect([page.status, ((await page.json()) as JsonObject)['errcode']]).toEqual([404, 'M_NOT_FOUND']);
});

test('nine broken events and a good one in a transaction: 200, nine reasons in the log, one answer (G17)', async () => {
  const { oracle, talk } = await listedRoom();
  const good = messageIn(talk, 'the good one');
  const broken: [unknown, string][] = [
    [null, 'not_an_object'],
    [42, 'not_an_object'],
    [messageIn(talk, 'x', { event_id: 7 }), 'bad_event_id'],
    [messageIn(talk, 'x', { room_id: 'no-room' }), 'bad_room_id'],
    [messageIn(talk, 'x', { sender: { user: 'alice' } }), 'bad_sender'],
    [messageIn(talk, 'x', { content: null }), 'bad_content'],
    [messageIn(talk, 'x', { type: 'x'.repeat(300) }), 'bad_type'],
    [messageIn(talk, 'x', { origin_server_ts: 1.5 }), 'bad_timestamp'],
    [messageIn(talk, 'x', { content: { msgtype: 'm.text', body: ['a', 'list'] } }), 'bad_body'],
  ];
  const from = oracle.log.length;

  const pushed = await oracle.push({
    events: [...broken.slice(0, 5).map(([event]) => event), good, ...broken.slice(5).map(([event]) => event)],
  } as JsonObject);

  expect(pushed).toEqual({ status: 200, body: {} });
  expect((await talk.answerTo(String(good['event_id']))).text).toBe('Re: the good one');
  const reasons = oracle.log.slice(from).filter(({ msg }) => msg === 'an event cannot be read and was skipped');
  expect(reasons.map(({ reason }) => reason)).toEqual(broken.map(([, reason]) => reason));
  expect(oracle.model.requests).toHaveLength(1);
  expect(messagesIn(await talk.history(), oracle.userId)).toHaveLength(1);
});

test('unknown types, huge fields and strange contents are skipped, each with its reason, and the next message is answered (G14, G17)', async () => {
  const { oracle, talk } = await listedRoom();
  const deep = `${'[['.repeat(200)}1${']]'.repeat(200)}`;
  const strange: [JsonObject, string][] = [
    [messageIn(talk, 'x'.repeat(300_000)), 'too_large'],
    [messageIn(talk, 'x', { content: { msgtype: 'm.text', body: 'deep', x: JSON.parse(deep) } }), 'too_deep'],
    [messageIn(talk, 'x'.repeat(70_000)), 'too_long'],
    [messageIn(talk, 'x', { type: 'com.example.unknown' }), 'not_a_prompt'],
    [messageIn(talk, 'x', { content: { msgtype: 'm.location', body: 'here', geo_uri: 'geo:1,2' } }), 'foreign_msgtype'],
    [messageIn(talk, ' \n\t '), 'empty_body'],
    [messageIn(talk, 'x', { content: { msgtype: 'm.notice', body: 'beep' } }), 'notice'],
    [messageIn(talk, 'x', { content: { msgtype: 'm.text', body: 'x', 'm.relates_to': 3.5 } }), 'bad_relation'],
    [messageIn(talk, 'x', { type: 'm.room.redaction', content: { redacts: 5 } }), 'bad_redaction'],
  ];
  const after = messageIn(talk, 'still there?');

  const pushed = await oracle.push({ events: [...strange.map(([event]) => event), after] });

  expect(pushed.status).toBe(200);
  expect((await talk.answerTo(String(after['event_id']))).text).toBe('Re: still there?');
  const reasonOf = (event: JsonObject) =>
    oracle.log.find(({ event_id, reason }) => event_id === event['event_id'] && reason !== undefined)?.['reason'];
  expect(strange.map(([event]) => reasonOf(event))).toEqual(strange.map(([, reason]) => reason));
  expect(oracle.model.requests).toHaveLength(1);
  // The content of strangers is no matter for a log (G12).
  expect(JSON.stringify(oracle.log)).not.toContain('still there?');
});

test('the same event in two transactions, in reconciliation and after a restart is one turn (G2)', async () => {
  const oracle = await world.oracle();
  await oracle.start();
  const talk = await (await world.person()).direct(oracle);
  oracle.model.respond(({ lastUserText }) => textReply(`Re: ${lastUserText}`));
  const first = await talk.ask('only once');
  const event = { ...(await talk.person.client.getEvent(talk.roomId, first.prompt)), room_id: talk.roomId } as unknown as JsonObject;

  const again = [await oracle.push({ events: [event] }, { txnId: '1' }), await oracle.push({ events: [event, event] }, { txnId: '2' })];
  await oracle.stop();
  await oracle.start();
  again.push(await oracle.push({ events: [event] }, { txnId: '1' }));

  expect(again.map(({ status }) => status)).toEqual([200, 200, 200]);
  // Rows of a room are handled in order: when this one is answered, the copies before it were looked at.
  await talk.ask('and now another');
  expect(textsAt(oracle.model)).toEqual(['only once', 'and now another']);
  expect(messagesIn(await talk.history(), oracle.userId)).toHaveLength(2);
});

test('a new event that comes in two transactions at the same time is one turn (G2)', async () => {
  const { oracle, talk } = await listedRoom();
  const event = messageIn(talk, 'twice at once');

  const pushed = await Promise.all(Array.from({ length: 5 }, () => oracle.push({ events: [event] })));

  expect(pushed.map(({ status }) => status)).toEqual([200, 200, 200, 200, 200]);
  await talk.answerTo(String(event['event_id']));
  const after = messageIn(talk, 'after it');
  await oracle.push({ events: [after] });
  await talk.answerTo(String(after['event_id']));
  expect(textsAt(oracle.model)).toEqual(['twice at once', 'after it']);
});
