/**
 * `kill -9` of the real process in encrypted rooms, with a real client reading: an answer that had begun is finished in the same message, the session
 * goes on, and no message key is ever used twice, whatever the instant. A key that the homeserver has handed over is never lost (research/e2ee.md).
 * The store by itself under a hundred kills: test/crash/crypto-store.test.ts.
 */
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { createGate, heldReply, textReply } from '../../synapse-dev/model/reply.ts';
import { positionsOf } from '../e2e/crypto-ciphertext.ts';
import { type CryptoPerson, useCryptoWorld } from '../e2e/crypto-world.ts';
import { newTexts, type Talk, type TestOracle, textsAt, within } from '../e2e/harness.ts';
import { createKillable } from './killable.ts';

const world = useCryptoWorld({ oracles: 5 });
const HEAD = 'The first half of an answer that takes a while, ';
const TAIL = 'and the second half.';
const ROUNDS = Number(process.env['CRYPTO_KILL_ROUNDS'] ?? 12);

const echo = (oracle: TestOracle): void => oracle.model.respond((request) => textReply(`Re: ${newTexts(request).join(', ')}`));

/** No two ciphertexts of the oracle in one place of a session, nothing in the clear, and all of it readable. */
async function expectSoundCiphertexts({ person, talk, oracle }: { person: CryptoPerson; talk: Talk; oracle: TestOracle }): Promise<void> {
  const history = await talk.history();
  const positions = positionsOf(history, oracle.userId).map(({ session, index }) => `${session} ${index}`);
  expect(new Set(positions).size).toBe(positions.length);
  expect(history.filter(({ type }) => type === 'm.room.message')).toEqual([]);
  expect(person.client.unreadable(talk.roomId)).toEqual([]);
}

test('kill -9 in mid-answer: the same message is finished after the restart, and the session goes on (G4, G5)', async () => {
  const oracle = await world.oracle();
  const first = await oracle.startProcess();
  const person = await world.person();
  const talk = await person.direct(oracle);
  oracle.model.enqueue(heldReply(createGate(), HEAD, TAIL), textReply('Another beginning, and another end.'), textReply('And on we go.'));
  const prompt = await talk.say('Tell me.');
  const begun = await talk.watch.waitUntil(() => talk.watch.answersTo(prompt)[0]);

  await first.kill('SIGKILL');
  await oracle.startProcess();

  const answer = await talk.answerTo(prompt);
  expect(answer.parts.map(({ eventId }) => eventId)).toEqual([begun.eventId]);
  expect({ status: answer.status, text: answer.text }).toEqual({ status: 'completed', text: 'Another beginning, and another end.' });
  expect((await talk.ask('Go on.')).text).toBe('And on we go.');
  expect(new Set(positionsOf(await talk.history(), oracle.userId).map(({ session }) => session)).size).toBe(1);
  await expectSoundCiphertexts({ person, talk, oracle });
});

test(
  'killed again and again the moment a ciphertext has left it: no message key is used twice and all is read (G4)',
  async () => {
    const killable = createKillable(await world.oracle({ RATE_LIMIT: '1000', BOT_HOP_BUDGET: '0' }));
    const { oracle } = killable;
    let running = await killable.start();
    echo(oracle);
    const person = await world.person();
    const talk = await person.direct(oracle);
    await talk.ask('first of all');

    for (let round = 1; round <= ROUNDS; round += 1) {
      killable.killAt('homeserver: send m.room.encrypted');
      const prompt = await talk.say(`round ${round}`);
      await within(running.ended, 20_000, `the process went on in round ${round}`);
      running = await killable.start();
      const answer = await talk.answerTo(prompt, 60_000);
      expect({ text: answer.text, parts: answer.parts.length }).toEqual({ text: `Re: round ${round}`, parts: 1 });
    }

    await expectSoundCiphertexts({ person, talk, oracle });
  },
  60_000 + ROUNDS * 20_000,
);

test('killed while a key is on its way in or out, it has lost none after the restart', async () => {
  const killable = createKillable(await world.oracle({ RATE_LIMIT: '1000' }));
  const { oracle } = killable;
  let running = await killable.start();
  echo(oracle);
  const person = await world.person();
  const talk = await person.direct(oracle);
  await talk.ask('first of all');

  for (const point of [
    'commit: .*insert into to_device',
    'commit: .*insert into idb_rec',
    'commit: .*delete from to_device',
    'commit: .*insert into decrypted',
    'homeserver: sendToDevice m.room.encrypted',
  ]) {
    await person.client.discardSession(talk.roomId);
    // Somebody new to whom the oracle must give its key.
    await world.device(person);
    killable.killAt(point);
    const prompt = await talk.say(point);
    await within(running.ended, 20_000, `the process went on after: ${point}`);
    running = await killable.start();
    expect((await talk.answerTo(prompt, 60_000)).text, point).toBe(`Re: ${point}`);
  }

  await expectSoundCiphertexts({ person, talk, oracle });
}, 240_000);

test('keys that are shared while the process is dead are read after its start, from the first message on', async () => {
  const oracle = await world.oracle();
  const first = await oracle.startProcess();
  echo(oracle);
  const person = await world.person();
  const talk = await person.direct(oracle);
  await talk.ask('one');

  await first.kill('SIGKILL');
  await person.client.discardSession(talk.roomId);
  const prompts = [await talk.say('two'), await talk.say('three')];
  await oracle.startProcess();
  const answers = await Promise.all(prompts.map((prompt) => talk.answerTo(prompt)));

  expect(answers.map(({ status }) => status)).toEqual(['completed', 'completed']);
  expect(textsAt(oracle.model)).toEqual(['one', 'two', 'three']);
  await expectSoundCiphertexts({ person, talk, oracle });
});

test('with its database lost and its keys kept, what the room shows as answered is not answered again, and new words are (G2)', async () => {
  const oracle = await world.oracle();
  const first = await oracle.startProcess();
  echo(oracle);
  const person = await world.person();
  const talk = await person.direct(oracle);
  const answered = await talk.ask('one');
  const event = { ...(await person.client.getEvent(talk.roomId, answered.prompt)), room_id: talk.roomId };

  await first.kill('SIGKILL');
  for (const name of ['oracle.db', 'oracle.db-wal', 'oracle.db-shm', 'checkpoints'])
    await rm(join(oracle.dataDir, name), { recursive: true, force: true });
  await oracle.startProcess();
  // The homeserver might even send it again.
  expect((await oracle.push({ events: [event] as never })).status).toBe(200);

  expect((await talk.ask('two')).text).toBe('Re: two');
  expect(textsAt(oracle.model)).toEqual(['one', 'two']);
  await expectSoundCiphertexts({ person, talk, oracle });
});
