/**
 * Room keys that take another way or another time than their messages: the oracle is away, its endpoint fails, the key is late, the key store is lost.
 * Whatever it is, a message whose key was shared is read after all, and the oracle stays who it is.
 */
import { rm } from 'node:fs/promises';
import { createServer } from 'node:http';
import { join } from 'node:path';
import { afterEach, expect, test } from 'vitest';
import { createGate, heldReply, textReply } from '../../synapse-dev/model/reply.ts';
import { type FaultProxy, openFaultProxy, type Passing } from '../fakes/fault-proxy.ts';
import { positionsOf } from './crypto-ciphertext.ts';
import { useCryptoWorld } from './crypto-world.ts';
import { eventually, newTexts, type TestOracle, textsAt } from './harness.ts';

const world = useCryptoWorld({ oracles: 10 });
const proxies: FaultProxy[] = [];
afterEach(async () => {
  for (const proxy of proxies.splice(0)) await proxy.close();
});

async function startEcho(): Promise<TestOracle> {
  const oracle = await world.oracle();
  await oracle.start();
  oracle.model.respond((request) => textReply(`Re: ${newTexts(request).join(', ')}`));
  return oracle;
}

test('a key that is shared while the oracle is down is there when it is back, and so is the answer', async () => {
  const oracle = await startEcho();
  const person = await world.person();
  const talk = await person.direct(oracle);
  await talk.ask('one');

  await oracle.stop();
  await person.client.discardSession(talk.roomId);
  const prompts = [await talk.say('two'), await talk.say('three')];
  await oracle.start();
  const answers = await Promise.all(prompts.map((prompt) => talk.answerTo(prompt)));

  expect(answers.map(({ status }) => status)).toEqual(['completed', 'completed']);
  expect(textsAt(oracle.model)).toEqual(['one', 'two', 'three']);
});

test('a key that is shared while its endpoint answers 500 is not lost with the transaction', async () => {
  const oracle = await startEcho();
  const person = await world.person();
  const talk = await person.direct(oracle);
  await talk.ask('one');
  await oracle.stop();
  const broken = createServer((_, response) => response.writeHead(500).end('{}'));
  await new Promise<void>((resolve) => broken.listen(Number(new URL(oracle.registration.url).port), '127.0.0.1', resolve));

  await person.client.discardSession(talk.roomId);
  const asked = new Promise((resolve) => broken.once('request', resolve));
  const prompt = await talk.say('two');
  await asked;
  broken.closeAllConnections();
  await new Promise((resolve) => broken.close(resolve));
  await oracle.start();

  expect((await talk.answerTo(prompt)).text).toBe('Re: two');
});

test('a message that came before its key is answered when the key is there, and what was said after it was not held up', async () => {
  const oracle = await startEcho();
  const proxy = await openFaultProxy({ target: () => world.homeserver.baseUrl });
  proxies.push(proxy);
  const person = await world.person({ through: proxy.url });
  const talk = await person.direct(oracle);
  const other = await (await world.person()).direct(oracle);
  await talk.ask('one');
  const isKey = ({ path }: Passing): boolean => path.includes('/sendToDevice/m.room.encrypted/');
  proxy.plan((passing) => (isKey(passing) ? { kind: 'swallow' } : undefined));

  await person.client.discardSession(talk.roomId);
  const late = await talk.say('two');
  await oracle.waitForLog(({ event_id, type }) => event_id === late && type === 'parked');
  proxy.heal();
  const sent = proxy.seen.filter(isKey).at(-1);
  await person.client.discardSession(talk.roomId);
  const next = await talk.ask('three');
  if (sent === undefined) throw new Error('no key was sent');
  await proxy.resend(sent);
  const answer = await talk.answerTo(late);

  expect(next.text).toBe('Re: three');
  expect(answer.text).toBe('Re: two');
  expect(talk.notices('CANNOT_READ')).toEqual([]);
  expect((await other.ask('four')).status).toBe('completed');
});

