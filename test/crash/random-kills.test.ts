/**
 * Kills at moments nobody chose: people in eight rooms go on writing while the process dies again and again, a quarter of the times while it still
 * starts. Whatever was under way, in the end each message has exactly one answer with the model's text, and no note is written twice. The moments
 * come from a seed that is printed, so that a failure can be looked at again. `npm run soak -- --kills 1000` is this test, for longer.
 */
import { randomInt } from 'node:crypto';
import { setTimeout as wait } from 'node:timers/promises';
import { expect, onTestFailed, test } from 'vitest';
import { type OracleProcess, type Talk, useWorld } from '../e2e/harness.ts';
import { createKillable, expectAnswered, expectSoundLog, type Killable, replyWith, type Said } from './killable.ts';

const world = useWorld({ oracles: 1 });
const ROOMS = 8;
/** So many in a test run: each costs a start of the process. */
const KILLS = Number(process.env['KILLS'] ?? 10);
/** After so many everything is looked at, and other people go on in other rooms. */
const ROUND = 20;
const EACH_KILL_MS = 15_000;

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

/** Writes until it is over; every third message asks for a note. */
async function keepWriting(talk: Talk, chance: () => number, isOver: () => boolean): Promise<Said[]> {
  const said: Said[] = [];
  while (!isOver()) {
    const text = `${said.length % 3 === 1 ? 'write' : 'message'} ${said.length} in ${talk.roomId}`;
    said.push({ id: await talk.say(text), text });
    await wait(400 + chance() * 2_600);
  }
  return said;
}

async function killAgainAndAgain(killable: Killable, running: OracleProcess, kills: number, chance: () => number): Promise<OracleProcess> {
  let process = running;
  for (let kill = 0; kill < kills; kill += 1) {
    await wait(50 + chance() * 1_450);
    await process.kill('SIGKILL');
    process = await killable.start({ waits: chance() > 0.25 });
  }
  await process.kill('SIGKILL');
  return killable.start();
}

test(
  'whatever moments the process is killed at, each message gets one answer in its own room (G1, G2, G5, G6)',
  async () => {
    const seed = Number(process.env['KILL_SEED'] ?? randomInt(2 ** 31));
    onTestFailed(() => console.error(`the moments came from KILL_SEED=${seed}`));
    const chance = createChance(seed);
    const killable = createKillable(await world.oracle({ RATE_LIMIT: '1000', BOT_HOP_BUDGET: '0', MAX_CONCURRENT_RUNS: '16' }));
    let running = await killable.start();
    killable.oracle.model.respond(replyWith({ chunkChars: 20, delayMs: 40 }));
    const began = performance.now();
    let messages = 0;
    let givenUp = 0;
    for (let killed = 0; killed < KILLS; ) {
      const kills = Math.min(ROUND, KILLS - killed);
      const talks = await Promise.all(Array.from({ length: ROOMS }, async () => (await world.person()).direct(killable.oracle)));
      let over = false;
      const writing = Promise.all(talks.map(async (talk) => ({ talk, said: await keepWriting(talk, chance, () => over) })));
      running = await killAgainAndAgain(killable, running, kills - 1, chance);
      over = true;
      for (const { talk, said } of await writing) {
        givenUp += await expectAnswered(killable, talk, said);
        messages += said.length;
      }
      expectSoundLog(killable);
      const effects = killable.effects();
      expect(new Set(effects).size).toBe(effects.length);
      killed += kills;
      console.log(
        `${killed} of ${KILLS} kills in ${Math.round((performance.now() - began) / 1_000)} s: ${messages} messages answered, ${effects.length} notes, ${givenUp} answers given up (seed ${seed})`,
      );
    }
    // A run that four processes died of is given up; were it many, runs would not survive kills, but only end after them.
    expect(givenUp).toBeLessThan(Math.max(5, messages / 5));
  },
  120_000 + KILLS * EACH_KILL_MS,
);
