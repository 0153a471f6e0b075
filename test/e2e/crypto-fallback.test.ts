/**
 * `CRYPTO_TRANSPORT=appservice`, for homeservers that refuse `/sync` to application services: the keys come in the transactions of the events. What is
 * lost there when the oracle is away is said in docs/operations.md; the rest holds as with the poll.
 */
import { expect, test } from 'vitest';
import { textReply } from '../../synapse-dev/model/reply.ts';
import { useCryptoWorld } from './crypto-world.ts';
import { newTexts } from './harness.ts';

const world = useCryptoWorld({ oracles: 1, keysInTransactions: true });

test('with keys from transactions it answers, also a new session and a new device, and stays the device that it was after a restart', async () => {
  const oracle = await world.oracle({ CRYPTO_TRANSPORT: 'appservice' });
  await oracle.start();
  oracle.model.respond((request) => textReply(`Re: ${newTexts(request).join(', ')}`));
  const person = await world.person();
  const talk = await person.direct(oracle);

  expect((await talk.ask('one')).text).toBe('Re: one');
  await person.client.discardSession(talk.roomId);
  expect((await talk.ask('two')).text).toBe('Re: two');
  const tablet = await world.device(person);
  const atTablet = await tablet.watchRoom(talk.roomId);
  const third = await talk.ask('three');
  expect((await atTablet.waitForAnswerTo(third.prompt))[0]?.text).toBe('Re: three');
  await oracle.stop();
  await oracle.start();
  expect((await talk.ask('four')).text).toBe('Re: four');
});
