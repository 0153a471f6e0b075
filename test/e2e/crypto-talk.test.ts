/**
 * What people who encrypt have from the oracle, with a real client (matrix-js-sdk): they ask, all their devices read every version of the answer, no
 * warning stands beside it, and the homeserver holds not a word of it. It has Synapse's experimental flags off, as most homeservers have.
 */
import { expect, test } from 'vitest';
import type { MatrixEvent } from '../../synapse-dev/homeserver/user-client.ts';
import { createGate, heldReply, textReply } from '../../synapse-dev/model/reply.ts';
import { ENCRYPTION, textIn } from './crypto-client.ts';
import { isSealed, useCryptoWorld } from './crypto-world.ts';
import { errorOf, eventually, newTexts, textsAt } from './harness.ts';

const world = useCryptoWorld({ oracles: 12 });

test('asked in an encrypted room it answers there, every edit is read by all devices, and the homeserver has no word of it (G11)', async () => {
  const oracle = await world.oracle();
  await oracle.start();
  const gate = createGate();
  oracle.model.enqueue(heldReply(gate, 'The first half of the answer, ', 'and its second half.'));
  const person = await world.person();
  const phone = await world.device(person);
  const talk = await person.direct(oracle);
  const atPhone = await phone.watchRoom(talk.roomId);

  const prompt = await talk.say('Who reads along?');
  const halves = await Promise.all([talk.watch, atPhone].map((watch) => watch.waitUntil(() => watch.answersTo(prompt)[0])));
  gate.release();
  const answer = await talk.answerTo(prompt);
  const [there] = await atPhone.waitForAnswerTo(prompt);

  expect(halves.map(({ text }) => 'The first half of the answer,'.startsWith(text.trim()))).toEqual([true, true]);
  expect(answer.text).toBe('The first half of the answer, and its second half.');
  expect(there?.versions.map(({ text }) => text)).toEqual(answer.versions.map(({ text }) => text));
  expect(answer.versions.length).toBeGreaterThan(1);
  for (const { eventId } of answer.versions) expect(person.client.sawEncrypted(eventId)).toBe(true);
  expect(oracle.model.requests[0]?.chat?.lastUserText).toContain('Who reads along?');
  const history = await talk.history();
  expect(['reads along', 'half', 'ixo.oracle', 'body'].flatMap((text) => textIn(history, text))).toEqual([]);
  expect(history.filter((event) => isMessage(event)).every(isSealed)).toBe(true);
});

const isMessage = ({ type }: MatrixEvent): boolean => type === 'm.room.message' || type === 'm.room.encrypted';

test('its device is signed by its owner, no message of it has a shield, and a client that talks only to signed devices is answered', async () => {
  const oracle = await world.oracle();
  await oracle.start();
  oracle.model.respond(() => textReply('As ever.'));
  const person = await world.person();
  const talk = await person.direct(oracle);
  await person.client.onlySignedDevices(true);

  const answer = await talk.ask('Is it you?');

  const keyed = (await person.client.devices(oracle.userId)).filter(({ fingerprint }) => fingerprint !== undefined);
  expect(keyed).toEqual([expect.objectContaining({ signedByOwner: true })]);
  for (const { eventId } of answer.versions) {
    expect(await person.client.shield(talk.roomId, eventId)).toEqual({ colour: 'none', reason: null });
  }
  expect(await person.client.userTrust(oracle.userId)).toMatchObject({ known: true, needsUserApproval: false });
});

test('a device that a member adds reads the next answer, and is answered itself', async () => {
  const oracle = await world.oracle();
  await oracle.start();
  oracle.model.respond((request) => textReply(`Re: ${newTexts(request).join(', ')}`));
  const person = await world.person();
  const talk = await person.direct(oracle);
  await talk.ask('one');

  const tablet = await world.device(person);
  const atTablet = await tablet.watchRoom(talk.roomId);
  await tablet.knowsEncryption(talk.roomId);
  const second = await talk.ask('two');
  const third = await tablet.send(talk.roomId, talk.content('three'));

  expect((await atTablet.waitForAnswerTo(second.prompt))[0]?.text).toBe('Re: two');
  expect((await atTablet.waitForAnswerTo(third))[0]?.text).toBe('Re: three');
  expect((await talk.answerTo(third)).text).toBe('Re: three');
});

