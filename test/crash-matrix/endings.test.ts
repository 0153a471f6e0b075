/** The ends that are no answer: what cannot be shown, what is taken back, what is stopped. Nobody waits for ever, and nothing is said twice. */
import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, describe, expect, test, vi } from 'vitest';
import { createGate } from '../../synapse-dev/model/reply.ts';
import { ALICE, answersTo, answerTo, expectContiguous, expectSound, ORACLE, openWorld, type World } from './world.ts';

const layout = vi.hoisted(() => ({ isBroken: false }));
vi.mock('../../appservice/content/render-markdown.ts', async (original) => {
  const real = await original<typeof import('../../appservice/content/render-markdown.ts')>();
  return {
    ...real,
    renderMarkdown(...args: Parameters<typeof real.renderMarkdown>) {
      if (layout.isBroken && args[0].startsWith('You said')) throw new RangeError('a bug in the layout');
      return real.renderMarkdown(...args);
    },
  };
});

let world: World;
afterEach(async () => {
  layout.isBroken = false;
  await world.close();
});

async function directRoom(): Promise<string> {
  world = await openWorld({ pieceMs: 1 });
  const room = world.room({ creator: ALICE, invite: [ORACLE], direct: true });
  await world.start();
  await world.drive(world.quiet);
  return room;
}

test('an answer that cannot be laid out ends with an error that is seen, once, and the thread goes on (G5, G15)', async () => {
  const room = await directRoom();
  layout.isBroken = true;
  world.homeserver.say(room, ALICE, 'hello');
  await world.drive(world.quiet);

  expect(world.shown(room).map(({ error }) => error?.['code'])).toEqual(['INTERNAL']);
  layout.isBroken = false;
  const again = world.homeserver.say(room, ALICE, 'and now?');
  await world.drive(world.quiet);
  expect(answersTo(world.shown(room), again.event_id)).toMatchObject([{ status: 'completed' }]);
  expectContiguous(world, 'layout');
});

test('a long answer in several messages is left as it is when the database is lost', async () => {
  const room = await directRoom();
  world.model.enqueue({ kind: 'text', text: Array.from({ length: 400 }, (_, line) => `Paragraph ${line} `.padEnd(100, 'x')).join('\n\n') });
  const prompt = world.homeserver.say(room, ALICE, 'hello');
  await world.drive(world.quiet);
  const before = world.shown(room);
  expect(before.length).toBeGreaterThan(2);

  world.kill();
  rmSync(join(world.folder, '2'), { recursive: true });
  await world.start();
  await world.drive(world.quiet);
  await world.pass(70_000);

  expect(world.shown(room)).toEqual(before);
  expect(answersTo(world.shown(room), prompt.event_id)).toHaveLength(1);
});

describe('a prompt that is taken back', () => {
  test.each(['insert into "seen', 'delete from "inbox', 'update "inbox'])(
    'ends its run visibly and never answers again, also when killed after %s',
    async (step) => {
      const room = await directRoom();
      world.model.enqueue((request) => ({
        kind: 'text',
        text: answerTo(request.lastUserText),
        pace: { chunkChars: 50, delayMs: 1 },
        holds: [{ gate: createGate(), before: 2 }],
      }));
      const prompt = world.homeserver.say(room, ALICE, 'hello');
      await world.drive(() => world.shown(room).length > 0);
      world.after(1, world.kill, new RegExp(step, 'u'));
      world.homeserver.redact(room, ALICE, prompt.event_id);
      await world.drive(() => !world.isAlive || world.quiet(), 20_000);
      if (!world.isAlive) {
        await world.start();
        await world.drive(world.quiet);
      }

      expect(world.shown(room)).toHaveLength(1);
      expect(answersTo(world.shown(room), prompt.event_id)).toMatchObject([{ status: 'cancelled', live: false }]);
      expect(world.rows("SELECT 1 FROM transcript WHERE text LIKE '%hello%' AND role = 'human'")).toEqual([]);
      expectContiguous(world, step);
    },
  );
});

describe('a stop', () => {
  test('while the homeserver hangs ends within its time, and the row in hand is taken up again', async () => {
    await directRoom();
    const room = world.room({ creator: ALICE, invite: [ORACLE], direct: true });
    world.homeserver.trouble(/join/u, { kind: 'hang' });
    await world.drive(() => world.rows(`SELECT 1 FROM rooms WHERE room_id = '${room}'`).length > 0);
    let stopped = false;
    void world.alive.stop().then(() => {
      stopped = true;
    });
    await world.drive(() => stopped, 40_000);
    expect(stopped).toBe(true);
    expect(world.rows(`SELECT attempts FROM inbox WHERE room_id = '${room}' AND type = 'm.room.member' ORDER BY ord LIMIT 1`)).toEqual([
      { attempts: 0 },
    ]);

    world.kill();
    await world.start();
    await world.drive(world.quiet);
    const hello = world.homeserver.say(room, ALICE, 'hello');
    await world.drive(world.quiet);
    expectSound(world, room, [hello], 'hang');
  });

  test('during the start takes nothing up, and the next start does', async () => {
    world = await openWorld();
    const room = world.room({ creator: ALICE, invite: [ORACLE], direct: true });
    const hello = world.homeserver.say(room, ALICE, 'hello');
    world.homeserver.trouble(/sync/u, { kind: 'hang' });
    await world.start();
    await world.drive(() => world.rows('SELECT 1 FROM inbox').length > 0, 5_000);
    const stopping = world.alive.stop();
    await world.drive(() => false, 20_000);
    await stopping;
    const steps = world.steps.length;
    await world.drive(() => false, 20_000);
    expect(world.steps.slice(steps).filter((step) => !step.includes('"seen'))).toEqual([]);

    world.kill();
    await world.start();
    await world.drive(world.quiet);
    expectSound(world, room, [hello], 'stopped while starting');
  });
});

test('an order of the command line that was written before a kill is carried out once after it', async () => {
  const room = await directRoom();
  const { store } = world.alive;
  await store.write((tx) => {
    const row = {
      ord: 0,
      event_id: '$dead' as never,
      room_id: room as never,
      sender: ALICE,
      type: 'm.room.message',
      source: 'push' as const,
      received_at: 1,
      age_ms: 0,
      state: 'dead' as const,
      error: 'GAVE_UP',
    };
    const event = {
      event_id: '$dead',
      room_id: room,
      sender: ALICE,
      type: 'm.room.message',
      origin_server_ts: world.clock.now(),
      content: { msgtype: 'm.text', body: 'hello' },
    };
    tx.run(store.sql.insertInto('inbox').values({ ...row, event: JSON.stringify(event) }));
    tx.run(
      store.sql.insertInto('control').values({ kind: 'inbox.requeue', argument: '$dead', created_at: 1, done_at: null, outcome: null }),
    );
  });
  world.after(1, world.kill, /update "control|update "inbox/u);
  await world.drive(() => !world.isAlive, 5_000);
  await world.start();
  await world.drive(world.quiet);

  // Days old, and yet answered: somebody asked for it.
  expect(answersTo(world.shown(room), '$dead')).toMatchObject([{ status: 'completed' }]);
  expect(world.rows('SELECT outcome FROM control')).toEqual([{ outcome: 'requeued' }]);
});
