/**
 * `kill -9` at the instants that matter, on the real process with the real homeserver: nothing acknowledged is lost, nothing is said twice, and
 * an answer that had begun is finished in the same message.
 */
import { randomBytes } from 'node:crypto';
import { expect, test } from 'vitest';
import { createGate, heldReply, textReply, toolCallsReply } from '../../synapse-dev/model/reply.ts';
import { messagesIn, newTexts, textsAt, useWorld } from '../e2e/harness.ts';

const world = useWorld({ oracles: 7 });
const HEAD = 'The first half of an answer that takes a while, ';
const TAIL = 'and the second half.';

test('kill -9 straight after the 200: what was acknowledged is answered after the restart, once (G1, G5)', async () => {
  const oracle = await world.oracle();
  const first = await oracle.startProcess();
  const person = await world.person({ listed: true });
  const talk = await person.direct(oracle);
  oracle.model.respond((request) => textReply(`Re: ${newTexts(request).join(', ')}`));
  const texts = ['zero', 'one', 'two'];
  const events = texts.map((body) => ({
    event_id: `$${randomBytes(32).toString('base64url')}`,
    room_id: talk.roomId,
    sender: person.userId,
    type: 'm.room.message',
    origin_server_ts: Date.now(),
    unsigned: { age: 5 },
    content: { msgtype: 'm.text', body },
  }));

  const { status } = await oracle.push({ events });
  await first.kill('SIGKILL');
  expect(status).toBe(200);
  await oracle.startProcess();

  const answers = await Promise.all(events.map(({ event_id }) => talk.answerTo(event_id)));
  expect(answers.map(({ status: ended }) => ended)).toEqual(['completed', 'completed', 'completed']);
  for (const [index, { text }] of answers.entries()) expect(text).toContain(texts[index]);
  // Once each: every message of the oracle names other prompts.
  const named = messagesIn(await talk.history(), oracle.userId).flatMap(
    ({ content }) => (content['ixo.oracle.run'] as { prompts: string[] }).prompts,
  );
  expect(named.toSorted()).toEqual(events.map(({ event_id }) => event_id).toSorted());
});

test('kill -9 in mid-stream: the same message is finished, with exactly the text of the model (G5)', async () => {
  const oracle = await world.oracle();
  const first = await oracle.startProcess();
  const talk = await (await world.person()).direct(oracle);
  oracle.model.enqueue(heldReply(createGate(), HEAD, TAIL), textReply('Another beginning, and another end.'), textReply('And on we go.'));
  const prompt = await talk.say('Tell me.');
  const begun = await talk.watch.waitUntil(() => talk.watch.answersTo(prompt)[0]);
  expect(HEAD).toContain(begun.text.trim());

  await first.kill('SIGKILL');
  await oracle.startProcess();

  const answer = await talk.answerTo(prompt);
  expect(answer.parts.map(({ eventId }) => eventId)).toEqual([begun.eventId]);
  expect(answer.text).toBe('Another beginning, and another end.');
  expect(answer.status).toBe('completed');
  expect(messagesIn(await talk.history(), oracle.userId)).toHaveLength(1);
  expect((await talk.ask('Go on.')).text).toBe('And on we go.');
});

test('killed three times while it answers, it still ends in the same message (G5)', async () => {
  const oracle = await world.oracle();
  let running = await oracle.startProcess();
  const talk = await (await world.person()).direct(oracle);
  oracle.model.respond(() => heldReply(createGate(), HEAD, TAIL));
  const prompt = await talk.say('Tell me.');
  const begun = await talk.watch.waitUntil(() => talk.watch.answersTo(prompt)[0]);

  for (let kills = 1; kills <= 2; kills += 1) {
    await oracle.model.waitForRequest(kills, 20_000);
    await running.kill('SIGKILL');
    running = await oracle.startProcess();
  }
  await oracle.model.waitForRequest(3, 20_000);
  await running.kill('SIGKILL');
  oracle.model.respond(() => textReply('At last.'));
  await oracle.startProcess();

  const answer = await talk.answerTo(prompt);
  expect(answer.parts.map(({ eventId }) => eventId)).toEqual([begun.eventId]);
  expect(['completed', 'interrupted']).toContain(answer.status);
  if (answer.status === 'completed') expect(answer.text).toBe('At last.');
  expect(messagesIn(await talk.history(), oracle.userId)).toHaveLength(1);
});

