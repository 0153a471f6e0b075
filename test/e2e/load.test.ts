/** Many at once: rooms side by side without mixing them up, prompts of one room one after the other, bots that must not feed on each other. */
import { expect, test } from 'vitest';
import { createGate, heldReply, textReply } from '../../synapse-dev/model/reply.ts';
import { errorOf, eventually, isMembership, messagesIn, newTexts, textsAt, useWorld } from './harness.ts';

const world = useWorld({ oracles: 7 });

test('20 rooms at once get 20 right answers, none in the wrong room (G3, G13)', async () => {
  const oracle = await world.oracle();
  await oracle.start();
  const all = createGate();
  oracle.model.respond((request) => heldReply(all, 'The answer to ', newTexts(request).join('|')));
  const talks = await Promise.all(Array.from({ length: 20 }, async () => (await world.person()).direct(oracle)));

  const asked = Promise.all(talks.map((talk, index) => talk.ask(`question ${index}`)));
  // They run side by side: no answer goes on before all 20 have begun.
  await oracle.model.waitForRequest(20, 30_000);
  all.release();
  const answers = await asked;

  expect(answers.map(({ text }) => text)).toEqual(talks.map((_, index) => `The answer to question ${index}`));
  const histories = await Promise.all(talks.map((talk) => talk.history()));
  expect(histories.map((history) => messagesIn(history, oracle.userId).length)).toEqual(talks.map(() => 1));
  for (const [index, history] of histories.entries()) {
    const said = history.filter(({ sender, type }) => sender === oracle.userId && type === 'm.room.message');
    const words = said.flatMap(({ content }) => JSON.stringify(content).match(/question \d+/gu) ?? []);
    expect(new Set(words)).toEqual(new Set([`question ${index}`]));
  }
});

test('10 quick prompts in one direct room each reach the model once, in order, and each is named by an answer (G2, G3)', async () => {
  const oracle = await world.oracle();
  await oracle.start();
  oracle.model.respond((request) => textReply(`Re: ${newTexts(request).join(', ')}`, { pace: { tokensPerSecond: 100 } }));
  const talk = await (await world.person()).direct(oracle);
  const texts = Array.from({ length: 10 }, (_, index) => `prompt ${index}`);

  const prompts: string[] = [];
  for (const text of texts) prompts.push(await talk.say(text));
  const answers = await Promise.all(prompts.map((prompt) => talk.answerTo(prompt)));

  expect(textsAt(oracle.model)).toEqual(texts);
  expect(answers.map(({ prompts: named }, index) => named.includes(prompts[index] ?? ''))).toEqual(texts.map(() => true));
  for (const [index, { text }] of answers.entries()) expect(text).toContain(`prompt ${index}`);
  const shown = oracle.model.requests
    .at(-1)
    ?.chat?.messages.filter(({ role }) => role === 'user')
    .map(({ text }) => text);
  expect(shown).toEqual(texts);
});

test('past RATE_LIMIT one notice is said and the model is not called (G8)', async () => {
  const oracle = await world.oracle();
  await oracle.start({ RATE_LIMIT: '3' });
  oracle.model.respond(() => textReply('Fine.'));
  const talk = await (await world.person()).direct(oracle);
  for (const text of ['one', 'two', 'three']) await talk.ask(text);

  const refused = [await talk.say('four'), await talk.say('five'), await talk.say('six')];
  await oracle.waitForLog(({ event_id, type }) => event_id === refused[2] && type === 'refused');

  const notice = await talk.notice('RATE_LIMITED');
  expect(errorOf(notice.content)).toMatchObject({ status: 429, retryable: true });
  expect(textsAt(oracle.model)).toEqual(['one', 'two', 'three']);
  expect(notice.inReplyTo).toBe(refused[0]);
  // Somebody else is not slowed down; what the oracle says there comes after anything it could still say here.
  const other = await (await world.person()).direct(oracle);
  expect((await other.ask('hello')).text).toBe('Fine.');
  expect(messagesIn(await talk.history(), oracle.userId).filter(({ content }) => content['msgtype'] === 'm.notice')).toHaveLength(1);
});

