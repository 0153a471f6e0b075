/**
 * `kill -9` right after each thing that cannot be taken back, by the process itself, so that not one instruction comes after it: on the real
 * process, the real database and the real homeserver. What a person sees is the same each time, and the effect of a write tool, which is counted
 * outside the process, happens once. The same without processes, at every step there is: test/crash-matrix/kill-points.test.ts.
 */
import { expect, test } from 'vitest';
import { useWorld, within } from '../e2e/harness.ts';
import { createKillable, expectAnswered, expectSoundLog, replyWith } from './killable.ts';

const world = useWorld({ oracles: 2 });

/** [what is on disk or done, the step, which of those that fit]. */
type Point = readonly [string, string, number];
const POINTS: readonly Point[] = [
  ['received', 'commit: .*insert into seen', 1],
  ['opened', 'commit: .*insert into pending_inputs', 1],
  ['started', 'commit: .*update runs', 1],
  ['consumed', 'commit: .*update pending_inputs', 1],
  ['first checkpoint', 'commit: .*insert into checkpoints', 1],
  ['first frames', 'commit: .*insert into frames', 1],
  ['frames of text', 'commit: .*insert into frames', 3],
  ['call of the tool marked', 'commit: .*insert into tool_marks', 1],
  ['effect of the tool', 'effect of a tool', 1],
  ['result of the tool marked', 'commit: .*update tool_marks', 1],
  ['checkpoint after the tool', 'commit: .*insert into checkpoints', 3],
  ['version stored', 'commit: .*insert into outbox', 1],
  ['message sent', 'homeserver: send m.room.message', 1],
  ['message confirmed', 'commit: .*update outbox', 1],
  ['edit sent', 'homeserver: send m.room.message', 2],
  ['ended', 'commit: (?!.*pending_inputs).*insert into transcript', 1],
];

/** Each point in a conversation that has the others behind it. Two oracles at once: most of the time goes into starting processes. */
async function killAtEach(points: readonly Point[]): Promise<void> {
  const killable = createKillable(await world.oracle({ RATE_LIMIT: '1000', BOT_HOP_BUDGET: '0' }));
  const { oracle } = killable;
  let running = await killable.start();
  oracle.model.respond(replyWith({ chunkChars: 20, delayMs: 60 }));
  const talk = await (await world.person()).direct(oracle);
  for (const [name, fits, left] of points) {
    killable.killAt(fits, left);
    const text = `write ${name}`;
    const id = await talk.say(text);
    await within(running.ended, 20_000, `the process went on after: ${name}`);
    expect(killable.isOrdered).toBe(false);
    running = await killable.start();

    expect(await expectAnswered(killable, talk, [{ id, text }]), name).toBe(0);
    // Killed between the effect and its mark nobody can know; then it is not run again.
    expect(killable.effects().filter((note) => note === text).length, name).toBe(name === 'call of the tool marked' ? 0 : 1);
    const next = await talk.ask(`after ${name}`);
    expect([next.status, next.text.startsWith(`I have read after ${name}. word0`)], name).toEqual(['completed', true]);
  }
  expectSoundLog(killable);
}

test('kill -9 at a point: one answer, the whole text, one effect at most, and the next turn works (G1, G2, G4, G5, G6, G7)', async () => {
  const half = Math.ceil(POINTS.length / 2);
  await Promise.all([killAtEach(POINTS.slice(0, half)), killAtEach(POINTS.slice(half))]);
});