test('a member who leaves cannot read on', async () => {
  const oracle = await world.oracle();
  await oracle.start();
  oracle.model.respond((request) => textReply(`Re: ${newTexts(request).at(-1)}`));
  const [anna, ben] = await Promise.all([world.person(), world.person()]);
  const talk = await anna.group(oracle, { invite: [oracle.userId, ben.userId] });
  await ben.client.join(talk.roomId);
  await ben.client.knowsEncryption(talk.roomId);
  const mention = { 'm.mentions': { user_ids: [oracle.userId] } };
  const atBen = await ben.client.watchRoom(talk.roomId);
  const read = await talk.ask('one', mention);
  await atBen.waitForAnswerTo(read.prompt);

  await ben.client.leave(talk.roomId);
  await talk.watch.waitFor(({ event }) => event.state_key === ben.userId && event.content['membership'] === 'leave');
  const unread = await talk.ask('two', mention);

  const sealed = await Promise.all(
    [read, unread].map(async ({ parts }) => ben.client.read(talk.roomId, await anna.client.getEvent(talk.roomId, parts[0]?.eventId ?? ''))),
  );
  expect(sealed.map(({ failure }) => failure)).toEqual([undefined, expect.stringMatching(/UNKNOWN|HISTORICAL|USER_NOT_JOINED/u)]);
  expect(unread.text).toContain('two');
});

test('what is not for anybody else is encrypted too: a refusal, a command, a greeting', async () => {
  const oracle = await world.oracle();
  await oracle.start({ RATE_LIMIT: '1' });
  oracle.model.respond(() => textReply('Fine.'));
  const person = await world.person();
  const talk = await person.direct(oracle);
  await talk.ask('one');

  await talk.say('two');
  const refusal = await talk.notice('RATE_LIMITED');
  await talk.say('!verify');
  const fingerprint = await talk.watch.waitUntil(() => talk.notices().find(({ content }) => errorOf(content) === undefined));
  const group = await person.group(oracle);
  const greeting = await group.watch.waitUntil(() => group.notices()[0]);

  for (const { eventId } of [refusal, fingerprint, greeting]) expect(person.client.sawEncrypted(eventId)).toBe(true);
  const stored = [...(await talk.history()), ...(await group.history())];
  expect(stored.filter(({ type, sender }) => sender === oracle.userId && type === 'm.room.message')).toEqual([]);
});

test('two members and two rooms, 20 prompts at once: each is answered where it was asked, by what it said (G3, G13)', async () => {
  const oracle = await world.oracle({ RATE_LIMIT: '1000' });
  await oracle.start();
  oracle.model.respond((request) => textReply(`Re: ${newTexts(request).join(', ')}`));
  const talks = await Promise.all([world.person(), world.person()].map(async (person) => (await person).direct(oracle)));

  const prompts = await Promise.all(
    Array.from({ length: 20 }, async (_, index) => {
      const talk = talks[index % 2];
      if (talk === undefined) throw new Error('two talks');
      return { talk, text: `prompt ${index}.`, id: await talk.say(`prompt ${index}.`) };
    }),
  );
  const answers = await Promise.all(prompts.map(async ({ talk, text, id }) => ({ text, answer: await talk.answerTo(id, 60_000) })));

  for (const { text, answer } of answers) {
    expect(answer.status).toBe('completed');
    expect(answer.text).toContain(text);
  }
  expect(textsAt(oracle.model).toSorted()).toEqual(prompts.map(({ text }) => text).toSorted());
  for (const talk of talks) expect((await talk.history()).filter(({ type }) => type === 'm.room.message')).toEqual([]);
});