test('a bot that answers everything at once stops getting answers by itself, and a person in another room does not', async () => {
  const oracle = await world.oracle();
  await oracle.start({ RATE_LIMIT: '1000', BOT_HOP_BUDGET: '6' });
  oracle.model.respond(({ lastUserText }) => textReply(`I heard ${lastUserText}`));
  const bot = await world.person({ listed: true });
  const talk = await bot.direct(oracle);
  const answered = new Set<string>();
  const sent: string[] = [];
  // It answers whatever the oracle says, notices included.
  talk.watch.onChange(() => {
    for (const { eventId, live, text } of talk.watch.answers(oracle.userId)) {
      if (live || answered.has(eventId)) continue;
      answered.add(eventId);
      void talk.say(`pong to ${text.length}`).then((id) => sent.push(id));
    }
  });

  sent.push(await talk.say('ping'));
  await oracle.waitForLog(({ reason }) => reason === 'bot_loop');

  const calls = oracle.model.requests.length;
  expect(calls).toBeGreaterThanOrEqual(6);
  expect(calls).toBeLessThanOrEqual(8);
  const person = await (await world.person()).direct(oracle);
  expect((await person.ask('Am I heard?')).text).toBe('I heard Am I heard?');
  expect(oracle.model.requests).toHaveLength(calls + 1);
});

test('a bot that answers its own refusals is told once and then only shown that it was seen', async () => {
  const oracle = await world.oracle();
  await oracle.start();
  const bot = await world.person();
  const talk = await bot.direct(oracle);
  const answered = new Set<string>();
  const sent: string[] = [];
  const say = async () => void sent.push(await bot.client.sendText(talk.roomId, `sorry ${sent.length}`));
  talk.watch.onChange(() => {
    for (const { event } of talk.watch.events) {
      if (event.sender !== oracle.userId || event.state_key !== undefined || event.type === 'm.reaction' || answered.has(event.event_id))
        continue;
      answered.add(event.event_id);
      void say();
    }
  });

  await say();
  await talk.notice('NO_AUTHORITY');
  await eventually(() => sent.length === 2);
  await oracle.waitForLog(({ event_id, type }) => event_id === sent[1] && type === 'refused');
  await talk.watch.waitFor(({ event }) => event.type === 'm.reaction' && event.sender === oracle.userId);

  const said = messagesIn(await talk.history(), oracle.userId);
  expect(said).toHaveLength(1);
  expect(oracle.model.requests).toHaveLength(0);
});

test('two oracles in one room do not answer each other, refusal notices included', async () => {
  const [one, two] = [await world.oracle(), await world.oracle()];
  const person = await world.person({ listed: true });
  // Each may write to the other unsigned or is refused with a notice: both must end.
  await one.start({ UNSIGNED_USERS: '@*:oracle.local' });
  await two.start();
  one.model.respond(() => textReply(`Ask ${two.userId} as well.`));
  two.model.respond(() => textReply(`Ask ${one.userId} as well.`));
  const talk = await person.group(one);
  await person.client.invite(talk.roomId, two.userId);
  await talk.watch.waitFor(({ event }) => isMembership(event, two.userId, 'join'));
  const both = await person.talk(talk.roomId, two);

  const prompt = await talk.say('Hello you two', { 'm.mentions': { user_ids: [one.userId, two.userId] } });
  await eventually(() => one.model.requests.length + two.model.requests.length >= 2);
  await talk.watch.waitUntil(() => talk.watch.answersTo(prompt).length === 2 && talk.watch.answersTo(prompt).every(({ live }) => !live));
  // Another round: whatever they would have said to the first answers comes before these.
  await talk.ask('And again', { 'm.mentions': { user_ids: [one.userId] } });
  await both.ask('And again', { 'm.mentions': { user_ids: [two.userId] } });

  expect([one.model.requests.length, two.model.requests.length]).toEqual([2, 2]);
  expect([...talk.notices('NO_AUTHORITY'), ...both.notices('NO_AUTHORITY')]).toEqual([]);
});
