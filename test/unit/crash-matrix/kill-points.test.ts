/** Killed after each durable step of a conversation, one after the other: what a person sees must be the same each time. */
import { afterEach, expect, test } from 'vitest';
import type { FakeEvent } from '../../fakes/fake-homeserver.ts';
import { ALICE, expectSound, ORACLE, openWorld, type World } from './world.ts';

const open: World[] = [];
afterEach(async () => {
  for (const world of open.splice(0)) await world.close();
});

/** Alice invites the oracle and says hello before it is in; then two messages at once, the first with a tool that writes. */
async function converse(world: World): Promise<{ room: string; prompts: FakeEvent[] }> {
  const room = world.room({ creator: ALICE, invite: [ORACLE], direct: true });
  const prompts = [world.homeserver.say(room, ALICE, 'hello')];
  await world.start();
  await world.drive(() => !world.isAlive || world.quiet());
  prompts.push(world.homeserver.say(room, ALICE, 'write this'), world.homeserver.say(room, ALICE, 'more'));
  await world.drive(() => !world.isAlive || world.quiet());
  return { room, prompts };
}

async function killedAfter(steps: number, pushes: 'redelivered' | 'lost'): Promise<string | null> {
  const world = await openWorld({ pieceMs: 1 });
  open.push(world);
  world.killAfter(steps);
  const { room, prompts } = await converse(world);
  const { killedAt } = world;
  world.killAfter(null);
  if (!world.isAlive) {
    if (pushes === 'lost') world.losePushes();
    await world.start();
    await world.drive(world.quiet);
  }
  const why = `killed after step ${steps}: ${killedAt}`;
  expectSound(world, room, prompts, why);
  const again = world.homeserver.say(room, ALICE, 'still there?');
  await world.drive(world.quiet);
  expectSound(world, room, [...prompts, again], `${why}, next turn`);
  open.splice(open.indexOf(world), 1);
  await world.close();
  return killedAt;
}

test('kill -9 after any step: one answer each, the whole text, one note, and the next turn works (G1, G2, G5, G6, G15)', async () => {
  const points: string[] = [];
  for (let steps = 1; ; steps += 1) {
    const point = await killedAfter(steps, steps % 2 === 0 ? 'redelivered' : 'lost');
    if (point === null) break;
    points.push(point);
  }
  expect(points.length).toBeGreaterThan(40);
}, 60_000);
