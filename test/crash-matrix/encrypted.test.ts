/**
 * A process that dies while messages of an encrypted room wait for their keys: at parking, at waking, at the notice. Whatever was committed then, each
 * message is answered once, its sender is asked once, and the room goes on (G1, G2, G4, G5).
 */
import { afterEach, expect, test } from 'vitest';
import { isJsonObject } from '../../src/json.ts';
import type { FakeEvent } from '../fakes/fake-homeserver.ts';
import { ALICE, answersTo, answerTo, expectContiguous, ORACLE, openWorld, type World } from './world.ts';

const open: World[] = [];
afterEach(async () => {
  for (const world of open.splice(0)) await world.close();
});

async function untilQuiet(world: World, isDone: () => boolean = () => true): Promise<void> {
  const isQuiet = (): boolean => world.quiet() && isDone();
  await world.drive(() => !world.isAlive || isQuiet());
  while (!world.isAlive) {
    await world.start();
    await world.drive(() => !world.isAlive || isQuiet());
  }
}
const parked = (world: World): string[] =>
  world.rows<{ event_id: string }>("SELECT event_id FROM inbox WHERE state = 'parked' ORDER BY ord").map((row) => row.event_id);
const notices = (world: World, room: string) => world.shown(room).filter(({ error }) => error !== undefined);

async function encryptedRoom(): Promise<{ world: World; room: string }> {
  const world = await openWorld();
  open.push(world);
  const room = world.room({ creator: ALICE, invite: [ORACLE], direct: true, encrypted: true });
  await world.start();
  await world.drive(world.quiet);
  return { world, room };
}

/** 'one' has no key for a long time; 'two' is read at once; then 'one' is. */
async function converse(world: World, room: string): Promise<FakeEvent[]> {
  const one = world.sayEncrypted(room, ALICE, 'one', { session: 'lost', index: 0 });
  await world.bringKey('here');
  const two = world.sayEncrypted(room, ALICE, 'two', { session: 'here', index: 0 });
  await untilQuiet(world, () => parked(world).length === 1);
  await untilQuiet(world, () => notices(world, room).length > 0);
  await world.bringKey('lost');
  await untilQuiet(world, () => parked(world).length === 0);
  return [one, two];
}

function expectAnswered(world: World, room: string, prompts: readonly FakeEvent[], why: string): void {
  const shown = world.shown(room);
  for (const { event_id: id, content } of prompts)
    expect(answersTo(shown, id), `${why}: ${JSON.stringify(shown)}`).toMatchObject([
      { status: 'completed', live: false, text: answerTo(String(content['body'])) },
    ]);
  // Nothing was said in the clear (G11).
  const own = world.homeserver.timeline(room).filter(({ sender, state_key: key }) => sender === ORACLE && key === undefined);
  expect(new Set(own.map(({ type }) => type)), why).toEqual(new Set(['m.room.encrypted']));
  expect(world.rows('SELECT * FROM inbox'), why).toEqual([]);
  expectContiguous(world, why);
}

test('without a crash: answered when its key came, and told once in between', async () => {
  const { world, room } = await encryptedRoom();

  const prompts = await converse(world, room);

  expectAnswered(world, room, prompts, 'no crash');
  const told = notices(world, room).map(({ error }) => isJsonObject(error) && error['code']);
  expect(told).toEqual(['CANNOT_READ']);
});

test('kill -9 after each step of waiting, telling and waking: one answer each, one notice, and the next turn works', async () => {
  const points: string[] = [];
  for (let steps = 1; ; steps += 1) {
    const { world, room } = await encryptedRoom();
    world.after(steps, world.kill);
    const prompts = await converse(world, room);
    const { struckAt } = world;
    world.after(0, () => undefined);
    const why = `after step ${steps}: ${struckAt}`;
    prompts.push(world.sayEncrypted(room, ALICE, 'three', { session: 'here', index: 1 }));
    await untilQuiet(world);

    expectAnswered(world, room, prompts, why);
    expect(notices(world, room), why).toHaveLength(1);
    await world.close();
    open.length = 0;
    if (struckAt === null) break;
    points.push(struckAt);
  }
  expect(points).toEqual(
    expect.arrayContaining(['a key is on disk', 'commit: update "inbox" inbox', 'commit: insert into "decrypted" decrypted']),
  );
}, 300_000);

test('a key that came while the process was dead is found by the next, before anybody is asked (G1)', async () => {
  const { world, room } = await encryptedRoom();
  const one = world.sayEncrypted(room, ALICE, 'one', { session: 's', index: 0 });
  await world.drive(() => parked(world).length === 1);
  world.kill();
  await world.bringKey('s');

  await untilQuiet(world, () => parked(world).length === 0);

  expectAnswered(world, room, [one], 'key while away');
  expect(notices(world, room)).toEqual([]);
});
