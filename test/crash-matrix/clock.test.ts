/** The wall clock is put back while somebody waits for it: what is stored as "not before" must not wait until the clock has caught up. */
import { afterEach, expect, test } from 'vitest';
import { ALICE, answersTo, expectSound, ORACLE, openWorld, type World } from './world.ts';

let world: World;
afterEach(() => world.close());
const HOUR = 3_600_000;

async function directRoom(): Promise<string> {
  world = await openWorld();
  const room = world.room({ creator: ALICE, invite: [ORACLE], direct: true });
  await world.start();
  await world.drive(world.quiet);
  return room;
}

test('a message that waited for the homeserver, and an answer that waited for it, go on within a minute', async () => {
  const room = await directRoom();
  const first = world.homeserver.say(room, ALICE, 'one');
  world.fail(/send/u, () => ({ status: 500, body: { errcode: 'M_UNKNOWN' } }));
  await world.drive(() => world.rows('SELECT 1 FROM outbox WHERE attempts > 1').length > 0);
  const other = world.room({ creator: ALICE, invite: [ORACLE], direct: true });
  world.fail(/join|send/u, () => ({ status: 502, body: {} }));
  await world.drive(() => world.rows('SELECT 1 FROM inbox WHERE not_before > 0').length > 0);

  world.kill();
  world.clock.jump(-HOUR);
  world.fail(/./u, () => undefined);
  await world.start();
  await world.drive(world.quiet, 60_000);
  const second = world.homeserver.say(other, ALICE, 'two');
  await world.drive(world.quiet, 60_000);

  expectSound(world, room, [first], 'clock put back');
  expect(answersTo(world.shown(other), second.event_id)).toMatchObject([{ status: 'completed' }]);
});

test('the next run of a session does not overtake one that waits since before', async () => {
  const room = await directRoom();
  world.model.enqueue({ kind: 'stall', text: 'You said one', afterChunks: 1 });
  const prompts = [world.homeserver.say(room, ALICE, 'one')];
  await world.drive(() => world.rows("SELECT 1 FROM runs WHERE status = 'running'").length > 0);
  prompts.push(world.homeserver.say(room, ALICE, 'two'));
  await world.drive(() => world.rows('SELECT 1 FROM runs').length === 2);

  world.kill();
  world.clock.jump(-HOUR);
  await world.start();
  prompts.push(world.homeserver.say(room, ALICE, 'three', { 'ixo.oracle.turn': { timezone: 'Europe/Berlin' } }));
  await world.drive(world.quiet);

  expectSound(world, room, prompts, 'clock put back');
});
