/** What people do to an answer under way, on a real homeserver: stop it by a sign or a word, say more, edit the question. */
import { expect, test } from 'vitest';
import type { JsonObject } from '../../src/json.ts';
import { createGate, heldReply, textReply, toolCallsReply } from '../../synapse-dev/model/reply.ts';
import { newTexts, sign, type Talk, useWorld } from './harness.ts';

const world = useWorld({ oracles: 4 });
const STOPPED = '*Stopped on request.*';

async function room(): Promise<{ oracle: Awaited<ReturnType<typeof world.oracle>>; talk: Talk }> {
  const oracle = await world.oracle();
  await oracle.start();
  oracle.model.respond((request) => textReply(`Re: ${newTexts(request).join(', ')}`));
  return { oracle, talk: await (await world.person()).direct(oracle) };
}

test.each(['🛑', '!stop'])('%s ends the answer at once; its text stays, and the next message is answered (G9, G15)', async (how) => {
  const { oracle, talk } = await room();
  oracle.model.enqueue(heldReply(createGate(), 'The first half of a longer answer, ', 'and the rest.'));
  const prompt = await talk.say('go on');
  const shown = await talk.watch.waitUntil(() => talk.watch.answersTo(prompt)[0]);

  const sign = { 'm.relates_to': { rel_type: 'm.annotation', event_id: shown.eventId, key: '🛑' } };
  if (how === '🛑') await talk.person.client.send(talk.roomId, sign, { type: 'm.reaction' });
  else await talk.say('!stop');

  const ended = await talk.answerTo(prompt);
  expect(ended.status).toBe('cancelled');
  expect(ended.text).toBe(`The first half of a longer answer, \n\n${STOPPED}`);
  const request = await oracle.model.waitForRequest(({ ended: was }) => was !== undefined);
  expect(request.ended).toBe('client_disconnected');
  expect((await talk.ask('something else')).text).toBe('Re: something else');
});

test('what a person says while a tool is used is taken into the same answer (G2)', async () => {
  const { oracle, talk } = await room();
  const gate = createGate();
  oracle.model.enqueue(
    { ...toolCallsReply({ name: 'current_time', args: {} }), text: ['Let me ', 'look.'], holds: [{ gate, before: 1 }] } as never,
    textReply('It is noon, and tea is ready.'),
  );
  const first = await talk.say('what time is it?');
  await gate.reached;
  const second = await talk.say('and is there tea?');
  await oracle.waitForLog(({ event_id, type }) => event_id === second && type === 'admitted');
  gate.release();

  const answer = await talk.answerTo(second);

  expect(answer.prompts).toEqual([first, second]);
  expect(answer.text).toBe('Let me look.\n\nIt is noon, and tea is ready.');
  expect(talk.watch.messages().filter(({ sender }) => sender === oracle.userId)).toHaveLength(1);
});

test('a question that is edited after its answer is answered anew in the same message', async () => {
  const { oracle, talk } = await room();
  const { key, userId, client } = talk.person;
  if (key === null) throw new Error('this person signs');
  const before = await talk.ask('wrnog');
  const body = 'right';
  const content: JsonObject = {
    msgtype: 'm.text',
    body: `* ${body}`,
    'm.new_content': { msgtype: 'm.text', body },
    'm.relates_to': { rel_type: 'm.replace', event_id: before.prompt },
  };

  await client.send(talk.roomId, sign(key, { oracle, roomId: talk.roomId, sender: userId, content, edits: before.prompt }));

  const shown = await talk.watch.waitUntil(() => talk.watch.messages().find(({ text }) => text === 'Re: right'));
  expect(shown.eventId).toBe(before.parts[0]?.eventId);
  expect(talk.watch.messages().filter(({ sender }) => sender === oracle.userId)).toHaveLength(1);
  expect((await talk.ask('and then?')).text).toBe('Re: and then?');
  expect(JSON.stringify(oracle.model.requests.at(-1)?.body)).not.toContain('wrnog');
});
