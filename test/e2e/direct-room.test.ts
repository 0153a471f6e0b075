/**
 * A person, a direct room, and an answer that grows: the promise of the README, and everything that can be wrong with a message or a model
 * while the oracle itself is well.
 */
import { setTimeout as wait } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { buildLongAnswer } from '../../synapse-dev/model/persona-texts.ts';
import { textReply } from '../../synapse-dev/model/reply.ts';
import { errorOf, eventually, isMembership, messagesIn, textsAt, useWorld } from './harness.ts';

const world = useWorld({ oracles: 13 });

test('an invited oracle joins and streams its answer as edits of one message, whose last version is exactly what the model wrote', async () => {
  const oracle = await world.oracle();
  await oracle.start();
  const person = await world.person();
  const written =
    'The sea is **calm** tonight. The tide is full, the moon lies fair upon the straits; and on the French coast the light gleams.';
  oracle.model.enqueue(textReply(written, { pace: { tokensPerSecond: 8 } }));
  const talk = await person.direct(oracle);

  const answer = await talk.ask('Say something long.');

  expect(answer.versions.length).toBeGreaterThanOrEqual(3);
  expect(answer.parts).toHaveLength(1);
  expect(answer.text).toBe(written);
  expect(answer.status).toBe('completed');
  expect(answer.prompts).toEqual([answer.prompt]);
  for (const [index, { text }] of answer.versions.entries()) {
    const next = answer.versions[index + 1]?.text ?? written;
    expect(next.startsWith(text.trimEnd().replace(/\*+$/u, '')), `version ${index} is a beginning of the next`).toBe(true);
  }
  expect(answer.parts[0]?.content).toMatchObject({ msgtype: 'm.text', format: 'org.matrix.custom.html' });
  expect(messagesIn(await talk.history(), oracle.userId)).toHaveLength(1);
  expect(talk.watch.typing.some(({ userIds }) => userIds.includes(oracle.userId))).toBe(true);
  await talk.watch.waitUntil(() => talk.watch.typing.at(-1)?.userIds.length === 0);
});

test('a conversation goes on: the model is shown what was said before', async () => {
  const oracle = await world.oracle();
  await oracle.start();
  const talk = await (await world.person()).direct(oracle);
  oracle.model.respond(({ lastUserText }) => textReply(`I heard: ${lastUserText}`));

  await talk.ask('My name is Ada.');
  const second = await talk.ask('What is my name?');

  expect(second.text).toBe('I heard: What is my name?');
  expect(
    oracle.model.requests
      .at(-1)
      ?.chat?.messages.filter(({ role }) => role !== 'system')
      .map(({ role, text }) => [role, text]),
  ).toEqual([
    ['user', 'My name is Ada.'],
    ['assistant', 'I heard: My name is Ada.'],
    ['user', 'What is my name?'],
  ]);
});

test('"hello" typed between the invite and the join is answered', async () => {
  const oracle = await world.oracle();
  const person = await world.person();
  // Its account must exist to be invited: it has run before, and is down now.
  await oracle.start();
  await oracle.stop();
  const talk = await person.talk(await person.client.createDirectRoom(oracle.userId), oracle);
  oracle.model.respond(({ lastUserText }) => textReply(`You said ${lastUserText}.`));
  const hello = await talk.say('hello');
  const more = await talk.say('are you there?');

  await oracle.start();
  const first = await talk.answerTo(hello);
  const second = await talk.answerTo(more);

  expect(first.prompts).toContain(hello);
  expect(second.prompts).toContain(more);
  expect(textsAt(oracle.model)).toEqual(['hello', 'are you there?']);
});

test('an invite sent while the oracle was down is accepted when it is back (G1)', async () => {
  const oracle = await world.oracle();
  await oracle.start();
  await oracle.stop();
  const person = await world.person();
  const talk = await person.talk(await person.client.createDirectRoom(oracle.userId), oracle);
  expect(talk.watch.events.some(({ event }) => isMembership(event, oracle.userId, 'join'))).toBe(false);

  await oracle.start();

  await talk.joined();
  expect((await talk.ask('Are you in?')).status).toBe('completed');
});