test('kill -9 after a write tool has run: it is not run again, and the answer is finished (G6)', async () => {
  const oracle = await world.oracle();
  const first = await oracle.startProcess();
  const person = await world.person();
  const talk = await person.group(oracle, { is_direct: true, power_level_content_override: { events: { 'm.room.topic': 0 } } });
  const call = toolCallsReply({ name: 'set_room_topic', args: { topic: 'Plans for spring' } });
  oracle.model.enqueue(call, heldReply(createGate(), 'The topic ', 'is set.'), textReply('The topic is set, once.'));
  const prompt = await talk.say('Set the topic to "Plans for spring".');
  const isTopic = (event: { type: string; sender: string }) => event.type === 'm.room.topic' && event.sender === oracle.userId;
  await talk.watch.waitFor(({ event }) => isTopic(event));
  await oracle.model.waitForRequest(2, 20_000);

  await first.kill('SIGKILL');
  await oracle.startProcess();

  const answer = await talk.answerTo(prompt);
  expect(answer.text).toBe('The topic is set, once.');
  expect((await talk.history()).filter(isTopic)).toHaveLength(1);
  expect(messagesIn(await talk.history(), oracle.userId)).toHaveLength(1);
});

test('SIGTERM in mid-stream ends the process within its 10 s, and the next one finishes the same message', async () => {
  const oracle = await world.oracle();
  const first = await oracle.startProcess();
  const talk = await (await world.person()).direct(oracle);
  oracle.model.enqueue(heldReply(createGate(), HEAD, TAIL), textReply('After the restart.'));
  const prompt = await talk.say('Tell me.');
  const begun = await talk.watch.waitUntil(() => talk.watch.answersTo(prompt)[0]);

  const began = performance.now();
  await first.kill('SIGTERM');
  expect(performance.now() - began).toBeLessThan(15_000);
  await oracle.startProcess();

  const answer = await talk.answerTo(prompt);
  expect(answer.parts.map(({ eventId }) => eventId)).toEqual([begun.eventId]);
  expect(answer.text).toBe('After the restart.');
});

test('with its database deleted, what the room shows as answered is not answered again, and new words are (G2)', async () => {
  const oracle = await world.oracle();
  const first = await oracle.startProcess();
  const talk = await (await world.person()).direct(oracle);
  oracle.model.respond(({ lastUserText }) => textReply(`Re: ${lastUserText}`));
  const answers = [await talk.ask('one'), await talk.ask('two')];
  const events = await Promise.all(
    answers.map(async ({ prompt }) => ({ ...(await talk.person.client.getEvent(talk.roomId, prompt)), room_id: talk.roomId })),
  );

  await first.kill('SIGKILL');
  await oracle.loseData();
  await oracle.startProcess();
  // The homeserver might even send them again.
  expect((await oracle.push({ events: events as never })).status).toBe(200);

  expect((await talk.ask('three')).text).toBe('Re: three');
  expect(textsAt(oracle.model)).toEqual(['one', 'two', 'three']);
  expect(messagesIn(await talk.history(), oracle.userId)).toHaveLength(3);
});

test('with its database deleted in mid-stream, the half answer is ended with a marker and the room goes on (G5)', async () => {
  const oracle = await world.oracle();
  const first = await oracle.startProcess();
  const talk = await (await world.person()).direct(oracle);
  oracle.model.enqueue(heldReply(createGate(), HEAD, TAIL), textReply('A new beginning.'));
  const prompt = await talk.say('Tell me.');
  const begun = await talk.watch.waitUntil(() => talk.watch.answersTo(prompt)[0]);

  await first.kill('SIGKILL');
  await oracle.loseData();
  await oracle.startProcess();

  const ended = await talk.answerTo(prompt);
  expect(ended.status).toBe('interrupted');
  expect(ended.parts.map(({ eventId }) => eventId)).toEqual([begun.eventId]);
  expect(ended.text).toMatch(/^The first half.*\*This answer was interrupted and could not be continued\.\*$/su);
  expect((await talk.ask('Again, please.')).text).toBe('A new beginning.');
  expect(messagesIn(await talk.history(), oracle.userId)).toHaveLength(2);
});
