/**
 * What a person does while the oracle works (DESIGN §7), killed after each few steps: a further message is taken in once or answered once, an
 * interruption and a stop are final, an edit makes one answer of two. Nothing a crash does may repeat or forget one of them (G2, G5, G6, G9).
 */
import { afterEach, expect, test } from 'vitest';
import { createGate, type Gate } from '../../synapse-dev/model/reply.ts';
import type { FakeEvent } from '../fakes/fake-homeserver.ts';
import { ALICE, answersTo, answerTo, BOB, expectContiguous, ORACLE, openWorld, type World } from './world.ts';

const open: World[] = [];
const close = async (): Promise<void> => {
  for (const world of open.splice(0)) await world.close();
};
afterEach(close);

/** One story, told once for each step that it may be killed after. */
interface Story {
  readonly world: World;
  readonly room: string;
  say(text: string, more?: Parameters<World['homeserver']['say']>[3]): FakeEvent;
  /** Goes on, with a new process whenever one died, until `until`, or until nothing waits. */
  goOn(until?: () => boolean): Promise<void>;
  /** What the model gets stands still before its second piece, at every call, until the gate is opened. */
  readonly gate: Gate;
}
const asked = (text: string): string => `SELECT 1 FROM pending_inputs WHERE text = '${text}'`;

async function tell(
  killAfter: number,
  tellIt: (story: Story) => Promise<FakeEvent[]>,
  check: (story: Story, why: string, said: FakeEvent[]) => void,
): Promise<string | null> {
  const world = await openWorld({ pieceMs: 1 });
  open.push(world);
  const room = world.room({ creator: ALICE, invite: [ORACLE], direct: true });
  await world.start();
  await world.drive(world.quiet);
  const gate = createGate();
  world.model.respond(({ messages }) => {
    const lastAnswer = messages.findLastIndex(({ role, toolCalls }) => role === 'assistant' && toolCalls.length === 0);
    const turn = messages.slice(lastAnswer + 1);
    const prompts = turn.filter(({ role }) => role === 'user').map(({ text }) => text);
    // In a group the speaker stands in front.
    const first = prompts[0]?.replace(/^@\S+: /u, '') ?? '';
    const isHeld = prompts.length === 1 && /^(?:write|hold)/u.test(first);
    const holds = isHeld ? { holds: [{ gate, before: 1 }] } : {};
    if (first.startsWith('write') && !turn.some(({ role }) => role === 'tool'))
      return { kind: 'toolCalls', text: ['Writing ', 'it down.'], calls: [{ name: 'write_note', args: { note: first } }], ...holds };
    return { kind: 'text', text: answerTo(...prompts), pace: { chunkChars: 50, delayMs: 1 }, ...holds };
  });
  const story: Story = {
    world,
    room,
    gate,
    say: (text, more) => world.homeserver.say(room, ALICE, text, more),
    async goOn(until = world.quiet) {
      await world.drive(() => !world.isAlive || until());
      while (!world.isAlive) {
        await world.start();
        await world.drive(() => !world.isAlive || until());
      }
    },
  };
  world.after(killAfter, () => world.kill());
  const said = await tellIt(story);
  const { struckAt } = world;
  world.after(0, () => undefined);
  const why = `killed after step ${killAfter}: ${struckAt}`;
  check(story, why, said);
  expectContiguous(world, why);
  expect(new Set(world.effects).size, `${why}: ${world.effects.join()}`).toBe(world.effects.length);
  const next = story.say('still there?');
  await story.goOn();
  expect(answersTo(world.shown(room), next.event_id), why).toMatchObject([
    { status: 'completed', text: expect.stringContaining('still there?. word0') },
  ]);
  await close();
  return struckAt;
}

async function killedAfterEach(every: number, ...story: [Parameters<typeof tell>[1], Parameters<typeof tell>[2]]): Promise<void> {
  let points = 0;
  for (let steps = 1; (await tell(steps, ...story)) !== null; steps += every) points += 1;
  expect(points).toBeGreaterThan(3);
}

const shownFor = ({ world, room }: Story, event: FakeEvent | undefined) => answersTo(world.shown(room), event?.event_id ?? '?');

test('a further message is taken in before the next model call, or answered by a run of its own: once, in order (G2, G3, G5)', async () => {
  await killedAfterEach(
    6,
    async (story) => {
      const { world, gate, say } = story;
      const said = [say('write this')];
      await story.goOn(() => world.rows("SELECT 1 FROM runs WHERE status = 'running'").length > 0);
      said.push(say('more'), say('and more'));
      await story.goOn(() => world.rows(asked('and more')).length > 0);
      gate.release();
      await story.goOn();
      return said;
    },
    (story, why, said) => {
      const answers = said.map((event) => shownFor(story, event));
      for (const one of answers) expect(one, why).toMatchObject([{ status: 'completed', live: false }]);
      // Together or apart: each prompt is named by one answer, and that answer is to it.
      for (const [answer] of answers) {
        const texts = (answer?.prompts ?? []).map((id) => String(said.find(({ event_id }) => event_id === id)?.content['body']));
        expect(answer?.text, why).toBe(`${texts[0] === 'write this' ? 'Writing it down.\n\n' : ''}${answerTo(...texts)}`);
      }
      expect([...new Set(answers.flatMap(([answer]) => answer?.prompts ?? []))], why).toEqual(said.map(({ event_id }) => event_id));
      // Killed between its mark and its end, a call is not made again: nobody knows whether it happened.
      expect(story.world.effects, why).toEqual(why.includes('insert into "tool_marks') ? [] : ['write this']);
    },
  );
}, 120_000);

