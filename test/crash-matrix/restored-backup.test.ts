/** The database of some time ago under a room that went on: what the room shows as answered is not answered again (DESIGN §2, G2). */
import { afterEach, expect, test } from 'vitest';
import type { FakeEvent } from '../fakes/fake-homeserver.ts';
import { ALICE, answersTo, answerTo, ORACLE, openWorld, type World } from './world.ts';

const open: World[] = [];
afterEach(async () => {
  for (const world of open.splice(0)) await world.close();
});

/** Answers `hello`, backs up after so many steps of the next turns, goes on, and restores. */
async function restoredAt(steps: number): Promise<string | null> {
  const world = await openWorld({ pieceMs: 1 });
  open.push(world);
  const room = world.room({ creator: ALICE, invite: [ORACLE], direct: true });
  await world.start();
  await world.drive(world.quiet);
  let backup: string | null = null;
  world.after(steps, () => {
    backup = world.backUp();
  });
  const prompts: FakeEvent[] = [];
  for (const text of ['hello', 'second', 'third']) {
    prompts.push(world.homeserver.say(room, ALICE, text));
    await world.drive(world.quiet);
  }
  const { struckAt } = world;
  world.after(0, () => undefined);
  if (backup === null) return null;
  world.restore(backup);
  world.pushAgain();
  await world.start();
  await world.drive(world.quiet);
  await world.pass(70_000);
  await world.drive(world.quiet);

  const why = `restored to ${struckAt}`;
  for (const prompt of prompts) {
    const answers = answersTo(world.shown(room), prompt.event_id);
    expect(answers, why).toMatchObject([{ live: false, status: 'completed', text: answerTo(String(prompt.content['body'])) }]);
  }
  expect(world.shown(room), why).toHaveLength(prompts.length);
  const again = world.homeserver.say(room, ALICE, 'still there?');
  await world.drive(world.quiet);
  expect(answersTo(world.shown(room), again.event_id), why).toMatchObject([{ live: false, status: 'completed' }]);
  open.splice(open.indexOf(world), 1);
  await world.close();
  return struckAt;
}

test('at whatever step it was made', async () => {
  let points = 0;
  for (let steps = 1; ; steps += 3) {
    if ((await restoredAt(steps)) === null) break;
    points += 1;
  }
  expect(points).toBeGreaterThan(10);
}, 60_000);
