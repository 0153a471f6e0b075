/** A portal's prompt stands in the room before its answer, both once, whatever dies in between; who waits for it over HTTP hears the end (G2, G4, G7). */
import { afterEach, expect, test } from 'vitest';
import type { RunNews } from '../../src/runs/viewers.ts';
import type { SidecarDeps } from '../../src/sidecar/deps.ts';
import type { Paced } from '../../src/turn/throttle.ts';
import { ALICE, answerTo, expectContiguous, ORACLE, openWorld, type World } from './world.ts';

const open: World[] = [];
afterEach(async () => {
  for (const world of open.splice(0)) await world.close();
});
async function directRoom(): Promise<{ world: World; room: string; session: string }> {
  const world = await openWorld({ pieceMs: 1 });
  open.push(world);
  const room = world.room({ creator: ALICE, invite: [ORACLE], direct: true });
  await world.start();
  await world.drive(world.quiet);
  const hello = world.homeserver.say(room, ALICE, 'hello');
  await world.drive(world.quiet);
  return { world, room, session: hello.event_id };
}
function sidecarOf(world: World): SidecarDeps {
  const deps = world.alive.sidecar;
  if (deps === undefined) throw new Error('the sidecar is not there');
  return deps;
}
/** What POST /messages does once the caller is known; the token makes it the same prompt when it is sent again. */
async function post(
  world: World,
  { room, session, token, text }: { room: string; session: string; token: string; text: string },
): Promise<string> {
  const deps = sidecarOf(world);
  const known = world.rows<{ run_id: string }>(`SELECT run_id FROM pending_inputs WHERE prompt_id = 'http:${token}'`)[0];
  if (known !== undefined) return known.run_id;
  const promptId = `http:${token}`;
  const turn = {
    incoming: {
      via: 'http',
      text,
      roomId: room,
      direct: true,
      sender: ALICE,
      hints: {},
      requestId: token,
      sessionId: session,
      alongside: (tx: never, opened: { runId: string; sessionId: never; threadRoot: null }) =>
        deps.mirrorPrompt(tx, { ...opened, roomId: room as never, text, did: 'did:key:z' as never, requestId: token, promptId } as never),
    },
    principal: {
      id: `matrix:u/${ALICE.slice(1)}`,
      did: null,
      matrixUserId: ALICE,
      tier: 'listed',
      grants: { path: [], until: null },
      trust: null,
    },
    token: null,
    promptId,
    grants: [],
    carried: [],
  } as unknown as Paced;
  const opened = await deps.turn.open(turn);
  if (!opened.ok) throw new Error(opened.error.code);
  deps.wakeScheduler();
  return opened.value.runId;
}

test('killed after each step', async () => {
  for (let steps = 1; ; steps += 2) {
    const { world, room, session } = await directRoom();
    const before = world.shown(room).length;
    world.after(steps, world.kill);
    const request = { room, session, token: 'token', text: 'from the portal' };
    void post(world, request);
    await world.drive(() => !world.isAlive || world.rows("SELECT 1 FROM pending_inputs WHERE prompt_id = 'http:token'").length > 0);
    await world.drive(() => !world.isAlive || world.quiet());
    const isOver = world.isAlive;
    world.after(0, () => undefined);
    if (!world.isAlive) await world.start();
    // The portal got no answer and asks again.
    await post(world, request);
    await world.drive(world.quiet);

    const shown = world.shown(room).slice(before);
    const why = `after step ${steps}: ${world.struckAt}`;
    expect(
      shown.map(({ msgtype }) => msgtype),
      why,
    ).toEqual(['m.notice', 'm.text']);
    expect(shown[0]?.body, why).toContain('from the portal');
    expect(shown[1], why).toMatchObject({ live: false, body: answerTo('from the portal'), run: { status: 'completed' } });
    expect(shown[1]?.run?.prompts, why).toEqual([shown[0]?.eventId]);
    expectContiguous(world, why);
    await world.close();
    open.length = 0;
    if (isOver) break;
  }
}, 60_000);

test('who waits for a run that is cancelled before it starts hears of it', async () => {
  const { world, room, session } = await directRoom();
  world.model.enqueue({ kind: 'stall', text: 'first', afterChunks: 1 });
  await post(world, { room, session, token: 'first', text: 'first' });
  await world.drive(() => world.rows("SELECT 1 FROM runs WHERE status = 'running'").length > 0);
  const run = await post(world, { room, session, token: 'second', text: 'second' });
  const heard: RunNews[] = [];
  const waiting = (async () => {
    const { viewers } = sidecarOf(world);
    for await (const news of viewers.follow(run as never, { after: 0, idleMs: 15_000, signal: new AbortController().signal }))
      heard.push(news);
  })();
  await world.drive(() => false, 1_000);
  const { store, runs } = sidecarOf(world);
  await store.write((tx) => runs.cancelQueued(tx, session as never, world.clock.now()));
  await world.drive(() => heard.some(({ kind }) => kind === 'over'), 16_000);
  await waiting;

  expect(heard.at(-1)).toEqual({ kind: 'over', status: 'cancelled' });
});

test('killed after each step of a first conversation from a portal: one room, one notice (G4)', async () => {
  const struck: (string | null)[] = [];
  for (let steps = 1; ; steps += 1) {
    const world = await openWorld();
    open.push(world);
    await world.start();
    await world.drive(world.quiet);
    world.after(steps, world.kill);
    const ask = () => sidecarOf(world).openSession({ roomId: null, userId: ALICE, did: 'did:key:z', tokenId: 'token' } as never);
    let opened = false;
    const asking = () =>
      void ask().then(
        (session) => {
          opened = session.ok;
        },
        () => undefined,
      );
    asking();
    await world.drive(() => !world.isAlive || opened);
    await world.drive(() => !world.isAlive || world.quiet(), 5_000);
    const isOver = world.isAlive;
    world.after(0, () => undefined);
    if (!world.isAlive) {
      await world.start();
      // The portal got no answer and asks again; by then it may find the room itself, as the sidecar does.
      const [known] = world.rows<{ room_id: string }>(`SELECT room_id FROM rooms WHERE inviter = '${ALICE}' AND membership = 'joined'`);
      opened = false;
      if (known === undefined) asking();
      else
        void sidecarOf(world)
          .openSession({ roomId: known.room_id, userId: ALICE, did: 'did:key:z', tokenId: 'token' } as never)
          .then((session) => {
            opened = session.ok;
          });
    }
    await world.drive(() => opened);
    await world.drive(world.quiet, 5_000);

    struck.push(world.struckAt);
    const why = `after step ${steps}: ${world.struckAt}`;
    expect(opened, why).toBe(true);
    const created = world.homeserver.requests.filter(({ path }) => path.endsWith('/createRoom'));
    expect(created, why).toHaveLength(1);
    const [room] = world.rows<{ room_id: string }>(`SELECT room_id FROM rooms WHERE inviter = '${ALICE}'`);
    expect(
      world.shown(room?.room_id ?? '').map(({ msgtype }) => msgtype),
      why,
    ).toEqual(['m.notice']);
    expect(world.rows("SELECT 1 FROM state WHERE scope = 'portal'"), why).toEqual([]);
    await world.close();
    open.length = 0;
    if (isOver) {
      expect(struck).toContain('homeserver: createRoom');
      break;
    }
  }
}, 60_000);