test('a room that is turned encrypted while an answer streams: the rest of the answer is encrypted (G11)', async () => {
  const oracle = await world.oracle();
  await oracle.start();
  const gate = createGate();
  oracle.model.enqueue(heldReply(gate, 'What is said in the open, ', 'and a whisper.'));
  const person = await world.person();
  const roomId = await person.client.wire.createRoom({ preset: 'trusted_private_chat', is_direct: true, invite: [oracle.userId] });
  const talk = await person.talk(roomId, oracle);
  await talk.joined();

  const prompt = await talk.say('Speak.');
  await talk.watch.waitUntil(() => talk.watch.answersTo(prompt)[0]);
  await person.client.sendState(roomId, ENCRYPTION.type, ENCRYPTION.content);
  await oracle.waitForLog(({ msg }) => msg === 'ready');
  await eventually(() => oracle.rows('SELECT room_id FROM encrypted_rooms WHERE room_id = ?', roomId).length > 0);
  gate.release();
  const answer = await talk.answerTo(prompt);

  expect(answer.text).toBe('What is said in the open, and a whisper.');
  expect(person.client.sawEncrypted(answer.parts[0]?.eventId ?? '')).toBe(false);
  expect(person.client.sawEncrypted(answer.versions.at(-1)?.eventId ?? '')).toBe(true);
  expect(textIn(await talk.history(), 'whisper')).toEqual([]);
});

test('somebody on the list who does not sign messages is answered in an encrypted room as in any other', async () => {
  const oracle = await world.oracle();
  await oracle.start();
  oracle.model.respond(() => textReply('Good day.'));
  const person = await world.person({ listed: true, crossSigning: false });
  const talk = await person.direct(oracle);

  expect((await talk.ask('Hello?')).text).toBe('Good day.');
});

test('what is said the moment the room is made, before the oracle has come, is answered', async () => {
  const oracle = await world.oracle();
  await oracle.start();
  oracle.model.respond((request) => textReply(`Re: ${newTexts(request).join(', ')}`));
  const person = await world.person();
  // As Element does it: the first message and the invitation are one step.
  const talk = await person.talk(await person.client.createDirectRoom(oracle.userId), oracle);

  const answer = await talk.ask('Hello, are you coming?');

  expect(answer.text).toBe('Re: Hello, are you coming?');
});

test('what was said in an encrypted group before it came is history: not answered, and nobody is asked to send it again', async () => {
  const oracle = await world.oracle();
  await oracle.start();
  oracle.model.respond((request) => textReply(`Re: ${newTexts(request).at(-1)}`));
  const person = await world.person();
  const mention = { 'm.mentions': { user_ids: [oracle.userId] } };
  const roomId = await person.client.createRoom({ preset: 'public_chat' });
  const talk = await person.talk(roomId, oracle);
  const old = [await talk.say('Oracle, are you here?', mention), await talk.say('No?', mention)];

  await person.client.invite(roomId, oracle.userId);
  await talk.joined();
  const fresh = await talk.ask('And now?', mention);

  expect(fresh.text).toContain('And now?');
  expect(old.flatMap((id) => talk.watch.answersTo(id))).toEqual([]);
  expect(oracle.rows("SELECT event_id FROM inbox WHERE state = 'parked'")).toEqual([]);
});

test('an answer of 100 kB goes out in parts that fit when they are encrypted, and is read whole', async () => {
  const oracle = await world.oracle();
  await oracle.start();
  const text = Array.from({ length: 1_000 }, (_, line) => `Line ${line}: ${'äöü "quoted" \\ and so on; '.repeat(4)}`).join('\n\n');
  oracle.model.enqueue(textReply(text));
  const talk = await (await world.person()).direct(oracle);

  const answer = await talk.ask('Tell me everything.');

  expect(answer.status).toBe('completed');
  expect(answer.parts.length).toBeGreaterThan(1);
  expect(answer.text.match(/Line \d+:/gu)).toHaveLength(1_000);
  expect(oracle.rows("SELECT state FROM outbox WHERE state NOT IN ('sent')")).toEqual([]);
});