test('a message that interrupts ends the answer under way with its text so far, and is answered (G2, G9)', async () => {
  await killedAfterEach(
    6,
    async (story) => {
      const { world, room, say } = story;
      const said = [say('hold on')];
      await story.goOn(() => world.shown(room).length > 0);
      said.push(say('never mind', { 'ixo.oracle.turn': { multitask: 'interrupt' } }));
      await story.goOn();
      return said;
    },
    (story, why, [first, second]) => {
      expect(shownFor(story, first), why).toMatchObject([{ status: 'cancelled', live: false }]);
      // An attempt that begins again has nothing to keep yet.
      expect(shownFor(story, first)[0]?.text, why).toMatch(/^(?:You said hold on.*)?\*Stopped on request\.\*$/su);
      expect(shownFor(story, second), why).toMatchObject([
        { status: 'completed', text: expect.stringContaining('never mind. word0'), live: false },
      ]);
    },
  );
}, 120_000);

test('a stop that was heard is final: no later process goes on with it (G9)', async () => {
  await killedAfterEach(
    4,
    async (story) => {
      const { world, room, say } = story;
      const said = [say('hold on')];
      await story.goOn(() => world.shown(room).length > 0);
      say('!stop');
      await story.goOn();
      return said;
    },
    (story, why, [first]) => {
      expect(shownFor(story, first), why).toMatchObject([{ status: 'cancelled', live: false }]);
    },
  );
}, 120_000);

test.each(['that is answered', 'that is being answered'])(
  'an edit of a prompt %s: one message, the new answer (G2, G6)',
  async (when) => {
    await killedAfterEach(
      6,
      async (story) => {
        const { world, room, gate, say } = story;
        const said = [say('write this')];
        if (when === 'that is answered') {
          gate.release();
          await story.goOn();
        } else await story.goOn(() => world.shown(room).length > 0);
        say('* hello instead', {
          'm.new_content': { msgtype: 'm.text', body: 'hello instead' },
          'm.relates_to': { rel_type: 'm.replace', event_id: said[0]?.event_id ?? '' },
        });
        await story.goOn();
        return said;
      },
      (story, why, [prompt]) => {
        const { world, room } = story;
        expect(
          world.shown(room).map(({ body, live, run }) => [body, live, run?.status]),
          why,
        ).toEqual([[answerTo('hello instead'), false, 'completed']]);
        expect(world.shown(room)[0]?.run?.prompts, why).toEqual([prompt?.event_id]);
        expect(world.rows("SELECT 1 FROM transcript WHERE text LIKE '%write this%'"), why).toEqual([]);
      },
    );
  },
  120_000,
);

test('of two people in one thread each is answered under the own name, and neither is given to the other’s run (G2, G13)', async () => {
  const mention = { 'm.mentions': { user_ids: [ORACLE] } };
  let group = '';
  await killedAfterEach(
    6,
    async (story) => {
      const { world, gate } = story;
      const { homeserver } = world;
      group = world.room({ creator: ALICE, invite: [ORACLE] });
      homeserver.invite(group, ALICE, BOB);
      homeserver.join(group, BOB);
      await story.goOn();
      const said = [homeserver.say(group, ALICE, 'write this', mention)];
      const thread = { ...mention, 'm.relates_to': { rel_type: 'm.thread', event_id: said[0]?.event_id ?? '' } };
      await story.goOn(() => world.rows("SELECT 1 FROM runs WHERE status = 'running'").length > 0);
      said.push(homeserver.say(group, BOB, 'and mine', thread), homeserver.say(group, ALICE, 'more', thread));
      await story.goOn(() => world.rows(asked('more')).length > 0);
      gate.release();
      await story.goOn();
      return said;
    },
    ({ world }, why, said) => {
      const shown = world.shown(group);
      for (const [index, { event_id }] of said.entries()) {
        const answers = answersTo(shown, event_id);
        expect(answers, `${why}: ${index}`).toMatchObject([{ status: 'completed', live: false }]);
        const speakers = new Set(answers[0]?.prompts.map((id) => said.find((one) => one.event_id === id)?.sender));
        expect([...speakers], `${why}: ${index}`).toEqual([index === 1 ? BOB : ALICE]);
      }
      expect(
        new Set(
          world
            .rows<{ principal_id: string }>('SELECT DISTINCT run_id, principal_id FROM pending_inputs')
            .map((row) => JSON.stringify(row)),
        ).size,
        why,
      ).toBe(new Set(world.rows<{ run_id: string }>('SELECT run_id FROM pending_inputs').map(({ run_id }) => run_id)).size);
      // Commits are shared: a mark may be on disk with a step of another name. Then nobody can tell whether it was done, and it is not done again.
      const isUnknown = world.rows("SELECT 1 FROM tool_marks WHERE state = 'started'").length > 0;
      expect(world.effects, why).toEqual(isUnknown && world.effects.length === 0 ? [] : ['write this']);
    },
  );
}, 120_000);
