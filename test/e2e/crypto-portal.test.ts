/** A portal's prompts in an encrypted direct room: what goes over HTTP to the one person stands in the room for their clients only. */
import { expect, test } from 'vitest';
import { textReply } from '../../synapse-dev/model/reply.ts';
import { textIn } from './crypto-client.ts';
import { useCryptoWorld } from './crypto-world.ts';
import { newTexts } from './harness.ts';
import { send } from './portal-client.ts';

const world = useCryptoWorld({ oracles: 1 });

test('a prompt over HTTP, its mirror and its answer stand encrypted in the room, and the conversation goes on there', async () => {
  const oracle = await world.oracle();
  await oracle.start();
  oracle.model.respond((request) => textReply(`Re: ${newTexts(request).at(-1)}`));
  const person = await world.person();
  if (person.key === null) throw new Error('this person signs');
  const talk = await person.direct(oracle);
  const { prompt: session } = await talk.ask('hello from Matrix');

  const response = await send({
    oracle,
    key: person.key,
    sender: person.userId,
    room: talk.roomId,
    path: `/messages/${encodeURIComponent(session)}`,
    thread: session,
    body: { message: 'hello from the portal', stream: true },
  });
  const streamed = await response.text();
  const mirror = await talk.watch.waitUntil(() => talk.notices().find(({ content }) => 'ixo.oracle.mirror' in content));
  const answer = await talk.watch.waitUntil(() =>
    talk.watch.answers(oracle.userId).find(({ text, live }) => text === 'Re: hello from the portal' && !live),
  );

  expect(response.status).toBe(200);
  expect(streamed).toContain('event: done');
  expect(mirror.text).toBe('hello from the portal');
  for (const { eventId } of [mirror, answer]) expect(person.client.sawEncrypted(eventId)).toBe(true);
  expect((await talk.ask('and back in Matrix')).text).toBe('Re: and back in Matrix');
  expect(textIn(await talk.history(), 'portal')).toEqual([]);
});
