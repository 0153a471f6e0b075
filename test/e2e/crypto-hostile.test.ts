/**
 * Ciphertexts that somebody means badly, as events of a real room: each is refused with its reason and the room goes on (G14, G17). And what the oracle
 * does when it cannot know whether a room is encrypted: it says nothing (G11).
 */
import { afterEach, expect, test } from 'vitest';
import type { JsonObject } from '../../src/json.ts';
import { createGate, heldReply, textReply } from '../../synapse-dev/model/reply.ts';
import { type FaultProxy, openFaultProxy, type Passing } from '../fakes/fault-proxy.ts';
import { type CryptoPerson, useCryptoWorld } from './crypto-world.ts';
import { eventually, newTexts, type Talk, type TestOracle, textsAt } from './harness.ts';

const world = useCryptoWorld({ oracles: 5 });
const proxies: FaultProxy[] = [];
afterEach(async () => {
  for (const proxy of proxies.splice(0)) await proxy.close();
});

const refused = (oracle: TestOracle, eventId: string, reason: string) =>
  oracle.waitForLog((line) => line['event_id'] === eventId && line['reason'] === reason);
const cipherOf = async (talk: Talk, eventId: string): Promise<JsonObject> =>
  (await talk.person.client.getEvent(talk.roomId, eventId)).content;
const postAs = (person: CryptoPerson, { roomId }: Talk, content: JsonObject): Promise<string> =>
  person.client.wire.send(roomId, content, { type: 'm.room.encrypted' });

test('a replayed, a stolen, a damaged and an unknown ciphertext are refused each with its reason, and the room goes on (G14, G17)', async () => {
  const oracle = await world.oracle();
  await oracle.start();
  oracle.model.respond((request) => textReply(`Re: ${newTexts(request).at(-1)}`));
  const [anna, mallory] = await Promise.all([world.person(), world.person()]);
  const talk = await anna.group(oracle, { invite: [oracle.userId, mallory.userId] });
  await mallory.client.join(talk.roomId);
  const mention = { 'm.mentions': { user_ids: [oracle.userId] } };
  const first = await talk.ask('transfer ten', mention);
  const cipher = await cipherOf(talk, first.prompt);
  const text = String(cipher['ciphertext']);

  await refused(oracle, await postAs(anna, talk, cipher), 'replayed');
  await refused(oracle, await postAs(mallory, talk, cipher), 'forged_sender');
  await refused(oracle, await postAs(anna, talk, { ...cipher, ciphertext: text.slice(0, 12) }), 'malformed');
  await refused(oracle, await postAs(anna, talk, { ...cipher, ciphertext: `${text.slice(0, -8)}AAAAAAAA` }), 'unreadable');
  await refused(oracle, await postAs(anna, talk, { ...cipher, algorithm: 'm.rot13' }), 'unknown_algorithm');
  await refused(oracle, await postAs(anna, talk, { algorithm: 'm.megolm.v1.aes-sha2' }), 'malformed');
  const next = await talk.ask('and good night', mention);

  expect(next.status).toBe('completed');
  expect(textsAt(oracle.model).filter((said) => said.includes('transfer'))).toHaveLength(1);
});

test('a relation that stands only inside the ciphertext moves nothing: the message is answered as it stands in the room', async () => {
  const oracle = await world.oracle();
  await oracle.start();
  oracle.model.respond((request) => textReply(`Re: ${newTexts(request).at(-1)}`));
  const proxy = await openFaultProxy({ target: () => world.homeserver.baseUrl });
  proxies.push(proxy);
  const person = await world.person({ listed: true, through: proxy.url });
  const talk = await person.direct(oracle);
  const first = await talk.ask('one');
  const isSend = ({ path }: Passing): boolean => path.includes('/send/m.room.encrypted/');
  proxy.plan((passing) => (isSend(passing) ? { kind: 'answer', status: 200, body: { event_id: '$never' } } : undefined));

  await person.client.sendText(talk.roomId, 'two', { content: { 'm.relates_to': { rel_type: 'm.thread', event_id: first.prompt } } });
  proxy.heal();
  const { 'm.relates_to': relation, ...sealed } = JSON.parse(String(proxy.seen.findLast(isSend)?.body)) as JsonObject;
  const answer = await talk.answerTo(await postAs(person, talk, sealed));

  expect(relation).toMatchObject({ rel_type: 'm.thread' });
  expect(answer.text).toBe('Re: two');
  expect(answer.parts[0]?.threadRoot).toBeUndefined();
});

