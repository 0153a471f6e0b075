/** Whose messages are obeyed (`CRYPTO_TRUST`), and how a person makes sure that the oracle's device is the oracle's: emoji and fingerprint. */
import { expect, test } from 'vitest';
import { textReply } from '../../synapse-dev/model/reply.ts';
import { useCryptoWorld } from './crypto-world.ts';
import { type Environment, errorOf, eventually, newTexts, type TestOracle, textsAt } from './harness.ts';

const world = useCryptoWorld({ oracles: 8 });

async function startEcho(env: Environment = {}): Promise<TestOracle> {
  const oracle = await world.oracle(env);
  await oracle.start();
  oracle.model.respond((request) => textReply(`Re: ${newTexts(request).join(', ')}`));
  return oracle;
}

test('under `cross-signed` a device that its owner verified is obeyed, and one that nobody verified is refused with a sentence', async () => {
  const oracle = await startEcho({ CRYPTO_TRUST: 'cross-signed' });
  const person = await world.person();
  const talk = await person.direct(oracle);
  const obeyed = await talk.ask('one');
  const phone = await world.device(person);
  await phone.knowsEncryption(talk.roomId);

  await phone.send(talk.roomId, talk.content('two'));
  const notice = await talk.notice('UNVERIFIED_DEVICE');

  expect(obeyed.text).toBe('Re: one');
  expect(errorOf(notice.content)).toMatchObject({ status: 403, retryable: false });
  expect(notice.text).toMatch(/verif/iu);
  expect(person.client.sawEncrypted(notice.eventId)).toBe(true);
  expect(textsAt(oracle.model)).toEqual(['one']);
});

test('under `cross-signed` a message in the clear in an encrypted room is refused; under `any` it is obeyed', async () => {
  const [strict, open] = [await startEcho({ CRYPTO_TRUST: 'cross-signed' }), await startEcho()];
  const person = await world.person();
  const [there, here] = [await person.direct(strict), await person.direct(open)];

  await person.client.wire.send(there.roomId, there.content('in the clear'));
  const notice = await there.notice('NOT_ENCRYPTED');
  const answer = await here.answerTo(await person.client.wire.send(here.roomId, here.content('in the clear')));

  expect(errorOf(notice.content)).toMatchObject({ status: 403 });
  expect(textsAt(strict.model)).toEqual([]);
  expect(answer.text).toBe('Re: in the clear');
  expect(person.client.sawEncrypted(answer.parts[0]?.eventId ?? '')).toBe(true);
});

test('under `any` a device that nobody verified is obeyed, and the audit log says what it was', async () => {
  const oracle = await startEcho();
  const [verified, unverified] = [await world.person(), await world.person({ crossSigning: false })];

  expect((await (await verified.direct(oracle)).ask('one')).status).toBe('completed');
  expect((await (await unverified.direct(oracle)).ask('two')).status).toBe('completed');

  expect(oracle.rows<{ trust: string }>('SELECT trust FROM runs ORDER BY run_id').map(({ trust }) => trust)).toEqual([
    'cross-signed',
    'unverified',
  ]);
});

test('emoji verification in the room: both see the same seven, the oracle says them, and its device is verified', async () => {
  const oracle = await startEcho();
  const person = await world.person();
  const talk = await person.direct(oracle);
  await talk.ask('one');

  const outcome = await person.client.verify({ userId: oracle.userId, roomId: talk.roomId });

  expect(outcome).toMatchObject({ done: true, cancelCode: null });
  expect(outcome.emoji).toHaveLength(7);
  const said = await talk.watch.waitUntil(() =>
    talk.notices().find(({ text }) => outcome.emoji.every((emoji) => text.includes(emoji.split(' ')[0] ?? '?'))),
  );
  expect(person.client.sawEncrypted(said.eventId)).toBe(true);
  await eventually(async () => (await person.client.devices(oracle.userId)).some(({ verified }) => verified));
  expect(await person.client.userTrust(oracle.userId)).toMatchObject({ verified: true });
  expect((await talk.ask('two')).text).toBe('Re: two');
});

test('emoji verification straight between the devices works too', async () => {
  const oracle = await startEcho();
  const person = await world.person();
  const talk = await person.direct(oracle);
  await talk.ask('one');
  const [device] = (await person.client.devices(oracle.userId)).filter(({ fingerprint }) => fingerprint !== undefined);

  const outcome = await person.client.verify({ userId: oracle.userId, deviceId: device?.deviceId ?? '' });

  expect(outcome).toMatchObject({ done: true, cancelCode: null });
  expect(outcome.emoji).toHaveLength(7);
});

test('with CRYPTO_VERIFY=off nobody is verified, and the conversation goes on', async () => {
  const oracle = await startEcho({ CRYPTO_VERIFY: 'off' });
  const person = await world.person();
  const talk = await person.direct(oracle);
  await talk.ask('one');

  const outcome = await person.client.verify({ userId: oracle.userId, roomId: talk.roomId }).catch(() => ({ done: false }));

  expect(outcome.done).toBe(false);
  expect((await talk.ask('two')).text).toBe('Re: two');
}, 90_000);

test('!verify says the device and its fingerprint as the client shows them', async () => {
  const oracle = await startEcho();
  const person = await world.person();
  const talk = await person.direct(oracle);

  await talk.say('!verify');
  const notice = await talk.watch.waitUntil(() => talk.notices()[0]);

  const [device] = (await person.client.devices(oracle.userId)).filter(({ fingerprint }) => fingerprint !== undefined);
  expect(notice.text).toContain(oracle.userId);
  expect(notice.text).toContain(device?.deviceId);
  expect(notice.text.replaceAll(/\s/gu, '')).toContain(device?.fingerprint);
});
