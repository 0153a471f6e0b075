/**
 * Trouble after each durable step of a conversation, one step after the other: what a person sees must be the same each time. The steps are counted,
 * not named: whatever the program writes, sends or saves is one, so a new one is covered without being listed here.
 */
import fc from 'fast-check';
import { afterEach, describe, expect, test } from 'vitest';
import type { FakeEvent } from '../fakes/fake-homeserver.ts';
import { ALICE, expectSound, ORACLE, openWorld, type World } from './world.ts';

const open: World[] = [];
const close = async (): Promise<void> => {
  for (const world of open.splice(0)) await world.close();
};
afterEach(close);

interface Trouble {
  readonly strike: (world: World) => void;
  /** Between the end of the process and the start of the next. */
  readonly away?: (world: World) => void;
}
const kill = (world: World): void => world.kill();

/** Goes on, with a new process whenever one died, until nothing waits. */
async function settle(world: World, { away }: Pick<Trouble, 'away'>): Promise<void> {
  await world.drive(() => !world.isAlive || world.quiet());
  while (!world.isAlive) {
    away?.(world);
    await world.start();
    await world.drive(() => !world.isAlive || world.quiet());
  }
}

/** Alice invites the oracle and says hello before it is in; then two messages at once, the first with a tool that writes. */
async function converse(world: World, trouble: Pick<Trouble, 'away'>): Promise<{ room: string; prompts: FakeEvent[] }> {
  const room = world.room({ creator: ALICE, invite: [ORACLE], direct: true });
  const prompts = [world.homeserver.say(room, ALICE, 'hello')];
  await world.start();
  await settle(world, trouble);
  prompts.push(world.homeserver.say(room, ALICE, 'write this'), world.homeserver.say(room, ALICE, 'more'));
  await settle(world, trouble);
  return { room, prompts };
}

/** @returns the step after which the trouble came; null when the conversation has fewer steps. */
async function troubledAfter(steps: number, trouble: Trouble, fits?: RegExp): Promise<string | null> {
  const world = await openWorld({ pieceMs: 1 });
  open.push(world);
  world.after(steps, () => trouble.strike(world), fits);
  const { room, prompts } = await converse(world, trouble);
  const { struckAt } = world;
  world.after(0, () => undefined);
  const why = `after step ${steps}: ${struckAt}`;
  expectSound(world, room, prompts, why);
  prompts.push(world.homeserver.say(room, ALICE, 'still there?'));
  await settle(world, trouble);
  expectSound(world, room, prompts, `${why}, next turn`);
  await close();
  return struckAt;
}

async function troubledAfterEach(trouble: Trouble, { every = 1, from = 1 } = {}): Promise<string[]> {
  const points: string[] = [];
  for (let steps = from; ; steps += every) {
    const point = await troubledAfter(steps, trouble);
    if (point === null) return points;
    points.push(point);
  }
}

/** [what is on disk or done at that instant, how often it happens in the conversation]. */
const POINTS: readonly (readonly [string, RegExp, number])[] = [
  ['received', /insert into "seen/u, 3],
  ['claimed', /update "inbox/u, 3],
  ['invite or join remembered', /insert into "rooms/u, 2],
  ['joined on the homeserver', /homeserver: join/u, 1],
  ['read back to the invite', /insert into "seen/u, 4],
  ['invite done', /update "rooms/u, 1],
  ['opened a session', /insert into "sessions/u, 1],
  ['opened in a session', /update "sessions/u, 2],
  ['run started', /update "runs/u, 3],
  ['frames written', /insert into "frames/u, 5],
  ['prompts consumed', /update "pending_inputs/u, 3],
  ['checkpoint written', /checkpoint/u, 6],
  ['call of a write tool marked', /insert into "tool_marks/u, 1],
  ['effect of the tool done', /effect of a tool/u, 1],
  ['its result marked', /update "tool_marks/u, 1],
  ['version of an answer stored', /insert into "outbox/u, 2],
  ['sent', /homeserver: send/u, 5],
  ['confirmed', /update "outbox/u, 4],
];
test.each(POINTS)(
  'kill -9 once %s: one answer each, the whole text, one note, and the next turn works (G1, G2, G5, G6, G15)',
  async (_name, fits, times) => {
    for (let time = 1; time <= times; time += 1) {
      const point = await troubledAfter(time, { strike: kill }, fits);
      // Commits are shared: how often a step comes by itself depends on the machine, but it comes.
      if (time === 1) expect(point).toMatch(fits);
    }
  },
  30_000,
);

describe('the same when', () => {
  test.each<[string, Trouble]>([
    ['killed, and the homeserver forgets what it had to push meanwhile', { strike: kill, away: (world) => world.losePushes() }],
    ['killed, and the homeserver pushes everything again, newest first', { strike: kill, away: (world) => world.pushAgain() }],
    ['the disk is full for three seconds (no restart)', { strike: (world) => world.breakDisk(3_000) }],
    ['the homeserver is away for ten seconds (no restart)', { strike: (world) => world.stopHomeserver(10_000) }],
    ['the homeserver’s next two answers are lost (G4)', { strike: (world) => world.loseAnswers(2) }],
  ])(
    '%s',
    async (_name, trouble) => {
      expect((await troubledAfterEach(trouble, { every: 7, from: 2 })).length).toBeGreaterThan(5);
    },
    60_000,
  );
});

test('whatever comes together, up to two kills among it (G1, G2, G5, G6)', async () => {
  const troubles: Record<string, Trouble['strike']> = {
    kill,
    lostPushes(world) {
      world.losePushes();
      world.kill();
    },
    pushAgain: (world) => world.pushAgain(),
    fullDisk: (world) => world.breakDisk(4_000),
    homeserverAway: (world) => world.stopHomeserver(12_000),
    lostAnswer: (world) => world.loseAnswers(1),
    lostAnswerAndAway(world) {
      world.loseAnswers(1);
      world.stopHomeserver(3_000);
    },
  };
  const blow = fc.record({ after: fc.integer({ min: 1, max: 40 }), trouble: fc.constantFrom(...Object.keys(troubles)) });
  // A third kill may end a run as interrupted, which is seen and is another test's subject.
  const fewKills = (list: readonly { trouble: string }[]): boolean =>
    list.filter(({ trouble }) => /kill|lostPushes/u.test(trouble)).length <= 2;
  await fc.assert(
    fc.asyncProperty(fc.array(blow, { minLength: 2, maxLength: 5 }).filter(fewKills), async (blows) => {
      const world = await openWorld({ pieceMs: 1 });
      open.push(world);
      const left = [...blows];
      const arm = (): void => {
        const next = left.shift();
        if (next === undefined) return;
        world.after(next.after, () => {
          troubles[next.trouble]?.(world);
          arm();
        });
      };
      arm();
      const { room, prompts } = await converse(world, {});
      world.after(0, () => undefined);
      expectSound(world, room, prompts, JSON.stringify(blows));
      await close();
    }),
    { numRuns: 12 },
  );
}, 60_000);
