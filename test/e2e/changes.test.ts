/** What people do while the oracle is at work: take a message back, correct it, throw the oracle out, invite it again, leave the room to others. */
import { expect, test } from 'vitest';
import type { JsonObject } from '../../src/json.ts';
import { createGate, heldReply, textReply } from '../../synapse-dev/model/reply.ts';
import { eventually, isMembership, messagesIn, newTexts, sign, type Talk, textsAt, useWorld } from './harness.ts';

const world = useWorld({ oracles: 6 });

async function room(): Promise<{ oracle: Awaited<ReturnType<typeof world.oracle>>; talk: Talk }> {
  const oracle = await world.oracle();
  await oracle.start();
  oracle.model.respond((request) => textReply(`Re: ${newTexts(request).join(', ')}`));
  return { oracle, talk: await (await world.person()).direct(oracle) };
}
const editOf = (target: string, body: string): JsonObject => ({
  msgtype: 'm.text',
  body: `* ${body}`,
  'm.new_content': { msgtype: 'm.text', body },
  'm.relates_to': { rel_type: 'm.replace', event_id: target },
});

test('a prompt that is taken back while it is answered stops the answer, and the next one works (G9, G15)', async () => {
  const { oracle, talk } = await room();
  const middle = createGate();
  oracle.model.enqueue(heldReply(middle, 'The first half of a longer answer, ', 'and the rest.'));
  const prompt = await talk.say('my secret question');
  await talk.watch.waitUntil(() => talk.watch.answersTo(prompt)[0]);

  await talk.person.client.redact(talk.roomId, prompt);

  const ended = await talk.answerTo(prompt);
  expect(ended.status).toBe('cancelled');
  const request = await oracle.model.waitForRequest(({ ended: how }) => how !== undefined);
  expect(request.ended).toBe('client_disconnected');
  expect((await talk.ask('something else')).text).toBe('Re: something else');
  const shown = JSON.stringify(oracle.model.requests.at(-1)?.body);
  expect(shown).not.toContain('my secret question');
  expect(JSON.stringify(oracle.rows('select text from transcript'))).not.toContain('my secret question');
});

test('a prompt corrected before its turn is answered as corrected; one corrected later is not answered again', async () => {
  const { oracle, talk } = await room();
  const { key, userId, client } = talk.person;
  if (key === null) throw new Error('this person signs');
  const gate = createGate();
  oracle.model.enqueue(heldReply(gate, 'A first answer that takes its time ', 'until now.'));
  const first = await talk.say('first');
  await gate.reached;
  const second = await talk.say('secnod');
  await oracle.waitForLog(({ event_id, type }) => event_id === second && type === 'admitted');
  const correct = (target: string, body: string) =>
    client.send(talk.roomId, sign(key, { oracle, roomId: talk.roomId, sender: userId, content: editOf(target, body), edits: target }));

  const correction = await correct(second, 'second');
  await oracle.waitForLog(({ event_id, type }) => event_id === correction && type !== undefined);
  gate.release();

  expect((await talk.answerTo(second)).text).toBe('Re: second');
  await correct(first, 'first, but better');
  await talk.ask('third');
  expect(textsAt(oracle.model)).toEqual(['first', 'second', 'third']);
});

test('thrown out in mid-answer it goes on with others, and invited again it answers there again', async () => {
  const { oracle, talk: usual } = await room();
  // A room in which the person has more power than the oracle: nobody can throw out his equal.
  const options = { preset: 'private_chat', is_direct: true, invite: [oracle.userId] };
  const talk = await usual.person.talk(await usual.person.client.createRoom(options), oracle);
  await talk.joined();
  const middle = createGate();
  oracle.model.enqueue(heldReply(middle, 'The first half of a longer answer, ', 'and the rest.'));
  const prompt = await talk.say('go on');
  await talk.watch.waitUntil(() => talk.watch.answersTo(prompt)[0]);

  await talk.person.client.kick(talk.roomId, oracle.userId, 'enough');
  await oracle.waitForLog(({ reason, room_id, type }) => reason === 'membership' && room_id === talk.roomId && type === 'ignored');
  middle.release();

  const other = await (await world.person()).direct(oracle);
  expect((await other.ask('still alive?')).text).toBe('Re: still alive?');
  await talk.person.client.invite(talk.roomId, oracle.userId);
  await talk.watch.waitUntil(() => talk.watch.events.filter(({ event }) => isMembership(event, oracle.userId, 'join')).length === 2);
  // An invite that does not say that the room is direct makes it a group.
  const back = await talk.ask('welcome back', { 'm.mentions': { user_ids: [oracle.userId] } });
  expect(back.text).toContain('welcome back');
  expect(back.parts[0]?.threadRoot).toBe(back.prompt);
  expect((await oracle.health())['ready']).toBe(true);
});

test('when a third person comes into a direct room, the oracle speaks only when it is spoken to', async () => {
  const { oracle, talk } = await room();
  await talk.ask('just us');
  const guest = await world.person();
  await talk.person.client.invite(talk.roomId, guest.userId);
  await guest.client.join(talk.roomId);
  const theirs = await guest.talk(talk.roomId, oracle);

  const aside = await talk.say('I was talking to my guest.');
  await oracle.waitForLog(({ event_id, type }) => event_id === aside && type === 'overheard');
  const asked = await theirs.ask('And you, oracle?', { 'm.mentions': { user_ids: [oracle.userId] } });

  expect(asked.parts[0]?.threadRoot).toBe(asked.prompt);
  expect(talk.watch.answersTo(aside)).toEqual([]);
  // A new conversation: what was said between two is not told to the third (G13).
  expect(JSON.stringify(oracle.model.requests.at(-1)?.body)).not.toContain('just us');
  expect(messagesIn(await talk.history(), oracle.userId).filter(({ content }) => content['msgtype'] === 'm.text')).toHaveLength(2);
});

test('two people in one thread of a group each get their own answer, in order (G3)', async () => {
  const oracle = await world.oracle();
  await oracle.start();
  oracle.model.respond((request) => textReply(`Re: ${newTexts(request).join(', ')}`));
  const [one, two] = await Promise.all([world.person(), world.person()]);
  const talk = await one.group(oracle, { invite: [oracle.userId, two.userId] });
  await two.client.join(talk.roomId);
  const theirs = await two.talk(talk.roomId, oracle);
  const mention = { 'm.mentions': { user_ids: [oracle.userId] } };
  const root = await talk.ask('Let us begin.', mention);
  const inThread = { ...mention, 'm.relates_to': { rel_type: 'm.thread', event_id: root.prompt } };

  const prompts = [await talk.say('mine', inThread), await theirs.say('yours', inThread), await talk.say('mine again', inThread)];
  const answers = await Promise.all(prompts.map((prompt) => talk.answerTo(prompt)));

  expect(answers.map(({ prompts: named }) => named)).toEqual(prompts.map((prompt) => [prompt]));
  expect(answers.map(({ text }) => /yours|mine again|mine/u.exec(text)?.[0])).toEqual(['mine', 'yours', 'mine again']);
  expect(answers.every(({ parts }) => parts[0]?.threadRoot === root.prompt)).toBe(true);
  await eventually(() => oracle.model.requests.length === 4);
});
