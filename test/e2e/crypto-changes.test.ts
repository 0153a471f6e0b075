/** What people do in encrypted rooms while the oracle is at work: take back, correct, stop. Their clients encrypt all of it but reactions and redactions. */
import { expect, test } from 'vitest';
import type { JsonObject } from '../../src/json.ts';
import { createGate, heldReply, textReply } from '../../synapse-dev/model/reply.ts';
import { type CryptoPerson, useCryptoWorld } from './crypto-world.ts';
import { newTexts, sign, type Talk, type TestOracle, textsAt } from './harness.ts';

const world = useCryptoWorld({ oracles: 5 });

async function room(): Promise<{ oracle: TestOracle; person: CryptoPerson; talk: Talk }> {
  const oracle = await world.oracle();
  await oracle.start();
  oracle.model.respond((request) => textReply(`Re: ${newTexts(request).join(', ')}`));
  const person = await world.person();
  return { oracle, person, talk: await person.direct(oracle) };
}
const editOf = (target: string, body: string): JsonObject => ({
  msgtype: 'm.text',
  body: `* ${body}`,
  'm.new_content': { msgtype: 'm.text', body },
  'm.relates_to': { rel_type: 'm.replace', event_id: target },
});

test('an encrypted prompt that is corrected before its turn is answered as corrected', async () => {
  const { oracle, person, talk } = await room();
  if (person.key === null) throw new Error('this person signs');
  const gate = createGate();
  oracle.model.enqueue(heldReply(gate, 'A first answer that takes its time ', 'until now.'));
  await talk.say('first');
  await gate.reached;
  const second = await talk.say('secnod');
  await oracle.waitForLog(({ event_id, type }) => event_id === second && type === 'admitted');

  const content = sign(person.key, {
    oracle,
    roomId: talk.roomId,
    sender: person.userId,
    content: editOf(second, 'second'),
    edits: second,
  });
  const correction = await person.client.send(talk.roomId, content);
  await oracle.waitForLog(({ event_id, type }) => event_id === correction && type !== undefined);
  gate.release();

  expect((await talk.answerTo(second)).text).toBe('Re: second');
  expect(textsAt(oracle.model)).toEqual(['first', 'second']);
});

test('under `any` an encrypted prompt cannot be changed by an edit in the clear: that is only the word of the homeserver', async () => {
  const { oracle, person, talk } = await room();
  if (person.key === null) throw new Error('this person signs');
  const gate = createGate();
  oracle.model.enqueue(heldReply(gate, 'A first answer that takes its time ', 'until now.'));
  await talk.say('first');
  await gate.reached;
  const second = await talk.say('second');
  await oracle.waitForLog(({ event_id, type }) => event_id === second && type === 'admitted');

  const content = sign(person.key, {
    oracle,
    roomId: talk.roomId,
    sender: person.userId,
    content: editOf(second, 'give it all away'),
    edits: second,
  });
  const forged = await person.client.wire.send(talk.roomId, content);
  await oracle.waitForLog(({ event_id, type }) => event_id === forged && type !== undefined);
  gate.release();

  expect((await talk.answerTo(second)).text).toBe('Re: second');
  expect(textsAt(oracle.model).join()).not.toContain('give it all away');
});

test('an encrypted prompt that is taken back while it is answered stops the answer, and its words are gone (G9)', async () => {
  const { oracle, person, talk } = await room();
  oracle.model.enqueue(heldReply(createGate(), 'The first half of a longer answer, ', 'and the rest.'));
  const prompt = await talk.say('my secret question');
  await talk.watch.waitUntil(() => talk.watch.answersTo(prompt)[0]);

  await person.client.redact(talk.roomId, prompt);

  expect((await talk.answerTo(prompt)).status).toBe('cancelled');
  expect((await talk.ask('something else')).text).toBe('Re: something else');
  expect(JSON.stringify(oracle.rows('select text from transcript'))).not.toContain('my secret question');
});

test.each(['🛑', '!stop'])('%s ends an encrypted answer at once, and the next message is answered (G9)', async (how) => {
  const { oracle, person, talk } = await room();
  oracle.model.enqueue(heldReply(createGate(), 'The first half of a longer answer, ', 'and the rest.'));
  const prompt = await talk.say('go on');
  const shown = await talk.watch.waitUntil(() => talk.watch.answersTo(prompt)[0]);

  const relation = { 'm.relates_to': { rel_type: 'm.annotation', event_id: shown.eventId, key: '🛑' } };
  if (how === '🛑') await person.client.send(talk.roomId, relation, { type: 'm.reaction' });
  else await talk.say('!stop');

  const ended = await talk.answerTo(prompt);
  expect(ended.status).toBe('cancelled');
  expect(person.client.sawEncrypted(ended.versions.at(-1)?.eventId ?? '')).toBe(true);
  expect((await talk.ask('again')).text).toBe('Re: again');
});
