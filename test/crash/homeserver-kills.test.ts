/**
 * The homeserver is killed again and again while people write and answers stream. It keeps what it confirmed and forgets what it had not
 * pushed; the oracle must find the rest, and send each version until it is confirmed, without saying anything twice (G1, G2, G4).
 */
import { randomUUID } from 'node:crypto';
import { setTimeout as wait } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { textReply } from '../../synapse-dev/model/reply.ts';
import { eventually, messagesIn, newTexts, type Talk, textsAt, useWorld } from '../e2e/harness.ts';

const world = useWorld({ oracles: 1 });
const PEOPLE = 3;
const PROMPTS = 6;
const KILLS = 4;

/** As a client does: the same transaction id until it is confirmed. */
async function sayUntilConfirmed(talk: Talk, text: string): Promise<string> {
  const content = talk.content(text);
  const txnId = randomUUID();
  return eventually(() => talk.person.client.send(talk.roomId, content, { txnId }).catch(() => undefined), 60_000);
}

test('whatever the homeserver forgets when it is killed, each message is answered once (G1, G2, G4)', async () => {
  const oracle = await world.oracle({ RATE_LIMIT: '1000', BOT_HOP_BUDGET: '0' });
  await oracle.start();
  oracle.model.respond((request) => textReply(`I have read ${newTexts(request).join(' and ')}.`, { pace: { tokensPerSecond: 40 } }));
  const talks = await Promise.all(Array.from({ length: PEOPLE }, async () => (await world.person()).direct(oracle)));
  const killing = (async () => {
    for (let kill = 0; kill < KILLS; kill += 1) {
      await wait(700);
      await world.homeserver.kill();
      await world.homeserver.start();
    }
  })();

  const said = await Promise.all(
    talks.map(async (talk, person) => {
      const prompts: { id: string; text: string }[] = [];
      for (let index = 0; index < PROMPTS; index += 1) {
        const text = `message ${index} of person ${person}`;
        prompts.push({ id: await sayUntilConfirmed(talk, text), text });
        await wait(400);
      }
      return { talk, prompts };
    }),
  );
  await killing;

  for (const [person, { talk, prompts }] of said.entries()) {
    const answers = await Promise.all(prompts.map(({ id }) => talk.answerTo(id, 90_000)));
    for (const { text, parts, prompts: named, status } of answers) {
      const texts = named.map((id) => prompts.find((prompt) => prompt.id === id)?.text);
      expect({ status, parts: parts.length, text }).toEqual({ status: 'completed', parts: 1, text: `I have read ${texts.join(' and ')}.` });
    }
    // Not in order: what was forgotten is found after what came next, and is answered then.
    const reached = textsAt(oracle.model).filter((text) => text.endsWith(`of person ${person}`));
    expect(reached.toSorted()).toEqual(prompts.map(({ text }) => text));
    const messages = messagesIn(await talk.history(), oracle.userId);
    const named = messages.flatMap(({ content }) => (content['ixo.oracle.run'] as { prompts: string[] }).prompts);
    expect(named.toSorted()).toEqual(prompts.map(({ id }) => id).toSorted());
  }
});
