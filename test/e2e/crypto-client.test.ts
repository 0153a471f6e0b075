/** The real client of the tests by itself: two people, three devices, a real Synapse. What fails here fails in no test of the oracle. */
import { expect, test } from 'vitest';
import { createEncryptedClient } from '../../synapse-dev/homeserver/encrypted-client.ts';
import { textIn } from './crypto-client.ts';
import { useCryptoWorld } from './crypto-world.ts';

const world = useCryptoWorld({ oracles: 0 });

test('two people and a second device read what is said in an encrypted room, and the homeserver does not', async () => {
  const [anna, ben] = await Promise.all([world.person(), world.person()]);
  const roomId = await anna.client.createRoom({ preset: 'private_chat', invite: [ben.userId] });
  await ben.client.join(roomId);
  await ben.client.knowsEncryption(roomId);
  const annasPhone = await world.device(anna);
  const [atBen, atPhone] = await Promise.all([ben.client.watchRoom(roomId), annasPhone.watchRoom(roomId)]);

  const said = await anna.client.sendText(roomId, 'Nobody but us.');
  await ben.client.sendText(roomId, 'And nobody else.');

  await Promise.all(
    [atBen, atPhone].flatMap((watch) =>
      ['Nobody but us.', 'And nobody else.'].map((text) =>
        watch.waitUntil(() => watch.messages().some((message) => message.text === text)),
      ),
    ),
  );
  expect(ben.client.sawEncrypted(said)).toBe(true);
  expect(textIn(await anna.client.history(roomId), 'nobody')).toEqual([]);
  expect(await ben.client.shield(roomId, said)).toEqual({ colour: 'none', reason: null });
  expect(await ben.client.devices(anna.userId)).toContainEqual(
    expect.objectContaining({ deviceId: anna.client.deviceId, fingerprint: anna.client.keys.ed25519, signedByOwner: true }),
  );
});

test('the small client of the demo and matrix-js-sdk read each other, also what came before its key', async () => {
  const anna = await world.person();
  const session = await world.homeserver.registerUser({ username: 'small', password: 'small-password' });
  const small = await createEncryptedClient({ session: { baseUrl: world.homeserver.baseUrl, ...session } });
  const roomId = await small.createDirectRoom(anna.userId);
  const atSmall = await small.watchRoom(roomId);
  await anna.client.join(roomId);
  await anna.client.knowsEncryption(roomId);
  const atAnna = await anna.client.watchRoom(roomId);
  await atSmall.waitFor(({ event }) => event.state_key === anna.userId && event.content['membership'] === 'join');

  const prompt = await small.sendText(roomId, 'A question.');
  await atAnna.waitFor(({ event }) => event.event_id === prompt);
  const answer = await anna.client.sendText(roomId, 'An answ');
  const relation = { 'm.relates_to': { rel_type: 'm.replace', event_id: answer } };
  const text = (body: string) => ({ msgtype: 'm.text', body });
  await anna.client.send(roomId, { ...text('* An answer.'), 'm.new_content': text('An answer.'), ...relation });

  await atSmall.waitUntil(() => atSmall.messages(anna.userId)[0]?.text === 'An answer.');
  expect(atAnna.messages(small.userId).map((message) => message.text)).toEqual(['A question.']);
  expect(textIn(await small.history(roomId), 'answer')).toEqual([]);
  small.close();
});