test('with its key store lost it is the same oracle with another device: no warning, and the conversation goes on', async () => {
  const oracle = await startEcho();
  const person = await world.person();
  const talk = await person.direct(oracle);
  await talk.ask('one');
  const keyed = async () => (await person.client.devices(oracle.userId)).filter(({ fingerprint }) => fingerprint !== undefined);
  const [before] = await keyed();

  await oracle.stop();
  for (const suffix of ['', '-wal', '-shm']) await rm(join(oracle.dataDir, `crypto.db${suffix}`), { force: true });
  await oracle.start();
  await oracle.waitForLog(({ msg }) => msg === 'ready');
  const after = await eventually(async () => {
    const devices = await keyed();
    return devices.length === 1 && devices[0]?.deviceId !== before?.deviceId && devices;
  });
  const answer = await talk.ask('two');

  expect(after).toEqual([expect.objectContaining({ signedByOwner: true })]);
  expect(answer.text).toBe('Re: two');
  for (const { eventId } of answer.versions) {
    expect(await person.client.shield(talk.roomId, eventId)).toEqual({ colour: 'none', reason: null });
  }
  expect(await person.client.userTrust(oracle.userId)).toMatchObject({ needsUserApproval: false });
});

test('a session that the person discards costs nothing: the next message brings its key', async () => {
  const oracle = await startEcho();
  const person = await world.person();
  const talk = await person.direct(oracle);

  for (const text of ['one', 'two', 'three']) {
    await person.client.discardSession(talk.roomId);
    expect((await talk.ask(text)).text).toBe(`Re: ${text}`);
  }
});

test('an identity that is only on the homeserver stops the start with a sentence that says what to do, and nothing is changed', async () => {
  const oracle = await startEcho();
  const person = await world.person();
  const talk = await person.direct(oracle);
  await talk.ask('one');
  await oracle.stop();
  for (const name of ['crypto.db', 'crypto.db-wal', 'crypto.db-shm', 'crypto-identity.json'])
    await rm(join(oracle.dataDir, name), { force: true });

  await expect(oracle.start()).rejects.toThrow(/matrix-oracle crypto (?:import|new-identity)/u);
  await oracle.stop();

  expect(await person.client.userTrust(oracle.userId)).toMatchObject({ needsUserApproval: false });
});

test('a key store whose key file is gone is not opened, and the start says which file is missing', async () => {
  const oracle = await startEcho();
  await oracle.stop();
  await rm(join(oracle.dataDir, 'crypto.key'));

  await expect(oracle.start()).rejects.toThrow(/crypto\.key|CRYPTO_KEY_FILE/u);
  await oracle.stop();
});

test('a homeserver that is killed and comes back in the middle of an encrypted answer: the answer ends in the same message, readable', async () => {
  const oracle = await world.oracle();
  await oracle.start();
  const gate = createGate();
  oracle.model.enqueue(heldReply(gate, 'The first half of the answer, ', 'and its second half.'), textReply('And on we go.'));
  const person = await world.person();
  const talk = await person.direct(oracle);
  const prompt = await talk.say('Tell me.');
  const begun = await talk.watch.waitUntil(() => talk.watch.answersTo(prompt)[0]);

  await world.homeserver.kill();
  gate.release();
  await world.homeserver.start();
  const answer = await talk.answerTo(prompt, 60_000);

  expect(answer.parts.map(({ eventId }) => eventId)).toEqual([begun.eventId]);
  expect(answer.text).toBe('The first half of the answer, and its second half.');
  await person.client.discardSession(talk.roomId);
  expect((await talk.answerTo(await talk.say('Go on.'), 60_000)).text).toBe('And on we go.');
});

test('the room says how often keys change, and the oracle keeps to it', async () => {
  const oracle = await startEcho();
  const person = await world.person();
  const encryption = { algorithm: 'm.megolm.v1.aes-sha2', rotation_period_msgs: 3 };
  const roomId = await person.client.wire.createRoom({
    preset: 'trusted_private_chat',
    is_direct: true,
    invite: [oracle.userId],
    initial_state: [{ type: 'm.room.encryption', state_key: '', content: encryption }],
  });
  await person.client.knowsEncryption(roomId);
  const talk = await person.talk(roomId, oracle);
  await talk.joined();

  for (const text of ['one', 'two', 'three', 'four', 'five']) await talk.ask(text);

  const positions = positionsOf(await talk.history(), oracle.userId);
  expect(new Set(positions.map(({ session }) => session)).size).toBe(Math.ceil(positions.length / 3));
  expect(Math.max(...positions.map(({ index }) => index))).toBe(2);
  expect(person.client.unreadable(roomId)).toEqual([]);
});