test('somebody who neither signs nor is listed gets one 401 notice and no model call (G8)', async () => {
  const oracle = await world.oracle();
  await oracle.start();
  const person = await world.person();
  const talk = await person.direct(oracle);

  const prompt = await person.client.sendText(talk.roomId, 'Can you hear me?');
  const notice = await talk.notice('NO_AUTHORITY');

  expect(errorOf(notice.content)).toMatchObject({ status: 401, code: 'NO_AUTHORITY', retryable: false });
  expect(notice.content).toMatchObject({ msgtype: 'm.notice', 'ixo.oracle.delegation_required': { oracleDid: oracle.did } });
  expect(notice.inReplyTo).toBe(prompt);
  await person.client.sendText(talk.roomId, 'And now?');
  await talk.watch.waitFor(({ event }) => event.type === 'm.reaction' && event.sender === oracle.userId);
  expect(talk.notices('NO_AUTHORITY')).toHaveLength(1);
  expect(oracle.model.requests).toHaveLength(0);
  // Control: signed, the same words reach the model.
  expect((await talk.ask('Can you hear me?')).status).toBe('completed');
});

test('a listed person may write unsigned', async () => {
  const oracle = await world.oracle();
  await oracle.start();
  const talk = await (await world.person({ listed: true })).direct(oracle);
  oracle.model.enqueue(textReply('Welcome.'));

  expect((await talk.ask('hello')).text).toBe('Welcome.');
});

test('a signed message copied by another member is refused (G8)', async () => {
  const oracle = await world.oracle();
  await oracle.start();
  const [author, thief] = await Promise.all([world.person(), world.person()]);
  const talk = await author.direct(oracle);
  const content = talk.content('Move my money.');
  await author.client.send(talk.roomId, content);
  await eventually(() => oracle.model.requests.length === 1);
  await author.client.invite(talk.roomId, thief.userId);
  await thief.client.join(talk.roomId);
  const copied = { ...content, 'm.mentions': { user_ids: [oracle.userId] } };

  await thief.client.send(talk.roomId, { ...copied, 'm.relates_to': {} });
  const changed = await talk.notice('WRONG_SENDER');

  expect(errorOf(changed.content)).toMatchObject({ status: 401 });
  // In a room of the thief's own, where it need not be changed to be addressed to the oracle.
  const own = await thief.direct(oracle);
  await thief.client.send(own.roomId, content);
  expect(errorOf((await own.notice('WRONG_ROOM')).content)).toMatchObject({ status: 401 });
  expect(oracle.model.requests).toHaveLength(1);
});

test('a token used for a second message of its own author is refused, and a bad token of a listed person is not downgraded (G8)', async () => {
  const oracle = await world.oracle();
  await oracle.start();
  const person = await world.person();
  const talk = await person.direct(oracle);
  const content = talk.content('Once.');
  await talk.answerTo(await person.client.send(talk.roomId, content));

  await person.client.send(talk.roomId, content);

  expect(errorOf((await talk.notice('REPLAY')).content)).toMatchObject({ status: 401 });
  expect(oracle.model.requests).toHaveLength(1);
  const listed = await world.person({ listed: true });
  const theirs = await listed.direct(oracle);
  const token = talk.content('hello')['ixo.oracle.ucan'] as { v: 1; inv: string };
  await theirs.say('hello', { 'ixo.oracle.ucan': { v: 1, inv: `${token.inv.slice(0, -8)}AAAAAAAA` } });
  expect((await theirs.watch.waitUntil(() => theirs.notices()[0])).content).toMatchObject({ 'ixo.oracle.error': { status: 401 } });
  await theirs.say('hello', { 'ixo.oracle.ucan': { v: 1 } });
  await theirs.watch.waitUntil(() => theirs.notices().length === 2);
  expect(oracle.model.requests).toHaveLength(1);
  // Control: without a token the list is enough.
  expect((await theirs.ask('hello')).status).toBe('completed');
});

