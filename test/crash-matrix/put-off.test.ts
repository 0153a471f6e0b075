/** Stops, full disks and long absences in the middle of a run: none of them is the run's fault, and whatever comes of it is seen in the room (G5). */
import { afterEach, describe, expect, test } from 'vitest';
import { createGate, type Gate } from '../../synapse-dev/model/reply.ts';
import type { FakeEvent } from '../fakes/fake-homeserver.ts';
import { breakDisk } from '../fakes/memory-store.ts';
import { ALICE, answersTo, answerTo, expectContiguous, expectSound, ORACLE, openWorld, type World } from './world.ts';

let world: World;
afterEach(() => world.close());

/** A prompt whose answer stands still after its first words. */
async function halfAnswered(): Promise<{ room: string; prompt: FakeEvent; gate: Gate }> {
  world = await openWorld({ pieceMs: 1 });
  const room = world.room({ creator: ALICE, invite: [ORACLE], direct: true });
  await world.start();
  await world.drive(world.quiet);
  const gate = hold();
  const prompt = world.homeserver.say(room, ALICE, 'hello');
  await world.drive(() => world.shown(room).length > 0);
  expect(world.shown(room)[0]?.live).toBe(true);
  return { room, prompt, gate };
}
/** The next answer stops before its third piece until the gate opens, and for good after it. */
function hold(): Gate {
  const gate = createGate();
  world.model.enqueue((request) => ({
    kind: 'text',
    text: answerTo(...request.messages.filter(({ role }) => role === 'user').map(({ text }) => text)),
    pace: { chunkChars: 50, delayMs: 1 },
    holds: [
      { gate, before: 2 },
      { gate: createGate(), before: 3 },
    ],
  }));
  return gate;
}
async function standingAt(gate: Gate): Promise<void> {
  let stands = false;
  void gate.reached.then(() => {
    stands = true;
  });
  await world.drive(() => stands);
}
async function stopAndStart(): Promise<void> {
  const stopped = world.alive.stop();
  await world.drive(() => false, 12_000);
  await stopped;
  world.kill();
  await world.start();
}

test('more restarts than a run has attempts do not end it: it goes on and finishes the same message', async () => {
  const { room, prompt } = await halfAnswered();
  for (let restart = 1; restart <= 5; restart += 1) {
    if (restart < 5) hold();
    await stopAndStart();
    await world.drive(() => world.alive.isReady && world.rows(`SELECT 1 FROM runs WHERE attempt > ${restart}`).length > 0);
  }
  await world.drive(world.quiet);

  expectSound(world, room, [prompt], 'five restarts');
  expect(world.rows('SELECT attempt, put_off FROM runs WHERE run_id = (SELECT max(run_id) FROM runs)')).toEqual([
    { attempt: 6, put_off: 5 },
  ]);
  expect(world.shown(room)).toHaveLength(1);
});

test('a disk that is full again and again does not end it either', async () => {
  let { gate, room, prompt } = await halfAnswered();
  for (let failure = 1; failure <= 5; failure += 1) {
    const disk = breakDisk(world.alive.store);
    gate.release();
    await world.drive(
      () => world.alive.logger.said('error').filter((line) => line.includes('frames cannot be written')).length === failure,
    );
    await world.pass(10_000);
    if (failure < 5) gate = hold();
    disk.repair();
    await world.drive(() => world.rows(`SELECT 1 FROM runs WHERE attempt > ${failure}`).length > 0);
    if (failure < 5) await standingAt(gate);
  }
  await world.drive(world.quiet);

  expectSound(world, room, [prompt], 'five full disks');
  expect(world.rows('SELECT attempt, put_off FROM runs WHERE run_id = (SELECT max(run_id) FROM runs)')).toEqual([
    { attempt: 6, put_off: 5 },
  ]);
  expect(world.shown(room)).toHaveLength(1);
});

describe('killed in the middle of an answer and away', () => {
  test.each([4, 20, 26 * 60])('for %s minutes: the message ends, with its text or with what there was and a marker', async (minutes) => {
    const { room, prompt } = await halfAnswered();
    world.kill();
    world.clock.jump(minutes * 60_000);
    await world.start();
    await world.drive(world.quiet);

    const [answer, ...more] = answersTo(world.shown(room), prompt.event_id);
    expect(more).toEqual([]);
    expect(answer?.live).toBe(false);
    if (minutes < 5) expect(answer).toMatchObject({ status: 'completed', text: answerTo('hello') });
    else expect(answer).toMatchObject({ status: 'expired', text: expect.stringMatching(/^You said hello.*\n\n\*.+\*$/su) });
    expectContiguous(world, `${minutes} minutes`);
    const again = world.homeserver.say(room, ALICE, 'still there?');
    await world.drive(world.quiet);
    expect(answersTo(world.shown(room), again.event_id)).toMatchObject([{ status: 'completed', live: false }]);
  });

  test('three times: it is ended with a marker, not with silence', async () => {
    const { room, prompt } = await halfAnswered();
    for (let kill = 1; kill <= 3; kill += 1) {
      hold();
      world.kill();
      await world.start();
      await world.drive(() => world.alive.isReady && world.rows(`SELECT 1 FROM runs WHERE attempt > ${kill}`).length > 0);
    }
    await world.drive(world.quiet);

    expect(answersTo(world.shown(room), prompt.event_id)).toMatchObject([{ status: 'interrupted', live: false }]);
    expectContiguous(world, 'three kills');
  });
});

test('a message that was acknowledged before a long absence is said to be too late, not dropped', async () => {
  world = await openWorld();
  const room = world.room({ creator: ALICE, invite: [ORACLE], direct: true });
  await world.start();
  await world.drive(world.quiet);
  world.homeserver.say(room, ALICE, 'hello');
  world.after(1, world.kill);
  await world.drive(() => !world.isAlive);
  world.clock.jump(3 * 3_600_000);
  await world.start();
  await world.drive(world.quiet);

  expect(world.shown(room).map(({ error }) => error?.['code'])).toEqual(['TOO_LATE']);
});
