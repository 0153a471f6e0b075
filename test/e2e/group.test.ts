/** Rooms with several people: when the oracle speaks, when it is silent, and what it may do there and in a direct room. */
import { expect, test } from 'vitest';
import { textReply, toolCallsReply } from '../../synapse-dev/model/reply.ts';
import { errorOf, messagesIn, textsAt, useWorld } from './harness.ts';

const world = useWorld({ oracles: 6 });

test('in a group a mention starts a thread, the thread goes on without one, and what is not for the oracle is not answered', async () => {
  const oracle = await world.oracle();
  await oracle.start();
  oracle.model.respond(() => textReply('Here I am.'));
  const [person, other] = await Promise.all([world.person(), world.person()]);
  const talk = await person.group(oracle, { invite: [oracle.userId, other.userId] });
  await other.client.join(talk.roomId);
  const theirs = await other.talk(talk.roomId, oracle);
  const mention = { 'm.mentions': { user_ids: [oracle.userId] } };

  const bare = await talk.say('What a lovely day.');
  const first = await talk.ask('Oracle, are you there?', mention);
  const inThread = await talk.ask('And still?', { 'm.relates_to': { rel_type: 'm.thread', event_id: first.prompt } });
  // Somebody whom it has not answered in that thread must mention it.
  const overheard = await theirs.say('Nice thread.', { 'm.relates_to': { rel_type: 'm.thread', event_id: first.prompt } });
  const reply = await talk.ask('This is for you.', { 'm.relates_to': { 'm.in_reply_to': { event_id: first.parts[0]?.eventId ?? '' } } });

  expect(first.parts[0]?.threadRoot).toBe(first.prompt);
  expect(inThread.parts[0]?.threadRoot).toBe(first.prompt);
  expect(inThread.prompts).toEqual([inThread.prompt]);
  expect(reply.status).toBe('completed');
  expect(talk.watch.answersTo(bare)).toEqual([]);
  expect(talk.watch.answersTo(overheard).filter(({ threadRoot }) => threadRoot !== first.prompt)).toEqual([]);
  expect(messagesIn(await talk.history(), oracle.userId).filter(({ content }) => content['msgtype'] === 'm.text')).toHaveLength(3);
  expect(oracle.model.requests).toHaveLength(3);
  for (const id of [bare, overheard]) await oracle.waitForLog(({ event_id, type }) => event_id === id && type === 'overheard');
});

test('on joining a group it says once how to address it, and nothing in a direct room', async () => {
  const oracle = await world.oracle();
  await oracle.start();
  const person = await world.person();
  const group = await person.group(oracle);
  const direct = await person.direct(oracle);

  const hello = await group.watch.waitUntil(() => group.notices()[0]);

  expect(hello.text).toContain(oracle.userId);
  await direct.ask('hello');
  await group.ask('hello', { 'm.mentions': { user_ids: [oracle.userId] } });
  expect(group.notices()).toHaveLength(1);
  expect(direct.notices()).toEqual([]);
});

test('an old mention in a room that it joins today is history and not answered', async () => {
  const oracle = await world.oracle();
  await oracle.start();
  const person = await world.person();
  const roomId = await person.client.createRoom({ preset: 'public_chat' });
  const talk = await person.talk(roomId, oracle);
  const mention = { 'm.mentions': { user_ids: [oracle.userId] } };
  const old = await talk.say('Oracle, did you see this?', mention);
  await person.client.invite(roomId, oracle.userId);
  await talk.joined();

  const fresh = await talk.ask('And this?', mention);

  expect(fresh.status).toBe('completed');
  expect(talk.watch.answersTo(old)).toEqual([]);
  expect(textsAt(oracle.model).some((text) => text.includes('did you see this'))).toBe(false);
  // Nor after the next look at what the homeserver may have failed to push.
  await oracle.stop();
  await oracle.start();
  await talk.ask('And now?', mention);
  expect(talk.watch.answersTo(old)).toEqual([]);
});

test('a signed person in a direct room has the topic set by the tool; a listed one is told in a sentence how to get there (G8)', async () => {
  const oracle = await world.oracle();
  await oracle.start();
  const script = (topic: string) =>
    oracle.model.enqueue(toolCallsReply({ name: 'set_room_topic', args: { topic } }), (request) =>
      textReply(`The tool said: ${request.messages.findLast(({ role }) => role === 'tool')?.text}`),
    );
  const withPower = { power_level_content_override: { events: { 'm.room.topic': 0 } } };
  const [signed, listed] = await Promise.all([world.person(), world.person({ listed: true })]);
  const direct = { preset: 'private_chat', is_direct: true };
  const mine = await signed.group(oracle, { ...direct, ...withPower });
  const theirs = await listed.group(oracle, { ...direct, ...withPower });

  script('Plans for spring');
  const done = await mine.ask('Set the topic to "Plans for spring".');
  script('Plans for autumn');
  const refused = await theirs.ask('Set the topic to "Plans for autumn".');

  expect(done.text).toContain('Plans for spring');
  expect(await signed.client.state(mine.roomId, 'm.room.topic')).toMatchObject({ topic: 'Plans for spring' });
  expect(refused.status).toBe('completed');
  expect(refused.text).toMatch(/signed yourself/u);
  await expect(listed.client.state(theirs.roomId, 'm.room.topic')).rejects.toMatchObject({ errcode: 'M_NOT_FOUND' });
  expect(errorOf(refused.parts[0]?.content ?? {})).toBeUndefined();
});

test('the clock tool answers within the same message', async () => {
  const oracle = await world.oracle();
  await oracle.start();
  const talk = await (await world.person()).direct(oracle);

  // The demo's persona: it calls the tool that is offered to it.
  const answer = await talk.ask('What time is it?', { 'ixo.oracle.turn': { timezone: 'Europe/Berlin' } });

  expect(answer.status).toBe('completed');
  expect(answer.text).toMatch(/\d{1,2}:\d{2}/u);
  expect(answer.parts).toHaveLength(1);
  expect(answer.parts[0]?.content['ixo.oracle.run']).toMatchObject({ tools: [expect.any(String)] });
});