test.each(['sse_error', 'reset'] as const)(
  'a model that dies at 60 %% (%s) leaves its text with a marker, and the next turn works (G15)',
  async (how) => {
    const oracle = await world.oracle();
    await oracle.start();
    const talk = await (await world.person()).direct(oracle);
    const words = Array.from({ length: 50 }, (_, index) => `word${index} `);
    oracle.model.enqueue({ kind: 'errorMidStream', text: words, how, fraction: 0.6, pace: { chunkChars: 8, delayMs: 20 } });
    oracle.model.respond(() => textReply('All well again.'));

    const broken = await talk.ask('Count.');

    expect(broken.status).toBe('failed');
    const marker = '\n\n*The answer ends here because something went wrong. Please try again.*';
    expect(broken.text.endsWith(marker)).toBe(true);
    const kept = broken.text.slice(0, -marker.length).trim().split(' ');
    // A reset may take along what lay unread in the socket.
    expect(kept.length).toBeGreaterThanOrEqual(how === 'reset' ? 20 : 30);
    expect(kept).toEqual(words.slice(0, kept.length).map((word) => word.trim()));
    expect(kept.length).toBeLessThanOrEqual(30);
    expect((await talk.ask('Go on.')).text).toBe('All well again.');
  },
);

test('an answer of 100 kB arrives whole and readable in parts, none of which the homeserver refuses', async () => {
  const oracle = await world.oracle();
  await oracle.start();
  const talk = await (await world.person()).direct(oracle);
  const chapters = Array.from({ length: 14 }, (_, index) => `# Chapter ${index}\n\n${buildLongAnswer(`topic ${index}`, 'very long')}`);
  const written = chapters.join('\n\n').slice(0, 100_000);
  expect(Buffer.byteLength(written)).toBeGreaterThan(99_000);
  oracle.model.enqueue(textReply(written, { pace: { chunkChars: 2_000, delayMs: 10 } }));

  const answer = await talk.ask('Tell me everything.');

  expect(answer.parts.length).toBeGreaterThan(5);
  expect(answer.status).toBe('completed');
  expect(answer.parts.map(({ content }) => (content['ixo.oracle.run'] as { part: number }).part)).toEqual(
    answer.parts.map((_, index) => index + 1),
  );
  expect(linesOf(answer.text)).toEqual(linesOf(written));
  for (const { versions } of answer.parts) for (const { event } of versions) expect(JSON.stringify(event).length).toBeLessThan(65_536);
  expect(oracle.log.filter(({ errcode, code }) => (errcode ?? code) === 'M_TOO_LARGE')).toEqual([]);
});

/** A cut inside a fence closes and reopens it, and between blocks it drops an empty line; nothing else may differ. */
const linesOf = (text: string): string[] =>
  text
    .split('\n')
    .map((line) => line.trim())
    .filter((line) => line !== '' && !line.startsWith('```'));

test('what reaches the oracle too late gets one TOO_LATE notice per room and no model call', async () => {
  const oracle = await world.oracle({ MAX_EVENT_LATENESS_S: '1' });
  await oracle.start();
  const talk = await (await world.person()).direct(oracle);
  await oracle.stop();
  const late = await talk.say('are you there?');
  await talk.say('hello?');
  await wait(1_500);

  await oracle.start();

  const notice = await talk.notice('TOO_LATE');
  expect(notice.inReplyTo).toBe(late);
  expect(errorOf(notice.content)).toMatchObject({ status: 503, retryable: true });
  expect((await talk.ask('now you are')).prompts).toHaveLength(1);
  expect(talk.notices()).toHaveLength(1);
  expect(textsAt(oracle.model)).toEqual(['now you are']);
});
