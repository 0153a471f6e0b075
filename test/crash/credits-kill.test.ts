/**
 * `kill -9` around everything that moves credits: when they are set aside, when a model call is charged, when the run ends. Whatever died, each run is
 * settled once, nothing stays set aside, and what was given is what is left and what was spent (G8, G10).
 */
import { expect, test } from 'vitest';
import { eventually, type TestOracle, useWorld } from '../e2e/harness.ts';
import { createKillable, expectAnswered, expectSoundLog, replyWith } from './killable.ts';

const GRANTED = 100_000;
const PAID = { CREDITS_PRICES: '*=1000/1000', CREDITS_HOLD: '50', RATE_LIMIT: '1000' };
const POINTS = [
  ['credits are set aside', 'commit: .*insert into credit_holds'],
  ['a model call is charged', 'commit: .*update credit_holds'],
  ['the run has ended', 'commit: .*update runs.*'],
  ['a tool has run', 'effect of a tool'],
] as const;
const world = useWorld({ oracles: POINTS.length + 1 });

interface Books {
  readonly balance: number;
  readonly held: number;
  readonly spent: number;
}
function readBooks(oracle: TestOracle): Books {
  const [books] = oracle.rows<Books>(`SELECT
    (SELECT coalesce(sum(balance), 0) FROM credit_accounts) AS balance,
    (SELECT coalesce(sum(amount), 0) FROM credit_holds) AS held,
    (SELECT coalesce(-sum(amount), 0) FROM credit_entries WHERE kind = 'settle') AS spent`);
  if (books === undefined) throw new Error('no books');
  return books;
}
/** At rest: every run has ended. */
async function expectSettled(oracle: TestOracle): Promise<void> {
  await eventually(() => oracle.rows('SELECT run_id FROM runs WHERE ended_at IS NULL').length === 0, 30_000);
  const { balance, held, spent } = readBooks(oracle);
  expect({ held, sum: balance + spent }).toEqual({ held: 0, sum: GRANTED });
  expect(spent).toBeGreaterThan(0);
  const settled = oracle.rows<{ n: number }>("SELECT count(*) AS n FROM credit_entries WHERE kind = 'settle' GROUP BY run_id HAVING n > 1");
  expect(settled).toEqual([]);
}

test.each(POINTS)('killed right after %s, the run is finished and paid once (G10)', async (_when, fits) => {
  const oracle = await world.oracle(PAID);
  const killable = createKillable(oracle);
  const first = await killable.start();
  const person = await world.person();
  const talk = await person.direct(oracle);
  await oracle.cli('credits', 'grant', person.did(), String(GRANTED));
  oracle.model.respond(replyWith('instant'));
  killable.killAt(fits);

  const text = 'write this down';
  const id = await talk.say(text);
  await first.ended;
  const between = readBooks(oracle);
  await killable.start();
  await expectAnswered(killable, talk, [{ id, text }]);

  expect(between.balance + between.held + between.spent).toBe(GRANTED);
  expect(killable.effects()).toEqual([text]);
  await expectSettled(oracle);
  expectSoundLog(killable);
});

test('killed again and again while many answers are made, not one credit is lost or made (G10)', async () => {
  const oracle = await world.oracle(PAID);
  const killable = createKillable(oracle);
  let running = await killable.start();
  const person = await world.person();
  const talk = await person.group(oracle);
  await oracle.cli('credits', 'grant', person.did(), String(GRANTED));
  oracle.model.respond(replyWith({ tokensPerSecond: 200 }));
  const mention = { 'm.mentions': { user_ids: [oracle.userId] } };

  const prompts = await Promise.all(Array.from({ length: 12 }, (_, n) => talk.say(`question ${n}`, mention)));
  for (const [, fits] of POINTS.slice(0, 3)) {
    killable.killAt(fits, 4);
    await Promise.race([
      running.ended,
      eventually(() => oracle.rows("SELECT run_id FROM runs WHERE status != 'completed'").length === 0, 60_000),
    ]);
    if (killable.isOrdered) await running.kill('SIGKILL');
    const { balance, held, spent } = readBooks(oracle);
    expect(balance + held + spent).toBe(GRANTED);
    running = await killable.start();
  }

  for (const prompt of prompts) await talk.answerTo(prompt, 60_000);
  await expectSettled(oracle);
});
