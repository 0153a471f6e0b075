/**
 * Messages, keys, notices, restarts and full disks in any order: what could not be read is neither lost nor answered twice (G1, G2), nobody is asked
 * twice for one session, and what did not have to stand aside keeps its order (G3).
 */
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { createDispatcher } from '../../../src/inbox/dispatcher.ts';
import type { Store, Tx } from '../../../src/store/store.ts';
import { buildCore, type Core } from '../../fakes/core.ts';
import { ALICE, BOB, incoming, OTHER_ROOM, ROOM } from '../../fakes/events.ts';
import { fakeClock } from '../../fakes/fake-clock.ts';
import { encrypted } from '../../fakes/fake-reveal.ts';
import { breakDisk, memoryStore, settle } from '../../fakes/memory-store.ts';

type Action =
  | { do: 'say'; session: string | null; by: 'alice' | 'bob'; room: 'one' | 'two' }
  | { do: 'key'; session: string; how: 'told' | 'lost' }
  | { do: 'pass'; ms: number }
  | { do: 'sync' | 'restart' | 'kill' | 'full' | 'closed' }
  /** The key comes while the next message is looked at. */
  | { do: 'race'; after: number };

const SESSIONS = ['s', 't', 'u'];
const session = fc.constantFrom(...SESSIONS);
const action: fc.Arbitrary<Action> = fc.oneof(
  {
    weight: 5,
    arbitrary: fc.record({
      do: fc.constant('say'),
      session: fc.option(session),
      by: fc.constantFrom('alice', 'bob'),
      room: fc.constantFrom('one', 'two'),
    }),
  },
  { weight: 2, arbitrary: fc.record({ do: fc.constant('key'), session, how: fc.constantFrom('told', 'lost') }) },
  { weight: 4, arbitrary: fc.record({ do: fc.constant('pass'), ms: fc.constantFrom(0, 500, 2_500, 4_000, 61_000, 90_000) }) },
  { weight: 3, arbitrary: fc.record({ do: fc.constantFrom('sync', 'restart', 'kill', 'full', 'closed') }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('race'), after: fc.integer({ min: 1, max: 4 }) }) },
) as fc.Arbitrary<Action>;

interface Outcome {
  readonly event: string;
  readonly what: string;
}

