/** The real client of the tests by itself: two people, three devices, a real Synapse. What fails here fails in no test of the oracle. */
import { expect, test } from 'vitest';
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
