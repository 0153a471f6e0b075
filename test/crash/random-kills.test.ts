/**
 * Kills at moments nobody chose: three people go on writing while the process dies again and again. Whatever was under way, in the end each
 * message has exactly one answer. The moments come from a seed that is printed, so that a failure can be looked at again.
 */
import { randomInt } from 'node:crypto';
import { setTimeout as wait } from 'node:timers/promises';
import { expect, onTestFailed, test } from 'vitest';
import { textReply } from '../../synapse-dev/model/reply.ts';
import { messagesIn, newTexts, useWorld } from '../e2e/harness.ts';

const world = useWorld({ oracles: 1 });
const PEOPLE = 3;
const PROMPTS = 8;
const KILLS = 5;

/** mulberry32: small, and the same on every machine. */
function createChance(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

test('whatever moments the process is killed at, each message gets one answer in its own room (G1, G2, G5)', async () => {
  const seed = Number(process.env['KILL_SEED'] ?? randomInt(2 ** 31));
  onTestFailed(() => console.error(`the moments came from KILL_SEED=${seed}`));
  const chance = createChance(seed);
  const oracle = await world.oracle({ RATE_LIMIT: '1000', BOT_HOP_BUDGET: '0' });
  let running = await oracle.startProcess();
  oracle.model.respond((request) => textReply(`I have read ${newTexts(request).join(' and ')}.`, { pace: { tokensPerSecond: 80 } }));
  const talks = await Promise.all(Array.from({ length: PEOPLE }, async () => (await world.person()).direct(oracle)));
  const killing = (async () => {
    for (let kill = 0; kill < KILLS; kill += 1) {
      await wait(100 + chance() * 1_400);
      await running.kill('SIGKILL');
      running = await oracle.startProcess();
    }
  })();

  const said = await Promise.all(
    talks.map(async (talk, person) => {
      const prompts: { id: string; text: string }[] = [];
      for (let index = 0; index < PROMPTS; index += 1) {
        const text = `message ${index} of person ${person}`;
        prompts.push({ id: await talk.say(text), text });
        await wait(200 + chance() * 1_500);
      }
      return { talk, prompts };
    }),
  );
  await killing;

  for (const { talk, prompts } of said) {
    const answers = await Promise.all(prompts.map(({ id }) => talk.answerTo(id, 60_000)));
    for (const [index, { text, parts, prompts: named, status, runId }] of answers.entries()) {
      expect(parts).toHaveLength(1);
      const texts = named.map((id) => prompts.find((prompt) => prompt.id === id)?.text);
      expect(texts).toContain(prompts[index]?.text);
      const whole = `I have read ${texts.join(' and ')}.`;
      // A run that four processes died of is given up, visibly; which of them that is, chance decides.
      const givenUp = oracle.log.some(({ msg, run_id }) => msg === 'a run was ended without another attempt' && run_id === runId);
      if (givenUp) expect(text).toMatch(/\*This answer was interrupted and could not be continued\.\*$/u);
      expect({ status, text: givenUp ? text : whole }).toEqual({ status: givenUp ? 'interrupted' : 'completed', text });
    }
    const messages = messagesIn(await talk.history(), oracle.userId);
    const namedByAll = messages.flatMap(({ content }) => (content['ixo.oracle.run'] as { prompts?: string[] } | undefined)?.prompts ?? []);
    expect(namedByAll).toEqual(prompts.map(({ id }) => id));
  }
});
