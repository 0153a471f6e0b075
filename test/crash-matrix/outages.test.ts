/** The homeserver restarts, stalls and loses what it had queued: nobody waits in vain, and everything is said in its order. */
import { afterEach, describe, expect, test } from 'vitest';
import type { FakeEvent } from '../fakes/fake-homeserver.ts';
import { ALICE, answersTo, expectSound, ORACLE, openWorld, type World } from './world.ts';

let world: World;
afterEach(() => world.close());

async function directRoom(): Promise<string> {
  world = await openWorld();
  const room = world.room({ creator: ALICE, invite: [ORACLE], direct: true });
  await world.start();
  await world.drive(world.quiet);
  return room;
}

describe('an invite', () => {
  test.each([
    ['down', 3],
    ['down', 90],
    ['behind a proxy that answers 502', 90],
    ['failing for this room', 50],
  ])('that arrives while the homeserver is %s for %s minutes is taken afterwards (G1)', async (trouble, minutes) => {
    await directRoom();
    const room = world.room({ creator: ALICE, invite: [ORACLE], direct: true });
    const answer502 = { kind: 'answer', status: 502, body: 'Bad gateway' } as const;
    let failing = true;
    if (trouble === 'down') world.homeserver.stop();
    else world.fail(trouble.startsWith('behind') ? /./u : /join/u, () => (failing ? answer502 : undefined));
    await world.pass(minutes * 60_000);
    expect(world.rows(`SELECT * FROM inbox WHERE room_id = '${room}'`)).not.toEqual([]);

    failing = false;
    world.homeserver.start();
    await world.drive(world.quiet);
    const hello = world.homeserver.say(room, ALICE, 'hello');
    await world.drive(world.quiet);

    expectSound(world, room, [hello], `${trouble} for ${minutes} min`);
  });

  test('into a room that can never be joined is given up after an hour, not before and not never', async () => {
    await directRoom();
    const room = world.room({ creator: ALICE, invite: [ORACLE], direct: true });
    world.fail(/join/u, () => ({ kind: 'answer', status: 502, body: {} }));

    await world.pass(59 * 60_000);
    expect(world.rows<{ state: string }>(`SELECT state FROM inbox WHERE room_id = '${room}'`)).toEqual([{ state: 'ready' }]);
    await world.pass(10 * 60_000);

    expect(world.rows<{ state: string }>(`SELECT state FROM inbox WHERE room_id = '${room}'`)).toEqual([{ state: 'dead' }]);
  });
});

test('more than one sync holds, lost by the push, is answered in the order it was written (G1, G3)', async () => {
  const room = await directRoom();
  const prompts: FakeEvent[] = [];
  while (prompts.length < 45) {
    prompts.push(world.homeserver.say(room, ALICE, `message ${prompts.length}`));
    world.losePushes();
    await world.clock.advanceAsync(1_000);
  }
  await world.pass(70_000);
  await world.drive(world.quiet);

  const taken = world.rows<{ prompt_id: string }>('SELECT prompt_id FROM pending_inputs ORDER BY run_id, id');
  expect(taken.map(({ prompt_id }) => prompt_id)).toEqual(prompts.map(({ event_id }) => event_id));
  for (const prompt of prompts) expect(answersTo(world.shown(room), prompt.event_id)).toHaveLength(1);
});

test('a reply to the oracle in a group is no small talk because the homeserver could not say whom it answers (G1)', async () => {
  await directRoom();
  const room = world.room({ creator: ALICE, invite: [ORACLE] });
  await world.drive(world.quiet);
  const first = world.homeserver.say(room, ALICE, 'hello', { 'm.mentions': { user_ids: [ORACLE] } });
  await world.drive(world.quiet);
  const [greeting] = world.shown(room);
  const reply = world.homeserver.say(room, ALICE, 'and this?', {
    'm.mentions': {},
    'm.relates_to': { 'm.in_reply_to': { event_id: greeting?.eventId ?? '' } },
  });
  let failures = 3;
  world.fail(/\/event\//u, () => (failures-- > 0 ? { kind: 'answer', status: 502, body: {} } : undefined));
  await world.drive(world.quiet);

  expect(answersTo(world.shown(room), first.event_id)).toHaveLength(1);
  expect(answersTo(world.shown(room), reply.event_id)).toHaveLength(1);
});

describe('answers of one room', () => {
  test.each([
    ['refuses connections', null],
    ['answers 502', { status: 502, body: 'Bad gateway' }],
    ['answers 503', { status: 503, body: {} }],
    ['asks to wait (429)', { status: 429, body: { errcode: 'M_LIMIT_EXCEEDED', retry_after_ms: 2_000 } }],
    ['fails now and then (500)', { status: 500, body: { errcode: 'M_UNKNOWN' } }],
  ])('stand in the order of the questions although the homeserver %s while they are ready (G3)', async (_name, answer) => {
    const room = await directRoom();
    const prompts: FakeEvent[] = [];
    for (const text of ['one', 'two', 'three']) {
      prompts.push(world.homeserver.say(room, ALICE, text));
      await world.drive(() => world.rows('SELECT 1 FROM inbox').length > 0);
      await world.drive(() => world.rows('SELECT 1 FROM runs').length === prompts.length);
      if (answer === null) world.homeserver.stop();
      else world.fail(/send/u, () => answer);
      await world.drive(() => world.rows("SELECT 1 FROM runs WHERE status = 'completed'").length === prompts.length);
    }
    await world.pass(7_000);
    world.homeserver.start();
    world.fail(/send/u, () => undefined);
    await world.drive(world.quiet);

    expectSound(world, room, prompts, _name);
  });

  test.each([
    ['500', { status: 500, body: { errcode: 'M_UNKNOWN' } }],
    ['502', { status: 502, body: 'Bad gateway' }],
    ['429', { status: 429, body: { errcode: 'M_LIMIT_EXCEEDED', retry_after_ms: 4_000 } }],
  ])('stand in that order when only the first one is answered with %s, three times (G3)', async (_name, answer) => {
    const room = await directRoom();
    let first: string | undefined;
    let failures = 3;
    world.fail(/send/u, (path) => {
      first ??= path;
      return path === first && failures-- > 0 ? answer : undefined;
    });
    const prompts: FakeEvent[] = [];
    for (const text of ['one', 'two', 'three']) {
      prompts.push(world.homeserver.say(room, ALICE, text));
      await world.drive(() => world.rows('SELECT 1 FROM runs').length === prompts.length);
      await world.drive(() => world.rows("SELECT 1 FROM runs WHERE status = 'completed'").length === prompts.length);
    }
    await world.drive(world.quiet);

    expectSound(world, room, prompts, _name);
  });

  test('wait for one that always fails no longer than half a minute (G4)', async () => {
    const room = await directRoom();
    let first: string | undefined;
    world.fail(/send/u, (path) => {
      first ??= path;
      return path === first ? { status: 500, body: { errcode: 'M_UNKNOWN' } } : undefined;
    });
    world.homeserver.say(room, ALICE, 'one');
    await world.drive(() => world.rows("SELECT 1 FROM runs WHERE status = 'completed'").length === 1);
    const two = world.homeserver.say(room, ALICE, 'two');
    const from = world.clock.monotonic();
    await world.drive(() => world.shown(room).length > 0);

    expect(answersTo(world.shown(room), two.event_id)).toHaveLength(1);
    expect(world.clock.monotonic() - from).toBeLessThan(30_000);
  });
});