test('a message whose key never comes holds nobody up, and after a minute its sender is asked to send it again, once', async () => {
  const oracle = await world.oracle();
  await oracle.start();
  oracle.model.respond((request) => textReply(`Re: ${newTexts(request).at(-1)}`));
  const person = await world.person();
  const talk = await person.direct(oracle);
  await talk.ask('one');
  // A session of another room, whose key the oracle has never got.
  const elsewhere = await person.client.createRoom();
  const secrets = [await person.client.sendText(elsewhere, 'a'), await person.client.sendText(elsewhere, 'b')];
  const sealed = await Promise.all(secrets.map(async (id) => (await person.client.getEvent(elsewhere, id)).content));

  const unreadable: string[] = [];
  for (const content of sealed) unreadable.push(await postAs(person, talk, content));
  const next = await talk.ask('two');
  const notice = await talk.notice('CANNOT_READ', 90_000);

  expect(next.text).toBe('Re: two');
  expect(notice.text).toMatch(/send it again/u);
  expect(person.client.sawEncrypted(notice.eventId)).toBe(true);
  await talk.ask('three');
  expect(talk.notices('CANNOT_READ')).toHaveLength(1);
}, 180_000);

test('while the state of a room cannot be had, nothing is sent in the clear, and all of it is sent encrypted afterwards (G11)', async () => {
  const oracle = await world.oracle();
  const proxy = await openFaultProxy({ target: () => world.homeserver.baseUrl });
  proxies.push(proxy);
  await oracle.start({ MATRIX_BASE_URL: proxy.url });
  oracle.model.enqueue(
    heldReply(createGate(), 'The first half of the answer, ', 'cut off.'),
    textReply('All of the answer.'),
    textReply('Yes.'),
  );
  const talk = await (await world.person()).direct(oracle);
  const begun = await talk.say('Tell me.');
  await talk.watch.waitUntil(() => talk.watch.answersTo(begun)[0]);
  // With an answer to go on with, and nothing known of the room any more.
  await oracle.stop();
  oracle.change('DELETE FROM encrypted_rooms');
  let lookups = 0;
  proxy.plan(({ method, path }) => {
    if (method !== 'GET' || !/\/rooms\/[^/]+\/(?:state|members|joined_members)/u.test(path)) return undefined;
    lookups += 1;
    return { kind: 'answer', status: 500, body: { errcode: 'M_UNKNOWN', error: 'no' } };
  });
  await oracle.start({ MATRIX_BASE_URL: proxy.url });

  const prompt = await talk.say('Are you there?');
  await eventually(() => lookups >= 5);
  const meanwhile = await talk.history();
  proxy.heal();
  const answers = [await talk.answerTo(begun, 60_000), await talk.answerTo(prompt, 60_000)];

  expect(meanwhile.at(-1)?.sender).toBe(talk.person.userId);
  expect(answers.map(({ text }) => text)).toEqual(['All of the answer.', 'Yes.']);
  expect((await talk.history()).filter(({ type }) => type === 'm.room.message')).toEqual([]);
});

test('a homeserver that shows a room as not encrypted gets no answer to an encrypted message in the clear (G11)', async () => {
  const oracle = await world.oracle();
  const proxy = await openFaultProxy({ target: () => world.homeserver.baseUrl });
  proxies.push(proxy);
  await oracle.start({ MATRIX_BASE_URL: proxy.url });
  oracle.model.respond((request) => textReply(`Re: ${newTexts(request).at(-1)}`));
  const person = await world.person();
  const talk = await person.direct(oracle);
  await talk.ask('one');
  const path = `/_matrix/client/v3/rooms/${encodeURIComponent(talk.roomId)}/state`;
  const state = await person.client.wire.request<JsonObject[]>('GET', path);
  await oracle.stop();
  oracle.change('DELETE FROM encrypted_rooms');
  const shown = state.filter(({ type }) => type !== 'm.room.encryption');
  proxy.plan((passing) => (passing.path.split('?')[0] === path ? { kind: 'answer', status: 200, body: shown } : undefined));
  await oracle.start({ MATRIX_BASE_URL: proxy.url });

  const next = await talk.ask('two');

  expect(next.text).toBe('Re: two');
  expect(shown.length).toBeGreaterThan(0);
  expect((await talk.history()).filter(({ type }) => type === 'm.room.message')).toEqual([]);
});