async function play(actions: readonly Action[]) {
  const store = memoryStore();
  const clock = fakeClock();
  const keys = new Set<string>();
  const said: { event: string; room: string; by: string }[] = [];
  const cores: Core[] = [];
  let end: (kill: boolean) => Promise<void> = async () => undefined;

  async function start(): Promise<Core> {
    const fence = cores.length + 1;
    let dead = false;
    const own = {
      now: clock.now,
      monotonic: clock.monotonic,
      after: (ms: number, callback: () => void) => clock.after(ms, () => (dead ? undefined : callback())),
    };
    const living: Store = {
      ...store,
      write: <T>(change: (tx: Tx) => T) => (dead ? new Promise<T>(() => undefined) : store.write(change)),
    };
    const core = buildCore({ store: living, clock: { ...clock, ...own }, fence, admit: { flood: { allows: () => true } } });
    cores.push(core);
    core.execute = null;
    for (const room of [ROOM, OTHER_ROOM]) core.rooms.room(room, { kind: 'direct', encryption: 'encrypted' });
    for (const key of keys) core.crypto.bring(key, { untold: true });
    const { inbox, logger, admit, watch } = core;
    const dispatcher = createDispatcher({
      ...{ inbox, logger, store: living, clock: own, handle: admit.handle, giveUp: admit.giveUp },
      heldUntil: () => null,
      maxRooms: 4,
    });
    watch.start();
    dispatcher.start();
    end = async (kill) => {
      core.crypto.onLook = () => undefined;
      if (kill) dead = true;
      else {
        await watch.stop();
        await dispatcher.stop();
      }
      dead = true;
    };
    await settle();
    return core;
  }
  async function pass(ms: number): Promise<void> {
    await clock.advanceAsync(ms);
    await settle(40);
  }

  let core = await start();
  for (const [at, step] of actions.entries()) {
    switch (step.do) {
      case 'say': {
        const base = { roomId: step.room === 'one' ? ROOM : OTHER_ROOM, sender: step.by === 'alice' ? ALICE : BOB };
        said.push({ event: `$m${at}`, room: base.roomId, by: base.sender });
        // A session belongs to one sender in one room.
        const own = `${step.session}.${step.by}.${step.room}`;
        await core.inbox.receive([
          step.session === null ? incoming(`m${at}`, base) : encrypted(`m${at}`, { session: own, index: at }, base),
        ]);
        break;
      }
      case 'key':
        for (const by of ['alice', 'bob'])
          for (const room of ['one', 'two']) {
            keys.add(`${step.session}.${by}.${room}`);
            core.crypto.bring(`${step.session}.${by}.${room}`, { untold: step.how === 'lost' });
          }
        // Whoever dies between the key and the word of it is started again.
        if (step.how === 'lost') {
          await end(true);
          core = await start();
        }
        break;
      case 'race': {
        let looks = 0;
        core.crypto.onLook = (id) => {
          looks += 1;
          if (looks !== step.after) return;
          keys.add(id);
          core.crypto.bring(id);
        };
        break;
      }
      case 'pass':
        await pass(step.ms);
        break;
      case 'sync':
        core.crypto.sync();
        break;
      case 'full': {
        const disk = breakDisk(store);
        await pass(2_500);
        disk.repair();
        break;
      }
      case 'closed':
        core.crypto.closed = true;
        await pass(2_500);
        core.crypto.closed = false;
        break;
      default:
        await end(step.do === 'kill');
        core = await start();
    }
    await settle(3);
  }
  // Of a key that is here nobody says so again.
  const all = SESSIONS.flatMap((id) => ['alice.one', 'alice.two', 'bob.one', 'bob.two'].map((whose) => `${id}.${whose}`));
  for (const id of all) if (!keys.has(id)) core.crypto.bring(id);
  for (let step = 0; step < 16; step += 1) await pass(4_000);
  await end(false);

  const outcomes = cores.flatMap(({ logger }) =>
    logger.lines
      .filter(({ message }) => message === 'an event was admitted or ignored')
      .map((line): Outcome => ({ event: String(line['event_id']), what: `${line['type']}:${line['reason']}` })),
  );
  const { read, sql } = store;
  return {
    said,
    outcomes,
    left: read.all(sql.selectFrom('inbox').select(['event_id', 'state', 'error'])),
    prompts: read.all(sql.selectFrom('pending_inputs').select('prompt_id').orderBy('id')).map(({ prompt_id }) => prompt_id),
    told: read.all(sql.selectFrom('notice_stamps').select('key').where('key', 'like', 'unreadable:%')).length,
    notices: read.all(sql.selectFrom('outbox').select(['txn_id', 'content'])),
  };
}

test('park, wake and notice lose and double nothing, however they interleave (G1, G2, G3)', async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(action, { minLength: 4, maxLength: 24 }), async (actions) => {
      const { said, outcomes, left, prompts, told, notices } = await play(actions);

      expect(left).toEqual([]);
      expect(new Set(prompts).size).toBe(prompts.length);
      const unanswered = said.filter(({ event }) => !prompts.includes(event));
      // Only what its sender was asked to send again, and who then went on talking.
      for (const { event, room, by } of unanswered) {
        expect(outcomes).toContainEqual({ event, what: 'ignored:sent_again' });
        const later = said.slice(said.findIndex((one) => one.event === event) + 1);
        expect(later.some((one) => one.room === room && one.by === by)).toBe(true);
        expect(notices.length).toBeGreaterThan(0);
      }
      expect(notices.length).toBeLessThanOrEqual(told);
      const parked = new Set(outcomes.filter(({ what }) => what.startsWith('parked:')).map(({ event }) => event));
      for (const room of [ROOM, OTHER_ROOM]) {
        const inOrder = said.filter((one) => one.room === room && !parked.has(one.event)).map(({ event }) => event);
        expect(prompts.filter((prompt) => inOrder.includes(prompt))).toEqual(inOrder);
      }
    }),
    { numRuns: 400 },
  );
});
