/** A group, two people at once, threads, a greeting and a refusal: killed after each step, everything is said once. */
import { afterEach, expect, test } from 'vitest';
import type { FakeEvent } from '../fakes/fake-homeserver.ts';
import { ALICE, answersTo, answerTo, BOB, expectContiguous, ORACLE, openWorld, type World } from './world.ts';

const open: World[] = [];
afterEach(async () => {
  for (const world of open.splice(0)) await world.close();
});
const mention = { 'm.mentions': { user_ids: [ORACLE] } };

async function talk(world: World, strike: (world: World) => void, steps: number): Promise<string | null> {
  const { homeserver } = world;
  const settle = async (): Promise<void> => {
    await world.drive(() => !world.isAlive || world.quiet());
    while (!world.isAlive) {
      await world.start();
      await world.drive(() => !world.isAlive || world.quiet());
    }
  };
  world.after(steps, () => strike(world));
  const room = world.room({ creator: ALICE, invite: [ORACLE] });
  homeserver.invite(room, ALICE, BOB);
  homeserver.join(room, BOB);
  await world.start();
  await settle();
  homeserver.say(room, BOB, 'not for you', { 'm.mentions': {} });
  const asked: [FakeEvent, string][] = [
    [homeserver.say(room, ALICE, 'one', mention), `${ALICE}: one`],
    [homeserver.say(room, BOB, 'two', mention), `${BOB}: two`],
  ];
  const stranger = homeserver.say(room, '@stranger:elsewhere.net', 'three', mention);
  await settle();
  const thread = { 'm.relates_to': { rel_type: 'm.thread', event_id: asked[0]?.[0].event_id ?? '' } };
  asked.push([homeserver.say(room, ALICE, 'four', { ...mention, ...thread }), `${ALICE}: four`]);
  await settle();
  const { struckAt } = world;
  world.after(0, () => undefined);

  const why = `after step ${steps}: ${struckAt}`;
  const shown = world.shown(room);
  for (const [event, text] of asked) {
    const answers = answersTo(shown, event.event_id);
    expect(answers, why).toMatchObject([{ live: false, status: 'completed' }]);
    expect(answers[0]?.text, why).toContain(answerTo(text).slice('You said '.length, -10));
  }
  const others = shown.filter(({ run }) => run === undefined);
  expect(others.map(({ error }) => error?.['code'] ?? 'greeting').toSorted(), why).toEqual(['NOT_ALLOWED', 'greeting'].toSorted());
  expect(others.find(({ error }) => error !== undefined)?.relation, why).toMatchObject({
    'm.in_reply_to': { event_id: stranger.event_id },
  });
  expectContiguous(world, why);
  return struckAt;
}

test.each<[string, (world: World) => void]>([
  ['kill -9', (world) => world.kill()],
  ['a full disk', (world) => world.breakDisk(3_000)],
  ['a homeserver that restarts', (world) => world.stopHomeserver(8_000)],
])(
  '%s after each step',
  async (_name, strike) => {
    let points = 0;
    for (let steps = 1; ; steps += 6) {
      const world = await openWorld({ pieceMs: 0 });
      open.push(world);
      const point = await talk(world, strike, steps);
      open.splice(open.indexOf(world), 1);
      await world.close();
      if (point === null) break;
      points += 1;
    }
    expect(points).toBeGreaterThan(6);
  },
  60_000,
);
